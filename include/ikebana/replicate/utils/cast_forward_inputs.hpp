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

/// Selects the tensors that a cast to To changes: those of floating-point numbers of another type.
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

/// A tuple as a tuple of references to its elements, at any depth, so that uncast elements are not
/// copied.
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

/// How a result is stored: as a reference to the caller's object, or as a value.
template <class X>
using kept_input = std::conditional_t<std::is_lvalue_reference_v<X>, X, std::remove_cvref_t<X>>;

}  // namespace detail

/// The arguments as a tuple in which every tensor of floating-point numbers (float, double,
/// bfloat16, float16), at any depth that map_tensors visits, is replaced by a tensor of To with the
/// same extents, rounded to nearest: the inputs of a replica of lower precision. `std::apply(model,
/// cast_forward_inputs<float>(x, lengths))`.
///
/// Everything else (other tensors, those of To, any other value) is passed on: an lvalue as a
/// reference, also as an element of a std::tuple; an rvalue by moving it. In other containers that
/// contain both, unchanged elements of an lvalue are copied. If `To` is void, nothing changes.
/// Struct members keep their types, so a struct with a tensor to be cast does not compile. For
/// named arguments, use pack_arguments before and unpack_arguments after. Allocates the new
/// tensors.
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
