#pragma once

#include <cstdint>

#include "ikebana/core/number_format.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/math.hpp"
#include "ikebana/cpu/dispatch.hpp"

#define IKEBANA_CPU_BODY "ikebana/cpu/detail/bf16-inl.hpp"
#include "ikebana/cpu/detail/foreach_target.hpp"
#define IKEBANA_CPU_BODY "ikebana/cpu/round-inl.hpp"
#define IKEBANA_CPU_SETS 1
#include "ikebana/cpu/detail/foreach_target.hpp"

IKEBANA_CPU_BEGIN_SMALL
/// Rounding to smaller precisions: to nearest, ties to even, a double through float, as PyTorch
/// does. None allocates or throws.
namespace ikebana::cpu {

/// y = x rounded to p. y may be x.
template <class T>
void round_to(dim_t n, number_format p, const T* x, T* y) {
  IKEBANA_CPU_DISPATCH_ONE_WIDTH(round_array<T>)(n, p, x, y);
}

/// y = x rounded to p, plus y if `add`; then rounded to r.
template <class T>
void add_rounded(dim_t n, number_format p, const T* x, number_format r, bool add, T* y) {
  IKEBANA_CPU_DISPATCH_ONE_WIDTH(add_rounded_array<T>)(n, p, x, r, add, y);
}

#define IKEBANA_CPU_CONVERSION(name, From, To, ...)       \
  template <class T>                                      \
  void name(dim_t n, const From* x, To* y) {              \
    IKEBANA_CPU_DISPATCH_ONE_WIDTH(__VA_ARGS__)(n, x, y); \
  }
/// Rounds to the nearest IEEE binary16, ties to even: subnormal numbers kept, from 65520 on
/// infinity; not-a-number becomes the quiet 0x7E00 with its sign.
IKEBANA_CPU_CONVERSION(to_fp16, T, std::uint16_t, narrow_to_fp16<T>)
IKEBANA_CPU_CONVERSION(from_fp16, std::uint16_t, T, widen_from_fp16<T>)
/// Rounds to the nearest bfloat16, ties to even; not-a-number becomes the quiet 0x7FC0 with its
/// sign. A double is rounded to float before.
IKEBANA_CPU_CONVERSION(to_bf16, T, std::uint16_t, narrow_to_bf16<T>)
IKEBANA_CPU_CONVERSION(from_bf16, std::uint16_t, T, widen_from_bf16<T>)
/// y = x in another type.
IKEBANA_CPU_CONVERSION(to_float, T, float, convert<T, float>)
IKEBANA_CPU_CONVERSION(from_float, float, T, convert<float, T>)
IKEBANA_CPU_CONVERSION(to_double, T, double, convert<T, double>)
IKEBANA_CPU_CONVERSION(from_double, double, T, convert<double, T>)
#undef IKEBANA_CPU_CONVERSION

/// x = alpha x. Returns whether all of them were finite before.
template <class T>
bool scale_finite(dim_t n, T alpha, T* x) {
  return IKEBANA_CPU_DISPATCH_ONE_WIDTH(scale_and_check<T>)(n, alpha, x);
}

IKEBANA_CPU_KERNEL(round_to, add_rounded, to_fp16, from_fp16, to_bf16, from_bf16, to_float,
                   from_float, to_double, from_double, scale_finite)

}  // namespace ikebana::cpu
IKEBANA_CPU_END_SMALL
