#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "ikebana/core/error.hpp"
#include "ikebana/replicate/mpi/mpi_notice.hpp"
#include "ikebana/replicate/mpi/mpi_operation.hpp"
#include "ikebana/replicate/mpi/mpi_phases.hpp"
#include "ikebana/replicate/mpi/mpi_process.hpp"
#include "ikebana/replicate/request.hpp"

namespace ikebana::detail {

/// One rank's progress through the collectives of a group; several collectives can progress
/// together. Whatever throws communication_error has failed the group before.
class mpi_engine final : mpi_listener {
 public:
  static constexpr std::size_t max_in_flight = mpi_phases::max_in_flight;

  /// For these ranks of the world, including this one. No other group of these ranks uses the slot.
  /// The slot is released at the end, unless messages may still be in flight.
  mpi_engine(std::uint64_t id, std::vector<int> names, int slot, std::chrono::nanoseconds timeout)
      : process_{mpi_process::instance()},
        id_{id},
        slot_{slot},
        names_{std::move(names)},
        timeout_{timeout},
        left_(names_.size(), not_left),
        operations_(max_in_flight) {
    while (names_[static_cast<std::size_t>(rank_)] != process_.rank()) ++rank_;
    phases_ = mpi_phases(process_.control(), rank_, names_, mpi_process::first_tag(slot));
    for (operation& o : operations_) o.prepare(size());
    process_.attach(this);
    process_.wait_at_end(timeout_);
  }
  mpi_engine(const mpi_engine&) = delete;
  mpi_engine& operator=(const mpi_engine&) = delete;

  ~mpi_engine() {
    process_.detach(this);
    if (failure_ || process_.failure())
      process_.keep(std::move(operations_));
    else if (slot_ != 0)
      process_.free_slot(slot_);
  }

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(names_.size()); }
  int name_of(int rank) const { return names_[static_cast<std::size_t>(rank)]; }
  const std::vector<int>& names() const { return names_; }
  std::uint64_t id() const { return id_; }
  int slot() const { return slot_; }
  std::chrono::nanoseconds timeout() const { return timeout_; }

  /// Starts a collective. Waits only if `max_in_flight` are in flight.
  std::uint64_t announce(const request& asked, reduce_function reduce) {
    if (failure_ || process_.failure()) stop_after_failure(asked, 0);
    const std::uint64_t number = issued_;
    operation& o = slot(number);
    if (o.active) complete(o.number);
    ++issued_;
    o.asked = asked;
    o.reduce = reduce;
    o.number = number;
    o.phase = 0;
    o.active = true;
    guarded([&] { phases_.begin_headers(o); });
    advance(o);
    return number;
  }

  bool poll(std::uint64_t number) {
    if (!is_active(number)) return finished(number);
    progress();
    if (!is_active(number)) return finished(number);
    check_failure(number, 0);
    return false;
  }

