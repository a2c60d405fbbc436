#pragma once

#include <atomic>

#include "ikebana/core/error.hpp"

namespace ikebana::detail {

/// Marks a model as in use during a call. If IKEBANA_CHECKED is defined, throws state_error if
/// another thread is in a call of the same model; nested calls of one thread are allowed. Otherwise
/// does nothing.
class exclusive_use {
 public:
  explicit exclusive_use([[maybe_unused]] std::atomic<const void*>& user) {
#ifdef IKEBANA_CHECKED
    static thread_local char here;
    const void* expected = nullptr;
    if (user.compare_exchange_strong(expected, &here))
      user_ = &user;
    else if (expected != &here)
      throw_error(state_error(
          "the model is called by two threads at once: give each thread its own clone()"));
#endif
  }
  exclusive_use(const exclusive_use&) = delete;
  ~exclusive_use() {
#ifdef IKEBANA_CHECKED
    if (user_ != nullptr) user_->store(nullptr);
#endif
  }

 private:
  [[maybe_unused]] std::atomic<const void*>* user_ = nullptr;
};

}  // namespace ikebana::detail
