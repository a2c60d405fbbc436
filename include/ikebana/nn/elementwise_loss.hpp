#pragma once

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <string_view>
#include <type_traits>

#include "ikebana/core/dtype.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/core/text.hpp"
#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/cpu/pointwise.hpp"
#include "ikebana/module/loss_leaf.hpp"
#include "ikebana/module/refusal.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/nn/detail/spatial.hpp"
#include "ikebana/nn/element_weights.hpp"
#include "ikebana/nn/loss_values.hpp"

// Losses that are a sum, or a mean, over the elements of a prediction and a target of its shape and
// type, with PyTorch's formulas and options. Within graphs, and with loss_values, reduction::none
// gives the loss of each element. Gradients go back to the target, too, as if it were a prediction.
// Throws shape_error unless the shapes are equal: nothing is broadcast. The mean over no elements
// is NaN. O(elements); no allocation.
namespace ikebana {

namespace detail {

/// The most elements that a loss is asked for at once.
inline constexpr dim_t block_of_loss = 512;

template <literal Name, class T, class U>
inline constexpr text<200> wrong_target = text<200>{}
                                              .append(joined<Name>)
                                              .append(" expects a target of the prediction type ")
                                              .append(element_name<T>())
                                              .append(", got ")
                                              .append(element_name<U>());

/// What the mean, or the sum, is divided by.
template <class Loss>
double divisor_of(const Loss& loss, const shape& extents) {
  if constexpr (requires { loss.batch_mean; })
    if (loss.batch_mean) return static_cast<double>(extents.rank() == 0 ? 1 : extents[0]);
  return loss.reduction == reduction::mean ? static_cast<double>(extents.numel()) : 1;
}

template <class Loss>
inline constexpr bool has_element_weights = requires(const Loss& l) {
  l.weight.are_one();
};

/// Throws error if the weights of a loss are not those of a prediction of these extents.
template <class Loss>
void check_element_weights(const Loss& loss, const shape& extents) {
  if constexpr (has_element_weights<Loss>) loss.weight.check(Loss::name.data(), "weight", extents);
  if constexpr (requires { loss.pos_weight; })
    loss.pos_weight.check(Loss::name.data(), "pos_weight", extents);
}

[[noreturn, gnu::cold]] inline void refuse_probability(dim_t i, double x) {
  char said[160];
  std::snprintf(said, sizeof said,
                "bce_loss expects probabilities between 0 and 1, got %g (element %lld); "
                "bce_with_logits takes logits",
                x, static_cast<long long>(i));
  throw_error(error(said));
}

/// The value of a loss, and its derivatives where gradient is given, block by block.
template <class T, class Loss>
T elementwise_loss(const Loss& loss, const loss_call<T, T>& c) {
  const dim_t n = c.extents.numel();
  if constexpr (requires { loss.check_predictions(n, c.x); }) loss.check_predictions(n, c.x);
  const bool is_reduced = loss.reduction != reduction::none;
  const double divisor = is_reduced ? divisor_of(loss, c.extents) : 1;
  const auto factor = static_cast<T>(1 / divisor);
  T values[block_of_loss], slopes[block_of_loss];
  double sum = 0;
  for (dim_t i = 0; i < n; i += block_of_loss) {
    const dim_t count = n - i < block_of_loss ? n - i : block_of_loss;
    T* const value = c.values == nullptr ? values : c.values + i;
    T* const slope = c.gradient == nullptr ? slopes : c.gradient + i;
    if constexpr (has_element_weights<Loss>) {
      loss.template block<T>(count, c.x + i, c.target + i, value, slope, i);
      if (!loss.weight.are_one())
        for (dim_t k = 0; k < count; ++k) {
          const auto w = static_cast<T>(loss.weight[i + k]);
          value[k] *= w;
          slope[k] *= w;
        }
    } else {
      loss.template block<T>(count, c.x + i, c.target + i, value, slope);
    }
    T of_block{};
    for (dim_t k = 0; k < count; ++k) of_block += value[k];
    sum += static_cast<double>(of_block);
    if (c.gradient == nullptr) continue;
    if (c.weights != nullptr)
      cpu::multiply<T>(count, slope, c.weights + i, slope);
    else if (factor != T{1})
      cpu::scale<T>(count, factor, slope);
  }
  // The mean over no elements is 0 / 0 = NaN.
  return static_cast<T>(sum / divisor);
}

/// `factor` times the gradients of the target.
template <class T, class Loss>
void loss_target_gradient(const Loss& loss, const loss_call<T, T>& c, T factor) {
  if (c.weights == nullptr) factor /= static_cast<T>(divisor_of(loss, c.extents));
  for (dim_t i = 0; i < c.extents.numel(); ++i) {
    const T by = c.weights == nullptr ? factor : c.weights[i];
    if constexpr (has_element_weights<Loss>)
      c.gradient[i] =
          by * static_cast<T>(loss.weight[i]) * loss.target_slope(c.x[i], c.target[i], i);
    else
      c.gradient[i] = by * loss.target_slope(c.x[i], c.target[i]);
  }
}

}  // namespace detail

// The members of a loss that has a member `reduction` and
//
//     template <class T>
//     void block(dim_t n, const T* x, const T* t, T* value, T* slope) const
//     template <class T>
//     T target_slope(T x, T t) const
//
// which write the losses of n elements, at most block_of_loss, with their derivatives with respect
// to x, and return that of one with respect to t; `check_predictions(n, x)`, if there is one,
// throws before anything is written. One with element_weights `weight` is told, last,
// the index of the (first) element; its own functions leave `weight` out. Not a base class: with
// one, g++ warns of each initializer that names members, huber_loss{.delta = 2}.
#define IKEBANA_ELEMENTWISE_LOSS(Self)                                                            \
  static constexpr std::string_view name = #Self;                                                 \
  static constexpr element_kind target_kind = element_kind::real;                                 \
  constexpr bool operator==(const Self&) const = default;                                         \
  template <class T, class U>                                                                     \
  static constexpr diagnostic check_elements() {                                                  \
    if constexpr (std::is_same_v<U, T>)                                                           \
      return {};                                                                                  \
    else                                                                                          \
      return {detail::wrong_target<#Self, T, U>.c_str()};                                         \
  }                                                                                               \
  static constexpr diagnostic check(const shape& prediction, const shape& target) {               \
    if (compatible(prediction, target)) return {};                                                \
    return {#Self " expects a target of shape {input}, got {other}", 0, 0, prediction, target};   \
  }                                                                                               \
  template <class U>                                                                              \
  static constexpr shape value_shape(const shape& prediction, const shape&) {                     \
    return prediction;                                                                            \
  }                                                                                               \
  template <class U>                                                                              \
  void check_values(const shape& prediction, const shape&, const U*) const {                      \
    detail::check_element_weights(*this, prediction);                                             \
  }                                                                                               \
  template <tensor_like Target>                                                                   \
  void validate(const shape& prediction, const Target& target) const {                            \
    const diagnostic wrong = check(prediction, target.extents());                                 \
    if (!wrong.ok()) throw_error(shape_error(wrong));                                             \
    detail::check_reduction(reduction);                                                           \
    detail::check_element_weights(*this, prediction);                                             \
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
    return run(detail::loss_call<T, T>{x.extents(), target.extents(), x.data(), target.data(),    \
                                       gradient});                                                \
  }                                                                                               \
  template <tensor_like X, tensor_like Y, class T>                                                \
  requires(!detail::takes_target<Self, X, Y>) auto backward(const X&, const Y&, T*)               \
      const->decltype(detail::refuse<detail::check_loss_of<Self, X, Y>>());                       \
  template <class T>                                                                              \
  T run(const detail::loss_call<T, T>& c) const {                                                 \
    return detail::elementwise_loss<T>(*this, c);                                                 \
  }                                                                                               \
  template <class T>                                                                              \
  void target_gradient(const detail::loss_call<T, T>& c, T factor) const {                        \
    detail::loss_target_gradient<T>(*this, c, factor);                                            \
  }                                                                                               \
  static_assert(true)

/// |x - t|.
struct l1_loss {
  IKEBANA_ELEMENTWISE_LOSS(l1_loss);

  ikebana::reduction reduction = ikebana::reduction::mean;

  template <class T>
  void block(dim_t n, const T* x, const T* t, T* value, T* slope) const {
    for (dim_t i = 0; i < n; ++i) {
      const T d = x[i] - t[i];
      slope[i] = d > 0 ? T{1} : d < 0 ? T{-1} : d;
      value[i] = std::abs(d);
    }
  }
  template <class T>
  T target_slope(T x, T t) const {
    T value, slope;
    block(1, &x, &t, &value, &slope);
    return -slope;
  }
};

/// (x - t)^2 / (2 beta) where |x - t| < beta, else |x - t| - beta / 2 (Girshick, Fast R-CNN, 2015).
/// beta is at least 0; at 0 this is l1_loss.
struct smooth_l1_loss {
  IKEBANA_ELEMENTWISE_LOSS(smooth_l1_loss);

  ikebana::reduction reduction = ikebana::reduction::mean;
  double beta = 1;

  template <class T>
  void block(dim_t n, const T* x, const T* t, T* value, T* slope) const {
    const auto b = static_cast<T>(beta);
    for (dim_t i = 0; i < n; ++i) {
      const T d = x[i] - t[i], a = std::abs(d);
      slope[i] = a < b ? d / b : d > 0 ? T{1} : d < 0 ? T{-1} : d;
      value[i] = a < b ? d * d / (2 * b) : a - b / 2;
    }
  }
  template <class T>
  T target_slope(T x, T t) const {
    T value, slope;
    block(1, &x, &t, &value, &slope);
    return -slope;
  }
};

/// (x - t)^2 / 2 where |x - t| < delta, else delta (|x - t| - delta / 2) (Huber, Robust Estimation
/// of a Location Parameter, 1964).
struct huber_loss {
  IKEBANA_ELEMENTWISE_LOSS(huber_loss);

  ikebana::reduction reduction = ikebana::reduction::mean;
  double delta = 1;

  template <class T>
  void block(dim_t n, const T* x, const T* t, T* value, T* slope) const {
    const auto most = static_cast<T>(delta);
    for (dim_t i = 0; i < n; ++i) {
      const T d = x[i] - t[i], a = std::abs(d);
      slope[i] = a < most ? d : d > 0 ? most : d < 0 ? -most : d;
      value[i] = a < most ? d * d / 2 : most * (a - most / 2);
    }
  }
  template <class T>
  T target_slope(T x, T t) const {
    T value, slope;
    block(1, &x, &t, &value, &slope);
    return -slope;
  }
};

/// The binary cross entropy of logits: -(pos_weight t log sigmoid(x) + (1 - t) log(1 -
/// sigmoid(x))), without overflow at any x. Targets are between 0 and 1. PyTorch's
/// BCEWithLogitsLoss. `weight` and `pos_weight` are a number, or as many as the last dimensions of
/// the prediction have: one for each class, or for each element. The mean is divided by the number
/// of elements, whatever their weights.
struct bce_with_logits {
  IKEBANA_ELEMENTWISE_LOSS(bce_with_logits);

  ikebana::reduction reduction = ikebana::reduction::mean;
  element_weights weight{};      ///< Times the loss of an element.
  element_weights pos_weight{};  ///< The weight of the positive targets.

  static constexpr diagnostic check_last(std::string_view kind) {
    if (kind == "sigmoid")
      return {
          "sigmoid is computed twice: bce_with_logits takes logits and computes it itself, so "
          "leave "
          "this module out"};
    return {};
  }

  template <class T>
  void block(dim_t n, const T* x, const T* t, T* value, T* slope, dim_t at) const {
    // With q = 1 + (pos_weight - 1) t: (1 - t) x + q log(1 + exp(-x)), whose derivative is (1 - t)
    // - q (1 - sigmoid(x)).
    const bool same = pos_weight.is_number();
    T more = static_cast<T>(pos_weight[0] - 1);
    T entropy[detail::block_of_loss];
    cpu::pointwise_forward<T>(cpu::pointwise::log_sigmoid, n, T{}, T{}, T{}, x, entropy);
    cpu::sigmoid_forward<T>(n, x, slope);
    for (dim_t i = 0; i < n; ++i) {
      if (!same) more = static_cast<T>(pos_weight[at + i] - 1);
      const T q = 1 + more * t[i];
      // Of 0 times infinity, 0.
      value[i] = (t[i] == 1 ? T{0} : (1 - t[i]) * x[i]) - q * entropy[i];
      slope[i] = (1 - t[i]) - q + q * slope[i];
    }
  }
  template <class T>
  T target_slope(T x, T, dim_t at) const {
    // log sigmoid(x).
    const T entropy = (x < 0 ? x : T{0}) - std::log1p(std::exp(-std::abs(x)));
    return -x - static_cast<T>(pos_weight[at] - 1) * entropy;
  }
};

/// The binary cross entropy of probabilities: -(t log x + (1 - t) log(1 - x)), logarithms at least
/// -100, as PyTorch's BCELoss. bce_with_logits is more exact. Throws error, before it writes
/// anything, unless all x are in [0, 1].
struct bce_loss {
  IKEBANA_ELEMENTWISE_LOSS(bce_loss);

  ikebana::reduction reduction = ikebana::reduction::mean;
  element_weights weight{};  ///< Times the loss of an element, see bce_with_logits.

  template <class T>
  void check_predictions(dim_t n, const T* x) const {
    for (dim_t i = 0; i < n; ++i)
      if (!(x[i] >= 0 && x[i] <= 1)) detail::refuse_probability(i, static_cast<double>(x[i]));
  }
  template <class T>
  void block(dim_t n, const T* x, const T* t, T* value, T* slope, dim_t) const {
    for (dim_t i = 0; i < n; ++i) {
      const T p = x[i], rest = 1 - p;
      const T log_p = std::log(p) > -100 ? std::log(p) : T{-100};
      const T log_rest = std::log1p(-p) > -100 ? std::log1p(-p) : T{-100};
      value[i] = -(t[i] * log_p + (1 - t[i]) * log_rest);
      const T spread = p * rest, least = 1e-12f;  // a float in PyTorch, too
      slope[i] = (p - t[i]) / (spread > least ? spread : least);
    }
  }
  template <class T>
  T target_slope(T x, T, dim_t) const {
    const T log_p = std::log(x), log_rest = std::log1p(-x);
    return (log_rest > -100 ? log_rest : T{-100}) - (log_p > -100 ? log_p : T{-100});
  }
};

/// The Kullback-Leibler divergence t (log t - x) of probabilities t, or with log_target of their
/// logarithms, from log-probabilities x (the output of log_softmax); 0 where t is. reduction::mean
/// divides by the number of elements, as PyTorch's default does; the mean over a batch of
/// divergences is that of batch_mean.
struct kl_div {
  IKEBANA_ELEMENTWISE_LOSS(kl_div);

  ikebana::reduction reduction = ikebana::reduction::mean;
  bool batch_mean = false;  ///< Divides by the first extent: PyTorch's reduction="batchmean".
  bool log_target = false;

  template <class T>
  void block(dim_t n, const T* x, const T* t, T* value, T* slope) const {
    for (dim_t i = 0; i < n; ++i) {
      const T p = log_target ? std::exp(t[i]) : t[i];
      slope[i] = -p;
      if (log_target)
        value[i] = p * (t[i] - x[i]);
      else
        value[i] = p == 0 ? T{0} : p * (std::log(p) - x[i]);
    }
  }
  template <class T>
  T target_slope(T x, T t) const {
    if (log_target) return std::exp(t) * (t - x + 1);
    return t == 0 ? T{0} : std::log(t) + 1 - x;
  }
};

/// The negative log-likelihood of Poisson counts t: exp(x) - t x, or without log_input x - t log(x
/// + eps); with `full`, and Stirling's approximation t log t - t + log(2 pi t) / 2 where t > 1.
struct poisson_nll_loss {
  IKEBANA_ELEMENTWISE_LOSS(poisson_nll_loss);

  ikebana::reduction reduction = ikebana::reduction::mean;
  bool log_input = true;
  bool full = false;
  double eps = 1e-8;

  template <class T>
  void block(dim_t n, const T* x, const T* t, T* value, T* slope) const {
    const auto e = static_cast<T>(eps);
    for (dim_t i = 0; i < n; ++i) {
      if (log_input) {
        const T rate = std::exp(x[i]);
        value[i] = rate - t[i] * x[i];
        slope[i] = rate - t[i];
      } else {
        value[i] = x[i] - t[i] * std::log(x[i] + e);
        slope[i] = 1 - t[i] / (x[i] + e);
      }
      if (full && t[i] > 1)
        value[i] +=
            t[i] * std::log(t[i]) - t[i] + std::log(static_cast<T>(6.283185307179586) * t[i]) / 2;
    }
  }
  template <class T>
  T target_slope(T x, T t) const {
    const T rate = log_input ? -x : -std::log(x + static_cast<T>(eps));
    return full && t > 1 ? rate + std::log(t) + 1 / (2 * t) : rate;
  }
};

/// log(1 + exp(-t x)) of targets 1 and -1.
struct soft_margin_loss {
  IKEBANA_ELEMENTWISE_LOSS(soft_margin_loss);

  ikebana::reduction reduction = ikebana::reduction::mean;

  template <class T>
  void block(dim_t n, const T* x, const T* t, T* value, T* slope) const {
    T margin[detail::block_of_loss];
    cpu::multiply<T>(n, x, t, margin);
    cpu::sigmoid_forward<T>(n, margin, slope);
    cpu::pointwise_forward<T>(cpu::pointwise::log_sigmoid, n, T{}, T{}, T{}, margin, margin);
    for (dim_t i = 0; i < n; ++i) {
      value[i] = -margin[i];
      slope[i] = t[i] * (slope[i] - 1);
    }
  }
  template <class T>
  T target_slope(T x, T t) const {
    return -x / (1 + std::exp(t * x));
  }
};

/// x of targets 1, max(0, margin - x) of targets -1: of distances between pairs, similar ones and
/// others.
struct hinge_embedding_loss {
  IKEBANA_ELEMENTWISE_LOSS(hinge_embedding_loss);

  ikebana::reduction reduction = ikebana::reduction::mean;
  double margin = 1;

  template <class T>
  void block(dim_t n, const T* x, const T* t, T* value, T* slope) const {
    const auto m = static_cast<T>(margin);
    for (dim_t i = 0; i < n; ++i) {
      const bool similar = t[i] != -1;
      const T apart = m - x[i];
      value[i] = similar ? x[i] : apart > 0 ? apart : T{0};
      slope[i] = similar ? T{1} : apart > 0 ? T{-1} : T{0};
    }
  }
  template <class T>
  T target_slope(T, T) const {
    return T{0};
  }
};

#undef IKEBANA_ELEMENTWISE_LOSS

}  // namespace ikebana
