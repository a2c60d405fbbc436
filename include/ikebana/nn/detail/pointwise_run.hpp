#pragma once

#include "ikebana/cpu/pointwise.hpp"
#include "ikebana/module/context.hpp"

namespace ikebana::detail {

template <class T>
void pointwise_forward(const context<T>& c, cpu::pointwise f, T a, T b, T third) {
  cpu::pointwise_forward<T>(f, c.output_shape().numel(), a, b, third, c.input(), c.output());
}
template <class T>
void pointwise_backward(const context<T>& c, cpu::pointwise f, T a, T b, T third) {
  if (c.input_gradient() != nullptr)
    cpu::pointwise_backward<T>(f, c.output_shape().numel(), a, b, third, c.input(),
                               c.output_gradient(), c.input_gradient());
}

}  // namespace ikebana::detail
