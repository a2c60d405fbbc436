#pragma once

#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string_view>
#include <type_traits>

#include "ikebana/core/error.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/cpu/reduce.hpp"
#include "ikebana/cpu/softmax.hpp"
#include "ikebana/module/element_mismatch.hpp"
#include "ikebana/module/loss_leaf.hpp"
#include "ikebana/module/loss_reduction.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/nn/class_weights.hpp"
#include "ikebana/nn/loss_values.hpp"

namespace ikebana {

namespace detail {

// snprintf instead of std::string, which would be compiled in every translation unit.
[[noreturn, gnu::cold]] inline void refuse_label(std::int64_t label, dim_t classes, dim_t index) {
  char said[128];
  std::snprintf(said, sizeof said,
                "cross_entropy expects labels from 0 to %lld, got %lld at index %lld",
                static_cast<long long>(classes - 1), static_cast<long long>(label),
                static_cast<long long>(index));
  throw_error(error(said));
}

}  // namespace detail

/// The cross entropy of logits (N, C), (C) or (N, C, d...) and class indices (N), () or (N, d...).
/// A row's loss is (1 - s) (-log p[target]) + s / C * sum of -log p, where p = softmax of the
/// logits over C and s = label_smoothing (Szegedy et al., Rethinking the Inception Architecture,
/// 2015). Rows whose target is ignore_index are left out: the mean is taken over the others (NaN if
/// there are none, as in PyTorch), and their gradient is 0. With `weight`, each class counts as
/// much, and the mean is divided by the weights of the targets. Targets of the logits' type and
/// shape are probabilities of the classes, whose mean is taken over the rows. Throws shape_error if
/// the shapes do not match, and error if a label is neither in [0, C) nor ignore_index, if
/// label_smoothing is outside [0, 1], if there is not one weight for each class, or if an
/// ignore_index from 0 on is set for probabilities. Within a graph, a target that is an input of
/// the graph has class indices, and a computed one, such as stop_gradient(p), has probabilities.
/// There, and with loss_values, reduction::none gives the loss of each row. O(elements); no
/// allocation.
struct cross_entropy {
  static constexpr std::string_view name = "cross_entropy";

  ikebana::reduction reduction = ikebana::reduction::mean;
  double label_smoothing = 0;
  std::int64_t ignore_index = -100;
  class_weights weight{};

  constexpr bool operator==(const cross_entropy&) const = default;

  template <class T, class U>
  static constexpr diagnostic check_elements() {
    if constexpr (std::is_same_v<U, std::int64_t> || std::is_same_v<U, T>)
      return {};
    else
      return {
          detail::element_mismatch<"cross_entropy expects class indices of type ", std::int64_t, U>.c_str()};
  }

  static constexpr diagnostic check_last(std::string_view kind) {
    if (kind == "softmax")
      return {
          "softmax is computed twice: cross_entropy takes logits and computes it itself, so leave "
          "this module out"};
    if (kind == "log_softmax")
      return {
          "log_softmax is computed twice: cross_entropy takes logits and computes it itself, so "
          "leave this module out"};
    return {};
  }

  template <class U>
  static constexpr diagnostic check_shapes(const shape& prediction, const shape& target) {
    if constexpr (std::is_same_v<U, std::int64_t>) {
      return check(prediction, target);
    } else {
      if (prediction.rank() == 0 || !compatible(prediction, target))
        return {
            "cross_entropy expects class indices of type std::int64_t, or a probability for each "
            "logit of {input}, got {other}",
            0, 0, prediction, target};
      return {};
    }
  }

