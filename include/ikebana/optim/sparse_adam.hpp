#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/optim_rules.hpp"
#include "ikebana/optim/tensor_optimizer.hpp"

namespace ikebana {

/// Options of sparse_adam: those of PyTorch with its defaults, and clipping by norm.
struct sparse_adam_options {
  double lr = 1e-3;
  std::pair<double, double> betas{0.9, 0.999};
  double eps = 1e-8;
  bool maximize = false;
  double max_norm = std::numeric_limits<double>::infinity();  ///< Clips by norm, see adam.
  bool error_if_nonfinite = false;  ///< Throws error if the norm of the gradients is not finite.
};

namespace detail {

struct sparse_adam_rule {
  using options = sparse_adam_options;
  static constexpr const char* name = "sparse_adam";
  static constexpr std::array arrays{"exp_avg", "exp_avg_sq"};

  static void check(const options& o) {
    check_option(o.eps > 0, name, "epsilon value", o.eps);
    check_option(o.betas.first >= 0 && o.betas.first < 1, name, "beta parameter at index 0",
                 o.betas.first);
    check_option(o.betas.second >= 0 && o.betas.second < 1, name, "beta parameter at index 1",
                 o.betas.second);
  }
  static std::optional<shape> extents(std::size_t, const shape& parameter, const options&) {
    return parameter;
  }
  static dim_t scratch(const shape&) { return 0; }

  template <class T>
  static void update(const tensor_update<T, 2>& u, const options& o) {
    const double rate = o.lr * std::sqrt(cpu::one_less_power(o.betas.second, u.step)) /
                        cpu::one_less_power(o.betas.first, u.step);
    const dim_t rows = u.extents.rank() > 1 ? u.extents.front() : 1, length = u.elements() / rows;
    const auto is_absent = [&](dim_t row) {
      const T* g = u.gradients + row * length;
      return std::all_of(g, g + length, [](T x) { return x == T(0); });
    };
    const auto step = [&](dim_t from, dim_t to) {
      const dim_t at = from * length;
      auto a = arrays_of(u, at, (to - from) * length);
      a.state[0] = u.state[0] + at;
      a.state[1] = u.state[1] + at;
      set_factors(a, std::array{0.0, rate, 1.0, o.betas.first, 1 - o.betas.first, o.betas.second,
                                1 - o.betas.second, o.eps, 1.0});
      cpu::mixed_adam_step<T>(a);
    };
    if (u.rows != nullptr) {
      for (const std::int32_t row : u.rows->listed())
        if (!is_absent(row)) step(row, row + 1);
      return;
    }
    for (dim_t from = 0; from < rows; ++from) {
      if (is_absent(from)) continue;
      dim_t to = from + 1;
      while (to < rows && !is_absent(to)) ++to;
      step(from, to);
      from = to;  // It is absent.
    }
  }
};

}  // namespace detail

/// Adam for embeddings, as PyTorch 1.13's SparseAdam: rows (slices along the first dimension) whose
/// gradients are all zero keep their values and moments; a vector is one row. The model must
/// outlive it; not with shard_optimizer. Options may be changed between steps. State: exp_avg,
/// exp_avg_sq, step. A step reads all gradients, and parameters and moments of the other rows; of
/// an embedding with sparse<true>, only the rows that the batch selects.
template <class T>
class sparse_adam : public detail::tensor_optimizer<T, detail::sparse_adam_rule> {
 public:
  /// Allocates two arrays of the size of the parameters. Throws error for invalid options.
  template <optimizable Model, detail::option_group... Groups>
  explicit sparse_adam(Model& model, const sparse_adam_options& options = {},
                       const Groups&... groups)
      : detail::tensor_optimizer<T, detail::sparse_adam_rule>{options} {
    this->take(model, groups...);
  }
};

// Refusals at compile time, selected by the deduction guides.
template <class Misuse>
requires(!floating<Misuse>) class sparse_adam<Misuse>;
template <class Model>
sparse_adam(Model&)
    -> sparse_adam<detail::number_or<Model, detail::misuse::optimizer_needs_an_initialized_model>>;
template <class Model, detail::option_group... Groups>
sparse_adam(Model&, const sparse_adam_options&, const Groups&...) -> sparse_adam<
    detail::number_or<Model, detail::misuse::optimizer_needs_an_initialized_model, Groups...>>;
template <class Model>
sparse_adam(const Model&&)
    -> sparse_adam<detail::misuse::optimizer_needs_a_model_that_outlives_it<detail::later<Model>>>;
template <class Model, detail::option_group... Groups>
sparse_adam(const Model&&, const sparse_adam_options&, const Groups&...)
    -> sparse_adam<detail::misuse::optimizer_needs_a_model_that_outlives_it<detail::later<Model>>>;
template <bool Lazy = false>
sparse_adam(...)
    -> sparse_adam<detail::misuse::optimizer_takes_a_model_and_its_options_in_braces<Lazy>>;

}  // namespace ikebana
