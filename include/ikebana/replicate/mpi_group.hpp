#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ikebana/core/error.hpp"
#include "ikebana/replicate/blocking_collectives.hpp"
#include "ikebana/replicate/mpi/mpi_engine.hpp"
#include "ikebana/replicate/mpi/mpi_error.hpp"
#include "ikebana/replicate/mpi/mpi_process.hpp"
#include "ikebana/replicate/mpi/mpi_survivors.hpp"
#include "ikebana/replicate/process_group.hpp"
#include "ikebana/replicate/request.hpp"
#include "ikebana/replicate/work.hpp"

namespace ikebana {

/// A collective of an `mpi_group` in flight.
using mpi_work = collective_work<detail::mpi_engine>;

/// A process group whose ranks are processes started by mpirun; movable, used by one thread at a
/// time. Opt-in: needs MPI's headers and library (Debian: libopenmpi-dev, openmpi-bin).
///
/// Collectives are cooperative: they progress in `poll()` and `wait()` of any of them. Sums are in
/// rank order, with the same arithmetic as a `thread_group`'s, so that equal values give equal bits
/// on both. An all_reduce of n bytes sends and receives 2 n (size - 1) / size bytes per rank, as
/// much as a ring, in 3 (size - 1) messages, one of them of 32 bytes per rank to compare what the
/// ranks call. It needs as much scratch as its data, which is kept for the next one; once every
/// size has been seen, nothing is allocated outside of MPI.
///
/// Errors: if a rank throws, dies, returns early, stays away for longer than the timeout or calls a
/// different collective, every other rank's next collective (or the one it waits in) throws
/// communication_error with the rank, the operation and the seconds waited. The contents of the
/// buffers are then unspecified, and the group stays failed. See mpi_process for how a death is
/// detected. A failed program ends without MPI_Finalize unless all ranks live and have reported
/// their failure, so that mpirun reports it.
class mpi_group : public blocking_collectives<mpi_group> {
 public:
  /// All ranks. Starts MPI on the first call (state_error if it has been finalized); it ends with
  /// the program. Every rank must call it equally often. `timeout` is how long a rank waits for
  /// another in one collective, and in this call: throws communication_error if another rank does
  /// not arrive in time, even if it has not started MPI.
  static mpi_group world(std::chrono::nanoseconds timeout = std::chrono::seconds{300}) {
    using clock = detail::mpi_process::clock;
    detail::mpi_process& process = detail::mpi_process::instance();
    const clock::time_point deadline = deadline_after(timeout);
    process.start(deadline);
    const std::uint64_t id = 2 * process.begin_world();
    const std::chrono::nanoseconds rest =
        std::max<std::chrono::nanoseconds>(deadline - clock::now(), std::chrono::milliseconds{10});
    mpi_group all(id, process.everyone(), 0, rest);
    const int slot = all.agree_on_slot();
    all.engine_.reset();
    process.end_world();
    return {id + 1, process.everyone(), slot, timeout};
  }

  mpi_group(mpi_group&&) = default;
  mpi_group& operator=(mpi_group&& other) noexcept {
    std::swap(engine_, other.engine_);
    std::swap(parts_, other.parts_);
    std::swap(exceptions_, other.exceptions_);
    return *this;
  }
  ~mpi_group() {
    if (engine_ == nullptr) return;
    if (std::uncaught_exceptions() > exceptions_)
      engine_->give_up_on_exception();
    else
      engine_->leave();
  }

  int rank() const { return engine_->rank(); }
  int size() const { return engine_->size(); }

  /// The group of the ranks with the same color, ordered by key, and by rank for equal keys. Every
  /// rank of this group must call it. The part is independent: its errors are thrown to its ranks.
  /// Allocates. Throws communication_error.
  mpi_group split(int color, int key) {
    std::vector<int> names;
    for (const detail::split_entry& e : detail::members_with(*this, color, key))
      names.push_back(engine_->name_of(e.rank));
    const std::uint64_t id =
        mixed(mixed(engine_->id(), ++parts_), static_cast<std::uint64_t>(color));
    const int slot = agree_on_slot();
    return {id, std::move(names), slot, engine_->timeout()};
  }

  /// After a communication_error: the group of the remaining ranks, in rank order. All of them must
  /// call it, with nothing of their own in flight; it does not wait for ranks that have died, ended
  /// their program or left `launch` by an exception. It detects deaths only on its own machine, and
  /// needs a launcher that keeps the others running (Open MPI: mpirun --enable-recovery). Throws
  /// communication_error if a living rank does not come in time, or if one dies during this call
  /// and the others disagree: then restart from a checkpoint.
  mpi_group survivors(std::chrono::nanoseconds patience = std::chrono::seconds{30}) {
    detail::mpi_process& process = detail::mpi_process::instance();
    detail::mpi_agreement agreement(process, engine_->names(), engine_->slot(), patience);
    std::vector<int> names = agreement.survivors();
    process.forget_failure();
    std::uint64_t id = engine_->id();
    for (const int r : names) id = mixed(id, static_cast<std::uint64_t>(r));
    const int slot = slot_of(process.take_slot(agreement.used_slots()));
    return {id, std::move(names), slot, engine_->timeout()};
  }

