#pragma once

#include <cstddef>
#include <cstring>
#include <string_view>

#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/symbol.hpp"

namespace ikebana {

/// The sum of two values of equal shape.
struct add {
  static constexpr std::string_view kind = "add";
  static constexpr kept keeps = kept::nothing;

  constexpr inferred infer(const shape& a, const shape& b) const {
    if (!compatible(a, b))
      return diagnostic{"add expects equal shapes, got {input} and {other}", 0, 0, a, b};
    shape out = a;
    for (std::size_t i = 0; i < a.rank(); ++i)
      if (out[i] < 0) out[i] = b[i];
    return out;
  }

  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  template <class T>
  void forward(const context<T>& c) const {
    cpu::add(c.output_shape().numel(), c.input(0), c.input(1), c.output());
  }

  template <class T>
  void backward(const context<T>& c) const {
    for (std::size_t i = 0; i < 2; ++i)
      if (c.input_gradient(i) != nullptr)
        std::memcpy(c.input_gradient(i), c.output_gradient(),
                    static_cast<std::size_t>(c.output_shape().numel()) * sizeof(T));
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

}  // namespace ikebana
