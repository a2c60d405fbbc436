#pragma once

#include <concepts>

#include "ikebana/core/dtype.hpp"
#include "ikebana/module/context.hpp"

namespace ikebana {

namespace detail {

/// What stands where a model's element type stands: its numbers, and the context that a leaf is
/// given, by whether the leaf is an exception. That of float and double; `precision` has its own.
template <class E>
struct element_traits;
template <floating T>
struct element_traits<T> {
  using value_type = T;
  static constexpr bool has_exceptions = false;
  static const context<T>& given(const context<T>& c, bool) { return c; }
};

}  // namespace detail

/// What a model may be of: float, double, or a `precision`.
template <class E>
concept model_element = requires {
  typename detail::element_traits<E>::value_type;
};

/// The type of a model's numbers.
template <model_element E>
using element_of = typename detail::element_traits<E>::value_type;

}  // namespace ikebana