  /// Of class indices.
  static constexpr diagnostic check(const shape& prediction, const shape& target) {
    const std::size_t rank = prediction.rank();
    if (rank == 0)
      return {"cross_entropy expects logits of at least 1 dimension, got {input}", 1, 0, prediction,
              target};
    const std::size_t c = rank == 1 ? 0 : 1;
    if (prediction[c] == 0)
      return {"cross_entropy expects logits of at least 1 class, got {input}", 1, 0, prediction,
              target};
    if (rank == 1 && target.rank() == 1)
      return {
          "cross_entropy expects logits of a batch [N, C] for labels [N], got {input} for {other}: "
          "is "
          "the batch merged into them? flatten<> keeps it",
          0, 0, prediction, target};
    if (target.rank() + 1 != rank)
      return {
          "cross_entropy expects a target of {expected} dimensions, got {got} (logits {input}, "
          "target {other})",
          static_cast<dim_t>(rank) - 1, static_cast<dim_t>(target.rank()), prediction, target};
    for (std::size_t i = 0; i < target.rank(); ++i) {
      const dim_t expected = prediction[i < c ? i : i + 1];
      if (expected >= 0 && target[i] >= 0 && expected != target[i])
        return {
            "cross_entropy expects a target extent of {expected}, got {got} (logits {input}, "
            "target {other})",
            expected, target[i], prediction, target};
    }
    return {};
  }

  /// One for each row.
  template <class U>
  static constexpr shape value_shape(const shape& prediction, const shape& target) {
    if constexpr (std::is_same_v<U, std::int64_t>) {
      return target;
    } else {
      shape rows;
      const std::size_t c = prediction.rank() == 1 ? 0 : 1;
      for (std::size_t i = 0; i < prediction.rank(); ++i)
        if (i != c) rows.push_back(prediction[i]);
      return rows;
    }
  }

  template <tensor_like Target>
  void validate(const shape& prediction, const Target& target) const {
    using U = typename Target::value_type;
    const diagnostic wrong = check_shapes<U>(prediction, target.extents());
    if (!wrong.ok()) throw_error(shape_error(wrong));
    detail::check_reduction(reduction);
    check_values(prediction, target.extents(), target.data());
  }
  template <class U>
  void check_values(const shape& prediction, const shape& target, const U* values) const {
    check_smoothing();
    const dim_t classes = prediction[prediction.rank() == 1 ? 0 : 1];
    weight.check("cross_entropy", classes);
    if constexpr (std::is_same_v<U, std::int64_t>)
      count_labels(values, target.numel(), classes);
    else
      check_ignored();
  }

  template <symbolic X, symbolic Y>
  constexpr auto operator()(const X& x, const Y& target) const {
    return detail::apply_loss(*this, x, target);
  }

  template <tensor_like Prediction, tensor_like Target>
  requires(detail::takes_target<cross_entropy, Prediction, Target>) auto operator()(
      const Prediction& prediction, const Target& target) const {
    return backward(prediction, target, static_cast<typename Prediction::value_type*>(nullptr));
  }
  template <tensor_like Prediction, tensor_like Target>
  requires(!detail::takes_target<cross_entropy, Prediction, Target>) auto operator()(
      const Prediction&, const Target&) const
      -> decltype(detail::refuse<detail::check_loss_of<cross_entropy, Prediction, Target>>());

  template <tensor_like Prediction, tensor_like Target, class T>
  requires(detail::takes_target<cross_entropy, Prediction, Target>) T
      backward(const Prediction& prediction, const Target& target, T* gradient)
  const {
    detail::check_reduction(reduction);
    if constexpr (std::is_same_v<typename Target::value_type, std::int64_t>) {
      return compute<T, (Prediction::static_shape.rank() > 2)>(
          prediction.data(), prediction.extents(), target.data(), target.extents(), gradient);
    } else {
      validate(prediction.extents(), target);
      return compute_of_probabilities<T>(
          {prediction.extents(), target.extents(), prediction.data(), target.data(), gradient});
    }
  }
  template <tensor_like Prediction, tensor_like Target, class T>
  requires(!detail::takes_target<cross_entropy, Prediction, Target>) auto backward(
      const Prediction&, const Target&, T*) const
      -> decltype(detail::refuse<detail::check_loss_of<cross_entropy, Prediction, Target>>());

