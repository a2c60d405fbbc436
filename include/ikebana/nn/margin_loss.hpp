#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <type_traits>

#include "ikebana/core/error.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/module/element_mismatch.hpp"
#include "ikebana/module/loss_leaf.hpp"
#include "ikebana/module/refusal.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/nn/class_weights.hpp"
#include "ikebana/nn/loss_values.hpp"

// Losses of scores of classes, (N, C) or (C), that are a sum over the classes of each sample and a
// sum or a mean over the samples, with PyTorch's formulas and options. Throws shape_error if the
// shapes do not match, and error for labels that are no classes, before anything is written. The
// mean over no samples is NaN. Within graphs, and with loss_values, reduction::none gives the loss
// of each sample. No allocation.
namespace ikebana {

namespace detail {

[[noreturn, gnu::cold]] inline void refuse_class(const char* loss, std::int64_t label,
                                                 dim_t classes, dim_t index) {
  char said[160];
  std::snprintf(said, sizeof said, "%s expects labels from 0 to %lld, got %lld at index %lld", loss,
                static_cast<long long>(classes - 1), static_cast<long long>(label),
                static_cast<long long>(index));
  throw_error(error(said));
}

template <class T, class U, class Loss>
T loss_of_rows(const Loss& loss, const loss_call<T, U>& c, dim_t per_row) {
  const dim_t classes = c.extents.back(), rows = c.extents.numel(0, c.extents.rank() - 1);
  const double divisor = loss.reduction == reduction::mean ? static_cast<double>(rows) : 1;
  double sum = 0;
  for (dim_t r = 0; r < rows; ++r) {
    const double weight = c.weights == nullptr ? 1 : static_cast<double>(c.weights[r]);
    const double value =
        loss.template row<T>(classes, c.x + r * classes, c.target + r * per_row, weight / divisor,
                             c.gradient == nullptr ? nullptr : c.gradient + r * classes);
    if (c.values != nullptr) c.values[r] = static_cast<T>(value);
    sum += value;
  }
  return static_cast<T>(sum / divisor);
}

}  // namespace detail

// The members of a loss that has `reduction`, `check`, `check_labels` and
//
//     template <class T>
//     double row(dim_t classes, const T* x, const U* target, double factor, T* slope) const
//
// which returns the loss of one sample and writes factor times its derivatives, unless slope is
// null. Target is std::int64_t for labels.
#define IKEBANA_LOSS_OF_ROWS(Self)                                                                \
  static constexpr std::string_view name = #Self;                                                 \
  constexpr bool operator==(const Self&) const = default;                                         \
  template <class U>                                                                              \
  void check_values(const shape& prediction, const shape&, const U* target) const {               \
    check_labels(prediction, target);                                                             \
  }                                                                                               \
  template <class U>                                                                              \
  static constexpr shape value_shape(const shape& prediction, const shape&) {                     \
    return prediction.rank() == 1 ? shape{} : shape{prediction[0]};                               \
  }                                                                                               \
  template <tensor_like Target>                                                                   \
  void validate(const shape& prediction, const Target& target) const {                            \
    const diagnostic wrong = check(prediction, target.extents());                                 \
    if (!wrong.ok()) throw_error(shape_error(wrong));                                             \
    detail::check_reduction(reduction);                                                           \
    check_labels(prediction, target.data());                                                      \
  }                                                                                               \
  template <symbolic X, symbolic Y>                                                               \
  constexpr auto operator()(const X& x, const Y& target) const {                                  \
    return detail::apply_loss(*this, x, target);                                                  \
  }                                                                                               \
  template <tensor_like X, tensor_like Y>                                                         \
  requires(detail::takes_target<Self, X, Y>) auto operator()(const X& x, const Y& target) const { \
    return backward(x, target, static_cast<typename X::value_type*>(nullptr));                    \
  }                                                                                               \
  template <tensor_like X, tensor_like Y>                                                         \
  requires(!detail::takes_target<Self, X, Y>) auto operator()(const X&, const Y&)                 \
      const->decltype(detail::refuse<detail::check_loss_of<Self, X, Y>>());                       \
  template <tensor_like X, tensor_like Y, class T>                                                \
  requires(detail::takes_target<Self, X, Y>) T backward(const X& x, const Y& target, T* gradient) \
  const {                                                                                         \
    validate(x.extents(), target);                                                                \
    return run(detail::loss_call<T, typename Y::value_type>{x.extents(), target.extents(),        \
                                                            x.data(), target.data(), gradient});  \
  }                                                                                               \
  template <tensor_like X, tensor_like Y, class T>                                                \
  requires(!detail::takes_target<Self, X, Y>) auto backward(const X&, const Y&, T*)               \
      const->decltype(detail::refuse<detail::check_loss_of<Self, X, Y>>());                       \
  template <class T, class U>                                                                     \
  T run(const detail::loss_call<T, U>& c) const {                                                 \
    return detail::loss_of_rows<T, U>(*this, c, row_size(c.extents));                             \
  }                                                                                               \
  static_assert(true)

/// The sum of max(0, margin - x[label] + x[i])^p over the other classes i, divided by C, for labels
/// (N) or (): a support vector machine for several classes (Crammer and Singer, 2001). p is 1 or 2.
/// With `weight`, the losses of a sample count as much as its label's weight. O(elements).
struct multi_margin_loss {
  IKEBANA_LOSS_OF_ROWS(multi_margin_loss);
  static constexpr element_kind target_kind = element_kind::index;

