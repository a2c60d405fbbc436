#pragma once

#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

#include "ikebana/core/text.hpp"
#include "ikebana/cpu/broadcast.hpp"
#include "ikebana/cpu/fold.hpp"
#include "ikebana/cpu/loop_step.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/parameter.hpp"
#include "ikebana/module/refusal.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/ops/shapes.hpp"

// Reductions of the values of a graph over any dimensions, or over all if none is given; negative
// ones count from the end. Each is O(elements) and allocates nothing.
namespace ikebana {

namespace ops {

using cpu::reduction_op;

inline constexpr std::string_view reduction_names[] = {"sum", "mean",      "var", "max",
                                                       "min", "logsumexp", "norm"};

/// The sentences of reductions, by operation.
template <std::size_t N>
constexpr auto sentences_of(const std::string_view (&names)[N], std::string_view rest) {
  std::array<text<96>, N> all{};
  for (std::size_t i = 0; i < N; ++i) all[i].append(names[i]).append(rest);
  return all;
}
inline constexpr auto reduction_dim_sentences = sentences_of(
    reduction_names, " expects a dim within {expected} dimensions, got {number} (input {input})");
inline constexpr auto reduction_twice_sentences =
    sentences_of(reduction_names, " expects each dim once, got {number} twice (input {input})");

struct reduction {
  static constexpr std::string_view kind = "reduction";

  reduction_op f = reduction_op::sum;
  bool keepdim = false;
  number_list dims{};
  double p = 2;  ///< The order of a norm, the correction of a variance.

  constexpr bool operator==(const reduction&) const = default;
  constexpr std::string_view name() const { return reduction_names[static_cast<std::size_t>(f)]; }

  constexpr inferred infer(const shape& in) const {
    const auto what = static_cast<std::size_t>(f);
    bool reduced[shape::max_rank]{};
    for (std::size_t i = 0; i < dims.size(); ++i) {
      if (!has_dim(dims[i], in.rank()))
        return diagnostic{reduction_dim_sentences[what].data, static_cast<dim_t>(in.rank()),
                          dims[i], in};
      bool& met = reduced[dim_of(dims[i], in.rank())];
      if (met) return diagnostic{reduction_twice_sentences[what].data, 0, dims[i], in};
      met = true;
    }
    shape out;
    for (std::size_t d = 0; d < in.rank(); ++d)
      if (!reduced[d] && dims.size() > 0)
        out.push_back(in[d]);
      else if (keepdim)
        out.push_back(1);
    return out;
  }

  constexpr kept keeps() const {
    if (f == reduction_op::sum || f == reduction_op::mean) return kept::nothing;
    return f == reduction_op::var ? kept::input : kept::both;
  }

  constexpr std::array<saved_spec, 1> saved(const shape_list& in) const {
    if (f == reduction_op::sum || f == reduction_op::mean) return {{{0, shape{0}}}};
    const inferred out = infer(in[0]);
    return {{{0, out.ok() ? out.output() : shape{0}}}};
  }

  constexpr cpu::loop_step loop_step() const {
    cpu::loop_step s{.kind = cpu::loop_step::kinds::fold,
                     .f = static_cast<unsigned char>(f),
                     .leads = true,
                     .number = {p}};
    for (std::size_t i = 0; i < dims.size(); ++i)
      if (has_dim(dims[i], shape::max_rank)) s.dims |= 1U << (dims[i] >= 0 ? dims[i] : 7 - dims[i]);
    return s;
  }

  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  void describe(description& d) const {
    d.add("f", name()).add("keepdim", keepdim);
    for (std::size_t i = 0; i < dims.size(); ++i) d.add("dim", std::to_string(dims[i]));
  }

