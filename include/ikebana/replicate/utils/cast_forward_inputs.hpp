#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "ikebana/core/bfloat16.hpp"
#include "ikebana/core/float16.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/model/inputs.hpp"
#include "ikebana/replicate/utils/holds_tensors.hpp"
#include "ikebana/replicate/utils/map_tensors.hpp"

namespace ikebana {

namespace detail {

template <class T>
inline constexpr bool has_fraction =
    std::is_floating_point_v<T> || std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>;

template <class To, class From>
constexpr To cast_element(From x) {
  if constexpr (std::is_same_v<To, bfloat16> || std::is_same_v<To, float16>)
    return To(static_cast<float>(x));
  else
    return static_cast<To>(x);
}

/// Asks for the tensors that a cast to To changes: those of numbers with a fraction that are not To
/// already.
template <class To>
struct cast_to {
  template <class X>
  static constexpr bool asks = [] {
    if constexpr (tensor_like<X>) {
      using from = std::remove_const_t<typename X::value_type>;
      return has_fraction<from> && !std::is_same_v<from, To>;
    } else {
      return false;
    }
  }();

  template <class X>
  constexpr decltype(auto) operator()(X&& x) const {
    using plain = std::remove_cvref_t<X>;
    if constexpr (asks<plain>) {
      tensor<To, plain::static_shape> out(x.extents());
      const auto* const from = x.data();
      for (dim_t i = 0; i < out.size(); ++i) out[i] = cast_element<To>(from[i]);
      return out;
    } else {
      return std::forward<X>(x);
    }
  }
};

template <class>
inline constexpr bool is_standard_tuple = false;
template <class... T>
inline constexpr bool is_standard_tuple<std::tuple<T...>> = true;

/// A tuple as a tuple of references to its elements, at any depth: so that what is not cast is not
/// copied either.
template <class X>
constexpr decltype(auto) refer(X&& x) {
  if constexpr (std::is_lvalue_reference_v<X> && is_standard_tuple<std::remove_cvref_t<X>>)
    return std::apply(
        [](auto&... element) { return std::tuple<decltype(refer(element))...>(refer(element)...); },
        x);
  else
    return std::forward<X>(x);
}

template <class To, class X>
constexpr decltype(auto) cast_input(X&& x) {
  if constexpr (std::is_void_v<To>)
    return std::forward<X>(x);
  else if constexpr (!holds<cast_to<To>, X>::value)
    return std::forward<X>(x);
  else
    return map_tensors(cast_to<To>{}, refer(std::forward<X>(x)));
}

/// How a result is kept: a reference to what the caller has, or a value.
template <class X>
using kept_input = std::conditional_t<std::is_lvalue_reference_v<X>, X, std::remove_cvref_t<X>>;

}  // namespace detail

/// The arguments as a tuple, with every tensor of numbers with a fraction (float, double, bfloat16,
/// float16), at any depth that map_tensors looks into, as a tensor of To of the same extents,
/// rounded to the nearest: what a replica of lower precision is called with. `std::apply(model,
/// cast_forward_inputs<float>(x, lengths))`.
///
/// What the cast does not change (other tensors, those of To, anything else) is passed on: an
/// lvalue as a reference to it, also as an element of a std::tuple; an rvalue by moving it. Of
/// other containers that hold both, an lvalue's unchanged elements are copied. `To` void changes
/// nothing. Struct members keep their types, so a struct with a tensor to be cast does not compile.
/// Named arguments: pack_arguments first, unpack_arguments after. Allocates the tensors it makes.
template <class To, class... A>
constexpr auto cast_forward_inputs(A&&... a) {
  constexpr bool values = !((detail::is_argument<std::remove_cvref_t<A>> ||
                             detail::is_input_pack<std::remove_cvref_t<A>>) ||
                            ...);
  static_assert(values,
                "ikebana: cast_forward_inputs casts values: pack_arguments takes named ones apart, "
                "unpack_arguments gives them their names again");
  return std::tuple<detail::kept_input<decltype(detail::cast_input<To>(std::forward<A>(a)))>...>{
      detail::cast_input<To>(std::forward<A>(a))...};
}

}  // namespace ikebana