  ikebana::reduction reduction = ikebana::reduction::mean;
  int p = 1;
  double margin = 1;
  class_weights weight{};

  template <class T, class U>
  static constexpr diagnostic check_elements() {
    if constexpr (std::is_same_v<U, std::int64_t>)
      return {};
    else
      return {detail::element_mismatch<"multi_margin_loss expects class indices of type ",
                                       std::int64_t, U>.c_str()};
  }
  static constexpr diagnostic check(const shape& x, const shape& target) {
    if (x.rank() == 0 || x.rank() > 2 || target.rank() + 1 != x.rank() ||
        (x.rank() == 2 && !compatible(shape{x[0]}, target)))
      return {
          "multi_margin_loss expects scores (N, C) and labels (N), or (C) and (), got {input} and "
          "{other}",
          0, 0, x, target};
    return {};
  }
  void check_labels(const shape& x, const std::int64_t* labels) const {
    if (p != 1 && p != 2)
      throw_error(error("multi_margin_loss expects p = 1 or 2, got " + std::to_string(p)));
    weight.check("multi_margin_loss", x.back());
    const dim_t rows = x.rank() == 1 ? 1 : x[0];
    for (dim_t i = 0; i < rows; ++i)
      if (labels[i] < 0 || labels[i] >= x.back())
        detail::refuse_class("multi_margin_loss", labels[i], x.back(), i);
  }
  static dim_t row_size(const shape&) { return 1; }

  template <class T>
  double row(dim_t classes, const T* x, const std::int64_t* label, double factor, T* slope) const {
    const double scale = weight[*label] / static_cast<double>(classes);
    double sum = 0, below = 0;
    for (dim_t i = 0; i < classes; ++i) {
      if (slope != nullptr) slope[i] = T{0};
      const double d = margin - static_cast<double>(x[*label]) + static_cast<double>(x[i]);
      if (i == *label || !(d > 0)) continue;
      sum += p == 1 ? d : d * d;
      const double s = scale * factor * (p == 1 ? 1 : 2 * d);
      below += s;
      if (slope != nullptr) slope[i] = static_cast<T>(s);
    }
    if (slope != nullptr) slope[*label] = static_cast<T>(-below);
    return sum * scale;
  }
};

/// For sets of labels, of x's shape: those of a sample up to the first -1. The sum of max(0, 1 -
/// (x[label] - x[i])) over the labels and the classes i that are none, divided by C. O(elements *
/// C).
struct multilabel_margin_loss {
  IKEBANA_LOSS_OF_ROWS(multilabel_margin_loss);
  static constexpr element_kind target_kind = element_kind::index;

  ikebana::reduction reduction = ikebana::reduction::mean;

