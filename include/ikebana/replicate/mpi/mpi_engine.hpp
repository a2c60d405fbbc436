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

/// One rank's way through the collectives of a communicator of its own, any number of which make
/// progress together. Whatever throws communication_error has failed the group before.
class mpi_engine final : mpi_listener {
 public:
  static constexpr std::size_t max_in_flight = 64;

  mpi_engine(MPI_Comm comm, std::uint64_t id, std::vector<int> names,
             std::chrono::nanoseconds timeout)
      : process_{mpi_process::instance()},
        comm_{comm},
        id_{id},
        names_{std::move(names)},
        timeout_{timeout},
        left_(names_.size(), not_left),
        operations_(max_in_flight) {
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(comm_, &rank_);
    phases_ = mpi_phases(comm_, rank_, size());
    begin();
  }
  /// Of ranks of the world that have no communicator of their own.
  mpi_engine(std::uint64_t id, std::vector<int> names, std::chrono::nanoseconds timeout)
      : process_{mpi_process::instance()},
        id_{id},
        names_{std::move(names)},
        timeout_{timeout},
        left_(names_.size(), not_left),
        operations_(max_in_flight) {
    while (names_[static_cast<std::size_t>(rank_)] != process_.rank()) ++rank_;
    const int first_tag = (1 + static_cast<int>(id % 100000)) * mpi_phases::tags;
    phases_ = mpi_phases(process_.control(), rank_, names_, first_tag);
    begin();
  }
  mpi_engine(const mpi_engine&) = delete;
  mpi_engine& operator=(const mpi_engine&) = delete;

  ~mpi_engine() {
    process_.detach(this);
    if (failure_ || process_.failure())
      process_.keep(std::move(operations_));
    else if (comm_ != MPI_COMM_NULL)
      MPI_Comm_free(&comm_);
  }

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(names_.size()); }
  int name_of(int rank) const { return names_[static_cast<std::size_t>(rank)]; }
  const std::vector<int>& names() const { return names_; }
  std::uint64_t id() const { return id_; }
  std::chrono::nanoseconds timeout() const { return timeout_; }

  /// Starts a collective. Waits only if `max_in_flight` are under way.
  std::uint64_t announce(const request& asked, reduction reduce) {
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
    look_for_trouble(number, 0);
    return false;
  }

  void complete(std::uint64_t number) {
    const clock::time_point start = clock::now();
    for (std::int64_t i = 1; is_active(number); ++i) {
      progress();
      if (!is_active(number)) break;
      if (i < spins) continue;
      // Spinning in the place of the rank one waits for is the slowest way of waiting.
      const std::chrono::nanoseconds waited = clock::now() - start;
      look_for_trouble(number, seconds(waited));
      if (waited >= timeout_) stop_after_timeout(number, seconds(waited));
      if (waited < std::chrono::milliseconds(2))
        std::this_thread::yield();
      else
        std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    finished(number);
  }

  /// Fails the group on every rank and throws.
  [[noreturn]] void stop(const std::string& text) {
    if (!failure_) {
      failure_ = process_.notice_of(mpi_notice_kind::gave_up, id_, text);
      process_.send(*failure_, names_);
    }
    abandon();
    throw communication_error(called(rank_) + ": " + text);
  }

  /// For a buffer that goes away with its collective under way.
  void withdraw(std::uint64_t number) noexcept {
    if (is_active(number)) give_up_on_exception();
  }

  /// For a group that goes away while an exception unwinds.
  void give_up_on_exception() noexcept {
    if (!failure_ && !process_.failure()) {
      failure_ = process_.notice_of(mpi_notice_kind::thrown, id_, "an exception ended it");
      process_.send(*failure_, names_);
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
  void begin() {
    for (operation& o : operations_) o.prepare(size());
    process_.attach(this);
    process_.wait_at_end(timeout_);
  }

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

  /// f(), with what MPI refuses as a failure of the group.
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

  void hear(const mpi_notice& notice) override {
    if (notice.group != id_) return;
    if (notice.kind != mpi_notice_kind::left) {
      if (!failure_) failure_ = notice;
      return;
    }
    for (std::size_t r = 0; r < names_.size(); ++r)
      if (names_[r] == notice.rank) left_[r] = notice.issued;
  }

  /// Throws if the collective cannot be completed any more.
  void look_for_trouble(std::uint64_t number, double waited) {
    process_.poll();
    const request& mine = slot(number).asked;
    if (failure_ || process_.failure()) {
      // Where all ranks throw for what this collective told them, the first to do so is heard of
      // before its messages have arrived.
      if (arrives(number, std::chrono::milliseconds(50))) return;
      stop_after_failure(mine, waited);
    }
    for (int r = 0; r < size(); ++r) {
      if (r == rank_) continue;
      const bool returned = left_[static_cast<std::size_t>(r)] <= number;
      if (!returned && !process_.is_gone(name_of(r))) continue;
      // What it sent before may still be on its way, and its own words about the end.
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

  /// Whether the collective is completed by what is still on its way.
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
    int absent = -1;
    for (std::size_t i = 0; i < o.requests.size() && absent < 0; ++i) {
      int done = 0;
      MPI_Test(&o.requests[i], &done, MPI_STATUS_IGNORE);
      if (done == 0 && o.peers[i] >= 0) absent = o.peers[i];
    }
    const std::string who = absent < 0 ? "a rank" : called(absent);
    stop(o.asked.text() + ": " + who +
         (o.phase == 0 ? " did not come" : " has not done its share") + " (waited " +
         seconds_text(waited) + ")");
  }

  [[noreturn]] void stop_after_failure(const request& mine, double waited) {
    if (mismatch_) stop(failure_->text);
    const mpi_notice f = failure_ ? *failure_ : *process_.failure();
    if (!failure_) failure_ = f;
    stop(mine.text() + ": " + rank_text(f.rank) +
         (f.kind == mpi_notice_kind::thrown ? " failed" : " gave up") + " (waited " +
         seconds_text(waited) + "): " + f.text);
  }

  /// Ends what is under way so that MPI touches the user's memory no more, as far as it can be
  /// ended: receives are cancelled; sends are given the time in which a rank of a busy machine that
  /// has begun to receive them gets its turns.
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
  MPI_Comm comm_ = MPI_COMM_NULL;  // of its ranks alone; null where they have none
  const std::uint64_t id_;
  int rank_ = 0;
  const std::vector<int> names_;  // by rank of this group, ranks of the world
  const std::chrono::nanoseconds timeout_;
  std::uint64_t issued_ = 0;
  std::uint64_t abandoned_from_ = not_left;
  bool mismatch_ = false, gone_ = false;
  std::optional<mpi_notice> failure_;
  std::vector<std::uint64_t> left_;  // how many collectives a rank had called when it left
  std::vector<operation> operations_;
  mpi_phases phases_;
};

}  // namespace ikebana::detail
