#pragma once

#include <cstdlib>

#include "ikebana/cpu/dispatch.hpp"

/// Whether a test of every instruction set of this machine runs on s: on all of them, but on one
/// alone if IKEBANA_ISA forces it, since the same program without it runs on the others.
inline bool is_tested(ikebana::cpu::instruction_set s) {
  static const auto forced = ikebana::cpu::active_instruction_set();
  static const char* const wanted = std::getenv("IKEBANA_ISA");
  return ikebana::cpu::supports(s) && (wanted == nullptr || *wanted == '\0' || s == forced);
}
