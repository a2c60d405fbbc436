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

/// Rounds to the nearest IEEE binary16, ties to even: subnormal numbers kept, from 65520 on
/// infinity; not-a-number becomes the quiet 0x7E00 with its sign.
template <class T>
void to_fp16(dim_t n, const T* x, std::uint16_t* y) {
  IKEBANA_CPU_DISPATCH_ONE_WIDTH(narrow_to_fp16<T>)(n, x, y);
}
template <class T>
void from_fp16(dim_t n, const std::uint16_t* x, T* y) {
  IKEBANA_CPU_DISPATCH_ONE_WIDTH(widen_from_fp16<T>)(n, x, y);
}

/// Rounds to the nearest bfloat16, ties to even; not-a-number becomes the quiet 0x7FC0 with its
/// sign. A double is rounded to float before.
template <class T>
void to_bf16(dim_t n, const T* x, std::uint16_t* y) {
  IKEBANA_CPU_DISPATCH_ONE_WIDTH(narrow_to_bf16<T>)(n, x, y);
}
template <class T>
void from_bf16(dim_t n, const std::uint16_t* x, T* y) {
  IKEBANA_CPU_DISPATCH_ONE_WIDTH(widen_from_bf16<T>)(n, x, y);
}

/// y = x in another type.
template <class T>
void to_float(dim_t n, const T* x, float* y) {
  IKEBANA_CPU_DISPATCH_ONE_WIDTH(convert<T, float>)(n, x, y);
}
template <class T>
void from_float(dim_t n, const float* x, T* y) {
  IKEBANA_CPU_DISPATCH_ONE_WIDTH(convert<float, T>)(n, x, y);
}
template <class T>
void to_double(dim_t n, const T* x, double* y) {
  IKEBANA_CPU_DISPATCH_ONE_WIDTH(convert<T, double>)(n, x, y);
}
template <class T>
void from_double(dim_t n, const double* x, T* y) {
  IKEBANA_CPU_DISPATCH_ONE_WIDTH(convert<double, T>)(n, x, y);
}

/// x = alpha x. Returns whether all of them were finite before.
template <class T>
bool scale_finite(dim_t n, T alpha, T* x) {
  return IKEBANA_CPU_DISPATCH_ONE_WIDTH(scale_and_check<T>)(n, alpha, x);
}

IKEBANA_CPU_KERNEL(round_to, add_rounded, to_fp16, from_fp16, to_bf16, from_bf16, to_float,
                   from_float, to_double, from_double, scale_finite)

}  // namespace ikebana::cpu
IKEBANA_CPU_END_SMALL
