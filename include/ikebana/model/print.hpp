#pragma once

#include <iosfwd>

#include "ikebana/module/print.hpp"

namespace ikebana {

/// A model prints as its module does.
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
