#pragma once

#include <array>
#include <cstddef>
#include <limits>
#include <string_view>
#include <type_traits>

#include "ikebana/core/text.hpp"
#include "ikebana/cpu/broadcast.hpp"
#include "ikebana/cpu/detail/targets.hpp"
#include "ikebana/module/arithmetic.hpp"
#include "ikebana/module/broadcast_shapes.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/symbol.hpp"

// Element-wise operations on the values of a graph: operators and functions. Shapes are broadcast
// as in NumPy; operands may be numbers, but for one. Each is O(elements of the result) and
// allocates nothing.
namespace ikebana {

namespace ops {

/// PyTorch's names, in the order of cpu::tensor_op.
inline constexpr std::string_view tensor_op_names[] = {
    "neg", "exp", "log", "sqrt", "rsqrt", "square", "reciprocal", "abs",     "sign",
    "erf", "add", "sub", "mul",  "div",   "pow",    "minimum",    "maximum", "eq",
    "ne",  "lt",  "le",  "gt",   "ge",    "where",  "clamp"};

inline constexpr auto broadcast_sentences = [] {
  std::array<text<96>, std::size(tensor_op_names)> all{};
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i]
        .append(tensor_op_names[i])
        .append(" expects shapes that can be broadcast, got {input} and {other}");
  return all;
}();

struct elementwise;
template <class T>
void elementwise_forward(const elementwise& leaf, const context<T>& c);
template <class T>
void elementwise_backward(const elementwise& leaf, const context<T>& c);

/// f of up to three operands, broadcast against each other, of which those whose bit is set in
/// `numbers` are numbers.
struct elementwise {
  static constexpr std::string_view kind = "elementwise";

  cpu::tensor_op f = cpu::tensor_op::neg;
  unsigned char operands = 1;
  unsigned char numbers = 0;
  double number[3]{};

  constexpr bool operator==(const elementwise&) const = default;
  constexpr std::string_view name() const { return tensor_op_names[static_cast<std::size_t>(f)]; }

  constexpr inferred infer(const shape_list& in) const {
    shape out = in[0];
    for (std::size_t i = 1; i < in.size(); ++i)
      if (!broadcast_into(out, in[i]))
        return diagnostic{broadcast_sentences[static_cast<std::size_t>(f)].data, 0, 0, out, in[i]};
    return out;
  }

  static constexpr strided_reader reads_strides() { return strided_reader::rows; }
  /// Steps and comparisons.
  constexpr bool stops_gradient() const {
    return f == cpu::tensor_op::sign || (f >= cpu::tensor_op::eq && f <= cpu::tensor_op::ge);
  }
  /// What backward reads.
  constexpr kept keeps() const {
    switch (f) {
      case cpu::tensor_op::neg:
      case cpu::tensor_op::add:
      case cpu::tensor_op::sub:
        return kept::nothing;
      case cpu::tensor_op::exp:
      case cpu::tensor_op::sqrt:
      case cpu::tensor_op::rsqrt:
      case cpu::tensor_op::reciprocal:
        return kept::output;
      case cpu::tensor_op::div:
      case cpu::tensor_op::pow:
        return kept::both;
      default:
        return kept::input;
    }
  }

  constexpr cpu::loop_step loop_step() const {
    return {.kind = cpu::loop_step::kinds::map,
            .f = static_cast<unsigned char>(f),
            .operands = operands,
            .numbers = numbers,
            .leads = true,
            .cost = cost(),
            .number = {number[0], number[1], number[2]}};
  }

  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  void describe(description& d) const {
    d.add("f", name());
    for (std::size_t i = 0; i < operands; ++i)
      if ((numbers >> i & 1) != 0) d.add("number", number[i]);
  }

  template <class T>
  void forward(const context<T>& c) const {
    elementwise_forward(*this, c);
  }

  template <class T>
  void backward(const context<T>& c) const {
    elementwise_backward(*this, c);
  }