  /// See module/loss_leaf.hpp. The arguments have been checked.
  template <class T, class U>
  T run(const detail::loss_call<T, U>& c) const {
    if constexpr (!std::is_same_v<U, std::int64_t>) {
      return compute_of_probabilities(c);
    } else {
      if (reduction != ikebana::reduction::none)
        return compute<T, true>(c.x, c.extents, c.target, c.target_extents, c.gradient);
      const std::size_t axis = c.extents.rank() == 1 ? 0 : 1;
      const dim_t outer = c.extents.numel(0, axis), classes = c.extents[axis],
                  inner = c.extents.numel(axis + 1, c.extents.rank());
      if (!weight.empty() || inner != 1) return compute_weighted(outer, classes, inner, c);
      for (dim_t i = 0; i < outer; ++i) {
        T value{};
        std::int64_t counted = 0;
        cpu::cross_entropy<T>(1, classes, c.x + i * classes, c.target + i,
                              static_cast<T>(label_smoothing), ignore_index, &value, &counted,
                              c.gradient == nullptr ? nullptr : c.gradient + i * classes,
                              c.weights == nullptr ? T{1} : c.weights[i]);
        if (c.values != nullptr) c.values[i] = value;
      }
      return T{};
    }
  }

  /// With respect to probabilities.
  template <class T>
  void target_gradient(const detail::loss_call<T, T>& c, T factor) const {
    const std::size_t axis = c.extents.rank() == 1 ? 0 : 1;
    const dim_t outer = c.extents.numel(0, axis), classes = c.extents[axis],
                inner = c.extents.numel(axis + 1, c.extents.rank());
    if (reduction == ikebana::reduction::mean) factor /= static_cast<T>(outer * inner);
    factor *= static_cast<T>(1 - label_smoothing);
    for (dim_t o = 0; o < outer; ++o)
      for (dim_t j = 0; j < inner; ++j) {
        const dim_t first = o * classes * inner + j;
        const T log_total = row_sum<T>(c.x + first, classes, inner).logarithm();
        const T by = c.weights == nullptr ? factor : factor * c.weights[o * inner + j];
        for (dim_t k = 0; k < classes; ++k)
          c.gradient[first + k * inner] =
              by * static_cast<T>(weight[k]) * (log_total - c.x[first + k * inner]);
      }
  }

 private:
  template <class T>
  struct row_sum {
    T most, exponentials;

    row_sum(const T* row, dim_t classes, dim_t inner) : most{row[0]}, exponentials{} {
      for (dim_t k = 1; k < classes; ++k)
        if (row[k * inner] > most) most = row[k * inner];
      for (dim_t k = 0; k < classes; ++k) exponentials += std::exp(row[k * inner] - most);
    }
    T logarithm() const { return most + std::log(exponentials); }
  };

  template <class = void>
  [[gnu::cold]] void check_smoothing() const {
    if (label_smoothing >= 0 && label_smoothing <= 1) return;
    char said[400];  // A double has up to 309 digits before the point.
    std::snprintf(said, sizeof said,
                  "cross_entropy expects label_smoothing between 0 and 1, got %f", label_smoothing);
    throw_error(error(said));
  }

  void check_ignored() const {
    if (ignore_index >= 0)
      throw_error(error(
          "cross_entropy of probabilities has no targets to ignore, but ignore_index is set"));
  }

  /// The number of labels that are not ignored. Throws error at the first label outside [0, C).
  std::int64_t count_labels(const std::int64_t* labels, dim_t n, dim_t classes) const {
    std::int64_t counted = 0;
    for (dim_t i = 0; i < n; ++i) {
      if (labels[i] == ignore_index) continue;
      if (labels[i] < 0 || labels[i] >= classes) detail::refuse_label(labels[i], classes, i);
      ++counted;
    }
    return counted;
  }

