#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/cpu/gemm.hpp"
#include "ikebana/cpu/optim.hpp"
#include "ikebana/cpu/optim_rules.hpp"
#include "ikebana/cpu/reduce.hpp"
#include "ikebana/optim/tensor_optimizer.hpp"

namespace ikebana {

/// Options of muon: those of PyTorch 2 with its defaults, those of adamw for what is no matrix, and
/// clipping by norm.
struct muon_options {
  double lr = 1e-3;
  double weight_decay = 0.1;  ///< Decoupled: parameters shrink by lr times this.
  double momentum = 0.95;
  bool nesterov = true;
  std::array<double, 3> ns_coefficients{3.4445, -4.775, 2.0315};
  double eps = 1e-7;  ///< The least norm that a matrix is divided by.
  int ns_steps = 5;   ///< Iterations of Newton and Schulz.
  /// The rate of m x n matrices: 0.2 lr sqrt(max(m, n)), with which options of adamw fit, or lr
  /// sqrt(max(1, m / n)). PyTorch's adjust_lr_fn.
  bool match_rms_adamw = false;
  bool use_muon = true;  ///< In a group: false for embeddings and heads, which adamw updates.
  std::pair<double, double> betas{0.9, 0.95};  ///< Of adamw.
  double adamw_eps = 1e-10;
  bool maximize = false;
  double max_norm = std::numeric_limits<double>::infinity();  ///< Clips by norm, see adam.
  bool error_if_nonfinite = false;  ///< Throws error if the norm of the gradients is not finite.
};

namespace detail {

struct muon_rule {
  using options = muon_options;
  static constexpr const char* name = "muon";
  static constexpr std::array arrays{"momentum_buffer", "exp_avg", "exp_avg_sq"};

  static void check(const options& o) {
    check_option(o.momentum >= 0 && o.momentum < 1, name, "momentum value", o.momentum);
    check_option(o.eps > 0, name, "epsilon value", o.eps);
    check_option(o.ns_steps >= 0 && o.ns_steps < 100, name, "ns_steps", o.ns_steps);
    check_option(o.adamw_eps >= 0, name, "epsilon value of adamw", o.adamw_eps);
    check_option(o.betas.first >= 0 && o.betas.first < 1, name, "beta parameter at index 0",
                 o.betas.first);
    check_option(o.betas.second >= 0 && o.betas.second < 1, name, "beta parameter at index 1",
                 o.betas.second);
    check_option(o.weight_decay >= 0, name, "weight_decay value", o.weight_decay);
  }
  static std::optional<shape> extents(std::size_t k, const shape& parameter, const options& o) {
    if ((k == 0) != (o.use_muon && parameter.rank() > 1)) return std::nullopt;
    return parameter;
  }
  static dim_t scratch(const shape& parameter) {
    if (parameter.rank() < 2) return 0;
    const dim_t n = parameter.numel(), rows = parameter.front(), least = std::min(rows, n / rows);
    return 2 * n + 2 * least * least;
  }

  template <class T>
  static void update(const tensor_update<T, 3>& u, const options& o) {
    const dim_t n = u.elements();
    if (u.state[0] == nullptr)
      return cpu::adam_step<T>(n, u.parameters, u.gradients, u.state[1], u.state[2], nullptr, o.lr,
                               o.betas.first, o.betas.second, o.adamw_eps, o.weight_decay, true,
                               u.step, false, static_cast<double>(u.gradient_scale));
    const dim_t rows = u.extents.front(), columns = n / rows;
    const T kept = static_cast<T>(o.momentum), fresh = u.gradient_scale * (T(1) - kept);
    T *buffer = u.state[0], *x = u.scratch;
    cpu::scale<T>(n, kept, buffer);
    cpu::axpy<T>(n, fresh, u.gradients, buffer);
    std::copy_n(buffer, n, x);
    if (o.nesterov) {
      cpu::scale<T>(n, kept, x);
      cpu::axpy<T>(n, fresh, u.gradients, x);
    }
    x = orthogonal(x, rows, columns, o);
    const double m = static_cast<double>(rows), k = static_cast<double>(columns);
    const double rate = o.lr * (!o.match_rms_adamw ? std::sqrt(std::max(1.0, m / k))
                                                   : 0.2 * std::sqrt(std::max(m, k)));
    cpu::scale<T>(n, static_cast<T>(1 - o.lr * o.weight_decay), u.parameters);
    cpu::axpy<T>(n, static_cast<T>(-rate), x, u.parameters);
  }

