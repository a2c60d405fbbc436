#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "ikebana/core/error.hpp"
#include "ikebana/core/saturated.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/extent.hpp"
#include "ikebana/module/graph_loss.hpp"
#include "ikebana/module/loss_reduction.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/parameter.hpp"
#include "ikebana/module/symbol.hpp"

namespace ikebana {

namespace detail {

/// log(exp(a) + exp(b) + exp(c)).
template <class T>
T log_sum(T a, T b, T c) {
  const T most = a > b ? (a > c ? a : c) : (b > c ? b : c);
  if (most == -std::numeric_limits<T>::infinity()) return most;
  return most + std::log(std::exp(a - most) + std::exp(b - most) + std::exp(c - most));
}

[[noreturn, gnu::cold]] inline void refuse_ctc(const char* what, std::int64_t most,
                                               std::int64_t got, dim_t index) {
  throw_error(error("ctc_loss expects " + std::string(what) + std::to_string(most) + ", got " +
                    std::to_string(got) + " at index " + std::to_string(index)));
}

/// See ctc_loss. Forward keeps the forward variables; backward computes the others as it goes.
struct ctc {
  static constexpr std::string_view kind = "ctc_loss";
  static constexpr kept keeps = kept::input;

  std::int64_t blank = 0;
  ikebana::reduction reduction = ikebana::reduction::mean;
  bool zero_infinity = false;

  constexpr bool operator==(const ctc&) const = default;

  static constexpr element_kind input_kind(std::size_t i, std::size_t) {
    return i == 0 ? element_kind::real : element_kind::index;
  }

  constexpr inferred infer(const shape_list& in) const {
    const shape &x = in[0], &targets = in[1];
    if (x.rank() != 3 && x.rank() != 2)
      return diagnostic{"ctc_loss expects log-probabilities (T, N, C) or (T, C), got {input}", 0, 0,
                        x};
    const shape batch = x.rank() == 3 ? shape{x[1]} : shape{};
    for (std::size_t i = 2; i < 4; ++i)
      if (!compatible(batch, in[i]))
        return diagnostic{
            "ctc_loss expects a length for each sample of {input}, of inputs and of targets, got "
            "{other}",
            0, 0, x, in[i]};
    if (targets.rank() == 0 || targets.rank() > x.rank() - 1 ||
        (targets.rank() == 2 && !fits(x[1], targets[0])))
      return diagnostic{
          "ctc_loss expects targets (N, S), or all one after another, for {input}, got {other}", 0,
          0, x, targets};
    if (x.back() >= 0 && x.back() <= blank)
      return diagnostic{"ctc_loss expects blank = {expected} to be one of {got} classes", blank,
                        x.back(), x};
    return reduction == ikebana::reduction::none ? batch : shape{};
  }

  /// The forward variables of all samples, their log-likelihoods, and two rows of scratch.
  constexpr std::array<saved_spec, 3> saved(const shape_list& in) const {
    const shape &x = in[0], &targets = in[1];
    const bool batched = x.rank() == 3;
    const dim_t row = sum_of(product_of(2, targets.back()), 1);
    saved_spec alpha{0, shape{x[0], row}};
    // Of targets one after another, rows have different lengths.
    if (batched)
      alpha.extents = targets.rank() == 2 ? shape{x[1], x[0], row}
                                          : shape{x[0], sum_of(product_of(2, targets[0]), x[1])};
    return {{alpha, {0, batched ? shape{x[1]} : shape{1}}, {0, shape{2, row}}}};
  }

  constexpr int shape_options() const { return reduction == ikebana::reduction::none ? 1 : 0; }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }
  void describe(description& d) const {
    d.add("blank", blank)
        .add("reduction", std::string_view{name_of_reduction(reduction)})
        .add("zero_infinity", zero_infinity);
  }

