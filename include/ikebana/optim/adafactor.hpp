#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/cpu/optim_rules.hpp"
#include "ikebana/cpu/reduce.hpp"
#include "ikebana/optim/tensor_optimizer.hpp"

namespace ikebana {

/// Options of adafactor: those of PyTorch 2 with its defaults, and clipping by norm.
struct adafactor_options {
  double lr = 1e-2;
  double beta2_decay = -0.8;  ///< Squares are averaged with weight step^beta2_decay of the newest.
  double eps1 = 0;     ///< The least variance's root; 0 stands for the element type's epsilon.
  double eps2 = 1e-3;  ///< The least root mean square of a parameter that its step is relative to.
  double d = 1;        ///< The root mean square above which an update is scaled down to it.
  double weight_decay = 0;  ///< Decoupled: parameters shrink by lr times this.
  bool maximize = false;
  double max_norm = std::numeric_limits<double>::infinity();  ///< Clips by norm, see adam.
  bool error_if_nonfinite = false;  ///< Throws error if the norm of the gradients is not finite.
};

namespace detail {

struct adafactor_rule {
  using options = adafactor_options;
  static constexpr const char* name = "adafactor";
  static constexpr std::array arrays{"row_var", "col_var", "variance"};

  static void check(const options& o) {
    check_option(o.beta2_decay <= 0, name, "beta2_decay", o.beta2_decay);
    check_option(o.eps1 >= 0, name, "epsilon1", o.eps1);
    check_option(o.eps2 >= 0, name, "epsilon2", o.eps2);
    check_option(o.d >= 1, name, "clipping threshold", o.d);
    check_option(o.weight_decay >= 0, name, "weight_decay value", o.weight_decay);
  }
  static std::optional<shape> extents(std::size_t k, const shape& parameter, const options&) {
    const std::size_t rank = parameter.rank();
    if ((k == 2) != (rank < 2)) return std::nullopt;
    return k == 0 ? parameter.with(rank - 1, 1) : k == 1 ? parameter.with(rank - 2, 1) : parameter;
  }
  static dim_t scratch(const shape& parameter) { return parameter.numel(); }

  template <class T>
  static void update(const tensor_update<T, 3>& u, const options& o) {
    const dim_t n = u.elements();
    const auto size = static_cast<double>(n), step = static_cast<double>(u.step);
    const double fresh = std::pow(step, o.beta2_decay),
                 least =
                     o.eps1 > 0 ? o.eps1 : static_cast<double>(std::numeric_limits<T>::epsilon());
    const double rate = std::max(o.eps2, std::sqrt(cpu::squared_norm<T>(n, u.parameters) / size)) *
                        std::min(o.lr, 1 / std::sqrt(step));
    if (o.weight_decay != 0)
      cpu::scale<T>(n, static_cast<T>(1 - o.lr * o.weight_decay), u.parameters);
    if (u.state[2] != nullptr) {
      auto a = arrays_of(u, 0, n);
      a.state[0] = u.state[2];
      a.state[1] = u.scratch;
      set_factors(a, std::array{1 - fresh, fresh});
      cpu::square_means_step<T>(a);
      set_factors(a, std::array{1.0, least * least});
      cpu::adafactor_step<T>(a);
    } else {
      const dim_t rows = u.extents[u.extents.rank() - 2], columns = u.extents.back();
      for (dim_t m = 0; m < n / (rows * columns); ++m)
        find_update(u, m, rows, columns, fresh, least);
    }
    const double root_mean = std::sqrt(cpu::squared_norm<T>(n, u.scratch) / size);
    cpu::axpy<T>(n, static_cast<T>(-rate / std::max(1.0, root_mean / o.d)), u.scratch,
                 u.parameters);
  }

 private:
  /// The update of a matrix before its scale: gradients over the root of the product of the
  /// averages of their squares along rows and columns.
  template <class T>
  static void find_update(const tensor_update<T, 3>& u, dim_t matrix, dim_t rows, dim_t columns,
                          double fresh, double least) {
    T *row_var = u.state[0] + matrix * rows, *col_var = u.state[1] + matrix * columns;
    const auto row = [&](dim_t i) {
      const dim_t at = (matrix * rows + i) * columns;
      auto a = arrays_of(u, at, columns);
      a.state[0] = col_var;
      a.state[1] = u.scratch + at;
      return a;
    };
    const double scale = static_cast<double>(u.gradient_scale);
    double mean = 0;
    for (dim_t i = 0; i < rows; ++i) {
      auto a = row(i);
      const double squares = cpu::squared_norm<T>(columns, a.grads) * scale * scale;
      row_var[i] += static_cast<T>(
          fresh * (squares / static_cast<double>(columns) - static_cast<double>(row_var[i])));
      mean += static_cast<double>(row_var[i]);
      set_factors(a, std::array{i == 0 ? 1 - fresh : 1, fresh / static_cast<double>(rows)});
      cpu::square_means_step<T>(a);
    }
    mean = std::max(mean / static_cast<double>(rows), least);
    for (dim_t i = 0; i < rows; ++i) {
      auto a = row(i);
      set_factors(a, std::array{static_cast<double>(row_var[i]) / mean, least * least});
      cpu::adafactor_step<T>(a);
    }
  }
};

}  // namespace detail

/// Adafactor (Shazeer and Stern, Adafactor: Adaptive Learning Rates with Sublinear Memory Cost,
/// 2018), as in PyTorch 2: a matrix keeps averages of squares for its rows and columns only, a
/// tensor of more dimensions those of its last two. The model must outlive it; not with
/// shard_optimizer. Options may be changed between steps. State: row_var, col_var, variance (of
/// vectors), step. O(parameters) per step.
template <class T>
class adafactor : public detail::tensor_optimizer<T, detail::adafactor_rule> {
 public:
  /// Allocates rows + columns numbers for each matrix, and an array of the size of the largest
  /// parameter. Throws error for invalid options.
  template <optimizable Model, detail::option_group... Groups>
  explicit adafactor(Model& model, const adafactor_options& options = {}, const Groups&... groups)
      : detail::tensor_optimizer<T, detail::adafactor_rule>{options} {
    this->take(model, groups...);
  }
};

// Refusals at compile time, selected by the deduction guides.
template <class Misuse>
requires(!floating<Misuse>) class adafactor<Misuse>;
template <class Model>
adafactor(Model&)
    -> adafactor<detail::number_or<Model, detail::misuse::optimizer_needs_an_initialized_model>>;
template <class Model, detail::option_group... Groups>
adafactor(Model&, const adafactor_options&, const Groups&...) -> adafactor<
    detail::number_or<Model, detail::misuse::optimizer_needs_an_initialized_model, Groups...>>;
template <class Model>
adafactor(const Model&&)
    -> adafactor<detail::misuse::optimizer_needs_a_model_that_outlives_it<detail::later<Model>>>;
template <class Model, detail::option_group... Groups>
adafactor(const Model&&, const adafactor_options&, const Groups&...)
    -> adafactor<detail::misuse::optimizer_needs_a_model_that_outlives_it<detail::later<Model>>>;
template <bool Lazy = false>
adafactor(...)
    -> adafactor<detail::misuse::optimizer_takes_a_model_and_its_options_in_braces<Lazy>>;

}  // namespace ikebana
