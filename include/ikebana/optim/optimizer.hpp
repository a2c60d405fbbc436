#pragma once

#include <concepts>
#include <cstddef>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "ikebana/core/dtype.hpp"
#include "ikebana/core/error.hpp"

namespace ikebana {

/// What an optimizer works on: all parameters as one array, and their gradients as another of the
/// same length. Both stay where they are for as long as the model lives, wherever the model itself
/// is moved.
template <class M>
concept optimizable = requires(M& m) {
  typename M::value_type;
  { m.parameters() } -> std::same_as<std::span<typename M::value_type>>;
  { m.gradients() } -> std::same_as<std::span<typename M::value_type>>;
};

/// A part of what an optimizer remembers, by PyTorch's name: `exp_avg`. Arrays are laid out as the
/// model's parameters are. Writing to it restores what was saved.
struct optimizer_state {
  std::string_view name;
  dtype type;
  std::span<std::byte> bytes;

  template <class T>
  static optimizer_state of(std::string_view name, std::span<T> values) {
    return {name, dtype_of<T>, std::as_writable_bytes(values)};
  }
};

namespace detail {

template <class M>
struct element_of : std::type_identity<float> {};
template <optimizable M>
struct element_of<M> : std::type_identity<typename M::value_type> {};

/// Throws what PyTorch says of an option of an optimizer, unless it is in order.
inline void check_option(bool in_order, const char* optimizer, const char* what, double value) {
  if (in_order) return;
  char digits[32];
  std::snprintf(digits, sizeof digits, "%g", value);
  throw error(std::string(optimizer) + ": Invalid " + what + ": " + digits);
}

}  // namespace detail
}  // namespace ikebana