  template <class T>
  void validate(const context<T>& c) const {
    const sizes n(c);
    const std::int64_t *of_inputs = c.template input<std::int64_t>(2),
                       *of_targets = c.template input<std::int64_t>(3);
    dim_t total = 0;
    for (dim_t i = 0; i < n.batch; ++i) {
      if (of_inputs[i] < 0 || of_inputs[i] > n.steps)
        refuse_ctc("lengths of inputs from 0 to ", n.steps, of_inputs[i], i);
      const dim_t most = n.padded ? n.targets : n.targets - total;
      if (of_targets[i] < 0 || of_targets[i] > most)
        refuse_ctc("lengths of targets from 0 to ", most, of_targets[i], i);
      const std::int64_t* const label =
          c.template input<std::int64_t>(1) + (n.padded ? i * n.targets : total);
      for (dim_t k = 0; k < of_targets[i]; ++k)
        if (label[k] < 0 || label[k] >= n.classes || label[k] == blank)
          refuse_ctc("labels other than blank, from 0 to ", n.classes - 1, label[k], k);
      total += of_targets[i];
    }
  }

  template <class T>
  void forward(const context<T>& c) const {
    constexpr T never = -std::numeric_limits<T>::infinity();
    double sum = 0;
    const dim_t batch = sizes(c).batch;
    for_each_sample(c, [&](const sample<T>& s, dim_t i) {
      T* alpha = s.alpha;
      const dim_t row = 2 * s.length + 1;
      for (dim_t t = 0; t < s.steps; ++t, alpha += row) {
        const T *x = s.x + t * s.step, *before = alpha - row;
        for (dim_t k = 0; k < row; ++k) {
          const T p = x[label_at(s, k)];
          if (t == 0)
            alpha[k] = k < 2 ? p : never;
          else
            alpha[k] = p + log_sum(before[k], k > 0 ? before[k - 1] : never,
                                   skips_to(s, k) ? before[k - 2] : never);
        }
      }
      alpha -= row;
      const T likelihood = s.steps == 0
                               ? (s.length == 0 ? T{0} : never)
                               : log_sum(alpha[row - 1], row > 1 ? alpha[row - 2] : never, never);
      c.template saved<T>(1)[i] = likelihood;
      const bool counts = !(zero_infinity && likelihood == never);
      if (counts) sum -= static_cast<double>(likelihood) * share(s.length, batch);
      if (reduction == ikebana::reduction::none) c.output()[i] = counts ? -likelihood : T{0};
    });
    if (reduction == ikebana::reduction::none) return;
    if (batch == 0 && reduction == ikebana::reduction::mean)
      sum = std::numeric_limits<double>::quiet_NaN();
    c.output()[0] = static_cast<T>(sum);
  }

  template <class T>
  void backward(const context<T>& c) const {
    constexpr T never = -std::numeric_limits<T>::infinity();
    T* const dx = c.input_gradient();
    if (dx == nullptr) return;
    cpu::fill<T>(c.input_shape().numel(), dx, T{0});
    const dim_t batch = sizes(c).batch;
    const bool reduces = reduction != ikebana::reduction::none;
    for_each_sample(c, [&](const sample<T>& s, dim_t i) {
      const T likelihood = c.template saved<T>(1)[i];
      if (zero_infinity && likelihood == never) return;
      const dim_t row = 2 * s.length + 1;
      const T above = c.output_gradient()[reduces ? 0 : i];
      const T scale = above * static_cast<T>(share(s.length, batch));
      // beta[k]: of what comes after step t, given position k at t.
      T *beta = c.template saved<T>(2), *next = beta + row;
      for (dim_t t = s.steps - 1; t >= 0; --t) {
        const T* const x = s.x + (t + 1) * s.step;
        const auto emitted = [&](dim_t k) { return next[k] + x[label_at(s, k)]; };
        for (dim_t k = 0; k < row; ++k)
          if (t == s.steps - 1)
            beta[k] = k >= row - 2 ? T{0} : never;
          else
            beta[k] = log_sum(emitted(k), k + 1 < row ? emitted(k + 1) : never,
                              k + 2 < row && skips_to(s, k + 2) ? emitted(k + 2) : never);
        T* const d = dx + (s.x - c.input()) + t * s.step;
        for (dim_t k = 0; k < row; ++k)
          d[label_at(s, k)] -= scale * std::exp(s.alpha[t * row + k] + beta[k] - likelihood);
        T* const last = beta;
        beta = next;
        next = last;
      }
    });
  }

