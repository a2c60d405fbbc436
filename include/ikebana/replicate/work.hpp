#pragma once

#include <cstdint>
#include <exception>
#include <utility>

#include "ikebana/core/language.hpp"

namespace ikebana {

/// A collective in flight: the handle of a `thread_group` or an `mpi_group`. It must not outlive
/// its group, and its buffers must outlive it. The destructor of an unfinished one waits for it, so
/// that no other rank touches the buffers afterwards; while an exception unwinds it withdraws them
/// instead, which fails the group on every rank.
template <class Engine>
class [[nodiscard]] collective_work {
 public:
  collective_work() = default;
  collective_work(Engine& engine, std::uint64_t number)
      : engine_{&engine}, number_{number}, exceptions_{std::uncaught_exceptions()} {}
  collective_work(collective_work&& other) noexcept
      : engine_{std::exchange(other.engine_, nullptr)},
        number_{other.number_},
        exceptions_{other.exceptions_} {}
  collective_work& operator=(collective_work&& other) noexcept {
    std::swap(engine_, other.engine_);
    std::swap(number_, other.number_);
    std::swap(exceptions_, other.exceptions_);
    return *this;
  }
  ~collective_work() {
    if (engine_ == nullptr) return;
    if (std::uncaught_exceptions() > exceptions_) {
      engine_->withdraw(number_);
      return;
    }
    try {
      engine_->complete(number_);
    } catch (...) {
      // The group has failed; its next collective and the launcher report it.
    }
  }

  /// Makes progress; returns whether the collective is complete. Never waits. Throws
  /// communication_error if it can never complete.
  bool poll() {
    if (engine_ != nullptr && engine_->poll(number_)) engine_ = nullptr;
    return engine_ == nullptr;
  }

  /// Returns when the collective is complete. Throws communication_error if it can never complete,
  /// or does not within the timeout.
  void wait() {
    if (engine_ != nullptr) std::exchange(engine_, nullptr)->complete(number_);
  }

 private:
  Engine* engine_ = nullptr;
  std::uint64_t number_ = 0;
  int exceptions_ = 0;
};

}  // namespace ikebana
