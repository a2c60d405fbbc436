// Prints the instruction set that kernels would use here, or executes one instruction of the named
// one.
#include <cstdio>
#include <string_view>

#include "ikebana/cpu/dispatch.hpp"

int main(int count, char** words) {
  if (count == 1) {
    std::puts(name(ikebana::cpu::active_instruction_set()));
    return 0;
  }
#ifdef __x86_64__
  const std::string_view set = words[1];
  if (set == "sse42") asm volatile("pcmpgtq %%xmm0, %%xmm0" ::: "xmm0");
  if (set == "avx") asm volatile("vaddps %%ymm0, %%ymm0, %%ymm0" ::: "xmm0");
  if (set == "avx2") asm volatile("vpaddd %%ymm0, %%ymm0, %%ymm0" ::: "xmm0");
  if (set == "fma") asm volatile("vfmadd231ps %%ymm0, %%ymm0, %%ymm0" ::: "xmm0");
  if (set == "avx512") asm volatile("vpaddd %%zmm0, %%zmm0, %%zmm0" ::: "xmm0");
#else
  static_cast<void>(words);
#endif
}
