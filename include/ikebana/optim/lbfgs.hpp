#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/optim/elementwise_optimizer.hpp"
#include "ikebana/optim/optimizer.hpp"

namespace ikebana {

/// How lbfgs finds the length of a step: PyTorch's line_search_fn.
enum class line_search : unsigned char { none, strong_wolfe };

/// Options of lbfgs: those of PyTorch with its defaults.
struct lbfgs_options {
  double lr = 1;
  std::int64_t max_iter = 20;              ///< Iterations per step.
  std::optional<std::int64_t> max_eval{};  ///< Calls of the closure per step; 5/4 max_iter.
  double tolerance_grad = 1e-7;            ///< Ends a step if no gradient is larger.
  double tolerance_change = 1e-9;          ///< Ends a step if loss or parameters change by less.
  std::int64_t history_size = 100;         ///< Fixed when the optimizer is made.
  line_search line_search_fn = line_search::none;
};

namespace detail {

/// The minimum of the cubic through two points with these slopes, within the bounds.
inline double interpolate_cubic(double x1, double f1, double g1, double x2, double f2, double g2,
                                double low, double high) {
  const double d1 = g1 + g2 - 3 * (f1 - f2) / (x1 - x2);
  const double square = d1 * d1 - g1 * g2;
  if (!(square >= 0)) return (low + high) / 2;
  const double d2 = std::sqrt(square);
  const double at = x1 <= x2 ? x2 - (x2 - x1) * ((g2 + d2 - d1) / (g2 - g1 + 2 * d2))
                             : x1 - (x1 - x2) * ((g1 + d2 - d1) / (g1 - g2 + 2 * d2));
  return std::min(std::max(at, low), high);
}

}  // namespace detail

/// L-BFGS (Liu and Nocedal, On the limited memory BFGS method for large scale optimization, 1989;
/// strong Wolfe conditions: Nocedal and Wright, Numerical Optimization, 2006, algorithms 3.5 and
/// 3.6), as in PyTorch 1.13. A step calls a function that computes the loss and the gradients, as
/// often as it needs to:
///
///     ike::lbfgs optimizer{model, {.line_search_fn = ike::line_search::strong_wolfe}};
///     optimizer.step([&] {
///       model.zero_grad();
///       return model.loss_backward(x, t, ike::mse_loss{});
///     });
///
/// For full batches, without dropout. All ranks of replicas take the same step; not with
/// shard_optimizer. The model must outlive it. State: n_iter, func_evals, history, prev_flat_grad,
/// last_step, old_dirs.0, old_stps.0, ...
template <class T>
class lbfgs {
 public:
  using value_type = T;

  /// Allocates 2 history_size + 6 arrays of the size of the parameters. Throws error for invalid
  /// options.
  template <optimizable Model>
  explicit lbfgs(Model& model, const lbfgs_options& options = {}) : options_{options} {
    static_assert(!sharded_optimizable<Model>,
                  "ikebana: lbfgs needs all gradients on every rank, and with shard_optimizer each "
                  "has a part");
    check_options();
    detail::check_option(options.history_size >= 1, "lbfgs", "history_size",
                         static_cast<double>(options.history_size));
    target_.take(model);
    parameters_ = model.parameters();
    gradients_ = model.gradients();
    const auto n = static_cast<dim_t>(parameters_.size());
    for (auto* one : {&gradient_, &direction_, &last_step_, &start_, &previous_})
      *one = aligned_buffer<T>(n);
    for (auto& one : bracket_gradients_) one = aligned_buffer<T>(n);
    for (std::int64_t i = 0; i < options.history_size; ++i) {
      dirs_.emplace_back(n);
      stps_.emplace_back(n);
      names_.push_back("old_dirs." + std::to_string(i));
      names_.push_back("old_stps." + std::to_string(i));
    }
    ro_.resize(dirs_.size());
    al_.resize(dirs_.size());
  }

