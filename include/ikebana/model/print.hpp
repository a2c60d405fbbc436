#pragma once

#include <iosfwd>

#include "ikebana/module/print.hpp"

namespace ikebana {

/// Prints a model as its module. Allocates.
template <class Model, class Traits>
requires requires(const Model& m) {
  m.module();
  m.current_program();
}
std::basic_ostream<char, Traits>& operator<<(std::basic_ostream<char, Traits>& stream,
                                             const Model& m) {
  return stream << to_string(m.module());
}

}  // namespace ikebana
