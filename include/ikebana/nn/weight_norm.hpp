#pragma once

#include <cstddef>
#include <limits>
#include <string_view>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/cpu/weight_norm.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/parameter.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/nn/detail/reparametrized.hpp"
#include "ikebana/nn/detail/spatial.hpp"

namespace ikebana {

/// As Dim of weight_norm: one norm over the whole parameter.
inline constexpr dim_t no_dim = std::numeric_limits<dim_t>::min();

/// The leaf M with its parameter `Name` computed before each forward as v * g / norm(v), with the
/// norm over all dimensions but Dim: weight_norm(linear<3, 4>{}), or weight_norm<linear<3, 4>,
/// "weight", 1>{} (Salimans, Kingma, Weight Normalization, 2016).
///
/// Parameters: M's without `Name`, then `Name`_g (1, ..., extent of Dim, ..., 1; no dimension for
/// no_dim) and `Name`_v (as `Name`), as in PyTorch's torch.nn.utils.weight_norm. v is initialised
/// with the bits that M's own parameter would have, and g to its norms. M must not be lazy. O(size
/// of the parameter) besides M's forward; no allocation.
template <leaf_module M, detail::literal Name = "weight", dim_t Dim = 0>
struct weight_norm : detail::reparametrized<M, Name> {
 private:
  using base = detail::reparametrized<M, Name>;

 public:
  static_assert(!detail::is_lazy_leaf<M>(),
                "ikebana: weight_norm expects a module whose parameters exist; this one has a "
                "dimension left out: write it, or wrap what become<shape_list{..}>(module) gives");
  static_assert(detail::is_lazy_leaf<M>() || base::is_found,
                "ikebana: weight_norm expects the name of a parameter of the module");
  static_assert(detail::is_lazy_leaf<M>() || !base::is_found || Dim == no_dim || base::has_dim(Dim),
                "ikebana: weight_norm expects a dimension of the parameter, counted from 0");

  constexpr weight_norm() = default;
  constexpr explicit weight_norm(const M& m) : base(m) {}

  constexpr auto parameters() const {
    auto out = base::template other_parameters<2>();
    const parameter_spec weight = base::computed();
    shape each;
    if (Dim != no_dim)
      for (std::size_t i = 0; i < weight.extents.rank(); ++i)
        each.push_back(i == dim ? weight.extents[i] : 1);
    out[g] = {detail::joined<Name, "_g">, each};
    out[v] = weight;
    out[v].name = detail::joined<Name, "_v">;
    if (*weight.drawn_as == '\0') out[v].drawn_as = weight.name;
    return out;
  }

  /// What M saves, the computed weight, its gradient, and the norms.
  constexpr auto saved(const shape_list& in) const {
    auto out = base::template inner_saved_and<3>(in);
    out[weight_at].extents = out[gradient_at].extents = base::computed().extents;
    out[norms_at].extents = shape{sizes().channels};
    return out;
  }

  template <class T>
  void finish_initialization(T* const* parameters, std::byte* const* buffers) const {
    base::template finish_inner<T>(parameters, parameters[v], buffers);
    const detail::channel_sizes n = sizes();
    cpu::channel_norms<T>(n.outer, n.channels, n.inner, parameters[v], parameters[g]);
  }

  /// Writes M's parameters, the computed one included. Allocates.
  template <class T>
  void fold_parameters(const T* const* parameters, const std::byte* const*, T* const* to) const {
    const detail::channel_sizes n = sizes();
    base::copy_others(parameters, to);
    if (n.outer * n.channels * n.inner == 0) return;
    aligned_buffer<T> norms(n.channels);
    cpu::channel_norms<T>(n.outer, n.channels, n.inner, parameters[v], norms.data());
    cpu::weight_norm_forward<T>(n.outer, n.channels, n.inner, parameters[v], parameters[g],
                                norms.data(), to[base::replaced]);
  }

  void describe(description& d) const {
    if constexpr (requires(const M& m) { m.describe(d); }) M::describe(d);
    d.add("weight_norm", std::string_view{Name.data, Name.size()});
  }

  template <class Context>
  void forward(const Context& c) const {
    using T = typename Context::value_type;
    const detail::channel_sizes n = sizes();
    T *weight = c.template saved<T>(weight_at), *norms = c.template saved<T>(norms_at);
    cpu::channel_norms<T>(n.outer, n.channels, n.inner, c.parameter(v), norms);
    cpu::weight_norm_forward<T>(n.outer, n.channels, n.inner, c.parameter(v), c.parameter(g), norms,
                                weight);
    base::run_inner_forward(c, weight);
  }

  template <class Context>
  void backward(const Context& c) const {
    using T = typename Context::value_type;
    const detail::channel_sizes n = sizes();
    T* dweight = c.template saved<T>(gradient_at);
    base::run_inner_backward(c, c.template saved<T>(weight_at), dweight,
                             n.outer * n.channels * n.inner);
    cpu::weight_norm_backward<T>(n.outer, n.channels, n.inner, c.parameter(v), c.parameter(g),
                                 c.template saved<T>(norms_at), dweight, c.parameter_gradient(v),
                                 c.parameter_gradient(g), c.accumulate());
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }

 private:
  static constexpr std::size_t g = base::inner_parameters - 1, v = base::inner_parameters;
  static constexpr std::size_t weight_at = base::inner_saved, gradient_at = weight_at + 1,
                               norms_at = weight_at + 2;
  static constexpr std::size_t dim = Dim == no_dim ? 0 : static_cast<std::size_t>(Dim);

  constexpr detail::channel_sizes sizes() const {
    const shape weight = base::computed().extents;
    return Dim == no_dim ? detail::channel_sizes(weight) : detail::channel_sizes(weight, dim);
  }
};

template <leaf_module M>
weight_norm(const M&) -> weight_norm<M>;
/// A weight_norm around another is not a copy of it; it is refused, because the parameter no longer
/// exists.
template <leaf_module M, detail::literal Name, dim_t Dim>
weight_norm(const weight_norm<M, Name, Dim>&) -> weight_norm<weight_norm<M, Name, Dim>>;

}  // namespace ikebana
