#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <string_view>

#include "ikebana/cpu/broadcast.hpp"
#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/cpu/loop_step.hpp"
#include "ikebana/module/broadcast_shapes.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/symbol.hpp"

namespace ikebana {

namespace detail {

/// Whether no operand is repeated or strided.
template <class T>
bool are_plain(const context<T>& c) {
  return c.input_shape(0) == c.input_shape(1) && c.input_strides(0) == nullptr &&
         c.input_strides(1) == nullptr;
}

template <class T>
std::array<cpu::broadcast_operand<T>, 2> operands_of(const context<T>& c) {
  const auto map = [&](std::size_t i) {
    return cpu::broadcast_map(c.input_shape(i), c.output_shape(), c.input_strides(i));
  };
  return {{{c.input(0), map(0)}, {c.input(1), map(1)}}};
}

template <class T>
void add_forward(const context<T>& c) {
  const dim_t n = c.output_shape().numel();
  if (are_plain(c)) return cpu::add(n, c.input(0), c.input(1), c.output());
  const auto x = operands_of(c);
  cpu::broadcast_forward<T>(cpu::tensor_op::add, 2, x.data(), n, c.output());
}
IKEBANA_CPU_KERNEL(add_forward)

template <class T>
void add_backward(const context<T>& c) {
  const dim_t n = c.output_shape().numel();
  for (std::size_t i = 0; i < 2; ++i) {
    T* const d = c.input_gradient(i);
    if (d == nullptr || d == c.output_gradient()) continue;
    if (c.input_shape(i) == c.output_shape()) {
      std::memcpy(d, c.output_gradient(), static_cast<std::size_t>(n) * sizeof(T));
      continue;
    }
    // The operands themselves are free after forward, and add has no use for them.
    const auto x = operands_of(c);
    cpu::broadcast_backward<T>(
        cpu::tensor_op::add, static_cast<int>(i), 0, x.data(), n, nullptr, c.output_gradient(),
        cpu::broadcast_map(c.input_shape(i), c.output_shape()), c.input_shape(i).numel(), d);
  }
}
IKEBANA_CPU_KERNEL(add_backward)

template <class T>
void mul_forward(const context<T>& c) {
  const dim_t n = c.output_shape().numel();
  if (are_plain(c)) return cpu::multiply(n, c.input(0), c.input(1), c.output());
  const auto x = operands_of(c);
  cpu::broadcast_forward<T>(cpu::tensor_op::mul, 2, x.data(), n, c.output());
}
IKEBANA_CPU_KERNEL(mul_forward)

template <class T>
void mul_backward(const context<T>& c) {
  const dim_t n = c.output_shape().numel();
  for (std::size_t i = 0; i < 2; ++i) {
    T* const d = c.input_gradient(i);
    if (d == nullptr) continue;
    if (are_plain(c)) {
      cpu::multiply(n, c.output_gradient(), c.input(1 - i), d);
      continue;
    }
    const auto x = operands_of(c);
    cpu::broadcast_backward<T>(
        cpu::tensor_op::mul, static_cast<int>(i), 2, x.data(), n, nullptr, c.output_gradient(),
        cpu::broadcast_map(c.input_shape(i), c.output_shape()), c.input_shape(i).numel(), d);
  }
}
IKEBANA_CPU_KERNEL(mul_backward)

}  // namespace detail

/// The sum of two values, broadcast as in NumPy. O(elements of the result); no allocation.
struct add {
  static constexpr std::string_view kind = "add";
  static constexpr kept keeps = kept::nothing;
  static constexpr bool is_sum = true;

  constexpr inferred infer(const shape& a, const shape& b) const {
    shape out = a;
    if (!broadcast_into(out, b))
      return diagnostic{"add expects shapes that can be broadcast, got {input} and {other}", 0, 0,
                        a, b};
    return out;
  }

  constexpr cpu::loop_step loop_step() const {
    return {.kind = cpu::loop_step::kinds::map,
            .f = static_cast<unsigned char>(cpu::tensor_op::add),
            .operands = 2};
  }

  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  template <class T>
  void forward(const context<T>& c) const {
    detail::add_forward(c);
  }

  template <class T>
  void backward(const context<T>& c) const {
    detail::add_backward(c);
  }

  template <symbolic A, symbolic B>
  constexpr auto operator()(const A& a, const B& b) const {
    return apply(*this, a, b);
  }
};

namespace detail {

/// The sum of a residual, whose body preserves the shape.
struct equal_add : add {
  constexpr inferred infer(const shape& a, const shape& b) const {
    if (!compatible(a, b))
      return diagnostic{"add expects equal shapes, got {input} and {other}", 0, 0, a, b};
    return add::infer(a, b);
  }
};

}  // namespace detail

/// The element-wise product of two values, broadcast as in NumPy. O(elements of the result); no
/// allocation.
struct mul {
  static constexpr std::string_view kind = "mul";
  static constexpr kept keeps = kept::input;

  constexpr inferred infer(const shape& a, const shape& b) const {
    shape out = a;
    if (!broadcast_into(out, b))
      return diagnostic{"mul expects shapes that can be broadcast, got {input} and {other}", 0, 0,
                        a, b};
    return out;
  }

  static constexpr strided_reader reads_strides() { return strided_reader::rows; }
  constexpr cpu::loop_step loop_step() const {
    return {.kind = cpu::loop_step::kinds::map,
            .f = static_cast<unsigned char>(cpu::tensor_op::mul),
            .operands = 2,
            .leads = true};
  }

  constexpr dim_t multiply_adds(const shape_list&, const shape_list& out) const {
    return out[0].numel();
  }

  template <class T>
  void forward(const context<T>& c) const {
    detail::mul_forward(c);
  }

  template <class T>
  void backward(const context<T>& c) const {
    detail::mul_backward(c);
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
