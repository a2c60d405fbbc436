#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <string>
#include <thread>
#include <utility>

#include "ikebana/core/error.hpp"
#include "ikebana/replicate/thread_shares.hpp"
#include "ikebana/replicate/thread_world.hpp"

namespace ikebana {

namespace detail {

/// One rank's way through the collectives of a `thread_world`, in the order in which it announces
/// them. Whatever throws communication_error has failed the world before, and does so only when no
/// other rank touches this rank's memory any more.
class thread_engine {
 public:
  thread_engine(thread_world& world, int rank) : world_{world}, rank_{rank} {}
  thread_engine(const thread_engine&) = delete;
  thread_engine& operator=(const thread_engine&) = delete;

  int rank() const { return rank_; }
  int size() const { return world_.size(); }

  /// Publishes a request. Waits only if `max_in_flight` collectives are under way.
  std::uint64_t announce(const request& asked, share how) {
    if (world_.troubled() && world_.failed()) stop_after_failure(asked, {});
    const std::uint64_t number = issued_;
    if (number >= thread_world::max_in_flight) complete(number - thread_world::max_in_flight);
    announcement& entry = world_.at(number, rank_);
    entry.what = asked;
    entry.number.store(number + 1, std::memory_order_seq_cst);
    shares_[number % thread_world::max_in_flight] = how;
    issued_ = number + 1;
    world_.wake();
    return number;
  }

  /// Makes what progress is possible; true if collective `number` is complete.
  bool poll(std::uint64_t number) {
    if (advance(number)) return true;
    if (world_.troubled()) look_for_trouble(number, {});
    return false;
  }

  /// Returns when collective `number` is complete.
  void complete(std::uint64_t number) {
    for (int i = 0; i < world_.spins_; ++i) {
      if (poll(number)) return;
      pause();
    }
    complete_slowly(number);
  }

  /// Fails the world, if it has not failed before, and throws when no rank touches the memory of
  /// this one any more.
  [[noreturn]] void stop(std::string text) {
    world_.fail(rank_, thread_world::failure_kind::gave_up, text);
    world_.quarantine(rank_);
    throw communication_error(rank_text(rank_) + ": " + text);
  }

  /// For a buffer that goes away with its collective under way.
  void withdraw(std::uint64_t number) noexcept {
    if (is_complete(number)) return;
    world_.fail(rank_, thread_world::failure_kind::thrown, "an exception ended it");
    world_.quarantine(rank_);
  }

  void leave() noexcept { world_.leave(rank_); }

 private:
  using clock = thread_world::clock;

  bool has_come(int rank, std::uint64_t number) {
    return world_.at(number, rank).number.load(std::memory_order_seq_cst) > number;
  }
  bool has_done(int rank, std::uint64_t number) {
    return world_.progress(rank).step.load(std::memory_order_seq_cst) >= 2 * (number + 1);
  }
  bool all_have_come(std::uint64_t number) {
    for (int r = 0; r < size(); ++r)
      if (!has_come(r, number)) return false;
    return true;
  }
  bool is_complete(std::uint64_t number) {
    if (number < completed_) return true;
    if (number >= done_) return false;
    for (int r = 0; r < size(); ++r)
      if (!has_done(r, number)) return false;
    completed_ = number + 1;
    return true;
  }

  /// Does this rank's shares of what all have announced; true if collective `number` is complete.
  bool advance(std::uint64_t number) {
    while (done_ < issued_ && all_have_come(done_) && do_share()) {
    }
    return is_complete(number);
  }

  /// False if the world has failed, and nothing is done any more.
  bool do_share() {
    const announcement* row = &world_.at(done_, 0);
    for (int r = 1; r < size(); ++r)
      if (!row[r].what.agrees_with(row[0].what)) {
        const std::string text = rank_text(r) + " called " + row[r].what.text() + ", " +
                                 rank_text(0) + " called " + row[0].what.text();
        world_.fail(rank_, thread_world::failure_kind::mismatch, text);
        stop(text);
      }
    std::atomic<std::uint64_t>& step = world_.progress(rank_).step;
    // First says that it is inside, then looks whether it may be: a rank that fails the world does
    // the same in the opposite order, so one of the two sees the other.
    step.store(2 * done_ + 1, std::memory_order_seq_cst);
    if (world_.failed()) {
      step.store(2 * done_, std::memory_order_seq_cst);
      return false;
    }
    shares_[done_ % thread_world::max_in_flight](row, rank_, size());
    ++done_;
    step.store(2 * done_, std::memory_order_seq_cst);
    world_.wake();
    return true;
  }