  lbfgs_options& options() { return options_; }
  const lbfgs_options& options() const { return options_; }
  /// Throws error for invalid options.
  void check_options() const {
    const lbfgs_options& o = options_;
    detail::check_option(o.lr >= 0, "lbfgs", "learning rate", o.lr);
    detail::check_option(o.max_iter >= 1, "lbfgs", "max_iter", static_cast<double>(o.max_iter));
    detail::check_option(o.tolerance_grad >= 0, "lbfgs", "tolerance_grad", o.tolerance_grad);
    detail::check_option(o.tolerance_change >= 0, "lbfgs", "tolerance_change", o.tolerance_change);
  }

  /// Takes up to max_iter iterations. `closure()` computes the gradients at the parameters and
  /// returns the loss. Returns the loss before the step. Does not allocate. O(history_size *
  /// parameters) per iteration, and the closure. Throws error for invalid options, before anything
  /// has changed.
  template <class Closure>
  double step(Closure&& closure) {
    check_options();
    target_.begin_step();
    const lbfgs_options& o = options_;
    const std::int64_t most_calls = o.max_eval.value_or(o.max_iter * 5 / 4);
    const auto evaluate = [&] {
      const double loss = static_cast<double>(closure());
      std::copy(gradients_.begin(), gradients_.end(), gradient_.data());
      return loss;
    };
    const double first = evaluate();
    double loss = first;
    std::int64_t calls = 1;
    ++func_evals_;
    if (largest(gradient_) <= o.tolerance_grad) return first;
    for (std::int64_t i = 1;; ++i) {
      ++n_iter_;
      find_direction();
      copy(gradient_, previous_);
      const double before = loss;
      double t = o.lr;
      if (n_iter_ == 1) {
        double sum = 0;
        for (T g : gradient_.span()) sum += std::abs(static_cast<double>(g));
        t = std::min(1.0, 1 / sum) * o.lr;
      }
      const double slope = dot(gradient_, direction_);
      if (slope > -o.tolerance_change) {
        set_last_step(t);
        return first;
      }
      std::int64_t made = 0;
      if (o.line_search_fn == line_search::strong_wolfe) {
        std::copy(parameters_.begin(), parameters_.end(), start_.data());
        loss = search(evaluate, t, loss, slope, made);
        move(start_, t);
      } else {
        std::copy(parameters_.begin(), parameters_.end(), start_.data());
        move(start_, t);
        if (i != o.max_iter) {
          loss = evaluate();
          made = 1;
        }
      }
      set_last_step(t);
      calls += made;
      func_evals_ += made;
      if (i == o.max_iter || calls >= most_calls || largest(gradient_) <= o.tolerance_grad ||
          largest(last_step_) <= o.tolerance_change || std::abs(loss - before) < o.tolerance_change)
        return first;
    }
  }

  /// Whether the optimizer was made for this model, and the model still exists.
  template <class Model>
  bool updates(const Model& model) const {
    return target_.updates(model);
  }

  /// The optimizer's state. Allocates.
  std::vector<optimizer_state> state() {
    const auto number = [](const char* name, std::int64_t& x) {
      return optimizer_state::of(name, std::span<std::int64_t>(&x, 1));
    };
    std::vector<optimizer_state> all{number("n_iter", n_iter_), number("func_evals", func_evals_),
                                     number("history", history_),
                                     optimizer_state::of("prev_flat_grad", previous_.span()),
                                     optimizer_state::of("last_step", last_step_.span())};
    for (std::size_t i = 0; i < dirs_.size(); ++i) {
      all.push_back(optimizer_state::of(names_[2 * i], dirs_[i].span()));
      all.push_back(optimizer_state::of(names_[2 * i + 1], stps_[i].span()));
    }
    return all;
  }

 private:
  using array = aligned_buffer<T>;

