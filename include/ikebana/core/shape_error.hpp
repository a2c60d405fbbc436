#pragma once

#include <stdexcept>

#include "ikebana/core/language.hpp"
#include "ikebana/core/throw_error.hpp"

namespace ikebana {

struct diagnostic;

/// Base of all exceptions that Ikebana throws. They are thrown before anything has changed.
class error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A shape mismatch that can be detected only at run time. Its text is that of the compile-time
/// diagnostic.
class shape_error : public error {
 public:
  using error::error;
  explicit shape_error(const diagnostic& d);  // core/error.hpp
};

}  // namespace ikebana