  template <class T>
  void forward(const context<T>& c) const {
    const cpu::fold_dims g = dims_of(c.input_shape());
    const dim_t n = c.output_shape().numel();
    const T *x = c.input(), none = T{};
    T *y = c.output(), *s = c.template saved<T>(0);
    const auto start = [n](T* acc, T value) {
      for (dim_t i = 0; i < n; ++i) acc[i] = value;
    };
    constexpr T infinity = std::numeric_limits<T>::infinity();
    switch (f) {
      case reduction_op::sum:
      case reduction_op::mean:
        start(y, none);
        cpu::fold<T>(cpu::fold_op::sum, g, x, nullptr, none, y);
        if (f == reduction_op::mean) divide(n, y, count(c));
        return;
      case reduction_op::var:
        start(s, none);
        cpu::fold<T>(cpu::fold_op::sum, g, x, nullptr, none, s);
        divide(n, s, count(c));
        start(y, none);
        cpu::fold<T>(cpu::fold_op::deviation, g, x, s, none, y);
        return divide(n, y, std::fmax(count(c) - static_cast<T>(p), none));
      case reduction_op::max:
        start(y, -infinity);
        return cpu::fold<T>(cpu::fold_op::max, g, x, nullptr, none, y);
      case reduction_op::min:
        start(y, infinity);
        return cpu::fold<T>(cpu::fold_op::min, g, x, nullptr, none, y);
      case reduction_op::logsumexp:
        start(s, -infinity);
        cpu::fold<T>(cpu::fold_op::max, g, x, nullptr, none, s);
        for (dim_t i = 0; i < n; ++i)
          if (std::isinf(s[i])) s[i] = none;
        start(y, none);
        cpu::fold<T>(cpu::fold_op::exp, g, x, s, none, y);
        cpu::tensor_op_forward<T>(cpu::tensor_op::log, n, y, nullptr, nullptr, y);
        return cpu::tensor_op_forward<T>(cpu::tensor_op::add, n, y, s, nullptr, y);
      case reduction_op::norm:
        start(y, none);
        cpu::fold<T>(norm_fold(), g, x, nullptr, static_cast<T>(p), y);
        if (norm_fold() == cpu::fold_op::square)
          cpu::tensor_op_forward<T>(cpu::tensor_op::sqrt, n, y, nullptr, nullptr, y);
        else if (norm_fold() == cpu::fold_op::power)
          for (dim_t i = 0; i < n; ++i) y[i] = std::pow(y[i], static_cast<T>(1 / p));
        return;
    }
  }

  template <class T>
  void backward(const context<T>& c) const {
    T* const dx = c.input_gradient();
    if (dx == nullptr) return;
    const cpu::fold_dims g = dims_of(c.input_shape());
    const dim_t n = c.output_shape().numel();
    const T *x = c.input(), *y = c.output(), *dy = c.output_gradient();
    T* s = c.template saved<T>(0);
    // The gradients of extremes are shared by those that are equal.
    const auto share = [&](cpu::fold_op equal) {
      for (dim_t i = 0; i < n; ++i) s[i] = T{};
      cpu::fold<T>(equal, g, x, y, T{}, s);
      for (dim_t i = 0; i < n; ++i) s[i] = dy[i] / s[i];
    };
    switch (f) {
      case reduction_op::sum:
        return spread<T>(c, cpu::fold_op::sum, nullptr, dy, T{1}, dx);
      case reduction_op::mean:
        return spread<T>(c, cpu::fold_op::sum, nullptr, dy, 1 / count(c), dx);
      case reduction_op::var:
        return spread(c, cpu::fold_op::deviation, s, dy, 2 / (count(c) - static_cast<T>(p)), dx);
      case reduction_op::max:
      case reduction_op::min:
        share(cpu::fold_op::equal);
        return spread(c, cpu::fold_op::max, y, s, T{1}, dx);
      case reduction_op::logsumexp:
        return spread(c, cpu::fold_op::exp, y, dy, T{1}, dx);
      case reduction_op::norm:
        if (norm_fold() == cpu::fold_op::max_abs) {
          share(cpu::fold_op::equal_abs);
        } else if (norm_fold() == cpu::fold_op::abs) {
          for (dim_t i = 0; i < n; ++i) s[i] = dy[i];
        } else {
          const T by = static_cast<T>(p - 1);
          for (dim_t i = 0; i < n; ++i)
            s[i] = y[i] == 0 ? T{} : dy[i] / (p == 2 ? y[i] : std::pow(y[i], by));
        }
        return spread(c, norm_fold(), y, s, T{1}, dx);
    }
  }

 private:
  constexpr cpu::fold_op norm_fold() const {
    return p == 2                                         ? cpu::fold_op::square
           : p == 1                                       ? cpu::fold_op::abs
           : p == std::numeric_limits<double>::infinity() ? cpu::fold_op::max_abs
                                                          : cpu::fold_op::power;
  }
  bool is_reduced(std::size_t d, std::size_t rank) const {
    for (std::size_t i = 0; i < dims.size(); ++i)
      if (dim_of(dims[i], rank) == d) return true;
    return dims.size() == 0;
  }
  cpu::fold_dims dims_of(const shape& in) const {
    cpu::fold_dims g;
    for (std::size_t d = 0; d < in.rank(); ++d) g.push_back(in[d], is_reduced(d, in.rank()));
    return g;
  }
  /// The number of elements for each result.
  template <class T>
  T count(const context<T>& c) const {
    const shape& in = c.input_shape();
    dim_t n = 1;
    for (std::size_t d = 0; d < in.rank(); ++d)
      if (is_reduced(d, in.rank())) n *= in[d];
    return static_cast<T>(n);
  }
  template <class T>
  static void divide(dim_t n, T* y, T by) {
    for (dim_t i = 0; i < n; ++i) y[i] /= by;
  }

