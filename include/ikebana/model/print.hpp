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

/// Prints a lazy_model as its module, as far as it is resolved. Allocates.
template <class Holder, class Traits>
requires requires(const Holder& h) {
  h.printed();
  h.has_uninitialized_params();
}
std::basic_ostream<char, Traits>& operator<<(std::basic_ostream<char, Traits>& stream,
                                             const Holder& h) {
  return stream << h.printed();
}

}  // namespace ikebana
