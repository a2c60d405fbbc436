#pragma once

#include <cstdint>
#include <type_traits>

#include "ikebana/core/bfloat16.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/core/float16.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/round.hpp"

namespace ikebana::detail {

/// Converts gradients of T to R, and back.
template <class R, floating T>
void pack_gradients(dim_t n, const T* from, R* to) {
  if constexpr (std::is_same_v<R, bfloat16>)
    cpu::to_bf16(n, from, reinterpret_cast<std::uint16_t*>(to));
  else if constexpr (std::is_same_v<R, float16>)
    cpu::to_fp16(n, from, reinterpret_cast<std::uint16_t*>(to));
  else if constexpr (std::is_same_v<R, float>)
    cpu::to_float(n, from, to);
  else
    cpu::to_double(n, from, to);
}
template <class R, floating T>
void unpack_gradients(dim_t n, const R* from, T* to) {
  if constexpr (std::is_same_v<R, bfloat16>)
    cpu::from_bf16(n, reinterpret_cast<const std::uint16_t*>(from), to);
  else if constexpr (std::is_same_v<R, float16>)
    cpu::from_fp16(n, reinterpret_cast<const std::uint16_t*>(from), to);
  else if constexpr (std::is_same_v<R, float>)
    cpu::from_float(n, from, to);
  else
    cpu::from_double(n, from, to);
}

/// The type in which a hook averages all gradients of T; void for a hook that does anything else.
template <class Hook, class T>
struct wire_of : std::type_identity<void> {};
template <class Hook, class T>
requires requires { typename Hook::template wire_type<T>; }
struct wire_of<Hook, T> : std::type_identity<typename Hook::template wire_type<T>> {};

}  // namespace ikebana::detail
