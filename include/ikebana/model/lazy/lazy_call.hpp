#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "ikebana/core/dtype.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/model/inputs.hpp"
#include "ikebana/model/model.hpp"
#include "ikebana/module/lazy.hpp"
#include "ikebana/module/lowering.hpp"
#include "ikebana/module/refusal.hpp"

namespace ikebana {

namespace detail {

/// The declared shape of an input whose first shape was S: the batch may change later, so its
/// extent is dynamic. A single extent is a batch if the elements are not numbers, else features.
constexpr shape with_dynamic_batch(shape s, bool numbers) {
  if (s.rank() > (numbers ? 1 : 0)) s[0] = dynamic;
  return s;
}

template <class Model, std::size_t Inputs>
struct resolved_holder;

/// The first of the types that is a number.
template <class... E>
struct first_number : std::type_identity<void> {};
template <class E, class... Rest>
struct first_number<E, Rest...>
    : std::conditional_t<floating<E>, std::type_identity<E>, first_number<Rest...>> {};

/// The number type of an element type, which may be void.
template <class E>
struct element_or_void : std::type_identity<void> {};
template <model_element E>
struct element_or_void<E> : std::type_identity<element_of<E>> {};

/// The first call of M with arguments of these types: the model that it requires.
template <any_module M, class Chosen, model_input... X>
struct lazy_call {
  using module = M;
  static constexpr std::size_t count = sizeof...(X);
  static constexpr auto order = order_inputs<count, M, X...>();
  using found = typename first_number<typename argument_tensor<X>::type::value_type...>::type;
  using element = std::conditional_t<std::is_void_v<Chosen>, found, Chosen>;
  static constexpr bool has_element = !std::is_void_v<element>;
  using number = typename element_or_void<element>::type;

  static constexpr shape_list declared = [] {
    const shape given[]{
        with_dynamic_batch(argument_tensor<X>::type::static_shape,
                           floating<typename argument_tensor<X>::type::value_type>)...};
    shape_list arranged;
    for (std::size_t i = 0; i < count; ++i) arranged.push_back(given[order.of[i]]);
    return arranged;
  }();

  static constexpr diagnostic error = [] {
    if (!order.error.ok()) return order.error;
    if constexpr (composite_module<M>)
      if (input_count_of<M>() != count)
        return diagnostic{"the model takes {expected} inputs, got {got}",
                          static_cast<dim_t>(input_count_of<M>()), static_cast<dim_t>(count)};
    return infer(M{}, declared).error;
  }();

  static shape_list extents(const X&... x) {
    const shape given[]{shape{tensor_of_argument(x).extents()}...};
    shape_list arranged;
    for (std::size_t i = 0; i < count; ++i) arranged.push_back(given[order.of[i]]);
    return arranged;
  }
};

/// The model that a valid call requires.
template <class Call>
struct lazy_target {
  using module_type =
      decltype(become<Call::declared>(std::declval<const typename Call::module&>()));
  template <std::size_t... I>
  static auto model_of(std::index_sequence<I...>)
      -> model<typename Call::element, module_type, Call::declared[I]...>;
  using model_type = decltype(model_of(std::make_index_sequence<Call::count>{}));
  using holder = resolved_holder<model_type, Call::count>;
};

/// The error of a first call with these arguments, if any.
template <class M, class Chosen, class... X>
constexpr diagnostic check_lazy_call() {
  if constexpr (!(model_input<X> && ... && true)) {
    return refuse_what_is_no_tensor<X...>();
  } else {
    using call = lazy_call<M, Chosen, X...>;
    if constexpr (!call::error.ok())
      return call::error;
    else if constexpr (!call::has_element)
      return {
          "none of the inputs is of float or double, so the element type must be chosen: "
          "element_type<T>{} as the last argument of lazy_model"};
    else
      return lazy_target<call>::model_type::template check_call<X...>();
  }
}

/// The model that a first call of M with arguments of these types makes.
template <class M, class Chosen, class... X>
using lazy_model_t = typename lazy_target<lazy_call<M, Chosen, X...>>::model_type;

}  // namespace detail
}  // namespace ikebana
