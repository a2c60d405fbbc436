#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "ikebana/core/error.hpp"
#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/cpu/reduce.hpp"
#include "ikebana/cpu/softmax.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/extent.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/option_set.hpp"
#include "ikebana/module/options.hpp"
#include "ikebana/module/parameter.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/nn/detail/product.hpp"

namespace ikebana {

namespace detail {

struct cutoffs_option;
struct div_value_option;
struct head_bias_option;

/// The names of tail.0.0.weight, tail.0.1.weight, tail.1.0.weight, ..., of up to 7 clusters.
inline constexpr const char* tail_names[]{
    "tail.0.0.weight", "tail.0.1.weight", "tail.1.0.weight", "tail.1.1.weight", "tail.2.0.weight",
    "tail.2.1.weight", "tail.3.0.weight", "tail.3.1.weight", "tail.4.0.weight", "tail.4.1.weight",
    "tail.5.0.weight", "tail.5.1.weight", "tail.6.0.weight", "tail.6.1.weight"};

}  // namespace detail

/// Where the clusters of adaptive_log_softmax begin: rising numbers of classes.
template <dim_t... N>
struct cutoffs {
  using option = detail::cutoffs_option;
  static constexpr std::array<dim_t, sizeof...(N)> values{N...};
};

/// By what the width of each next cluster of adaptive_log_softmax is divided: Numerator /
/// Denominator.
template <dim_t Numerator, dim_t Denominator = 1>
struct div_value {
  using option = detail::div_value_option;
  static constexpr dim_t numerator = Numerator, denominator = Denominator;
};

/// Whether the first product of adaptive_log_softmax has a bias.
template <bool B>
struct head_bias {
  using option = detail::head_bias_option;
  static constexpr bool value = B;
};

/// The adaptive softmax (Grave et al., Efficient softmax approximation for GPUs, 2017), for very
/// many classes that are sorted by falling frequency: PyTorch's AdaptiveLogSoftmaxWithLoss. The
/// first classes, up to the first cutoff, are the head's; each following range is a cluster with a
/// logit in the head and a projection to In / div_value^(i + 1) elements of its own.
///
/// Input [N, In] -> the log-probabilities [N, Classes] (log_prob; its argmax is predict). With a
/// second input, the std::int64_t targets [N] -> the log-probability of each target [N], computing
/// the clusters of these alone; the loss is minus their mean, with zeros as target of the step:
/// `[](auto y, auto zero) { return mean(zero - y); }`. A state dict fits both uses.
/// Throws error, before anything runs, for a target that is no class.
///
/// Parameters: head.weight (first cutoff + clusters, In), head.bias with head_bias<true>, and for
/// each cluster tail.i.0.weight (width, In) and tail.i.1.weight (classes of the cluster, width).
/// Options: cutoffs<..> (required, at most 7), div_value<N, D> (4), head_bias<bool> (false). O(N In
/// (head + width)) and O(width * classes) for each row of a cluster; no allocation.
template <dim_t In, dim_t Classes, class... Options>
struct adaptive_log_softmax {
  static_assert(
      detail::option_set<cutoffs<>, div_value<4>, head_bias<false>>::template accepts<Options...>,
      "ikebana: adaptive_log_softmax takes the options cutoffs, div_value and head_bias, each "
      "once");

  static constexpr std::string_view kind = "adaptive_log_softmax";
  static constexpr kept keeps = kept::input;
  static constexpr auto starts = detail::option_or<cutoffs<>, Options...>::values;
  static constexpr std::size_t clusters = starts.size();
  static constexpr bool are_rising = [] {
    dim_t before = 0;
    for (const dim_t c : starts) {
      if (c <= before) return false;
      before = c;
    }
    return before < Classes;
  }();
  static_assert(In >= 0 && clusters >= 1 && clusters <= 7 && are_rising,
                "ikebana: adaptive_log_softmax needs cutoffs<..>, from 1 to 7 rising numbers below "
                "the number of classes");
  using division = detail::option_or<div_value<4>, Options...>;
  static_assert(division::denominator >= 1 && division::numerator >= division::denominator,
                "ikebana: div_value of adaptive_log_softmax is at least 1");
  static constexpr bool has_bias = detail::option_or<head_bias<false>, Options...>::value;
  static constexpr dim_t head = starts[0] + dim_t{clusters};

