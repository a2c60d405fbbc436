#pragma once

#include <memory>
#include <string>

#include "ikebana/core/error.hpp"

namespace ikebana::detail {

[[noreturn, gnu::cold, gnu::noinline]] inline void refuse_moved_from(const char* what = "model") {
  throw_error(state_error(std::string("the ") + what +
                          " was moved from: use the one that it was moved to"));
}

/// Owns the tables of a model's network. A moved-from model has none; every access then throws
/// state_error.
template <class Tables>
class owned_tables {
 public:
  explicit owned_tables(Tables* tables) : tables_{tables} {}

  Tables& operator*() const {
    if (tables_ == nullptr) [[unlikely]]
      refuse_moved_from();
    return *tables_;
  }
  Tables* operator->() const { return &**this; }

 private:
  std::unique_ptr<Tables> tables_;
};

}  // namespace ikebana::detail
