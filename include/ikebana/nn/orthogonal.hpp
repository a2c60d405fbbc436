#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/cpu/gemm.hpp"
#include "ikebana/cpu/orthogonal.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/parameter.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/nn/detail/reparametrized.hpp"
#include "ikebana/nn/detail/spatial.hpp"

namespace ikebana {

/// The leaf M with its parameter `Name` kept orthogonal: orthogonal(linear<20, 40>{}). A matrix has
/// orthonormal columns, or rows if these are fewer; of more than two dimensions, the last two are
/// those of matrices. The matrix is a product of Householder reflections, the elements of the
/// parameter below the diagonal (above it, for a wide matrix); the diagonal holds the signs of its
/// columns. PyTorch's parametrizations.orthogonal with orthogonal_map="householder".
///
/// With Trivialized, as by default, a buffer is multiplied by this product (Lezcano-Casado,
/// Trivializations for Gradient-Based Optimization on Manifolds, 2019).
///
/// Parameters: M's without `Name`, then parametrizations.`Name`.original, shaped as `Name`.
/// Buffers: M's, then parametrizations.`Name`.0.base (.., n, n) for Trivialized, n being the
/// greater extent. The first weight is Q of the QR decomposition of the values that M's own
/// parameter would have. M must not be lazy. With k the lesser extent, O(n k^2), and O(n^2 k) for
/// Trivialized; no allocation, but in `initialize` and `freeze`.
template <leaf_module M, detail::literal Name = "weight", bool Trivialized = true>
struct orthogonal : detail::reparametrized<M, Name> {
 private:
  using base = detail::reparametrized<M, Name>;

 public:
  static_assert(!detail::is_lazy_leaf<M>(),
                "ikebana: orthogonal expects a module whose parameters exist; this one has a "
                "dimension left out: write it, or wrap what become<shape_list{..}>(module) gives");
  static_assert(detail::is_lazy_leaf<M>() || base::is_found,
                "ikebana: orthogonal expects the name of a parameter of the module");
  static_assert(detail::is_lazy_leaf<M>() || !base::is_found || base::has_dim(1),
                "ikebana: orthogonal expects a parameter of at least 2 dimensions");

  constexpr orthogonal() = default;
  constexpr explicit orthogonal(const M& m) : base(m) {}

  constexpr auto parameters() const {
    return base::parameters_and(detail::joined<"parametrizations.", Name, ".original">);
  }

  constexpr auto buffers() const requires(Trivialized || base::inner_buffers > 0) {
    std::array<buffer_spec, base::inner_buffers + std::size_t{Trivialized}> out{};
    if constexpr (base::inner_buffers > 0) {
      const auto inner = M::buffers();
      for (std::size_t i = 0; i < base::inner_buffers; ++i) out[i] = inner[i];
    }
    if constexpr (Trivialized) {
      const sizes n = matrices();
      shape extents = base::computed().extents;
      extents[extents.rank() - 2] = extents[extents.rank() - 1] = n.n;
      out[base::inner_buffers] = {.name = detail::joined<"parametrizations.", Name, ".0.base">,
                                  .extents = extents};
    }
    return out;
  }

  /// What M saves, the computed weight, its gradient, the products of the reflections, scratch.
  constexpr auto saved(const shape_list& in) const {
    auto out = base::template inner_saved_and<5>(in);
    const sizes n = matrices();
    out[weight_at].extents = out[gradient_at].extents = base::computed().extents;
    out[products_at].extents = shape{n.count, n.n, n.k};
    out[matrices_at].extents = shape{4, n.n, n.k};
    out[vectors_at].extents = shape{n.n + 2 * n.k};
    return out;
  }

  template <class T>
  void finish_initialization(T* const* parameters, std::byte* const* buffers) const {
    T* original = parameters[original_at];
    base::template finish_inner<T>(parameters, original, buffers);
    const sizes n = matrices();
    if (n.area() == 0) return;
    aligned_buffer<T> tall(n.area()), vectors(2 * n.n);
    for (dim_t m = 0; m < n.count; ++m, original += n.area()) {
      n.to_tall(original, tall.data());
      cpu::householder_of<T>(n.n, n.k, tall.data());
      if constexpr (Trivialized) {
        T* const b = reinterpret_cast<T*>(buffers[base::inner_buffers]) + m * n.n * n.n;
        for (dim_t i = 0; i < n.n; ++i)
          for (dim_t j = 0; j < n.n; ++j)
            b[i * n.n + j] = i != j ? T{0} : i < n.k ? cpu::column_sign(n.k, i, tall.data()) : T{1};
        for (dim_t j = n.k; j-- > 0;) {
          const T tau = cpu::reflection(n.n, n.k, j, tall.data(), vectors.data());
          cpu::reflect(n.n, n.n, j, tau, vectors.data(), b, vectors.data() + n.n);
        }
        // The reflections of zeros change signs, which these change back.
        for (dim_t i = 0; i < n.n; ++i)
          for (dim_t j = 0; j < n.k; ++j) tall[i * n.k + j] = i == j ? T{-1} : T{0};
      }
      n.from_tall(tall.data(), original, false);
    }
  }

  /// Writes M's parameters, the computed one included. Allocates.
  template <class T>
  void fold_parameters(const T* const* parameters, const std::byte* const* buffers,
                       T* const* to) const {
    const sizes n = matrices();
    base::copy_others(parameters, to);
    if (n.area() == 0) return;
    aligned_buffer<T> products(n.count * n.area()), tall(n.area()), vectors(n.n + 2 * n.k);
    write_weight(parameters[original_at], base_of<T>(buffers), products.data(), tall.data(),
                 vectors.data(), to[base::replaced]);
  }