 private:
  constexpr unsigned char cost() const {
    if (f == cpu::tensor_op::pow) return 2;
    return f == cpu::tensor_op::exp || f == cpu::tensor_op::log || f == cpu::tensor_op::erf;
  }
};

template <class T>
void open_operands(const elementwise& leaf, const context<T>& c, cpu::broadcast_operand<T>* x) {
  std::size_t input = 0;
  for (int i = 0; i < leaf.operands; ++i) {
    if ((leaf.numbers >> i & 1) != 0) {
      x[i].number = static_cast<T>(leaf.number[i]);
    } else {
      x[i].data = c.input(input);
      x[i].map = cpu::broadcast_map(c.input_shape(input), c.output_shape(), c.input_strides(input));
      ++input;
    }
  }
}

template <class T>
void elementwise_forward(const elementwise& leaf, const context<T>& c) {
  cpu::broadcast_operand<T> x[3];
  open_operands(leaf, c, x);
  cpu::broadcast_forward<T>(leaf.f, leaf.operands, x, c.output_shape().numel(), c.output());
}
IKEBANA_CPU_KERNEL(elementwise_forward)

template <class T>
void elementwise_backward(const elementwise& leaf, const context<T>& c) {
  cpu::broadcast_operand<T> x[3];
  open_operands(leaf, c, x);
  const auto kept_values = static_cast<unsigned>(leaf.keeps());
  const int read = (kept_values & 1) != 0 ? leaf.operands : 0;
  std::size_t input = 0;
  for (int i = 0; i < leaf.operands; ++i) {
    if ((leaf.numbers >> i & 1) != 0) continue;
    if (T* const d = c.input_gradient(input); d != nullptr)
      cpu::broadcast_backward<T>(leaf.f, i, read, x, c.output_shape().numel(),
                                 (kept_values & 2) != 0 ? c.output() : nullptr, c.output_gradient(),
                                 cpu::broadcast_map(c.input_shape(input), c.output_shape()),
                                 c.input_shape(input).numel(), d);
    ++input;
  }
}
IKEBANA_CPU_KERNEL(elementwise_backward)

}  // namespace ops

namespace detail {

/// Operands of which at least one is a value of a graph and the others are numbers.
template <class... X>
concept operands = (symbolic<X> || ...) && ((symbolic<X> || std::is_arithmetic_v<X>)&&...);

template <cpu::tensor_op F, class A>
constexpr auto elementwise_of(const A& a) {
  return apply(ops::elementwise{F, 1}, a);
}
template <cpu::tensor_op F, class A, class B>
constexpr auto elementwise_of(const A& a, const B& b) {
  if constexpr (!symbolic<A>)
    return apply(ops::elementwise{F, 2, 1, {static_cast<double>(a)}}, b);
  else if constexpr (!symbolic<B>)
    return apply(ops::elementwise{F, 2, 2, {0, static_cast<double>(b)}}, a);
  else
    return apply(ops::elementwise{F, 2}, a, b);
}

}  // namespace detail

// ---- operators ----

#define IKEBANA_OPERATOR(symbol, op)                         \
  template <class A, class B>                                \
  requires detail::operands<A, B>                            \
  constexpr auto operator symbol(const A& a, const B& b) {   \
    return detail::elementwise_of<cpu::tensor_op::op>(a, b); \
  }
IKEBANA_OPERATOR(-, sub)
IKEBANA_OPERATOR(/, div)
/// Comparisons are 1 where they hold, else 0, and have no gradient.
IKEBANA_OPERATOR(==, eq)
IKEBANA_OPERATOR(!=, ne)
IKEBANA_OPERATOR(<, lt)
IKEBANA_OPERATOR(<=, le)
IKEBANA_OPERATOR(>, gt)
IKEBANA_OPERATOR(>=, ge)
#undef IKEBANA_OPERATOR

/// With a number; two values are an `add` or a `mul` (module/arithmetic.hpp).
template <class A, class B>
requires(detail::operands<A, B> && !(symbolic<A> && symbolic<B>)) constexpr auto operator+(
    const A& a, const B& b) {
  return detail::elementwise_of<cpu::tensor_op::add>(a, b);
}
template <class A, class B>
requires(detail::operands<A, B> && !(symbolic<A> && symbolic<B>)) constexpr auto operator*(
    const A& a, const B& b) {
  return detail::elementwise_of<cpu::tensor_op::mul>(a, b);
}
template <symbolic A>
constexpr auto operator-(const A& a) {
  return detail::elementwise_of<cpu::tensor_op::neg>(a);
}

