#pragma once

#include "ikebana/core/language.hpp"

// Functions that depend on no type, and are called where something has failed, so that it does not
// matter that they are calls. A program that takes its kernels from elsewhere has them from there;
// by default each unit has them inline. IKEBANA_ONCE stands before the definition, which is left
// out unless IKEBANA_ONCE_HERE. Kernels of several types may be linked, each with these functions.
// A unit without exceptions has its own, which end the process.
#if defined(IKEBANA_KERNELS_OF) || defined(IKEBANA_ALL_KERNELS)
#define IKEBANA_ONCE_HERE 1
#define IKEBANA_ONCE [[gnu::weak]]
#elif defined(IKEBANA_EXTERN_KERNELS) && defined(__cpp_exceptions)
#define IKEBANA_ONCE_HERE 0
#else
#define IKEBANA_ONCE_HERE 1
#define IKEBANA_ONCE inline
#endif
