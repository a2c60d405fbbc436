#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <type_traits>

#include "ikebana/core/error.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/cpu/reduce.hpp"
#include "ikebana/cpu/softmax.hpp"
#include "ikebana/module/refusal.hpp"

namespace ikebana {

/// What a loss makes of the losses of single elements or rows.
enum class reduction : unsigned char { mean, sum };

// A loss is a value with
// - `static constexpr diagnostic check(prediction shape, target shape)`: what is wrong with them;
// - `void validate(prediction shape, target) const`: throws where the target's values are refused;
// - `T operator()(prediction, target) const`: the loss;
// - `T backward(prediction, target, T* gradient) const`: and its gradient by the prediction, in one
//   pass; gradient may be null
//
// for tensors or views of them. Both check all before they write anything, and allocate nothing.

namespace detail {

/// Refuses shapes that the compiler knows to be wrong.
template <class Loss, shape Prediction, shape Target>
constexpr void check_loss_shapes() {
  constexpr diagnostic wrong = Loss::check(Prediction, Target);
  if constexpr (!wrong.ok())
    static_cast<void>(sizeof(refusal_t<wrong.path, wrong.expected, wrong.got, wrong.message()>));
}

// Not by std::string: that is compiled in every unit.
[[noreturn, gnu::cold]] inline void refuse_label(std::int64_t label, dim_t classes, dim_t index) {
  char said[128];
  std::snprintf(said, sizeof said,
                "cross_entropy expects labels from 0 to %lld, got %lld at index %lld",
                static_cast<long long>(classes - 1), static_cast<long long>(label),
                static_cast<long long>(index));
  throw error(said);
}

}  // namespace detail

/// The cross entropy of logits (N, C), (C) or (N, C, d...) and class indices (N), () or (N, d...):
/// of each row (1 - s) (-log p[target]) + s / C * sum of -log p, where p = softmax of the logits
/// over C and s = label_smoothing (Szegedy et al., Rethinking the Inception Architecture, 2015).
/// Rows whose target is ignore_index count for nothing: the mean is that of the others (not a
/// number if there are none, as in PyTorch), their gradient is 0. Throws error if a label is
/// neither in [0, C) nor ignore_index, or label_smoothing not in [0, 1].
struct cross_entropy {
  ikebana::reduction reduction = ikebana::reduction::mean;
  double label_smoothing = 0;
  std::int64_t ignore_index = -100;