  /// Inner: whether there are dimensions after the classes.
  template <class T, bool Inner>
  T compute(const T* x, const shape& prediction, const std::int64_t* labels, const shape& target,
            T* gradient) const {
    const diagnostic wrong = check(prediction, target);
    if (!wrong.ok()) throw_error(shape_error(wrong));
    check_smoothing();
    const std::size_t c = prediction.rank() == 1 ? 0 : 1;
    const dim_t classes = prediction[c], inner = prediction.numel(c + 1, prediction.rank());
    const dim_t outer = prediction.numel(0, c);
    weight.check("cross_entropy", classes);
    const std::int64_t counted = count_labels(labels, outer * inner, classes);
    const bool mean = reduction == ikebana::reduction::mean;
    if (counted == 0) {
      if (gradient != nullptr) cpu::fill<T>(prediction.numel(), gradient, T{0});
      return mean ? std::numeric_limits<T>::quiet_NaN() : T{0};
    }
    if (!weight.empty())
      return compute_weighted<T>(outer, classes, inner, {prediction, target, x, labels, gradient});
    const T divisor = mean ? static_cast<T>(counted) : T{1};
    const T smoothing = static_cast<T>(label_smoothing);
    T sum{};
    if constexpr (Inner) {
      if (inner != 1) {
        if (gradient != nullptr) {
          cpu::log_softmax_forward<T>(outer, classes, inner, x, gradient);
          sum = sum_of_losses(outer, classes, inner, gradient, labels, smoothing);
          cpu::exp<T>(prediction.numel(), gradient, gradient);
          finish_gradient(outer, classes, inner, gradient, labels, smoothing, 1 / divisor);
        } else {
          sum = sum_of_losses_from_logits(outer, classes, inner, x, labels, smoothing);
        }
        return sum / divisor;
      }
    }
    std::int64_t rows = 0;
    cpu::cross_entropy<T>(outer, classes, x, labels, smoothing, ignore_index, &sum, &rows, gradient,
                          1 / divisor);
    return sum / divisor;
  }

  /// Of labels with a weight for each class.
  template <class T>
  [[gnu::noinline]] T compute_weighted(dim_t outer, dim_t classes, dim_t inner,
                                       const detail::loss_call<T, std::int64_t>& c) const {
    const std::int64_t* const labels = c.target;
    double total = 0;
    for (dim_t k = 0; k < classes; ++k) total += weight[k];
    double divisor = 0;
    for (dim_t i = 0; i < outer * inner; ++i)
      if (labels[i] != ignore_index) divisor += weight[labels[i]];
    const double smooth = label_smoothing / static_cast<double>(classes);
    return compute_targets<T>(
        outer, classes, inner, c, divisor,
        [&](dim_t o, dim_t j) {
          const std::int64_t label = labels[o * inner + j];
          return label == ignore_index ? 0 : (1 - label_smoothing) * weight[label] + smooth * total;
        },
        [&](dim_t o, dim_t k, dim_t j) {
          const std::int64_t label = labels[o * inner + j];
          if (label == ignore_index) return 0.0;
          return weight[k] * ((label == k ? 1 - label_smoothing : 0) + smooth);
        });
  }

  template <class T>
  [[gnu::noinline]] T compute_of_probabilities(const detail::loss_call<T, T>& call) const {
    const shape& extents = call.extents;
    const std::size_t c = extents.rank() == 1 ? 0 : 1;
    const dim_t outer = extents.numel(0, c), classes = extents[c],
                inner = extents.numel(c + 1, extents.rank());
    const double smooth = label_smoothing / static_cast<double>(classes);
    const auto of = [&](dim_t o, dim_t k, dim_t j) {
      const double p = static_cast<double>(call.target[(o * classes + k) * inner + j]);
      return weight[k] * (p * (1 - label_smoothing) + smooth);
    };
    return compute_targets<T>(
        outer, classes, inner, call, static_cast<double>(outer * inner),
        [&](dim_t o, dim_t j) {
          double sum = 0;
          for (dim_t k = 0; k < classes; ++k) sum += of(o, k, j);
          return sum;
        },
        of);
  }

