#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string_view>
#include <type_traits>

#include "ikebana/core/error.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/module/element_mismatch.hpp"
#include "ikebana/module/loss_leaf.hpp"
#include "ikebana/module/refusal.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/nn/class_weights.hpp"
#include "ikebana/nn/loss_values.hpp"

namespace ikebana {

/// The negative log-likelihood of log-probabilities (N, C), (C) or (N, C, d...), the output of
/// log_softmax, and class indices (N), () or (N, d...): -x[target]. The mean is taken over the rows
/// whose target is not ignore_index (NaN if there are none, as in PyTorch); with `weight`, each
/// class counts as much, and the mean is divided by the weights of the targets. cross_entropy
/// computes log_softmax and this in one pass. Throws shape_error if the shapes do not match, and
/// error if a label is neither in [0, C) nor ignore_index or if there is not one weight for each
/// class, before anything is written. Within graphs, and with loss_values, reduction::none gives
/// the loss of each row. O(elements); no allocation.
struct nll_loss {
  static constexpr std::string_view name = "nll_loss";
  static constexpr element_kind target_kind = element_kind::index;

  ikebana::reduction reduction = ikebana::reduction::mean;
  std::int64_t ignore_index = -100;
  class_weights weight{};

  constexpr bool operator==(const nll_loss&) const = default;

  template <class T, class U>
  static constexpr diagnostic check_elements() {
    if constexpr (std::is_same_v<U, std::int64_t>)
      return {};
    else
      return {
          detail::element_mismatch<"nll_loss expects class indices of type ", std::int64_t, U>.c_str()};
  }

  static constexpr diagnostic check(const shape& prediction, const shape& target) {
    const std::size_t rank = prediction.rank();
    if (rank == 0 || target.rank() + 1 != rank)
      return {
          "nll_loss expects log-probabilities with one dimension more than the target, got {input} "
          "for {other}",
          0, 0, prediction, target};
    const std::size_t c = rank == 1 ? 0 : 1;
    for (std::size_t i = 0; i < target.rank(); ++i) {
      const dim_t expected = prediction[i < c ? i : i + 1];
      if (expected >= 0 && target[i] >= 0 && expected != target[i])
        return {
            "nll_loss expects a target extent of {expected}, got {got} (log-probabilities {input}, "
            "target {other})",
            expected, target[i], prediction, target};
    }
    return {};
  }

  template <tensor_like Target>
  void validate(const shape& prediction, const Target& target) const {
    const diagnostic wrong = check(prediction, target.extents());
    if (!wrong.ok()) throw_error(shape_error(wrong));
    detail::check_reduction(reduction);
    check_values(prediction, target.extents(), target.data());
  }
  void check_values(const shape& prediction, const shape& target,
                    const std::int64_t* labels) const {
    const dim_t classes = prediction[prediction.rank() == 1 ? 0 : 1];
    weight.check("nll_loss", classes);
    count(labels, target.numel(), classes);
  }
  /// One for each row.
  template <class U>
  static constexpr shape value_shape(const shape&, const shape& target) {
    return target;
  }

  template <symbolic X, symbolic Y>
  constexpr auto operator()(const X& x, const Y& target) const {
    return detail::apply_loss(*this, x, target);
  }

  template <tensor_like X, tensor_like Y>
  requires(detail::takes_target<nll_loss, X, Y>) auto operator()(const X& x,
                                                                 const Y& target) const {
    return backward(x, target, static_cast<typename X::value_type*>(nullptr));
  }
  template <tensor_like X, tensor_like Y>
  requires(!detail::takes_target<nll_loss, X, Y>) auto operator()(const X&, const Y&) const
      -> decltype(detail::refuse<detail::check_loss_of<nll_loss, X, Y>>());

  template <tensor_like X, tensor_like Y, class T>
  requires(detail::takes_target<nll_loss, X, Y>) T
      backward(const X& x, const Y& target, T* gradient)
  const {
    validate(x.extents(), target);
    return run(detail::loss_call<T, std::int64_t>{x.extents(), target.extents(), x.data(),
                                                  target.data(), gradient});
  }
  template <tensor_like X, tensor_like Y, class T>
  requires(!detail::takes_target<nll_loss, X, Y>) auto backward(const X&, const Y&, T*) const
      -> decltype(detail::refuse<detail::check_loss_of<nll_loss, X, Y>>());

  template <class T>
  T run(const detail::loss_call<T, std::int64_t>& c) const {
    const shape& s = c.extents;
    const std::size_t axis = s.rank() == 1 ? 0 : 1;
    const dim_t outer = s.numel(0, axis), classes = s[axis], inner = s.numel(axis + 1, s.rank());
    const std::int64_t counted = count(c.target, outer * inner, classes);
    if (c.gradient != nullptr) cpu::fill<T>(s.numel(), c.gradient, T{0});
    const bool mean = reduction == ikebana::reduction::mean;
    if (counted == 0 && mean) return std::numeric_limits<T>::quiet_NaN();
    double total = mean ? 0 : 1;
    if (mean)
      for (dim_t i = 0; i < outer * inner; ++i)
        if (c.target[i] != ignore_index) total += weight[c.target[i]];
    const auto divisor = static_cast<T>(total);
    T sum{};
    for (dim_t o = 0; o < outer; ++o)
      for (dim_t j = 0; j < inner; ++j) {
        const dim_t row = o * inner + j;
        const std::int64_t label = c.target[row];
        if (c.values != nullptr) c.values[row] = T{0};
        if (label == ignore_index) continue;
        const dim_t at = (o * classes + label) * inner + j;
        const auto w = static_cast<T>(weight[label]);
        sum -= w * c.x[at];
        if (c.values != nullptr) c.values[row] = -w * c.x[at];
        if (c.gradient != nullptr)
          c.gradient[at] = -w * (c.weights == nullptr ? T{1} : c.weights[row]) / divisor;
      }
    return sum / divisor;
  }

 private:
  /// The number of labels that are not ignored. Throws error at the first label outside [0, C).
  std::int64_t count(const std::int64_t* labels, dim_t n, dim_t classes) const {
    std::int64_t counted = 0;
    for (dim_t i = 0; i < n; ++i) {
      if (labels[i] == ignore_index) continue;
      if (labels[i] < 0 || labels[i] >= classes) refuse(labels[i], classes, i);
      ++counted;
    }
    return counted;
  }
  [[noreturn, gnu::cold]] static void refuse(std::int64_t label, dim_t classes, dim_t index) {
    char said[128];
    std::snprintf(said, sizeof said,
                  "nll_loss expects labels from 0 to %lld, got %lld at index %lld",
                  static_cast<long long>(classes - 1), static_cast<long long>(label),
                  static_cast<long long>(index));
    throw_error(error(said));
  }
};

}  // namespace ikebana