  static void copy(const array& from, array& to) {
    std::copy_n(from.data(), from.size(), to.data());
  }
  static double dot(const array& a, const array& b) {
    double sum = 0;
    for (dim_t i = 0; i < a.size(); ++i)
      sum += static_cast<double>(a.data()[i]) * static_cast<double>(b.data()[i]);
    return sum;
  }
  static double largest(const array& a) {
    double most = 0;
    for (dim_t i = 0; i < a.size(); ++i)
      most = std::max(most, std::abs(static_cast<double>(a.data()[i])));
    return most;
  }
  /// to += factor * from.
  static void add(double factor, const array& from, array& to) {
    const auto f = static_cast<T>(factor);
    for (dim_t i = 0; i < to.size(); ++i) to.data()[i] += f * from.data()[i];
  }
  void move(const array& from, double t) {
    const auto f = static_cast<T>(t);
    for (dim_t i = 0; i < from.size(); ++i)
      parameters_[static_cast<std::size_t>(i)] = from.data()[i] + f * direction_.data()[i];
  }
  void set_last_step(double t) {
    const auto f = static_cast<T>(t);
    for (dim_t i = 0; i < last_step_.size(); ++i) last_step_.data()[i] = f * direction_.data()[i];
  }

  /// The direction from the history, to which the last iteration is added.
  void find_direction() {
    if (n_iter_ == 1) {
      history_ = 0;
    } else {
      // y = gradient - previous is computed where the next pair goes.
      const bool is_full = history_ == static_cast<std::int64_t>(dirs_.size());
      array& y = direction_;
      for (dim_t i = 0; i < y.size(); ++i) y.data()[i] = gradient_.data()[i] - previous_.data()[i];
      if (dot(y, last_step_) > 1e-10) {
        if (is_full) {
          std::rotate(dirs_.begin(), dirs_.begin() + 1, dirs_.end());
          std::rotate(stps_.begin(), stps_.begin() + 1, stps_.end());
        } else {
          ++history_;
        }
        const auto last = static_cast<std::size_t>(history_ - 1);
        copy(y, dirs_[last]);
        copy(last_step_, stps_[last]);
      }
    }
    array& q = direction_;
    for (dim_t i = 0; i < q.size(); ++i) q.data()[i] = -gradient_.data()[i];
    const auto n = static_cast<std::size_t>(history_);
    for (std::size_t i = n; i-- > 0;) {
      ro_[i] = 1 / dot(dirs_[i], stps_[i]);
      al_[i] = dot(stps_[i], q) * ro_[i];
      add(-al_[i], dirs_[i], q);
    }
    if (n > 0) {
      const auto scale = static_cast<T>(1 / ro_[n - 1] / dot(dirs_[n - 1], dirs_[n - 1]));
      for (T& x : q.span()) x *= scale;
    }
    for (std::size_t i = 0; i < n; ++i) add(al_[i] - dot(dirs_[i], q) * ro_[i], stps_[i], q);
  }

