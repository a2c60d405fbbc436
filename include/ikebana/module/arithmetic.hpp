#pragma once

#include <cstddef>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/symbol.hpp"

namespace ikebana {

namespace detail {

/// The common shape of two element-wise operands.
constexpr inferred infer_elementwise(const char* sentence, const shape& a, const shape& b) {
  if (!compatible(a, b)) return diagnostic{sentence, 0, 0, a, b};
  shape out = a;
  for (std::size_t i = 0; i < a.rank(); ++i)
    if (out[i] < 0) out[i] = b[i];
  return out;
}

}  // namespace detail

/// The sum of two values of equal shape; nothing is broadcast. O(elements); no allocation.
struct add {
  static constexpr std::string_view kind = "add";
  static constexpr kept keeps = kept::nothing;
  static constexpr bool is_sum = true;

  constexpr inferred infer(const shape& a, const shape& b) const {
    return detail::infer_elementwise("add expects equal shapes, got {input} and {other}", a, b);
  }

  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  template <class T>
  void forward(const context<T>& c) const {
    cpu::add(c.output_shape().numel(), c.input(0), c.input(1), c.output());
  }

  template <class T>
  void backward(const context<T>& c) const {
    for (std::size_t i = 0; i < 2; ++i)
      if (c.input_gradient(i) != nullptr && c.input_gradient(i) != c.output_gradient())
        std::memcpy(c.input_gradient(i), c.output_gradient(),
                    static_cast<std::size_t>(c.output_shape().numel()) * sizeof(T));
  }

  template <symbolic A, symbolic B>
  constexpr auto operator()(const A& a, const B& b) const {
    return apply(*this, a, b);
  }
};

/// The element-wise product of two values of equal shape; nothing is broadcast. O(elements); no
/// allocation.
struct mul {
  static constexpr std::string_view kind = "mul";
  static constexpr kept keeps = kept::input;

  constexpr inferred infer(const shape& a, const shape& b) const {
    return detail::infer_elementwise("mul expects equal shapes, got {input} and {other}", a, b);
  }

  constexpr dim_t multiply_adds(const shape_list&, const shape_list& out) const {
    return out[0].numel();
  }

  template <class T>
  void forward(const context<T>& c) const {
    cpu::multiply(c.output_shape().numel(), c.input(0), c.input(1), c.output());
  }

  template <class T>
  void backward(const context<T>& c) const {
    for (std::size_t i = 0; i < 2; ++i)
      if (c.input_gradient(i) != nullptr)
        cpu::multiply(c.output_shape().numel(), c.output_gradient(), c.input(1 - i),
                      c.input_gradient(i));
  }

  template <symbolic A, symbolic B>
  constexpr auto operator()(const A& a, const B& b) const {
    return apply(*this, a, b);
  }
};

/// In a graph, `a + b` is an `add`.
template <symbolic A, symbolic B>
constexpr auto operator+(const A& a, const B& b) {
  return apply(add{}, a, b);
}

/// In a graph, `a * b` is a `mul`.
template <symbolic A, symbolic B>
constexpr auto operator*(const A& a, const B& b) {
  return apply(mul{}, a, b);
}

namespace detail {

/// Two operands, of which one is a value of a graph and the other a value of a graph or a number.
template <class A, class B>
concept operands = (symbolic<A> && (symbolic<B> || std::is_arithmetic_v<B>)) ||
                   (std::is_arithmetic_v<A> && symbolic<B>);

/// The operand that is a value of a graph. A refused operator returns it, so that its sentence is
/// the only error.
template <class A, class B>
constexpr const auto& symbol_of(const A& a, const B& b) {
  if constexpr (symbolic<A>)
    return a;
  else
    return b;
}

}  // namespace detail

template <class A, class B>
requires detail::operands<A, B>
constexpr auto operator-(const A& a, const B& b) {
  static_assert(!detail::operands<A, B>,
                "ikebana: values of a graph have no operator -, only x + y and x * y; other "
                "operations are modules");
  return detail::symbol_of(a, b);
}

template <symbolic A>
constexpr auto operator-(const A& a) {
  static_assert(!symbolic<A>,
                "ikebana: values of a graph have no operator -, only x + y and x * y; other "
                "operations are modules");
  return a;
}

template <class A, class B>
requires detail::operands<A, B>
constexpr auto operator/(const A& a, const B& b) {
  static_assert(!detail::operands<A, B>,
                "ikebana: values of a graph have no operator /, only x + y and x * y; other "
                "operations are modules");
  return detail::symbol_of(a, b);
}

template <class A, class B>
requires(detail::operands<A, B> && !(symbolic<A> && symbolic<B>)) constexpr auto operator+(
    const A& a, const B& b) {
  static_assert(!detail::operands<A, B>,
                "ikebana: in a graph, x + y takes two values of the graph, no number");
  return detail::symbol_of(a, b);
}

template <class A, class B>
requires(detail::operands<A, B> && !(symbolic<A> && symbolic<B>)) constexpr auto operator*(
    const A& a, const B& b) {
  static_assert(!detail::operands<A, B>,
                "ikebana: in a graph, x * y takes two values of the graph, no number");
  return detail::symbol_of(a, b);
}

}  // namespace ikebana
