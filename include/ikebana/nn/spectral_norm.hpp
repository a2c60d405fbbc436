#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "ikebana/cpu/weight_norm.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/parameter.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/nn/detail/reparametrized.hpp"
#include "ikebana/nn/detail/spatial.hpp"

namespace ikebana {

namespace detail {

/// The dimension of a weight that indexes the outputs.
template <class M>
inline constexpr dim_t output_dim = std::string_view{M::kind}.starts_with("conv_transpose") ? 1 : 0;

}  // namespace detail

/// The leaf M with its parameter `Name` divided by an estimate of its largest singular value, taken
/// as a matrix of (extent of Dim, product of the rest): spectral_norm(linear<3, 4>{}) (Miyato et
/// al., Spectral Normalization for Generative Adversarial Networks, 2018). Each forward in training
/// refines the estimate by `n_power_iterations` of power iteration; the gradient treats the
/// singular vectors as constants.
///
/// Parameters: M's without `Name`, then `Name`_orig. Buffers: M's, then `Name`_u (extent of Dim)
/// and `Name`_v (product of the rest), as in PyTorch's torch.nn.utils.spectral_norm. Dim defaults
/// to 0, and to 1 for a transposed convolution. M must not be lazy. O(size of the parameter) per
/// power iteration; no allocation.
template <leaf_module M, detail::literal Name = "weight", dim_t Dim = detail::output_dim<M>>
struct spectral_norm : detail::reparametrized<M, Name> {
 private:
  using base = detail::reparametrized<M, Name>;

 public:
  static_assert(!detail::is_lazy_leaf<M>(),
                "ikebana: spectral_norm expects a module whose parameters exist; this one has a "
                "dimension left out: write it, or wrap what become<shape_list{..}>(module) gives");
  static_assert(detail::is_lazy_leaf<M>() || base::is_found,
                "ikebana: spectral_norm expects the name of a parameter of the module");
  static_assert(detail::is_lazy_leaf<M>() || !base::is_found || base::has_dim(Dim),
                "ikebana: spectral_norm expects a dimension of the parameter, counted from 0");

  /// Power iterations in each forward in training.
  int n_power_iterations = 1;
  /// The lower bound of the norms that vectors are divided by: torch's eps.
  double least_norm = 1e-12;

  static constexpr bool is_stateful = detail::is_stateful<M>();

  constexpr spectral_norm() = default;
  constexpr explicit spectral_norm(const M& m, int iterations = 1, double least = 1e-12)
      : base(m), n_power_iterations{iterations}, least_norm{least} {}

  constexpr auto parameters() const { return base::parameters_and(detail::joined<Name, "_orig">); }

  constexpr auto buffers() const {
    std::array<buffer_spec, base::inner_buffers + 2> out{};
    if constexpr (base::inner_buffers > 0) {
      const auto inner = M::buffers();
      for (std::size_t i = 0; i < base::inner_buffers; ++i) out[i] = inner[i];
    }
    const detail::channel_sizes n = sizes();
    out[base::inner_buffers] = {.name = detail::joined<Name, "_u">,
                                .extents = shape{n.channels},
                                .init = initializer::unit_normal()};
    out[base::inner_buffers + 1] = {.name = detail::joined<Name, "_v">,
                                    .extents = shape{rest(n)},
                                    .init = initializer::unit_normal()};
    return out;
  }

  /// What M saves, the computed weight, its gradient, and the vectors and sigma of this forward.
  constexpr auto saved(const shape_list& in) const {
    auto out = base::template inner_saved_and<5>(in);
    const detail::channel_sizes n = sizes();
    out[weight_at].extents = out[gradient_at].extents = base::computed().extents;
    out[u_at].extents = shape{n.channels};
    out[v_at].extents = shape{rest(n)};
    out[sigma_at].extents = shape{1};
    return out;
  }

  template <class T>
  void finish_initialization(T* const* parameters, std::byte* const* buffers) const {
    base::template finish_inner<T>(parameters, parameters[original_at], buffers);
  }