  template <reducible T>
  mpi_work all_reduce_async(std::span<T> data, reduce_op op) {
    check_op<T>(op);
    detail::request r = detail::request_of<T>(detail::collective::all_reduce, data.size());
    r.op = op;
    r.receive = data.data();
    return start(r, &detail::reduce_bytes<T>);
  }

  template <transferable T>
  mpi_work broadcast_async(std::span<T> data, int root) {
    detail::request r = detail::request_of<T>(detail::collective::broadcast, data.size());
    r.root = root;
    if (root < 0 || root >= size()) engine_->stop(r.text() + ": there is no such rank");
    r.receive = data.data();
    return start(r);
  }

  template <transferable T>
  mpi_work all_gather_async(std::span<const T> mine, std::span<T> all) {
    detail::request r = detail::request_of<T>(detail::collective::all_gather, mine.size());
    check_room(r, all.size());
    r.send = mine.data();
    r.receive = all.data();
    return start(r);
  }

  /// `mine` may be the slice `rank()` of `all`, and otherwise must not overlap it.
  template <reducible T>
  mpi_work reduce_scatter_async(std::span<const T> all, std::span<T> mine, reduce_op op) {
    check_op<T>(op);
    detail::request r = detail::request_of<T>(detail::collective::reduce_scatter, mine.size());
    check_room(r, all.size());
    r.op = op;
    r.send = all.data();
    r.receive = mine.data();
    return start(r, &detail::reduce_bytes<T>);
  }

  mpi_work barrier_async() { return start({}); }

  /// Announces that this rank calls no more collectives: ranks that wait for it find out at once.
  void leave() noexcept { engine_->leave(); }

 private:
  mpi_group(std::uint64_t id, std::vector<int> names, int slot, std::chrono::nanoseconds timeout)
      : engine_{std::make_unique<detail::mpi_engine>(id, std::move(names), slot, timeout)} {}

  /// The number of a group made from another. It is equal on all of its ranks and differs from that
  /// of other groups, except for collisions of 63-bit hashes.
  static std::uint64_t mixed(std::uint64_t id, std::uint64_t with) {
    id = (id ^ id >> 30) * 0xbf58476d1ce4e5b9u + with + 1;
    id = (id ^ id >> 27) * 0x94d049bb133111ebu + 0x9e3779b97f4a7c15u;
    id = (id ^ id >> 30) * 0xbf58476d1ce4e5b9u;
    return (id ^ id >> 31) | std::uint64_t{1} << 63;
  }

  static detail::mpi_process::clock::time_point deadline_after(std::chrono::nanoseconds timeout) {
    constexpr std::chrono::nanoseconds longest = std::chrono::hours{24 * 365};
    return detail::mpi_process::clock::now() + std::min(timeout, longest);
  }

  /// A slot that is free on all ranks of this group, for new groups made from it.
  int agree_on_slot() {
    detail::mpi_process& process = detail::mpi_process::instance();
    std::vector<std::uint64_t> used = process.used_slots();
    all_reduce(std::span{used}, reduce_op::bit_or);
    return slot_of(process.take_slot(used));
  }
  static int slot_of(int found) {
    if (found < 0) throw communication_error("mpi_group: there are too many groups at a time");
    return found;
  }

  template <class T>
  void check_op(reduce_op op) {
    if constexpr (!std::is_integral_v<T>)
      if (op == reduce_op::bit_or) engine_->stop("bit_or is for integers");
  }

  void check_room(const detail::request& r, std::size_t all) {
    if (const std::string wrong = detail::room_text(r, size(), all); !wrong.empty())
      engine_->stop(wrong);
  }

  mpi_work start(const detail::request& asked, detail::reduce_function reduce = nullptr) {
    return {*engine_, engine_->announce(asked, reduce)};
  }

  std::unique_ptr<detail::mpi_engine> engine_;
  std::uint64_t parts_ = 0;
  int exceptions_ = std::uncaught_exceptions();
};

static_assert(divisible_group<mpi_group>);

/// The processes started by mpirun, as ranks: `launch(mpi_ranks{}, f)`.
struct mpi_ranks {
  /// How long a rank waits for another in one collective before it gives up.
  std::chrono::nanoseconds timeout = std::chrono::seconds{300};
  /// How long a failed rank waits for the others to learn of the failure before it continues. It
  /// then usually ends, and mpirun ends the others one second later. The wait is at most the
  /// timeout, and at most half a second if some rank has already waited for a whole timeout.
  std::chrono::nanoseconds farewell = std::chrono::seconds{10};
};

/// Runs `f(group)` with the group of all processes and returns its result on this rank. If it
/// throws, notifies all other ranks and rethrows: Ikebana's own types with "rank r: " before the
/// text, others unchanged.
template <class F>
auto launch(const mpi_ranks& how, F&& f) {
  detail::mpi_process& process = detail::mpi_process::instance();
  try {
    mpi_group group = mpi_group::world(how.timeout);
    // The others must be notified before anything in flight is withdrawn.
    try {
      return f(group);
    } catch (const std::exception& e) {
      process.fail(e.what());
      throw;
    } catch (...) {
      process.fail("an exception that is not a std::exception");
      throw;
    }
  } catch (...) {
    process.part(how.farewell);
    detail::rethrow_with_rank(std::current_exception(), process.rank());
  }
}

}  // namespace ikebana