  template <class T, class U>
  static constexpr diagnostic check_elements() {
    if constexpr (std::is_same_v<U, std::int64_t>)
      return {};
    else
      return {detail::element_mismatch<"multilabel_margin_loss expects class indices of type ",
                                       std::int64_t, U>.c_str()};
  }
  static constexpr diagnostic check(const shape& x, const shape& target) {
    if (x.rank() == 0 || x.rank() > 2 || !compatible(x, target))
      return {
          "multilabel_margin_loss expects scores and labels (N, C) or (C), got {input} and {other}",
          0, 0, x, target};
    return {};
  }
  void check_labels(const shape& x, const std::int64_t* labels) const {
    for (dim_t i = 0; i < x.numel(); ++i)
      if (labels[i] < -1 || labels[i] >= x.back())
        detail::refuse_class("multilabel_margin_loss", labels[i], x.back(), i);
  }
  static dim_t row_size(const shape& x) { return x.back(); }

  template <class T>
  double row(dim_t classes, const T* x, const std::int64_t* labels, double factor, T* slope) const {
    dim_t count = 0;
    while (count < classes && labels[count] != -1) ++count;
    const auto is_label = [&](dim_t i) {
      for (dim_t k = 0; k < count; ++k)
        if (labels[k] == i) return true;
      return false;
    };
    if (slope != nullptr)
      for (dim_t i = 0; i < classes; ++i) slope[i] = T{0};
    const double scale = 1 / static_cast<double>(classes);
    const auto step = static_cast<T>(scale * factor);
    double sum = 0;
    for (dim_t i = 0; i < classes; ++i) {
      if (is_label(i)) continue;
      for (dim_t k = 0; k < count; ++k) {
        const double d = 1 - static_cast<double>(x[labels[k]]) + static_cast<double>(x[i]);
        if (!(d > 0)) continue;
        sum += d;
        if (slope == nullptr) continue;
        slope[i] += step;
        slope[labels[k]] -= step;
      }
    }
    return sum * scale;
  }
};

/// For each class a probability t, of x's shape and type: the mean over the classes of -t log
/// sigmoid(x) - (1 - t) log sigmoid(-x). The mean over the samples is that of bce_with_logits, the
/// sum is C times less. With `weight`, each class counts as much. O(elements).
struct multilabel_soft_margin_loss {
  IKEBANA_LOSS_OF_ROWS(multilabel_soft_margin_loss);
  static constexpr element_kind target_kind = element_kind::real;

  ikebana::reduction reduction = ikebana::reduction::mean;
  class_weights weight{};

  template <class T, class U>
  static constexpr diagnostic check_elements() {
    if constexpr (std::is_same_v<U, T>)
      return {};
    else
      return {
          detail::element_mismatch<"multilabel_soft_margin_loss expects a target of type ", T, U>.c_str()};
  }
  static constexpr diagnostic check(const shape& x, const shape& target) {
    if (x.rank() == 0 || x.rank() > 2 || !compatible(x, target))
      return {
          "multilabel_soft_margin_loss expects scores and targets (N, C) or (C), got {input} and "
          "{other}",
          0, 0, x, target};
    return {};
  }
  template <class T>
  void check_labels(const shape& x, const T*) const {
    weight.check("multilabel_soft_margin_loss", x.back());
  }
  static dim_t row_size(const shape& x) { return x.back(); }

  template <class T>
  double row(dim_t classes, const T* x, const T* t, double factor, T* slope) const {
    const double scale = 1 / static_cast<double>(classes);
    double sum = 0;
    for (dim_t i = 0; i < classes; ++i) {
      const double v = static_cast<double>(x[i]), share = static_cast<double>(t[i]);
      const double e = std::exp(-std::abs(v));
      sum += weight[i] * ((v > 0 ? v : 0) - v * share + std::log1p(e));
      if (slope != nullptr)
        slope[i] = static_cast<T>(scale * factor * weight[i] *
                                  ((v >= 0 ? 1 / (1 + e) : e / (1 + e)) - share));
    }
    return sum * scale;
  }
  template <class T>
  void target_gradient(const detail::loss_call<T, T>& c, T factor) const {
    const dim_t classes = c.extents.back(), n = c.extents.numel();
    factor /= static_cast<T>(classes);
    if (reduction == ikebana::reduction::mean)
      factor /= static_cast<T>(c.extents.numel(0, c.extents.rank() - 1));
    for (dim_t i = 0; i < n; ++i)
      c.gradient[i] = -c.x[i] * static_cast<T>(weight[i % classes]) *
                      (c.weights == nullptr ? factor : factor * c.weights[i / classes]);
  }
};

#undef IKEBANA_LOSS_OF_ROWS

}  // namespace ikebana