  /// dx from arrays with an element for each result.
  template <class T>
  void spread(const context<T>& c, cpu::fold_op by, const T* m, const T* g, T factor, T* dx) const {
    const shape& in = c.input_shape();
    shape ones;
    for (std::size_t d = 0; d < in.rank(); ++d)
      ones.push_back(is_reduced(d, in.rank()) ? 1 : in[d]);
    const cpu::strided_map map = cpu::broadcast_map(ones, in);
    cpu::fold_gradient<T>(by, map, in.numel(), c.input(), m, g, static_cast<T>(p), factor, dx);
  }
};

}  // namespace ops

/// Keeps reduced dimensions with an extent of 1: `mean<-1>(x, keepdim)`.
struct keepdim_option {};
inline constexpr keepdim_option keepdim{};

/// What a variance's divisor is less than the number of elements: `var<0>(x, correction<0>)`.
template <int N>
struct correction_option {
  static constexpr int value = N;
};
template <int N>
inline constexpr correction_option<N> correction{};

namespace detail {

template <class O>
inline constexpr bool is_correction = false;
template <int N>
inline constexpr bool is_correction<correction_option<N>> = true;

template <class O>
inline constexpr bool is_keepdim = std::is_same_v<O, keepdim_option>;

template <ops::reduction_op F, dim_t... Dims, class... Options>
constexpr auto reduce(double p, const Options&...) {
  return ops::reduction{F, (is_keepdim<Options> || ... || false), ops::number_list::of<Dims...>(),
                        p};
}

namespace misuse {
IKEBANA_MISUSE(dimensions_in_angle_brackets,
               "sum, mean, max, min and logsumexp take dimensions in angle brackets: mean<1>(x), "
               "sum<-1>(x, keepdim)");
}  // namespace misuse

}  // namespace detail

#define IKEBANA_REDUCTION(function, op)                                             \
  template <dim_t... Dims, symbolic X, class... Options>                            \
  requires(detail::is_keepdim<Options> && ...) constexpr auto function(             \
      const X& x, const Options&... options) {                                      \
    return apply(detail::reduce<ops::reduction_op::op, Dims...>(2, options...), x); \
  }                                                                                 \
  template <symbolic X, std::integral... D>                                         \
  requires(sizeof...(D) > 0) auto function(const X&, D...)                          \
      ->decltype(detail::refuse_for<detail::misuse::dimensions_in_angle_brackets, X>());
/// torch.sum. Option: keepdim.
IKEBANA_REDUCTION(sum, sum)
/// torch.mean. Not a number if there is nothing to reduce. Option: keepdim.
IKEBANA_REDUCTION(mean, mean)
/// The largest element: torch.amax. Equal ones share the gradient. -infinity if there is nothing to
/// reduce. Option: keepdim.
IKEBANA_REDUCTION(max, max)
/// The least element: torch.amin. Equal ones share the gradient. Infinity if there is nothing to
/// reduce. Option: keepdim.
IKEBANA_REDUCTION(min, min)
/// log(sum of exp(x)), without overflow: torch.logsumexp. Option: keepdim.
IKEBANA_REDUCTION(logsumexp, logsumexp)
#undef IKEBANA_REDUCTION

/// The variance, in two passes: torch.var. Of N elements or fewer, infinity, or not a number if
/// they are equal. Options: correction<N> (default 1), keepdim.
template <dim_t... Dims, symbolic X, class... Options>
requires((detail::is_keepdim<Options> ||
          detail::is_correction<Options>)&&...) constexpr auto var(const X& x,
                                                                   const Options&... options) {
  double p = 1;
  [[maybe_unused]] const auto read = [&]<class O>(const O&) {
    if constexpr (detail::is_correction<O>) p = O::value;
  };
  (read(options), ...);
  return apply(detail::reduce<ops::reduction_op::var, Dims...>(p, options...), x);
}

/// The sum of |x|^p to the power of 1/p, the largest |x| for p of infinity:
/// torch.linalg.vector_norm. p > 0. The gradient at 0 is 0. Option: keepdim.
template <dim_t... Dims, symbolic X, class... Options>
requires(detail::is_keepdim<Options>&&...) constexpr auto norm(const X& x, double p,
                                                               const Options&... options) {
  return apply(detail::reduce<ops::reduction_op::norm, Dims...>(p, options...), x);
}
template <dim_t... Dims, symbolic X, class... Options>
requires(detail::is_keepdim<Options>&&...) constexpr auto norm(const X& x,
                                                               const Options&... options) {
  return norm<Dims...>(x, 2.0, options...);
}

}  // namespace ikebana
