#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ikebana/core/random.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/final_activation.hpp"
#include "ikebana/module/value_layout.hpp"

namespace ikebana {

/// What a module runs on: one call of its forward or backward. All data are contiguous and
/// row-major, except for a leaf with `reads_strides`, and all pointers point to memory that the
/// model planned; a module allocates nothing.
///
/// forward reads input(i), parameter(i) and buffer(i), and writes output(i) and saved(i) (and
/// buffers in training). backward reads output_gradient(i) and what forward left behind. It
/// overwrites input_gradient(i) unless that is null, and writes parameter_gradient(i), or adds to
/// it if accumulate().
template <class T>
class context {
 public:
  using value_type = T;

  const shape& input_shape(std::size_t i = 0) const { return shapes[inputs[i]]; }
  const shape& output_shape(std::size_t i = 0) const {
    return shapes[first_output + static_cast<int>(i)];
  }
  /// U is std::int64_t for indices and bool for masks.
  template <class U = T>
  const U* input(std::size_t i = 0) const {
    return reinterpret_cast<const U*>(values[inputs[i]]);
  }
  T* output(std::size_t i = 0) const {
    return i == 0 && other_output != nullptr ? other_output
                                             : values[first_output + static_cast<int>(i)];
  }
  std::size_t input_count() const { return arity; }
  /// For a leaf with `reads_strides`: how far a step along each dimension of an input leads; null
  /// if it is contiguous.
  const dim_t* input_strides(std::size_t i = 0) const {
    return layouts != nullptr && layouts[inputs[i]].is_strided ? layouts[inputs[i]].strides
                                                               : nullptr;
  }

  const T* output_gradient(std::size_t i = 0) const {
    return value_gradients[first_output + static_cast<int>(i)];
  }
  /// Null if the gradient is not needed.
  T* input_gradient(std::size_t i = 0) const { return edge_gradients[i]; }

  /// For a leaf with `adds_gradient`: input_gradient(0) has other contributions, to which backward
  /// adds instead of overwriting them.
  bool adds_gradient() const {
    return edge_sums != nullptr && edge_sums[0] != nullptr && edge_sums[0] == edge_gradients[0];
  }

  /// Likewise: backward writes its part of input_gradient(0), and others write the rest of it.
  bool writes_part() const { return layouts != nullptr && layouts[first_output].is_part; }

  const T* parameter(std::size_t i) const { return parameters[i]; }
  /// A number that changes with the parameters; 0 if they may change unnoticed.
  std::uint64_t parameter_stamp() const { return stamp; }
  T* parameter_gradient(std::size_t i) const { return gradients[i]; }
  bool accumulate() const { return accumulating; }

  template <class U = T>
  U* buffer(std::size_t i) const {
    return reinterpret_cast<U*>(buffers[i]);
  }
  template <class U = T>
  U* saved(std::size_t i) const {
    return reinterpret_cast<U*>(saved_data[i]);
  }

  /// Part of the `plan_bytes` of this call of the module, which is zeros at first and never touched
  /// in between; empty where nothing is kept, and for a module without plan_bytes.
  std::span<std::byte> plan(std::size_t first, std::size_t bytes) const {
    if (plan_data == nullptr) return {};
    return {plan_data + first, bytes};
  }

  /// Whether the model is in training mode (dropout is active, batch norm uses the batch's
  /// statistics).
  bool training() const { return is_training; }

  /// Whether a backward may follow this forward, which else need not leave anything behind.
  bool backward_follows() const { return value_gradients != nullptr; }

  /// The random stream of this module in this step: the same in forward and in its backward.
  const random_stream& random() const { return stream; }

  /// For a leaf with `takes_residual`, what forward adds to its output, or null. For one with
  /// `adds_before`, what it adds to its input, in summed_input().
  const T* residual() const { return added; }
  T* summed_input() const { return values[inputs[0]]; }
  /// For a leaf with `takes_norm`, or null. Writable scratch of this call.
  T* channel_scale() const { return scale; }
  T* channel_shift() const { return shift; }
  /// For a leaf with `takes_function`: what forward applies last to its output.
  const cpu::final_activation<T>& function() const { return applied; }
  /// For a leaf with `takes_slope`: the activation whose output is input(0). backward multiplies
  /// input_gradient(0) by its slope.
  cpu::activation input_slope() const { return slope; }

  // Set by the model.
  const shape* shapes = nullptr;
  const int* inputs = nullptr;
  std::size_t arity = 0;
  int first_output = 0;
  const value_layout* layouts = nullptr;
  T* const* values = nullptr;
  T* const* value_gradients = nullptr;
  T* const* edge_gradients = nullptr;
  T* const* edge_sums = nullptr;
  T* const* parameters = nullptr;
  T* const* gradients = nullptr;
  std::byte* const* buffers = nullptr;
  std::byte* const* saved_data = nullptr;
  std::byte* plan_data = nullptr;
  bool accumulating = false;
  bool is_training = false;
  std::uint64_t stamp = 0;
  const T* added = nullptr;
  T* other_output = nullptr;
  T* scale = nullptr;
  T* shift = nullptr;
  cpu::final_activation<T> applied{};
  cpu::activation slope = cpu::activation::none;
  random_stream stream{};
};

}  // namespace ikebana
