#pragma once

#include "ikebana/cpu/detail/targets.hpp"

#if IKEBANA_CPU_X86
#if (defined(__clang__) && __clang_major__ == 14 && !defined(__IMMINTRIN_H)) || \
    (!defined(__clang__) && __GNUC__ == 12 && !defined(_IMMINTRIN_H_INCLUDED))
// g++ 12 spends 0.4 s and 100 MiB on <immintrin.h>, clang 14 half as much; the parts that the
// kernels use cost a quarter of it. They are the very headers that <immintrin.h> includes, in its
// order, so a later include of it completes the set.
#define __IMMINTRIN_H
#define _IMMINTRIN_H_INCLUDED
// clang-format off
#include <emmintrin.h>
#include <pmmintrin.h>
#include <tmmintrin.h>
#include <smmintrin.h>
#include <avxintrin.h>
#include <avx2intrin.h>
#include <avx512fintrin.h>
#include <fmaintrin.h>
// clang-format on
#undef _IMMINTRIN_H_INCLUDED
#undef __IMMINTRIN_H
#else
#include <immintrin.h>
#endif
#elif IKEBANA_CPU_ARM64
#include <arm_neon.h>
#endif
