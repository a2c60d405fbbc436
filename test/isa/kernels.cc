// A program that holds all kernels as cpu/kernels.cc builds them.
#include "ikebana/cpu/gemm.hpp"
#include "ikebana/cpu/gemm_bf16.hpp"
#include "ikebana/cpu/gemm_int8.hpp"

namespace cpu = ikebana::cpu;

template <class T>
void multiply() {
  const T a = 1, b = 1;
  T c = 0;
  cpu::gemm<T>(cpu::transpose::no, cpu::transpose::no, 1, 1, 1, T{1}, &a, 1, &b, 1, T{0}, &c, 1);
}

int main() {
  multiply<float>();
  multiply<double>();
  const std::uint8_t a = 1;
  const std::int8_t b = 1;
  std::int32_t c = 0;
  cpu::gemm_int8(cpu::transpose::no, cpu::transpose::no, 1, 1, 1, &a, 1, &b, 1, &c, 1);
  return c - 1;
}
