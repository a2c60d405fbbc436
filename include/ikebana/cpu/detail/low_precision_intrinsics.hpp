#pragma once

#include "ikebana/cpu/detail/intrinsics.hpp"

// As intrinsics.hpp, for the products of small numbers.
#if IKEBANA_CPU_X86 && defined(__GNUC__) && !defined(__clang__) && __GNUC__ == 12 && \
    !defined(_IMMINTRIN_H_INCLUDED)
#define _IMMINTRIN_H_INCLUDED
// clang-format off
#include <avx512vnniintrin.h>
#include <amxtileintrin.h>
#include <amxint8intrin.h>
#include <amxbf16intrin.h>
// clang-format on
#undef _IMMINTRIN_H_INCLUDED
#elif IKEBANA_CPU_X86
#include <immintrin.h>
#endif