// ---- functions ----

#define IKEBANA_FUNCTION(name, op)                        \
  template <symbolic A>                                   \
  constexpr auto name(const A& a) {                       \
    return detail::elementwise_of<cpu::tensor_op::op>(a); \
  }
/// torch.exp.
IKEBANA_FUNCTION(exp, exp)
/// torch.log, the natural logarithm.
IKEBANA_FUNCTION(log, log)
/// torch.sqrt. The gradient at 0 is infinite.
IKEBANA_FUNCTION(sqrt, sqrt)
/// 1 / sqrt(x): torch.rsqrt.
IKEBANA_FUNCTION(rsqrt, rsqrt)
/// torch.square.
IKEBANA_FUNCTION(square, square)
/// 1 / x: torch.reciprocal.
IKEBANA_FUNCTION(reciprocal, reciprocal)
/// torch.abs. The gradient at 0 is 0.
IKEBANA_FUNCTION(abs, abs)
/// torch.sign. It has no gradient.
IKEBANA_FUNCTION(sign, sign)
/// torch.erf.
IKEBANA_FUNCTION(erf, erf)
#undef IKEBANA_FUNCTION

/// The larger of two, element by element: torch.maximum. Of equal operands, each gets half of the
/// gradient.
template <class A, class B>
requires detail::operands<A, B>
constexpr auto maximum(const A& a, const B& b) {
  return detail::elementwise_of<cpu::tensor_op::maximum>(a, b);
}
/// The lesser of two: torch.minimum.
template <class A, class B>
requires detail::operands<A, B>
constexpr auto minimum(const A& a, const B& b) {
  return detail::elementwise_of<cpu::tensor_op::minimum>(a, b);
}

/// a to the power of b: torch.pow. Exponents of 2, 1/2, -1/2 and -1 are square, sqrt, rsqrt and
/// reciprocal; any other costs a call of std::pow for each element.
template <class A, class B>
requires detail::operands<A, B>
constexpr auto pow(const A& a, const B& b) {
  if constexpr (!symbolic<B>) {
    const auto e = static_cast<double>(b);
    ops::elementwise leaf{cpu::tensor_op::pow, 2, 2, {0, e}};
    if (e == 2) leaf = {cpu::tensor_op::square, 1};
    if (e == 0.5) leaf = {cpu::tensor_op::sqrt, 1};
    if (e == -0.5) leaf = {cpu::tensor_op::rsqrt, 1};
    if (e == -1) leaf = {cpu::tensor_op::reciprocal, 1};
    return apply(leaf, a);
  } else {
    return detail::elementwise_of<cpu::tensor_op::pow>(a, b);
  }
}

/// x limited to [low, high]: torch.clamp. The gradient is 0 outside.
template <symbolic X>
constexpr auto clamp(const X& x, double low,
                     double high = std::numeric_limits<double>::infinity()) {
  return apply(ops::elementwise{cpu::tensor_op::clamp, 3, 6, {0, low, high}}, x);
}

/// a where the condition is not 0, else b: torch.where. The condition is a value of the graph, such
/// as a comparison; of an input of truth values, see masked_fill.
template <symbolic C, class A, class B>
requires((symbolic<A> || std::is_arithmetic_v<A>)&&(
    symbolic<B> || std::is_arithmetic_v<B>)) constexpr auto where(const C& condition, const A& a,
                                                                  const B& b) {
  constexpr auto op = cpu::tensor_op::where;
  if constexpr (symbolic<A> && symbolic<B>)
    return apply(ops::elementwise{op, 3}, condition, a, b);
  else if constexpr (symbolic<A>)
    return apply(ops::elementwise{op, 3, 4, {0, 0, static_cast<double>(b)}}, condition, a);
  else if constexpr (symbolic<B>)
    return apply(ops::elementwise{op, 3, 2, {0, static_cast<double>(a)}}, condition, b);
  else
    return apply(ops::elementwise{op, 3, 6, {0, static_cast<double>(a), static_cast<double>(b)}},
                 condition);
}

}  // namespace ikebana
