#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "ikebana/core/tensor.hpp"
#include "ikebana/model/inputs.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/shape_list.hpp"

namespace ikebana::detail {

/// The arguments of a call as the inputs of a Model that they are: those with names where these
/// say, the others in their order.
template <class Model>
struct call_arguments {
  static constexpr std::size_t input_count = Model::input_count;
  using pointers = std::array<const void*, input_count + 1>;

  template <class... X>
  [[gnu::always_inline]] static pointers data(const X&... x) {
    constexpr auto order = order_inputs<input_count, typename Model::module_type, X...>();
    check_kinds<X...>(std::index_sequence_for<X...>{});
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

 private:
  template <class... X, std::size_t... I>
  static constexpr void check_kinds(std::index_sequence<I...>) {
    constexpr auto order = order_inputs<input_count, typename Model::module_type, X...>();
    constexpr auto kinds = Model::lowered().kinds;
    static_assert(
        (has_kind<typename argument_tensor<X>::type::value_type>(kinds[input_of(order, I)]) &&
         ... && true),
        "ikebana: the elements of an input are of the model's type (initialize<T, shape> chooses "
        "it), but std::int64_t where indices and bool where truth values are expected");
  }

  static constexpr std::size_t input_of(const auto& order, std::size_t argument) {
    for (std::size_t i = 0; i < input_count; ++i)
      if (order.of[i] == argument) return i;
    return 0;
  }

  template <class U>
  static constexpr bool has_kind(element_kind kind) {
    return std::is_same_v<U, typename Model::value_type> ? kind == element_kind::real
           : std::is_same_v<U, bool>
               ? kind == element_kind::boolean
               : std::is_same_v<U, std::int64_t> && kind == element_kind::index;
  }
};

}  // namespace ikebana::detail