  static constexpr diagnostic check(const shape& prediction, const shape& target) {
    const std::size_t rank = prediction.rank();
    if (rank == 0)
      return {"cross_entropy expects logits of at least 1 dimension, got {input}", 1, 0, prediction,
              target};
    const std::size_t c = rank == 1 ? 0 : 1;
    if (prediction[c] == 0)
      return {"cross_entropy expects logits of at least 1 class, got {input}", 1, 0, prediction,
              target};
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

  template <tensor_like Target>
  void validate(const shape& prediction, const Target& target) const {
    const diagnostic wrong = check(prediction, target.extents());
    if (!wrong.ok()) throw shape_error(wrong);
    check_smoothing();
    count_labels(target.data(), target.extents().numel(),
                 prediction[prediction.rank() == 1 ? 0 : 1]);
  }

  template <tensor_like Prediction, tensor_like Target>
  auto operator()(const Prediction& prediction, const Target& target) const {
    return backward(prediction, target, static_cast<typename Prediction::value_type*>(nullptr));
  }

  template <tensor_like Prediction, tensor_like Target, class T>
  T backward(const Prediction& prediction, const Target& target, T* gradient) const {
    static_assert(std::is_same_v<typename Target::value_type, std::int64_t>,
                  "ikebana: cross_entropy takes class indices, of type std::int64_t");
    detail::check_loss_shapes<cross_entropy, Prediction::static_shape, Target::static_shape>();
    return compute<T, (Prediction::static_shape.rank() > 2)>(
        prediction.data(), prediction.extents(), target.data(), target.extents(), gradient);
  }

 private:
  template <class = void>
  [[gnu::cold]] void check_smoothing() const {
    if (label_smoothing >= 0 && label_smoothing <= 1) return;
    char said[400];  // A double can have 309 digits before its point.
    std::snprintf(said, sizeof said,
                  "cross_entropy expects label_smoothing between 0 and 1, got %f", label_smoothing);
    throw error(said);
  }

  /// How many labels count. Throws at the first that is no class.
  std::int64_t count_labels(const std::int64_t* labels, dim_t n, dim_t classes) const {
    std::int64_t counted = 0;
    for (dim_t i = 0; i < n; ++i) {
      if (labels[i] == ignore_index) continue;
      if (labels[i] < 0 || labels[i] >= classes) detail::refuse_label(labels[i], classes, i);
      ++counted;
    }
    return counted;
  }

  /// Inner: whether there are dimensions behind that of the classes.
  template <class T, bool Inner>
  T compute(const T* x, const shape& prediction, const std::int64_t* labels, const shape& target,
            T* gradient) const {
    const diagnostic wrong = check(prediction, target);
    if (!wrong.ok()) throw shape_error(wrong);
    check_smoothing();
    const std::size_t c = prediction.rank() == 1 ? 0 : 1;
    const dim_t classes = prediction[c], inner = prediction.numel(c + 1, prediction.rank());
    const dim_t outer = prediction.numel(0, c);
    const std::int64_t counted = count_labels(labels, outer * inner, classes);
    const bool mean = reduction == ikebana::reduction::mean;
    if (counted == 0) {
      if (gradient != nullptr) cpu::fill<T>(prediction.numel(), gradient, T{0});
      return mean ? std::numeric_limits<T>::quiet_NaN() : T{0};
    }
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

  /// From log-probabilities.
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
          all += x[k * inner + j] - most;
        }
        const T log_total = std::log(exponentials);
        sum += (1 - smoothing) * (log_total - (x[labels[j] * inner + j] - most)) +
               smoothing * (log_total - all / static_cast<T>(classes));
      }
    return sum;
  }

  /// From probabilities to gradients, in place.
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

/// The mean (or sum) of (prediction - target)^2 over all elements. The shapes must be equal:
/// nothing is broadcast. The mean of no elements is not a number.
struct mse_loss {
  ikebana::reduction reduction = ikebana::reduction::mean;

  static constexpr diagnostic check(const shape& prediction, const shape& target) {
    if (!compatible(prediction, target))
      return {"mse_loss expects a target of shape {input}, got {other}", 0, 0, prediction, target};
    return {};
  }

  template <tensor_like Target>
  void validate(const shape& prediction, const Target& target) const {
    const diagnostic wrong = check(prediction, target.extents());
    if (!wrong.ok()) throw shape_error(wrong);
  }

  template <tensor_like Prediction, tensor_like Target>
  auto operator()(const Prediction& prediction, const Target& target) const {
    return backward(prediction, target, static_cast<typename Prediction::value_type*>(nullptr));
  }

  template <tensor_like Prediction, tensor_like Target, class T>
  T backward(const Prediction& prediction, const Target& target, T* gradient) const {
    static_assert(std::is_same_v<typename Target::value_type, T>,
                  "ikebana: mse_loss takes a target of the prediction's element type");
    detail::check_loss_shapes<mse_loss, Prediction::static_shape, Target::static_shape>();
    validate(prediction.extents(), target);
    const dim_t n = prediction.extents().numel();
    const T divisor = reduction == ikebana::reduction::mean ? static_cast<T>(n) : T{1};
    // The mean of nothing is 0 / 0.
    return cpu::mse<T>(n, prediction.data(), target.data(), gradient, 2 / divisor) / divisor;
  }
};

}  // namespace ikebana