  void complete_slowly(std::uint64_t number) {
    constexpr std::chrono::nanoseconds longest = std::chrono::hours{24 * 365};
    const clock::time_point start = clock::now();
    const clock::time_point deadline =
        start + (world_.timeout() < longest ? world_.timeout() : longest);
    for (int i = 0;; ++i) {
      if (advance(number)) return;
      const clock::time_point now = clock::now();
      if (world_.troubled()) look_for_trouble(number, now - start);
      if (now >= deadline) stop_after_timeout(number, now - start);
      if (i < thread_world::yields || world_.troubled()) {
        std::this_thread::yield();
        continue;
      }
      world_.sleep_until(deadline, [&] {
        return (done_ < issued_ && all_have_come(done_)) || is_complete(number) ||
               world_.troubled();
      });
    }
  }

  /// Throws if the world has failed, or if a rank that has left owes its share of `number`.
  void look_for_trouble(std::uint64_t number, std::chrono::nanoseconds waited) {
    const request& mine = world_.at(number, rank_).what;
    if (world_.failed() && !advance(number)) stop_after_failure(mine, waited);
    for (int r = 0; r < size(); ++r)
      if (world_.progress(r).left.load(std::memory_order_acquire) && !has_done(r, number))
        stop(mine.text() + ": " + rank_text(r) + " has returned without it (waited " +
             seconds_text(waited) + ")");
  }

  [[noreturn]] void stop_after_timeout(std::uint64_t number, std::chrono::nanoseconds waited) {
    const request& mine = world_.at(number, rank_).what;
    int absent = 0;
    while (absent + 1 < size() && has_done(absent, number)) ++absent;
    for (int r = 0; r < size() && done_ <= number; ++r)
      if (!has_come(r, done_)) absent = r;
    stop(mine.text() + ": " + rank_text(absent) +
         (has_come(absent, number) ? " has not done its share" : " did not come") + " (waited " +
         seconds_text(waited) + ")");
  }

  [[noreturn]] void stop_after_failure(const request& mine, std::chrono::nanoseconds waited) {
    const thread_world::failure f = world_.first_failure();
    if (f.kind == thread_world::failure_kind::mismatch) stop(f.text);
    stop(mine.text() + ": " + rank_text(f.rank) +
         (f.kind == thread_world::failure_kind::thrown ? " failed" : " gave up") + " (waited " +
         seconds_text(waited) + "): " + f.text);
  }

  static void pause() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#else
    std::this_thread::yield();
#endif
  }

  thread_world& world_;
  const int rank_;
  std::uint64_t issued_ = 0;     // collectives announced by this rank
  std::uint64_t done_ = 0;       // of those, how many it has done its share of
  std::uint64_t completed_ = 0;  // of those, how many it knows to be complete
  std::array<share, thread_world::max_in_flight> shares_{};
};

}  // namespace detail

/// A collective of a `thread_group` under way. It must not outlive its group, and its buffer must
/// outlive it. The destructor of an unfinished one waits for it, so that no other rank touches the
/// buffer afterwards; while an exception unwinds it withdraws the buffer instead, which fails the
/// world.
class [[nodiscard]] thread_work {
 public:
  thread_work() = default;
  thread_work(thread_work&& other) noexcept
      : engine_{std::exchange(other.engine_, nullptr)},
        number_{other.number_},
        exceptions_{other.exceptions_} {}
  thread_work& operator=(thread_work&& other) noexcept {
    std::swap(engine_, other.engine_);
    std::swap(number_, other.number_);
    std::swap(exceptions_, other.exceptions_);
    return *this;
  }
  ~thread_work();

  /// Does this rank's share if the others have come; true once the collective is complete. Never
  /// waits. Throws communication_error if it never will be complete.
  bool poll();

  /// Returns when the collective is complete. Throws communication_error if it never will be, or
  /// is not within the timeout.
  void wait();

 private:
  friend class thread_group;
  thread_work(detail::thread_engine& engine, std::uint64_t number)
      : engine_{&engine}, number_{number}, exceptions_{std::uncaught_exceptions()} {}

  detail::thread_engine* engine_ = nullptr;
  std::uint64_t number_ = 0;
  int exceptions_ = 0;
};

inline thread_work::~thread_work() {
  if (engine_ == nullptr) return;
  if (std::uncaught_exceptions() > exceptions_) {
    engine_->withdraw(number_);
    return;
  }
  try {
    engine_->complete(number_);
  } catch (...) {
    // The world has failed: the next collective, and the launcher, say so.
  }
}

inline bool thread_work::poll() {
  if (engine_ != nullptr && engine_->poll(number_)) engine_ = nullptr;
  return engine_ == nullptr;
}

inline void thread_work::wait() {
  if (engine_ != nullptr) std::exchange(engine_, nullptr)->complete(number_);
}

}  // namespace ikebana
