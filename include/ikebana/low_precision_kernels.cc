// The products of low precision, for programs that define IKEBANA_EXTERN_KERNELS: a unit of its
// own, for they are of neither of the types that kernels.cc is built for.
#define IKEBANA_LOW_PRECISION_KERNELS

#include "ikebana/cpu/gemm_bf16.hpp"
#include "ikebana/cpu/gemm_int8.hpp"
