#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <thread>

#include "ikebana/core/error.hpp"
#include "ikebana/replicate/threads/thread_shares.hpp"
#include "ikebana/replicate/threads/thread_world.hpp"
#include "ikebana/replicate/work.hpp"

namespace ikebana {

namespace detail {

/// One rank's progress through the collectives of a `thread_world`, in the order in which it
/// announces them. Whatever throws communication_error has failed the world before, and throws only
/// when no other rank touches this rank's memory any more.
///
/// A template, so that it is compiled only where it is used.
template <class Unused>
class basic_thread_engine {
 public:
  using thread_world = basic_thread_world<Unused>;

  basic_thread_engine(thread_world& world, int rank) : world_{world}, rank_{rank} {}
  basic_thread_engine(const basic_thread_engine&) = delete;
  basic_thread_engine& operator=(const basic_thread_engine&) = delete;

  int rank() const { return rank_; }
  int size() const { return world_.size(); }
  thread_world& world() const { return world_; }

  /// Publishes a request. Waits only if `max_in_flight` collectives are in flight.
  std::uint64_t announce(const request& asked, share how) {
    if (world_.any_failed_or_left() && world_.failed()) stop_after_failure(asked, {});
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

  /// Makes progress; returns whether collective `number` is complete.
  bool poll(std::uint64_t number) {
    if (advance(number)) return true;
    if (world_.any_failed_or_left()) check_failure(number, {});
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

  /// Fails the world, unless it has failed before, and throws when no rank touches this rank's
  /// memory any more.
  [[noreturn]] void stop(std::string text) {
    world_.fail(world_.name_of(rank_), thread_world::failure_kind::gave_up, text);
    world_.quarantine(rank_);
    throw communication_error(called(rank_) + ": " + text);
  }

  /// For a buffer that is destroyed while its collective is in flight.
  void withdraw(std::uint64_t number) noexcept {
    if (!is_complete(number)) give_up_on_exception();
  }

  /// For a group that is destroyed while an exception unwinds.
  void give_up_on_exception() noexcept {
    world_.fail(world_.name_of(rank_), thread_world::failure_kind::thrown, "an exception ended it");
    world_.quarantine(rank_);
  }

  void leave() noexcept { world_.leave(rank_); }

 private:
  using clock = typename thread_world::clock;

  bool has_announced(int rank, std::uint64_t number) {
    return world_.at(number, rank).number.load(std::memory_order_seq_cst) > number;
  }
  bool has_done(int rank, std::uint64_t number) {
    return world_.progress(rank).step.load(std::memory_order_seq_cst) >= 2 * (number + 1);
  }
  bool all_have_announced(std::uint64_t number) {
    for (int r = 0; r < size(); ++r)
      if (!has_announced(r, number)) return false;
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

  /// Does this rank's shares of what all have announced; returns whether collective `number` is
  /// complete.
  bool advance(std::uint64_t number) {
    while (done_ < issued_ && all_have_announced(done_) && do_share()) {
    }
    return is_complete(number);
  }

  /// False if the world has failed, in which case nothing was done.
  bool do_share() {
    const announcement* row = &world_.at(done_, 0);
    for (int r = 1; r < size(); ++r)
      if (!row[r].what.agrees_with(row[0].what)) {
        const std::string text =
            mismatch_text(world_.name_of(r), row[r].what, world_.name_of(0), row[0].what);
        world_.fail(world_.name_of(rank_), thread_world::failure_kind::mismatch, text);
        stop(text);
      }
    std::atomic<std::uint64_t>& step = world_.progress(rank_).step;
    // It first marks itself as inside, then checks whether it may be; a rank that fails the world
    // does the opposite, so that one of the two sees the other.
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
    const typename clock::time_point start = clock::now();
    const typename clock::time_point deadline =
        start + (world_.timeout() < longest ? world_.timeout() : longest);
    for (int i = 0;; ++i) {
      if (advance(number)) return;
      const typename clock::time_point now = clock::now();
      if (world_.any_failed_or_left()) check_failure(number, now - start);
      if (now >= deadline) stop_after_timeout(number, now - start);
      if (i < thread_world::yields || world_.any_failed_or_left()) {
        std::this_thread::yield();
        continue;
      }
      world_.sleep_until(deadline, [&] {
        return (done_ < issued_ && all_have_announced(done_)) || is_complete(number) ||
               world_.any_failed_or_left();
      });
    }
  }

  /// Throws if the world has failed, or if a rank that has left owes its share of `number`.
  void check_failure(std::uint64_t number, std::chrono::nanoseconds waited) {
    const request& mine = world_.at(number, rank_).what;
    if (world_.failed() && !advance(number)) stop_after_failure(mine, waited);
    for (int r = 0; r < size(); ++r)
      if (world_.progress(r).left.load(std::memory_order_acquire) && !has_done(r, number))
        stop(mine.text() + ": " + called(r) + " has returned without it (waited " +
             seconds_text(seconds(waited)) + ")");
  }

  [[noreturn]] void stop_after_timeout(std::uint64_t number, std::chrono::nanoseconds waited) {
    const request& mine = world_.at(number, rank_).what;
    int absent = 0;
    while (absent + 1 < size() && has_done(absent, number)) ++absent;
    for (int r = 0; r < size() && done_ <= number; ++r)
      if (!has_announced(r, done_)) absent = r;
    stop(mine.text() + ": " + called(absent) +
         (has_announced(absent, number) ? " has not done its share" : " did not come") +
         " (waited " + seconds_text(seconds(waited)) + ")");
  }

  [[noreturn]] void stop_after_failure(const request& mine, std::chrono::nanoseconds waited) {
    const typename thread_world::failure f = world_.first_failure();
    if (f.kind == thread_world::failure_kind::mismatch) stop(f.text);
    stop(mine.text() + ": " + rank_text(f.rank) +
         (f.kind == thread_world::failure_kind::thrown ? " failed" : " gave up") + " (waited " +
         seconds_text(seconds(waited)) + "): " + f.text);
  }

  std::string called(int rank) const { return rank_text(world_.name_of(rank)); }

  static double seconds(std::chrono::nanoseconds t) {
    return std::chrono::duration<double>(t).count();
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
  std::uint64_t issued_ = 0;     // Collectives announced by this rank.
  std::uint64_t done_ = 0;       // Of those, how many it has done its share of.
  std::uint64_t completed_ = 0;  // Of those, how many it knows to be complete.
  std::array<share, thread_world::max_in_flight> shares_{};
};
using thread_engine = basic_thread_engine<void>;

}  // namespace detail

/// A collective of a `thread_group` in flight.
using thread_work = collective_work<detail::thread_engine>;

}  // namespace ikebana