  static constexpr element_kind input_kind(std::size_t i, std::size_t) {
    return i == 0 ? element_kind::real : element_kind::index;
  }
  static constexpr std::array<std::string_view, 2> input_names{"input", "target"};

  constexpr inferred infer(const shape_list& all) const {
    const shape& in = all[0];
    if (all.size() > 2)
      return diagnostic{"adaptive_log_softmax expects 1 or {expected} inputs, got {got}", 2,
                        static_cast<dim_t>(all.size())};
    if (in.rank() != 2)
      return diagnostic{
          "adaptive_log_softmax expects an input of {expected} dimensions, got {got} (input "
          "{input})",
          2, static_cast<dim_t>(in.rank()), in};
    if (!fits(In, in[1]))
      return diagnostic{
          "adaptive_log_softmax expects in_features = {expected}, got {got} (input {input})", In,
          in[1], in};
    if (all.size() == 1) return shape_list{shape{in[0], Classes}};
    if (!compatible(shape{in[0]}, all[1]))
      return diagnostic{"adaptive_log_softmax expects a target for each row, {input}, got {other}",
                        0, 0, shape{in[0]}, all[1]};
    return shape_list{shape{in[0]}};
  }

  constexpr auto parameters() const {
    std::array<parameter_spec, 1 + std::size_t{has_bias} + 2 * clusters> all;
    all[0] = {"head.weight", shape{head, In}, initializer::kaiming_uniform(In)};
    if constexpr (has_bias) all[1] = {"head.bias", shape{head}, initializer::kaiming_uniform(In)};
    for (std::size_t i = 0; i < clusters; ++i) {
      all[first_of(i)] = {detail::tail_names[2 * i], shape{width(i), In},
                          initializer::kaiming_uniform(In)};
      all[first_of(i) + 1] = {detail::tail_names[2 * i + 1], shape{size(i), width(i)},
                              initializer::kaiming_uniform(width(i))};
    }
    return all;
  }

  /// The head's log-probabilities; of all clusters one after another, each with its rows: their
  /// inputs and hidden elements, log-probabilities; gradients of the latter two and of the inputs;
  /// those of the head; and the rows.
  constexpr std::array<saved_spec, 9> saved(const shape_list& in) const {
    const dim_t rows = in[0][0];
    const bool targets = in.size() > 1;
    const dim_t hidden = targets ? width(0) : total_width();
    const dim_t logits = targets ? largest() : Classes - starts[0];
    const saved_spec of_head{0, shape{rows, head}}, of_hidden{0, shape{rows, hidden}},
        of_logits{0, shape{rows, logits}}, of_inputs{0, shape{rows, In}},
        read{0, shape{targets ? rows : 0, In}};
    return {of_head,   read,      of_hidden,
            of_logits, of_hidden, of_logits,
            of_inputs, of_head,   saved_spec{sizeof(std::int64_t), shape{rows}}};
  }

  constexpr dim_t multiply_adds(const shape_list& in, const shape_list&) const {
    dim_t each = head * In;
    for (std::size_t i = 0; i < clusters; ++i) each += width(i) * (In + size(i));
    return in[0][0] * each;
  }

  void describe(description& d) const {
    d.add("in_features", In).add("n_classes", Classes);
    d.add("cutoffs", starts);
    d.add("div_value", static_cast<double>(division::numerator) / division::denominator);
    d.add("head_bias", has_bias);
  }

  template <class T>
  void validate(const context<T>& c) const {
    if (c.input_count() < 2) return;
    const std::int64_t* const target = c.template input<std::int64_t>(1);
    for (dim_t i = 0; i < c.input_shape(1).numel(); ++i)
      if (target[i] < 0 || target[i] >= Classes)
        throw_error(error("adaptive_log_softmax expects targets from 0 to " +
                          std::to_string(Classes - 1) + ", got " + std::to_string(target[i])));
  }

