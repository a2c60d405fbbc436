#pragma once

#include <concepts>

#include "ikebana/core/dtype.hpp"
#include "ikebana/module/context.hpp"

namespace ikebana {

namespace detail {

/// Traits of a model's element type: its number type, and the context passed to a leaf, depending
/// on whether the leaf is an exception. This one is for float and double; `precision` has its own.
template <class E>
struct element_traits;
template <floating T>
struct element_traits<T> {
  using value_type = T;
  static constexpr bool has_exceptions = false;
  static const context<T>& given(const context<T>& c, bool) { return c; }
};

}  // namespace detail

/// The element type of a model: float, double, or a `precision`.
template <class E>
concept model_element = requires {
  typename detail::element_traits<E>::value_type;
};

/// The number type of a model.
template <model_element E>
using element_of = typename detail::element_traits<E>::value_type;

}  // namespace ikebana