  /// Writes M's parameters, the computed one included.
  template <class T>
  void fold_parameters(const T* const* parameters, const std::byte* const* buffers,
                       T* const* to) const {
    const detail::channel_sizes n = sizes();
    base::copy_others(parameters, to);
    const auto vector = [&](std::size_t i) {
      return reinterpret_cast<const T*>(buffers[base::inner_buffers + i]);
    };
    const T sigma = cpu::spectral_sigma<T>(n.outer, n.channels, n.inner, parameters[original_at],
                                           vector(0), vector(1));
    cpu::spectral_norm_forward<T>(rest(n) * n.channels, parameters[original_at], sigma,
                                  to[base::replaced]);
  }

  void describe(description& d) const {
    if constexpr (requires(const M& m) { m.describe(d); }) M::describe(d);
    d.add("spectral_norm", std::string_view{Name.data, Name.size()});
  }

  template <class Context>
  void forward(const Context& c) const {
    using T = typename Context::value_type;
    const detail::channel_sizes n = sizes();
    const T* original = c.parameter(original_at);
    T *u = c.buffer(base::inner_buffers), *v = c.buffer(base::inner_buffers + 1);
    if (c.training())
      for (int i = 0; i < n_power_iterations; ++i)
        cpu::power_iteration<T>(n.outer, n.channels, n.inner, original, static_cast<T>(least_norm),
                                u, v);
    // Backward needs the vectors of its own forward, and another forward may come first.
    T *kept_u = c.template saved<T>(u_at), *kept_v = c.template saved<T>(v_at);
    for (dim_t i = 0; i < n.channels; ++i) kept_u[i] = u[i];
    for (dim_t i = 0; i < rest(n); ++i) kept_v[i] = v[i];
    const T sigma = cpu::spectral_sigma<T>(n.outer, n.channels, n.inner, original, u, v);
    *c.template saved<T>(sigma_at) = sigma;
    T* weight = c.template saved<T>(weight_at);
    cpu::spectral_norm_forward<T>(rest(n) * n.channels, original, sigma, weight);
    base::run_inner_forward(c, weight);
  }

  template <class Context>
  void backward(const Context& c) const {
    using T = typename Context::value_type;
    const detail::channel_sizes n = sizes();
    T* dweight = c.template saved<T>(gradient_at);
    base::run_inner_backward(c, c.template saved<T>(weight_at), dweight, rest(n) * n.channels);
    cpu::spectral_norm_backward<T>(n.outer, n.channels, n.inner, c.parameter(original_at),
                                   c.template saved<T>(u_at), c.template saved<T>(v_at),
                                   *c.template saved<T>(sigma_at), dweight,
                                   c.parameter_gradient(original_at), c.accumulate());
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }

 private:
  static constexpr std::size_t original_at = base::inner_parameters - 1;
  static constexpr std::size_t weight_at = base::inner_saved, gradient_at = weight_at + 1,
                               u_at = weight_at + 2, v_at = weight_at + 3, sigma_at = weight_at + 4;

  constexpr detail::channel_sizes sizes() const {
    return {base::computed().extents, static_cast<std::size_t>(Dim)};
  }

  /// The number of columns of the matrix.
  static constexpr dim_t rest(const detail::channel_sizes& n) { return n.outer * n.inner; }
};

template <leaf_module M>
spectral_norm(const M&) -> spectral_norm<M>;
/// A spectral_norm around another is not a copy of it.
template <leaf_module M, detail::literal Name, dim_t Dim>
spectral_norm(const spectral_norm<M, Name, Dim>&) -> spectral_norm<spectral_norm<M, Name, Dim>>;
template <leaf_module M>
spectral_norm(const M&, int) -> spectral_norm<M>;
template <leaf_module M>
spectral_norm(const M&, int, double) -> spectral_norm<M>;

}  // namespace ikebana