 private:
  /// Moves the singular values of a matrix towards 1 by x <- (a + b (x x') + c (x x')^2) x, on the
  /// side where x x' is the smaller. `x` is followed by the scratch memory that this needs, where
  /// the result may be.
  template <class T>
  static T* orthogonal(T* x, dim_t rows, dim_t columns, const options& o) {
    using cpu::transpose;
    const dim_t n = rows * columns, k = std::min(rows, columns);
    T *other = x + n, *gram = other + n, *squared = gram + k * k;
    const bool is_wide = rows <= columns;
    const auto a = static_cast<T>(o.ns_coefficients[0]), b = static_cast<T>(o.ns_coefficients[1]),
               c = static_cast<T>(o.ns_coefficients[2]);
    const double norm = std::sqrt(cpu::squared_norm<T>(n, x));
    cpu::scale<T>(n, static_cast<T>(1 / std::max(norm, o.eps)), x);
    for (int i = 0; i < o.ns_steps; ++i) {
      cpu::gemm<T>(is_wide ? transpose::no : transpose::yes,
                   is_wide ? transpose::yes : transpose::no, k, k, n / k, T(1), x, columns, x,
                   columns, T(0), gram, k);
      std::copy_n(gram, k * k, squared);
      cpu::gemm<T>(transpose::no, transpose::no, k, k, k, c, gram, k, gram, k, b, squared, k);
      std::copy_n(x, n, other);
      if (is_wide)
        cpu::gemm<T>(transpose::no, transpose::no, rows, columns, k, T(1), squared, k, x, columns,
                     a, other, columns);
      else
        cpu::gemm<T>(transpose::no, transpose::no, rows, columns, k, T(1), x, columns, squared, k,
                     a, other, columns);
      std::swap(x, other);
    }
    return x;
  }
};

}  // namespace detail

/// Muon (Jordan et al., Muon: An optimizer for hidden layers in neural networks, 2024), as in
/// PyTorch 2: the momentum of each matrix, made nearly orthogonal by iterations of Newton and
/// Schulz, in the element type rather than in bfloat16. Convolutions' weights count as matrices of
/// a row for each output channel. adamw updates vectors, and groups with use_muon = false:
/// `muon{model, {}, group<"embedding", "head">{.lr = 3e-4, .use_muon = false}}`. The model must
/// outlive it; not with shard_optimizer. Options may be changed between steps, except use_muon.
/// State: momentum_buffer, or exp_avg and exp_avg_sq, and step. O(elements * min(rows, columns))
/// per matrix and iteration.
template <class T>
class muon : public detail::tensor_optimizer<T, detail::muon_rule> {
 public:
  /// Allocates one array of the size of the matrices, two of that of the rest, and scratch memory
  /// of four times the largest matrix at most. Throws error for invalid options.
  template <optimizable Model, detail::option_group... Groups>
  explicit muon(Model& model, const muon_options& options = {}, const Groups&... groups)
      : detail::tensor_optimizer<T, detail::muon_rule>{options} {
    this->take(model, groups...);
  }
};

// Refusals at compile time, selected by the deduction guides.
template <class Misuse>
requires(!floating<Misuse>) class muon<Misuse>;
template <class Model>
muon(Model&)
    -> muon<detail::number_or<Model, detail::misuse::optimizer_needs_an_initialized_model>>;
template <class Model, detail::option_group... Groups>
muon(Model&, const muon_options&, const Groups&...) -> muon<
    detail::number_or<Model, detail::misuse::optimizer_needs_an_initialized_model, Groups...>>;
template <class Model>
muon(const Model&&)
    -> muon<detail::misuse::optimizer_needs_a_model_that_outlives_it<detail::later<Model>>>;
template <class Model, detail::option_group... Groups>
muon(const Model&&, const muon_options&, const Groups&...)
    -> muon<detail::misuse::optimizer_needs_a_model_that_outlives_it<detail::later<Model>>>;
template <bool Lazy = false>
muon(...) -> muon<detail::misuse::optimizer_takes_a_model_and_its_options_in_braces<Lazy>>;

}  // namespace ikebana