  void describe(description& d) const {
    if constexpr (requires(const M& m) { m.describe(d); }) M::describe(d);
    d.add("orthogonal", std::string_view{Name.data, Name.size()});
  }

  template <class Context>
  void forward(const Context& c) const {
    using T = typename Context::value_type;
    T* const weight = c.template saved<T>(weight_at);
    write_weight<T>(c.parameter(original_at), base_of<T>(c.buffers),
                    c.template saved<T>(products_at), c.template saved<T>(matrices_at),
                    c.template saved<T>(vectors_at), weight);
    base::run_inner_forward(c, weight);
  }

  template <class Context>
  void backward(const Context& c) const {
    using T = typename Context::value_type;
    const sizes n = matrices();
    const T* dweight = c.template saved<T>(gradient_at);
    base::run_inner_backward(c, c.template saved<T>(weight_at), c.template saved<T>(gradient_at),
                             n.count * n.area());
    const T *original = c.parameter(original_at), *b = base_of<T>(c.buffers);
    const T* product = c.template saved<T>(products_at);
    T *const tall = c.template saved<T>(matrices_at), *const q = tall + n.area(),
             *const dq = q + n.area(), *const dx = dq + n.area();
    T *const v = c.template saved<T>(vectors_at), *to = c.parameter_gradient(original_at);
    if (n.area() == 0) return;
    for (dim_t m = 0; m < n.count; ++m, original += n.area(), to += n.area()) {
      n.to_tall(original, tall);
      if constexpr (Trivialized)
        cpu::gemm<T>(cpu::transpose::yes, n.wide ? cpu::transpose::yes : cpu::transpose::no, n.n,
                     n.k, n.n, T{1}, b + m * n.n * n.n, n.n, dweight + m * n.area(),
                     n.wide ? n.n : n.k, T{0}, dq, n.k);
      else
        n.to_tall(dweight + m * n.area(), dq);
      std::copy_n(product + m * n.area(), n.area(), q);
      cpu::householder_product_backward<T>(n.n, n.k, tall, q, dq, v, v + n.n, dx);
      n.from_tall(dx, to, c.accumulate());
    }
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }

 private:
  static constexpr std::size_t original_at = base::inner_parameters - 1;
  static constexpr std::size_t weight_at = base::inner_saved, gradient_at = weight_at + 1,
                               products_at = weight_at + 2, matrices_at = weight_at + 3,
                               vectors_at = weight_at + 4;

  /// `count` matrices of n x k or, if wide, k x n, where n >= k.
  struct sizes {
    dim_t count, n, k;
    bool wide;

    constexpr explicit sizes(const shape& weight)
        : count{weight.numel(0, weight.rank() - 2)},
          n{std::max(weight[weight.rank() - 2], weight.back())},
          k{std::min(weight[weight.rank() - 2], weight.back())},
          wide{weight[weight.rank() - 2] < weight.back()} {}
    constexpr dim_t area() const { return n * k; }

    template <class T>
    void to_tall(const T* from, T* to) const {
      for (dim_t i = 0; i < n; ++i)
        for (dim_t j = 0; j < k; ++j) to[i * k + j] = from[wide ? j * n + i : i * k + j];
    }
    template <class T>
    void from_tall(const T* from, T* to, bool add) const {
      for (dim_t i = 0; i < n; ++i)
        for (dim_t j = 0; j < k; ++j) {
          T& x = to[wide ? j * n + i : i * k + j];
          x = (add ? x : T{0}) + from[i * k + j];
        }
    }
  };
  constexpr sizes matrices() const { return sizes(base::computed().extents); }

  template <class T, class Bytes>
  static const T* base_of([[maybe_unused]] Bytes const* buffers) {
    if constexpr (Trivialized)
      return reinterpret_cast<const T*>(buffers[base::inner_buffers]);
    else
      return nullptr;
  }

  /// `products`: a matrix for each, `tall`: one, `vectors`: n + 2 k elements.
  template <class T>
  void write_weight(const T* original, const T* b, T* products, T* tall, T* vectors,
                    T* weight) const {
    const sizes n = matrices();
    if (n.area() == 0) return;
    for (dim_t m = 0; m < n.count; ++m, original += n.area(), products += n.area()) {
      T* const w = weight + m * n.area();
      n.to_tall(original, tall);
      cpu::householder_product<T>(n.n, n.k, tall, products, vectors, vectors + n.n);
      if constexpr (!Trivialized)
        n.from_tall(products, w, false);
      else if (n.wide)
        cpu::gemm<T>(cpu::transpose::yes, cpu::transpose::yes, n.k, n.n, n.n, T{1}, products, n.k,
                     b + m * n.n * n.n, n.n, T{0}, w, n.n);
      else
        cpu::gemm<T>(cpu::transpose::no, cpu::transpose::no, n.n, n.k, n.n, T{1}, b + m * n.n * n.n,
                     n.n, products, n.k, T{0}, w, n.k);
    }
  }
};

template <leaf_module M>
orthogonal(const M&) -> orthogonal<M>;
/// An orthogonal around another is not a copy of it; it is refused, because the parameter no longer
/// exists.
template <leaf_module M, detail::literal Name, bool Trivialized>
orthogonal(const orthogonal<M, Name, Trivialized>&) -> orthogonal<orthogonal<M, Name, Trivialized>>;

}  // namespace ikebana