  void complete(std::uint64_t number) {
    const clock::time_point start = clock::now();
    for (std::int64_t i = 1; is_active(number); ++i) {
      progress();
      if (!is_active(number)) break;
      if (i < spins) continue;
      // Spinning on the processor that the awaited rank needs would be the slowest way to wait.
      const std::chrono::nanoseconds waited = clock::now() - start;
      check_failure(number, seconds(waited));
      if (waited >= timeout_) stop_after_timeout(number, seconds(waited));
      if (waited < std::chrono::milliseconds(2))
        std::this_thread::yield();
      else
        std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    finished(number);
  }

  /// Fails the group on every rank and throws.
  [[noreturn]] void stop(const std::string& text, mpi_notice_kind kind = mpi_notice_kind::gave_up) {
    if (!failure_) {
      failure_ = process_.notice_of(kind, id_, text);
      process_.send(*failure_, names_);
    }
    process_.note_failure(failure_->kind);
    abandon();
    throw communication_error(called(rank_) + ": " + text);
  }

  /// For a buffer that is destroyed while its collective is in flight.
  void withdraw(std::uint64_t number) noexcept {
    if (is_active(number)) give_up_on_exception();
  }

  /// For a group that is destroyed while an exception unwinds.
  void give_up_on_exception() noexcept {
    if (!failure_ && !process_.failure()) {
      failure_ = process_.notice_of(mpi_notice_kind::thrown, id_, "an exception ended it");
      process_.send(*failure_, names_);
      process_.note_failure(failure_->kind);
    }
    abandon();
  }

  /// Tells the others that this rank calls no more collectives of this group.
  void leave() noexcept {
    if (std::exchange(gone_, true) || failure_ || process_.failure()) return;
    mpi_notice notice = process_.notice_of(mpi_notice_kind::left, id_, {});
    notice.issued = issued_;
    process_.send(notice, names_);
  }

 private:
  using operation = mpi_operation;
  using clock = mpi_process::clock;
  static constexpr std::uint64_t not_left = ~std::uint64_t{0};
  static constexpr int spins = 200;
  operation& slot(std::uint64_t number) { return operations_[number % max_in_flight]; }
  bool is_active(std::uint64_t number) {
    const operation& o = slot(number);
    return o.active && o.number == number;
  }
  /// True, unless the collective was abandoned.
  bool finished(std::uint64_t number) {
    if (number >= abandoned_from_) stop_after_failure(slot(number).asked, 0);
    return true;
  }

  void progress() {
    const std::uint64_t oldest = issued_ < max_in_flight ? 0 : issued_ - max_in_flight;
    for (std::uint64_t n = oldest; n < issued_; ++n)
      if (operation& o = slot(n); o.active) advance(o);
  }

  /// Calls f(), and turns an MPI error into a failure of the group.
  template <class F>
  std::invoke_result_t<F> guarded(F f) {
    try {
      return f();
    } catch (const communication_error& e) {
      stop(e.what());
    }
  }

  void advance(operation& o) {
    while (o.active) {
      if (!guarded([&] { return o.test(); })) return;
      if (o.phase == 0) compare(o);
      ++o.phase;
      if (guarded([&] { return phases_.begin(o); })) continue;
      phases_.reclaim(o);
      o.active = false;
      process_.note_success();
    }
  }

  void compare(operation& o) {
    o.headers[static_cast<std::size_t>(rank_)] = o.own;
    const request first = o.headers[0].asked();
    for (int r = 1; r < size(); ++r) {
      const request other = o.headers[static_cast<std::size_t>(r)].asked();
      if (other.agrees_with(first)) continue;
      // Every rank finds the same.
      const std::string text = mismatch_text(name_of(r), other, name_of(0), first);
      failure_ = process_.notice_of(mpi_notice_kind::gave_up, id_, text);
      mismatch_ = true;
      stop(text);
    }
  }

  bool handle(const mpi_notice& notice) override {
    if (notice.group != id_) return false;
    if (notice.kind != mpi_notice_kind::left) {
      if (!failure_) failure_ = notice;
      return true;
    }
    for (std::size_t r = 0; r < names_.size(); ++r)
      if (names_[r] == notice.rank) left_[r] = notice.issued;
    return true;
  }

  /// Throws if the collective cannot be completed any more.
  void check_failure(std::uint64_t number, double waited) {
    process_.poll();
    const request& mine = slot(number).asked;
    if (failure_ || process_.failure()) {
      // If all ranks throw because of the results of this collective, the failure of one of them
      // may be known here before its last messages have arrived.
      if (arrives(number, std::chrono::milliseconds(50))) return;
      stop_after_failure(mine, waited);
    }
    for (int r = 0; r < size(); ++r) {
      if (r == rank_) continue;
      const bool returned = left_[static_cast<std::size_t>(r)] <= number;
      if (!returned && !process_.is_gone(name_of(r))) continue;
      // What it sent before, and its own message about the failure, may still be in flight.
      const clock::time_point deadline =
          clock::now() + std::chrono::milliseconds(returned ? 0 : 50);
      do {
        progress();
        if (!is_active(number)) return;
        process_.poll();
        if (failure_ || process_.failure()) stop_after_failure(mine, waited);
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      } while (clock::now() < deadline);
      stop(mine.text() + ": " + called(r) +
           (!returned && process_.is_dead(name_of(r)) ? " has died" : " has returned without it") +
           " (waited " + seconds_text(waited) + ")");
    }
    if (mpi_signal.load() != 0)
      stop(mine.text() + ": the launcher ends the job, as it does when a rank dies (signal " +
           std::to_string(mpi_signal.load()) + ", waited " + seconds_text(waited) + ")");
  }

  /// Whether messages still in flight complete the collective.
  bool arrives(std::uint64_t number, std::chrono::nanoseconds longest) {
    const clock::time_point deadline = clock::now() + longest;
    do {
      progress();
      if (!is_active(number)) return true;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    } while (clock::now() < deadline);
    return false;
  }

  [[noreturn]] void stop_after_timeout(std::uint64_t number, double waited) {
    operation& o = slot(number);
    // Report a rank whose message is missing, else one that does not receive.
    int absent = -1, deaf = -1;
    for (std::size_t i = 0; i < o.requests.size(); ++i) {
      int done = 0;
      MPI_Test(&o.requests[i], &done, MPI_STATUS_IGNORE);
      if (done != 0) continue;
      int& first = o.peers[i] >= 0 ? absent : deaf;
      if (first < 0) first = o.peers[i] >= 0 ? o.peers[i] : operation::sent_to(o.peers[i]);
    }
    if (absent < 0) absent = deaf;
    const std::string who = absent < 0 ? "a rank" : called(absent);
    stop(o.asked.text() + ": " + who +
             (o.phase == 0 ? " did not come" : " has not done its share") + " (waited " +
             seconds_text(waited) + ")",
         mpi_notice_kind::timed_out);
  }

  [[noreturn]] void stop_after_failure(const request& mine, double waited) {
    if (mismatch_) stop(failure_->text);
    const mpi_notice f = failure_ ? *failure_ : *process_.failure();
    if (!failure_) failure_ = f;
    stop(mine.text() + ": " + rank_text(f.rank) +
         (f.kind == mpi_notice_kind::thrown ? " failed" : " gave up") + " (waited " +
         seconds_text(waited) + "): " + f.text);
  }

  /// Ends what is in flight so that MPI no longer touches the user's memory, as far as possible:
  /// receives are cancelled; sends get the time that a rank on a busy machine needs to finish
  /// receiving.
  void abandon() noexcept {
    const clock::time_point deadline = clock::now() + std::chrono::milliseconds(500);
    abandoned_from_ = std::min(abandoned_from_, issued_);
    for (operation& o : operations_) {
      if (!o.active) continue;
      abandoned_from_ = std::min(abandoned_from_, o.number);
      for (std::size_t i = 0; i < o.requests.size(); ++i)
        if (o.peers[i] >= 0 && o.requests[i] != MPI_REQUEST_NULL) MPI_Cancel(&o.requests[i]);
      int all = 0;
      while (MPI_Testall(static_cast<int>(o.requests.size()), o.requests.data(), &all,
                         MPI_STATUSES_IGNORE) == MPI_SUCCESS &&
             all == 0 && clock::now() < deadline)
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      if (all != 0) o.requests.clear();
      o.active = false;
    }
  }

  std::string called(int rank) const { return rank_text(name_of(rank)); }
  static double seconds(std::chrono::nanoseconds t) {
    return std::chrono::duration<double>(t).count();
  }

  mpi_process& process_;
  const std::uint64_t id_;
  const int slot_;
  int rank_ = 0;
  const std::vector<int> names_;  // By rank of this group: ranks of the world.
  const std::chrono::nanoseconds timeout_;
  std::uint64_t issued_ = 0;
  std::uint64_t abandoned_from_ = not_left;
  bool mismatch_ = false, gone_ = false;
  std::optional<mpi_notice> failure_;
  std::vector<std::uint64_t> left_;  // How many collectives a rank had called when it left.
  std::vector<operation> operations_;
  mpi_phases phases_;
};

}  // namespace ikebana::detail
