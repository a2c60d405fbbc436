#pragma once

#include <cstddef>
#include <string_view>
#include <type_traits>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/nn/detail/reparametrized.hpp"
#include "ikebana/nn/detail/spatial.hpp"

namespace ikebana {

namespace detail {

template <class F>
concept parametrization = requires(const F& f, const shape& s, const float* x, float* y) {
  f.template forward<float>(s, x, y);
  f.template backward<float>(s, x, x, x, y);
};

}  // namespace detail

/// The leaf M with its parameter `Name` computed before each forward by a parametrization of one's
/// own: parametrized(linear<4, 4>{}, symmetric{}), or parametrized<linear<4, 4>, symmetric,
/// "bias">{}. PyTorch's parametrize.register_parametrization. F is a literal type with
///
///     template <class T>
///     void forward(const shape& s, const T* original, T* weight) const;
///     template <class T>
///     void backward(const shape& s, const T* original, const T* weight, const T* dweight,
///                   T* doriginal) const;
///
/// which compute the parameter of extents s from one of the same extents, and write the gradient of
/// that; and, if wanted,
///
///     template <class T>
///     void right_inverse(const shape& s, T* weight) const;
///
/// which replaces the initial values that M's own parameter would have by those of the original;
/// without it the original begins with these values. None may allocate.
///
/// Parameters: M's without `Name`, then parametrizations.`Name`.original, shaped as `Name`. M must
/// not be lazy. O(size of the parameter) besides F and M; no allocation.
template <leaf_module M, class F, detail::literal Name = "weight">
struct parametrized : detail::reparametrized<M, Name> {
 private:
  using base = detail::reparametrized<M, Name>;

 public:
  static_assert(!detail::is_lazy_leaf<M>(),
                "ikebana: parametrized expects a module whose parameters exist; this one has a "
                "dimension left out: write it, or wrap what become<shape_list{..}>(module) gives");
  static_assert(detail::is_lazy_leaf<M>() || base::is_found,
                "ikebana: parametrized expects the name of a parameter of the module");
  static_assert(detail::parametrization<F>,
                "ikebana: parametrized expects a parametrization with the const members "
                "forward<T>(extents, original, weight) and backward<T>(extents, original, weight, "
                "dweight, doriginal)");

  [[no_unique_address]] F parametrization{};

  constexpr parametrized() = default;
  constexpr explicit parametrized(const M& m, const F& f = {}) : base(m), parametrization{f} {}

  constexpr auto parameters() const {
    return base::parameters_and(detail::joined<"parametrizations.", Name, ".original">);
  }

  /// What M saves, the computed weight, its gradient, and that of the original.
  constexpr auto saved(const shape_list& in) const {
    auto out = base::template inner_saved_and<3>(in);
    for (const std::size_t i : {weight_at, gradient_at, original_gradient_at})
      out[i].extents = base::computed().extents;
    return out;
  }

  template <class T>
  void finish_initialization(T* const* parameters, std::byte* const* buffers) const {
    base::template finish_inner<T>(parameters, parameters[original_at], buffers);
    if constexpr (requires(const F& f, const shape& s, T* w) { f.template right_inverse<T>(s, w); })
      parametrization.template right_inverse<T>(base::computed().extents, parameters[original_at]);
  }

  /// Writes M's parameters, the computed one included.
  template <class T>
  void fold_parameters(const T* const* parameters, const std::byte* const*, T* const* to) const {
    base::copy_others(parameters, to);
    parametrization.template forward<T>(base::computed().extents, parameters[original_at],
                                        to[base::replaced]);
  }

  void describe(description& d) const {
    if constexpr (requires(const M& m) { m.describe(d); }) M::describe(d);
    d.add("parametrized", std::string_view{Name.data, Name.size()});
  }

  template <class Context>
  void forward(const Context& c) const {
    using T = typename Context::value_type;
    T* const weight = c.template saved<T>(weight_at);
    parametrization.template forward<T>(base::computed().extents, c.parameter(original_at), weight);
    base::run_inner_forward(c, weight);
  }

  template <class Context>
  void backward(const Context& c) const {
    using T = typename Context::value_type;
    const shape extents = base::computed().extents;
    T *const weight = c.template saved<T>(weight_at), *const dweight =
                                                          c.template saved<T>(gradient_at);
    T* const to = c.parameter_gradient(original_at);
    base::run_inner_backward(c, weight, dweight, extents.numel());
    T* const written = c.accumulate() ? c.template saved<T>(original_gradient_at) : to;
    parametrization.template backward<T>(extents, c.parameter(original_at), weight, dweight,
                                         written);
    if (written != to) cpu::add<T>(extents.numel(), to, written, to);
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }

 private:
  static constexpr std::size_t original_at = base::inner_parameters - 1;
  static constexpr std::size_t weight_at = base::inner_saved, gradient_at = weight_at + 1,
                               original_gradient_at = weight_at + 2;
};

template <leaf_module M, class F>
parametrized(const M&, const F&) -> parametrized<M, F>;

}  // namespace ikebana