  /// The sum of -q log p of targets q(o, k, j) of class k, whose sum is sum_of(o, j); its gradient
  /// is p sum - q.
  template <class T, class U, class Sum, class Target>
  T compute_targets(dim_t outer, dim_t classes, dim_t inner, const detail::loss_call<T, U>& c,
                    double divisor, const Sum& sum_of, const Target& q) const {
    // By plain loops: the vector kernels of softmax would be compiled for every cross_entropy.
    if (reduction != ikebana::reduction::mean) divisor = 1;
    double sum = 0;
    for (dim_t o = 0; o < outer; ++o)
      for (dim_t j = 0; j < inner; ++j) {
        const dim_t first = o * classes * inner + j;
        const T* const row = c.x + first;
        const row_sum<T> total(row, classes, inner);
        const auto log_total = static_cast<double>(total.logarithm());
        const double all = c.gradient == nullptr ? 0 : sum_of(o, j);
        const double by = c.weights == nullptr ? 1 : static_cast<double>(c.weights[o * inner + j]);
        double of_row = 0;
        for (dim_t k = 0; k < classes; ++k) {
          const double t = q(o, k, j);
          if (t != 0) of_row += t * (log_total - static_cast<double>(row[k * inner]));
          if (c.gradient == nullptr) continue;
          const double p =
              static_cast<double>(std::exp(row[k * inner] - total.most) / total.exponentials);
          c.gradient[first + k * inner] = static_cast<T>(by * (p * all - t) / divisor);
        }
        if (c.values != nullptr) c.values[o * inner + j] = static_cast<T>(of_row);
        sum += of_row;
      }
    return static_cast<T>(sum / divisor);
  }

  /// Takes log-probabilities.
  template <class T>
  T sum_of_losses(dim_t outer, dim_t classes, dim_t inner, const T* logp,
                  const std::int64_t* labels, T smoothing) const {
    T sum{};
    for (dim_t o = 0; o < outer; ++o, logp += classes * inner, labels += inner)
      for (dim_t j = 0; j < inner; ++j) {
        if (labels[j] == ignore_index) continue;
        sum -= (1 - smoothing) * logp[labels[j] * inner + j];
        if (smoothing == 0) continue;
        T all{};
        for (dim_t k = 0; k < classes; ++k) all += logp[k * inner + j];
        sum -= smoothing / static_cast<T>(classes) * all;
      }
    return sum;
  }

  template <class T>
  T sum_of_losses_from_logits(dim_t outer, dim_t classes, dim_t inner, const T* x,
                              const std::int64_t* labels, T smoothing) const {
    T sum{};
    for (dim_t o = 0; o < outer; ++o, x += classes * inner, labels += inner)
      for (dim_t j = 0; j < inner; ++j) {
        if (labels[j] == ignore_index) continue;
        T most = x[j];
        for (dim_t k = 1; k < classes; ++k)
          if (x[k * inner + j] > most) most = x[k * inner + j];
        T exponentials{}, all{};
        for (dim_t k = 0; k < classes; ++k) {
          exponentials += std::exp(x[k * inner + j] - most);
          if (smoothing != 0) all += x[k * inner + j] - most;
        }
        const T log_total = std::log(exponentials);
        sum += (1 - smoothing) * (log_total - (x[labels[j] * inner + j] - most)) +
               smoothing * (log_total - all / static_cast<T>(classes));
      }
    return sum;
  }

  /// Turns probabilities into gradients, in place.
  template <class T>
  void finish_gradient(dim_t outer, dim_t classes, dim_t inner, T* g, const std::int64_t* labels,
                       T smoothing, T scale) const {
    const T smooth = smoothing / static_cast<T>(classes);
    for (dim_t o = 0; o < outer; ++o, g += classes * inner, labels += inner) {
      for (dim_t k = 0; k < classes; ++k)
        for (dim_t j = 0; j < inner; ++j)
          g[k * inner + j] = labels[j] == ignore_index ? T{0} : scale * (g[k * inner + j] - smooth);
      for (dim_t j = 0; j < inner; ++j)
        if (labels[j] != ignore_index) g[labels[j] * inner + j] -= scale * (1 - smoothing);
    }
  }
};

}  // namespace ikebana
