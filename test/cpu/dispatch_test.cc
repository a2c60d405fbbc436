#include "ikebana/cpu/dispatch.hpp"

#include <doctest/doctest.h>

#include <string>

#include "ikebana/core/error.hpp"

namespace cpu = ikebana::cpu;

TEST_CASE("the scalar set is always there, and wider sets bring the narrower") {
  CHECK(cpu::supports(cpu::instruction_set::scalar));
  bool narrower = true;
  for (const cpu::instruction_set s : cpu::instruction_sets) {
    if (!cpu::detail::is_built(s)) continue;
    if (cpu::supports(s)) CHECK(narrower);
    narrower = cpu::supports(s);
  }
}

TEST_CASE("the active set is a supported one and can be set") {
  const auto before = cpu::active_instruction_set();
  CHECK(cpu::supports(before));
  cpu::set_instruction_set(cpu::instruction_set::scalar);
  CHECK(cpu::active_instruction_set() == cpu::instruction_set::scalar);
  cpu::set_instruction_set(before);
}

TEST_CASE("an unsupported set is refused by name") {
  for (const cpu::instruction_set s : cpu::instruction_sets)
    if (!cpu::supports(s))
      CHECK_THROWS_WITH_AS(
          cpu::set_instruction_set(s),
          (std::string(cpu::detail::is_built(s) ? "this machine does not support"
                                                : "this build has no kernels for") +
           " the instruction set " + cpu::name(s))
              .c_str(),
          ikebana::error);
#ifdef __x86_64__
  CHECK_THROWS_WITH_AS(cpu::set_instruction_set(cpu::instruction_set::neon),
                       "this build has no kernels for the instruction set neon", ikebana::error);
#endif
}

TEST_CASE("the environment forces a set, and a wrong name is one clear sentence") {
  const auto before = cpu::active_instruction_set();
  const char* kept = std::getenv("IKEBANA_ISA");
  const std::string value = kept != nullptr ? kept : "";

  setenv("IKEBANA_ISA", "scalar", 1);
  CHECK(cpu::detail::detect_set() == 0);
  setenv("IKEBANA_ISA", "avx1024", 1);
#ifdef __x86_64__
  // Translation units that compile their own kernels leave out SSE4.2.
  CHECK_THROWS_WITH_AS(cpu::detail::detect_set(),
                       cpu::detail::is_built(cpu::instruction_set::sse42)
                           ? "IKEBANA_ISA is \"avx1024\"; in this build it can be scalar, sse42, "
                             "avx2 or avx512"
                           : "IKEBANA_ISA is \"avx1024\"; in this build it can be scalar, avx2 or "
                             "avx512",
                       ikebana::error);
#else
  CHECK_THROWS_WITH_AS(cpu::detail::detect_set(),
                       "IKEBANA_ISA is \"avx1024\"; in this build it can be scalar or neon",
                       ikebana::error);
#endif
  setenv("IKEBANA_ISA", "", 1);
  CHECK(cpu::supports(static_cast<cpu::instruction_set>(cpu::detail::detect_set())));

  if (kept != nullptr)
    setenv("IKEBANA_ISA", value.c_str(), 1);
  else
    unsetenv("IKEBANA_ISA");
  cpu::set_instruction_set(before);
}