  /// Finds a length t that satisfies the strong Wolfe conditions; gradient_ is then the one there.
  /// Returns the loss there.
  template <class Evaluate>
  double search(const Evaluate& evaluate, double& t, double f, double slope, std::int64_t& made) {
    constexpr double c1 = 1e-4, c2 = 0.9, tolerance = 1e-9;
    constexpr int most = 25;
    const double longest = largest(direction_);
    const auto at = [&](double length) {
      move(start_, length);
      ++made;
      return evaluate();
    };
    struct point {
      double t = 0, f = 0, slope = 0;
      std::size_t gradient = 0;  ///< Of bracket_gradients_.
    };
    array& first = bracket_gradients_[0];
    array& second = bracket_gradients_[1];
    copy(gradient_, first);
    point previous{0, f, slope, 0};
    double f_new = at(t), slope_new = dot(gradient_, direction_);
    copy(gradient_, second);
    std::array<point, 2> bracket{previous, point{t, f_new, slope_new, 1}};
    bool done = false, is_single = false;
    int i = 0;
    for (; i < most; ++i) {
      const point now{t, f_new, slope_new, 1 - previous.gradient};
      if (f_new > f + c1 * t * slope || (i > 1 && f_new >= previous.f)) {
        bracket = {previous, now};
        break;
      }
      if (std::abs(slope_new) <= -c2 * slope) {
        bracket = {now, now};
        done = is_single = true;
        break;
      }
      if (slope_new >= 0) {
        bracket = {previous, now};
        break;
      }
      const double least_t = t + 0.01 * (t - previous.t), most_t = t * 10;
      t = detail::interpolate_cubic(previous.t, previous.f, previous.slope, t, f_new, slope_new,
                                    least_t, most_t);
      previous = now;
      f_new = at(t);
      slope_new = dot(gradient_, direction_);
      copy(gradient_, bracket_gradients_[1 - previous.gradient]);
    }
    if (i == most) {
      // PyTorch's bracket is then from the start, whose gradient is no longer there.
      const point now{t, f_new, slope_new, 1 - previous.gradient};
      bracket = {now, now};
      is_single = true;
    }
    std::size_t low = is_single || bracket[0].f <= bracket[1].f ? 0 : 1, high = 1 - low;
    bool insufficient = false;
    while (!done && i < most) {
      const double left = std::min(bracket[0].t, bracket[1].t),
                   right = std::max(bracket[0].t, bracket[1].t);
      if ((right - left) * longest < tolerance) break;
      t = detail::interpolate_cubic(bracket[0].t, bracket[0].f, bracket[0].slope, bracket[1].t,
                                    bracket[1].f, bracket[1].slope, left, right);
      const double margin = 0.1 * (right - left);
      if (std::min(right - t, t - left) < margin) {
        if (insufficient || t >= right || t <= left) {
          t = std::abs(t - right) < std::abs(t - left) ? right - margin : left + margin;
          insufficient = false;
        } else {
          insufficient = true;
        }
      } else {
        insufficient = false;
      }
      f_new = at(t);
      slope_new = dot(gradient_, direction_);
      ++i;
      if (f_new > f + c1 * t * slope || f_new >= bracket[low].f) {
        bracket[high] = {t, f_new, slope_new, bracket[high].gradient};
        copy(gradient_, bracket_gradients_[bracket[high].gradient]);
        low = bracket[0].f <= bracket[1].f ? 0 : 1;
        high = 1 - low;
      } else {
        if (std::abs(slope_new) <= -c2 * slope)
          done = true;
        else if (slope_new * (bracket[high].t - bracket[low].t) >= 0)
          std::swap(bracket[high], bracket[low]);
        bracket[low] = {t, f_new, slope_new, bracket[low].gradient};
        copy(gradient_, bracket_gradients_[bracket[low].gradient]);
      }
    }
    t = bracket[low].t;
    copy(bracket_gradients_[bracket[low].gradient], gradient_);
    return bracket[low].f;
  }

  lbfgs_options options_;
  detail::optimizer_target<T> target_;
  std::span<T> parameters_;
  std::span<const T> gradients_;
  std::int64_t n_iter_ = 0, func_evals_ = 0, history_ = 0;
  array gradient_, direction_, last_step_, start_, previous_;
  std::array<array, 2> bracket_gradients_;
  std::vector<array> dirs_, stps_;  ///< Differences of gradients and parameters, the oldest first.
  std::vector<double> ro_, al_;
  std::vector<std::string> names_;
};

// Refusals at compile time, selected by the deduction guides.
template <class Misuse>
requires(!floating<Misuse>) class lbfgs<Misuse>;
template <class Model>
lbfgs(Model&)
    -> lbfgs<detail::number_or<Model, detail::misuse::optimizer_needs_an_initialized_model>>;
template <class Model>
lbfgs(Model&, const lbfgs_options&)
    -> lbfgs<detail::number_or<Model, detail::misuse::optimizer_needs_an_initialized_model>>;
template <class Model>
lbfgs(const Model&&)
    -> lbfgs<detail::misuse::optimizer_needs_a_model_that_outlives_it<detail::later<Model>>>;
template <class Model>
lbfgs(const Model&&, const lbfgs_options&)
    -> lbfgs<detail::misuse::optimizer_needs_a_model_that_outlives_it<detail::later<Model>>>;
template <bool Lazy = false>
lbfgs(...) -> lbfgs<detail::misuse::optimizer_takes_a_model_and_its_options_in_braces<Lazy>>;

}  // namespace ikebana