  template <class Context>
  void forward(const Context& c) const {
    using T = typename Context::value_type;
    const dim_t rows = c.input_shape()[0];
    T* const of_head = c.template saved<T>(0);
    detail::product(c, no, yes, rows, head, In, c.input(), In, c.parameter(0), In, T{0}, of_head,
                    head, has_bias ? c.parameter(1) : nullptr);
    cpu::log_softmax_forward<T>(rows, head, 1, of_head, of_head);
    T* const y = c.output();
    const std::int64_t* const target = targets(c);
    for (dim_t r = 0; r < rows; ++r)
      if (target == nullptr)
        std::copy_n(of_head + r * head, starts[0], y + r * Classes);
      else if (target[r] < starts[0])
        y[r] = of_head[r * head + target[r]];
    for_each_cluster(c, [&](std::size_t i, const part<T>& p) {
      if (target != nullptr)
        for (dim_t r = 0; r < p.rows; ++r)
          std::copy_n(c.input() + p.row[r] * In, In, p.input + r * In);
      const T* const x = target == nullptr ? c.input() : p.input;
      detail::product(c, no, yes, p.rows, width(i), In, x, In, c.parameter(first_of(i)), In, T{0},
                      p.hidden, width(i));
      detail::product(c, no, yes, p.rows, size(i), width(i), p.hidden, width(i),
                      c.parameter(first_of(i) + 1), width(i), T{0}, p.logits, size(i));
      cpu::log_softmax_forward<T>(p.rows, size(i), 1, p.logits, p.logits);
      for (dim_t r = 0; r < p.rows; ++r) {
        const dim_t row = target == nullptr ? r : p.row[r];
        const T own = of_head[row * head + starts[0] + static_cast<dim_t>(i)];
        const T* const from = p.logits + r * size(i);
        if (target != nullptr)
          y[row] = own + from[target[row] - starts[i]];
        else
          for (dim_t k = 0; k < size(i); ++k) y[row * Classes + starts[i] + k] = own + from[k];
      }
    });
  }

  template <class Context>
  void backward(const Context& c) const {
    using T = typename Context::value_type;
    const dim_t rows = c.input_shape()[0];
    const T* const dy = c.output_gradient();
    const T beta = c.accumulate() ? T{1} : T{0};
    T* const of_head = c.template saved<T>(7);
    T* const dx = c.input_gradient(0);
    const std::int64_t* const target = targets(c);
    cpu::fill<T>(rows * head, of_head, T{0});
    for (dim_t r = 0; r < rows; ++r)
      if (target == nullptr)
        std::copy_n(dy + r * Classes, starts[0], of_head + r * head);
      else if (target[r] < starts[0])
        of_head[r * head + target[r]] = dy[r];
    if (dx != nullptr) cpu::fill<T>(rows * In, dx, T{0});
    for_each_cluster(c, [&](std::size_t i, const part<T>& p) {
      cpu::fill<T>(p.rows * size(i), p.dlogits, T{0});
      for (dim_t r = 0; r < p.rows; ++r) {
        const dim_t row = target == nullptr ? r : p.row[r];
        T& own = of_head[row * head + starts[0] + static_cast<dim_t>(i)];
        if (target != nullptr) {
          own = dy[row];
          p.dlogits[r * size(i) + target[row] - starts[i]] = dy[row];
        } else {
          const T* const from = dy + row * Classes + starts[i];
          for (dim_t k = 0; k < size(i); ++k) own += from[k];
          std::copy_n(from, size(i), p.dlogits + r * size(i));
        }
      }
      cpu::log_softmax_backward<T>(p.rows, size(i), 1, p.logits, p.dlogits, p.dlogits);
      const T* const x = target == nullptr ? c.input() : p.input;
      detail::product(c, yes, no, size(i), width(i), p.rows, p.dlogits, size(i), p.hidden, width(i),
                      beta, c.parameter_gradient(first_of(i) + 1), width(i));
      detail::product(c, no, no, p.rows, width(i), size(i), p.dlogits, size(i),
                      c.parameter(first_of(i) + 1), width(i), T{0}, p.dhidden, width(i));
      detail::product(c, yes, no, width(i), In, p.rows, p.dhidden, width(i), x, In, beta,
                      c.parameter_gradient(first_of(i)), In);
      if (dx == nullptr) return;
      detail::product(c, no, no, p.rows, In, width(i), p.dhidden, width(i),
                      c.parameter(first_of(i)), In, T{0}, p.dinput, In);
      for (dim_t r = 0; r < p.rows; ++r)
        cpu::axpy<T>(In, T{1}, p.dinput + r * In, dx + (target == nullptr ? r : p.row[r]) * In);
    });
    cpu::log_softmax_backward<T>(rows, head, 1, c.template saved<T>(0), of_head, of_head);
    detail::product(c, yes, no, head, In, rows, of_head, head, c.input(), In, beta,
                    c.parameter_gradient(0), In);
    if constexpr (has_bias)
      cpu::column_sums<T>(rows, head, of_head, head, c.parameter_gradient(1), c.accumulate());
    if (dx != nullptr)
      detail::product(c, no, no, rows, In, head, of_head, head, c.parameter(0), In, T{1}, dx, In);
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }

