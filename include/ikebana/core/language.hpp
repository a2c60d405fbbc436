#pragma once

// The requirements on the compiler, each with one sentence as its error. An #include of a missing
// file follows each #error, because only the former ends the compilation.

#include <version>

#if __cplusplus < 202002L
#error "Ikebana needs C++20: compile with -std=c++20 or later"
#include "ikebana needs -std=c++20"
#endif

#if defined(_LIBCPP_VERSION) && _LIBCPP_VERSION < 200000
#error "Ikebana needs std::from_chars of float, which libc++ has from 20 on: -stdlib=libstdc++"
#include "ikebana needs another standard library"
#endif
