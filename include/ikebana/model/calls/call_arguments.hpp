#pragma once

#include <array>
#include <cstddef>

#include "ikebana/model/inputs.hpp"
#include "ikebana/module/shape_list.hpp"

namespace ikebana::detail {

/// Maps the arguments of a call to the inputs of a Model: named ones to the inputs of those names,
/// the others by position.
template <class Model>
struct call_arguments {
  static constexpr std::size_t input_count = Model::input_count;
  using pointers = std::array<const void*, input_count + 1>;

  template <class... X>
  [[gnu::always_inline]] static pointers data(const X&... x) {
    constexpr auto order = order_inputs<input_count, typename Model::module_type, X...>();
    const void* const given[] = {tensor_of_argument(x).data()..., nullptr};
    pointers data{};
    for (std::size_t i = 0; i < input_count; ++i) data[i] = given[order.of[i]];
    return data;
  }

  template <class... X>
  static shape_list shapes(const X&... x) {
    constexpr auto order = order_inputs<input_count, typename Model::module_type, X...>();
    const shape given[] = {tensor_of_argument(x).extents()..., shape{}};
    shape_list shapes;
    for (std::size_t i = 0; i < input_count; ++i) shapes.push_back(given[order.of[i]]);
    return shapes;
  }
};

}  // namespace ikebana::detail
