#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/cpu/softmax.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/option_set.hpp"
#include "ikebana/module/options.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/nn/detail/spatial.hpp"

namespace ikebana {

namespace detail {

/// A shape viewed along one dimension: [outer, n, inner].
struct along {
  dim_t outer = 1, n = 1, inner = 1;

  constexpr along(const shape& s, dim_t dim) {
    if (s.rank() == 0) return;
    const auto d = static_cast<std::size_t>(dim < 0 ? dim + static_cast<dim_t>(s.rank()) : dim);
    outer = s.numel(0, d);
    n = s[d];
    inner = s.numel(d + 1, s.rank());
  }
};

constexpr bool has_dim(const shape& s, dim_t dim) {
  const dim_t dims = s.rank() == 0 ? 1 : static_cast<dim_t>(s.rank());
  return dim >= -dims && dim < dims;
}

/// What softmax and log_softmax share: a function along one dimension that preserves the shape.
template <literal Name, class... Options>
struct function_along {
  static constexpr std::string_view kind = joined<Name>;
  static constexpr kept keeps = kept::output;
  static constexpr dim_t along_dim = option_or<dim<-1>, Options...>::value;

  constexpr inferred infer(const shape& in) const {
    if (!has_dim(in, along_dim))
      return diagnostic{
          joined<Name, " expects a dim within {expected} dimensions, got {number} (input {input})">,
          static_cast<dim_t>(in.rank()), along_dim, in};
    return in;
  }

  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  void describe(description& d) const { d.add("dim", std::to_string(along_dim)); }
};

}  // namespace detail

/// y = exp(x) / sum of exp(x), along one dimension. Option: dim<N> (default -1). O(elements); no
/// allocation.
template <class... Options>
struct softmax : detail::function_along<"softmax", Options...> {
  static_assert(detail::option_set<dim<-1>>::template accepts<Options...>,
                "ikebana: softmax takes the option dim, once");

  template <class T>
  void forward(const context<T>& c) const {
    const detail::along a(c.input_shape(), softmax::along_dim);
    cpu::softmax_forward<T>(a.outer, a.n, a.inner, c.input(), c.output());
  }

  template <class T>
  void backward(const context<T>& c) const {
    if (c.input_gradient() == nullptr) return;
    const detail::along a(c.input_shape(), softmax::along_dim);
    cpu::softmax_backward<T>(a.outer, a.n, a.inner, c.output(), c.output_gradient(),
                             c.input_gradient());
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

/// y = x - log(sum of exp(x)), along one dimension. Option: dim<N> (default -1). O(elements); no
/// allocation.
template <class... Options>
struct log_softmax : detail::function_along<"log_softmax", Options...> {
  static_assert(detail::option_set<dim<-1>>::template accepts<Options...>,
                "ikebana: log_softmax takes the option dim, once");

  template <class T>
  void forward(const context<T>& c) const {
    const detail::along a(c.input_shape(), log_softmax::along_dim);
    cpu::log_softmax_forward<T>(a.outer, a.n, a.inner, c.input(), c.output());
  }

  template <class T>
  void backward(const context<T>& c) const {
    if (c.input_gradient() == nullptr) return;
    const detail::along a(c.input_shape(), log_softmax::along_dim);
    cpu::log_softmax_backward<T>(a.outer, a.n, a.inner, c.output(), c.output_gradient(),
                                 c.input_gradient());
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

/// y = exp(-x) / sum of exp(-x), along one dimension. Option: dim<N> (default -1). O(elements); no
/// allocation.
template <class... Options>
struct softmin : detail::function_along<"softmin", Options...> {
  static_assert(detail::option_set<dim<-1>>::template accepts<Options...>,
                "ikebana: softmin takes the option dim, once");

  template <class T>
  void forward(const context<T>& c) const {
    const detail::along a(c.input_shape(), softmin::along_dim);
    const dim_t n = a.outer * a.n * a.inner;
    cpu::fill<T>(n, c.output(), T(-1));
    cpu::multiply<T>(n, c.input(), c.output(), c.output());
    cpu::softmax_forward<T>(a.outer, a.n, a.inner, c.output(), c.output());
  }

  template <class T>
  void backward(const context<T>& c) const {
    if (c.input_gradient() == nullptr) return;
    const detail::along a(c.input_shape(), softmin::along_dim);
    cpu::softmax_backward<T>(a.outer, a.n, a.inner, c.output(), c.output_gradient(),
                             c.input_gradient());
    cpu::scale<T>(a.outer * a.n * a.inner, T(-1), c.input_gradient());
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

}  // namespace ikebana
