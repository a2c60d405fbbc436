// A translation unit of a program whose units are compiled with different flags (flags_test.sh):
// FUNCTION(set) calls a kernel of this unit, after selecting `set` if there is one, and returns the
// active instruction set's name.
#include <cstddef>
#include <string_view>

#include "ikebana/cpu/elementwise.hpp"

namespace cpu = ikebana::cpu;

const char* FUNCTION(const char* set) {
  for (const cpu::instruction_set s : cpu::instruction_sets)
    if (set != nullptr && std::string_view{set} == cpu::name(s)) cpu::set_instruction_set(s);
  float x[37];
  for (std::size_t i = 0; i < 37; ++i) x[i] = static_cast<float>(i) - 20;
  cpu::relu_forward<float>(37, x, x);
  for (std::size_t i = 0; i < 37; ++i)
    if (x[i] != (i > 20 ? static_cast<float>(i) - 20 : 0)) return "wrong";
  cpu::tanh_forward<float>(37, x, x);
  for (std::size_t i = 0; i < 37; ++i)
    if ((x[i] > 0.7F) != (i > 20) || x[i] < 0 || x[i] > 1) return "wrong";
  return cpu::name(cpu::active_instruction_set());
}

#ifdef OTHER
#include <cstdio>
#include <exception>

const char* OTHER(const char* set);

// Prints both units' instruction sets, after forcing this unit's to scalar.
int main() try {
  std::printf("%s %s\n", FUNCTION("scalar"), OTHER(nullptr));
} catch (const std::exception& e) {
  std::printf("%s\n", e.what());
  return 1;
}
#endif