 private:
  static constexpr cpu::transpose no = cpu::transpose::no, yes = cpu::transpose::yes;

  /// The first parameter of a cluster.
  static constexpr std::size_t first_of(std::size_t i) { return 1 + std::size_t{has_bias} + 2 * i; }
  static constexpr dim_t size(std::size_t i) {
    return (i + 1 < clusters ? starts[i + 1] : Classes) - starts[i];
  }
  static constexpr dim_t width(std::size_t i) {
    double w = static_cast<double>(In);
    for (std::size_t k = 0; k <= i; ++k)
      w = w * static_cast<double>(division::denominator) / static_cast<double>(division::numerator);
    return static_cast<dim_t>(w);
  }
  static constexpr dim_t total_width() {
    dim_t sum = 0;
    for (std::size_t i = 0; i < clusters; ++i) sum += width(i);
    return sum;
  }
  static constexpr dim_t largest() {
    dim_t most = 0;
    for (std::size_t i = 0; i < clusters; ++i) most = std::max(most, size(i));
    return most;
  }

  template <class Context>
  static const std::int64_t* targets(const Context& c) {
    return c.input_count() < 2 ? nullptr : c.template input<std::int64_t>(1);
  }

  /// The memory of one cluster. `row` are its rows, if there are targets.
  template <class T>
  struct part {
    dim_t rows;
    const std::int64_t* row;
    T *input, *hidden, *logits, *dhidden, *dlogits, *dinput;
  };
  /// Calls f(i, part) for each cluster with rows; backward finds the parts of forward.
  template <class Context, class F>
  void for_each_cluster(const Context& c, const F& f) const {
    using T = typename Context::value_type;
    const std::int64_t* const target = targets(c);
    const dim_t all = c.input_shape()[0];
    std::int64_t* row = c.template saved<std::int64_t>(8);
    part<T> p{all,
              row,
              c.template saved<T>(1),
              c.template saved<T>(2),
              c.template saved<T>(3),
              c.template saved<T>(4),
              c.template saved<T>(5),
              c.template saved<T>(6)};
    for (std::size_t i = 0; i < clusters; ++i) {
      if (target != nullptr) {
        p.row = row;
        for (dim_t r = 0; r < all; ++r)
          if (target[r] >= starts[i] && target[r] < starts[i] + size(i)) *row++ = r;
        p.rows = static_cast<dim_t>(row - p.row);
      }
      f(i, p);
      if (target != nullptr) p.input += p.rows * In;
      p.hidden += p.rows * width(i);
      p.dhidden += p.rows * width(i);
      p.logits += p.rows * size(i);
      p.dlogits += p.rows * size(i);
    }
  }
};

}  // namespace ikebana
