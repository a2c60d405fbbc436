#pragma once

#include <cstddef>
#include <cstring>
#include <string_view>

#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/symbol.hpp"

namespace ikebana {

namespace detail {

/// The common shape of two values that are taken element by element.
constexpr inferred infer_elementwise(const char* sentence, const shape& a, const shape& b) {
  if (!compatible(a, b)) return diagnostic{sentence, 0, 0, a, b};
  shape out = a;
  for (std::size_t i = 0; i < a.rank(); ++i)
    if (out[i] < 0) out[i] = b[i];
  return out;
}

}  // namespace detail

/// The sum of two values of equal shape.
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

/// The product of two values of equal shape, element by element.
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

}  // namespace ikebana
