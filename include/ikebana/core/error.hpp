#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "ikebana/core/diagnostic.hpp"

namespace ikebana {

/// The base of everything Ikebana throws. Thrown before anything has changed.
class error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A shape that does not fit, known only at run time. The text is the one the compiler would have
/// printed.
class shape_error : public error {
 public:
  using error::error;
  explicit shape_error(const diagnostic& d) : error(d.message().c_str()) {}
};

/// A state (parameters, buffers, optimizer) that does not fit the model it is meant for.
class state_error : public error {
 public:
  using error::error;
};

/// A file that cannot be read or written, or does not hold what its format asks.
class io_error : public error {
 public:
  using error::error;
};

/// A rank that failed, left or never came, or a collective that ranks called differently.
class communication_error : public error {
 public:
  using error::error;
};

}  // namespace ikebana