 private:
  static constexpr dim_t product_of(dim_t a, dim_t b) {
    return b < 0 ? b : (saturated{a} * b).value;
  }
  static constexpr dim_t sum_of(dim_t a, dim_t b) {
    return a < 0 || b < 0 ? dynamic : (saturated{a} + b).value;
  }

  struct sizes {
    dim_t steps, batch, classes, targets;
    bool padded;

    template <class T>
    explicit sizes(const context<T>& c)
        : steps{c.input_shape()[0]},
          batch{c.input_shape().rank() == 3 ? c.input_shape()[1] : 1},
          classes{c.input_shape().back()},
          targets{c.input_shape(1).back()},
          padded{c.input_shape(1).rank() == 2} {}
  };
  template <class T>
  struct sample {
    const T* x = nullptr;  ///< Its first step; others follow after `step` elements.
    dim_t step = 0, steps = 0;
    const std::int64_t* labels = nullptr;
    dim_t length = 0;
    T* alpha = nullptr;
  };

  /// f(sample, index) of each.
  template <class T, class F>
  static void for_each_sample(const context<T>& c, F f) {
    const sizes n(c);
    const std::int64_t *of_inputs = c.template input<std::int64_t>(2),
                       *of_targets = c.template input<std::int64_t>(3);
    sample<T> s;
    s.step = n.batch * n.classes;
    s.labels = c.template input<std::int64_t>(1);
    s.alpha = c.template saved<T>(0);
    for (dim_t i = 0; i < n.batch; ++i) {
      s.x = c.input() + i * n.classes;
      s.steps = of_inputs[i];
      s.length = of_targets[i];
      f(s, i);
      s.labels += n.padded ? n.targets : s.length;
      s.alpha += n.steps * (2 * (n.padded ? n.targets : s.length) + 1);
    }
  }

  /// Position k of the labels with blanks between them.
  template <class T>
  dim_t label_at(const sample<T>& s, dim_t k) const {
    return k % 2 == 0 ? blank : s.labels[k / 2];
  }
  /// Whether position k may follow k - 2: the blank between two different labels may be left out.
  template <class T>
  static bool skips_to(const sample<T>& s, dim_t k) {
    return k % 2 == 1 && k > 1 && s.labels[k / 2] != s.labels[k / 2 - 1];
  }
  double share(dim_t length, dim_t batch) const {
    if (reduction != ikebana::reduction::mean) return 1;
    return 1 / (static_cast<double>(length > 1 ? length : 1) * static_cast<double>(batch));
  }
};

}  // namespace detail

/// Connectionist temporal classification (Graves et al., Connectionist Temporal Classification:
/// Labelling Unsegmented Sequence Data with Recurrent Neural Networks, 2006), as torch.nn.CTCLoss:
/// minus the log-probability of the targets under all their alignments. Inputs: log-probabilities
/// (T, N, C) or (T, C), the output of log_softmax; then the targets (N, S), (S) or all one after
/// another, and the lengths of inputs and of targets, (N) or (), all std::int64_t. The mean divides
/// each sample's loss by the length of its target. With zero_infinity, targets too long for their
/// input have neither a loss nor a gradient. `model.train_step(x, inputs(targets, input_lengths,
/// target_lengths), ctc_loss{}, optimizer)`. Throws error for lengths beyond the tensors and for
/// labels that are blank or not in [0, C), before anything runs. O(N T S); its memory, 2 N T S
/// numbers, is planned.
///
/// The gradient is that by the log-probabilities. PyTorch's differs by what log_softmax takes out
/// again.
struct ctc_loss {
  std::int64_t blank = 0;
  ikebana::reduction reduction = ikebana::reduction::mean;
  bool zero_infinity = false;

  constexpr bool operator==(const ctc_loss&) const = default;

  template <symbolic X, symbolic Targets, symbolic InputLengths, symbolic TargetLengths>
  constexpr auto operator()(const X& x, const Targets& targets, const InputLengths& of_inputs,
                            const TargetLengths& of_targets) const {
    return apply(detail::ctc{blank, reduction, zero_infinity}, x, targets, of_inputs, of_targets);
  }
  /// Of tensors. `<ikebana/compose/loss.hpp>` must be included.
  template <tensor_like... X>
  auto operator()(const X&... x) const {
    return detail::loss_of_tensors(*this, x...);
  }
};

}  // namespace ikebana
