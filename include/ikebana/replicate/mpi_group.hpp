#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <numeric>
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

/// A collective of an `mpi_group` under way.
using mpi_work = collective_work<detail::mpi_engine>;

/// A process group whose ranks are processes that mpirun has started; movable, used by one thread
/// at a time. Opt-in: needs MPI's headers and library (Debian: libopenmpi-dev, openmpi-bin).
///
/// Collectives are cooperative: they make progress in `poll()` and `wait()` of any of them. Sums
/// are taken in the order of the ranks by the same arithmetic as a `thread_group`'s, so the same
/// values give the same bits on both. An all_reduce of n bytes sends and receives 2 n (size - 1) /
/// size bytes per rank, as much as a ring does, in 3 (size - 1) messages, one of 32 bytes to each
/// rank to compare what the ranks call; it needs as much scratch as its data, which is kept for the
/// next. So once every size has been seen, none allocates, beside MPI itself.
///
/// Errors: when a rank throws, dies, returns early, stays away for longer than the timeout or calls
/// a different collective, every other rank's next collective (or the one it waits in) throws
/// communication_error with the rank, the operation and the seconds waited; the contents of the
/// buffers are then unspecified, and the group stays failed. See mpi_process for how a death is
/// found out. A failed program ends without MPI_Finalize unless all ranks live and have said that
/// they failed, so mpirun then reports it.
class mpi_group : public blocking_collectives<mpi_group> {
 public:
  /// All ranks. Starts MPI on the first call (a state_error where it has been finalized); it ends
  /// with the program. Every rank calls it, as often as the others. `timeout` is how long a rank
  /// waits for another in one collective.
  static mpi_group world(std::chrono::nanoseconds timeout = std::chrono::seconds{300}) {
    detail::mpi_process& process = detail::mpi_process::instance();
    MPI_Comm comm = MPI_COMM_NULL;
    detail::check_mpi("MPI_Comm_dup", MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    std::vector<int> names(static_cast<std::size_t>(process.size()));
    std::iota(names.begin(), names.end(), 0);
    return {comm, process.next_world(), std::move(names), timeout};
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

  /// The group of the ranks that gave the same color, in the order of their keys, equal keys in
  /// that of their ranks. Every rank of this group calls it. The part lives on its own: what goes
  /// wrong in it is thrown to its ranks. Allocates. Throws communication_error.
  mpi_group split(int color, int key) {
    std::vector<int> names;
    for (const detail::split_entry& e : detail::members_with(*this, color, key))
      names.push_back(engine_->name_of(e.rank));
    // Ranks of a part agree on its number, and it is hardly that of any other.
    std::uint64_t id = engine_->id();
    for (const auto word :
         {static_cast<std::uint64_t>(++parts_), static_cast<std::uint64_t>(color)})
      id = (id ^ (word + 0x9e3779b97f4a7c15u)) * 0xbf58476d1ce4e5b9u;
    id |= std::uint64_t{1} << 63;
    return {communicator_of(names), id, std::move(names), engine_->timeout()};
  }

  /// After a communication_error: the group of those who are left, in the order of their ranks. All
  /// of them call it, with nothing of their own under way; nobody is waited for who has died, ended
  /// its program or left `launch` by an exception. It learns of a death on its own machine alone,
  /// and needs a launcher that lets the others live (Open MPI: mpirun --enable-recovery). Throws
  /// communication_error where one that lives does not come in time, or where one dies amid this
  /// call and the others disagree: then start again from a checkpoint.
  mpi_group survivors(std::chrono::nanoseconds patience = std::chrono::seconds{30}) {
    detail::mpi_process& process = detail::mpi_process::instance();
    std::vector<int> names =
        detail::mpi_agreement(process, engine_->names(), engine_->id(), patience).survivors();
    process.forget_failure();
    std::uint64_t id = engine_->id();
    for (const int r : names) id = (id ^ static_cast<std::uint64_t>(r + 1)) * 0xbf58476d1ce4e5b9u;
    mpi_group left(std::make_unique<detail::mpi_engine>(id | std::uint64_t{1} << 63,
                                                        std::move(names), engine_->timeout()));
    return left;
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

  /// `mine` may be the slice `rank()` of `all`, and otherwise does not overlap it.
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

  /// Says that this rank calls no more collectives: who waits for it then learns so at once.
  void leave() noexcept { engine_->leave(); }

 private:
  mpi_group(MPI_Comm comm, std::uint64_t id, std::vector<int> names,
            std::chrono::nanoseconds timeout)
      : engine_{std::make_unique<detail::mpi_engine>(comm, id, std::move(names), timeout)} {}

  explicit mpi_group(std::unique_ptr<detail::mpi_engine> engine) : engine_{std::move(engine)} {}

  /// A communicator of these ranks of the world, made by them alone.
  static MPI_Comm communicator_of(const std::vector<int>& names) {
    const MPI_Comm world = detail::mpi_process::instance().control();
    MPI_Group whole, part;
    MPI_Comm comm = MPI_COMM_NULL;
    detail::check_mpi("MPI_Comm_group", MPI_Comm_group(world, &whole));
    detail::check_mpi("MPI_Group_incl",
                      MPI_Group_incl(whole, static_cast<int>(names.size()), names.data(), &part));
    detail::check_mpi("MPI_Comm_create_group", MPI_Comm_create_group(world, part, 1, &comm));
    MPI_Group_free(&part);
    MPI_Group_free(&whole);
    return comm;
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

  mpi_work start(const detail::request& asked, detail::reduction reduce = nullptr) {
    return {*engine_, engine_->announce(asked, reduce)};
  }

  std::unique_ptr<detail::mpi_engine> engine_;
  std::uint64_t parts_ = 0;
  int exceptions_ = std::uncaught_exceptions();
};

static_assert(divisible_group<mpi_group>);

/// The processes that mpirun has started, as ranks: `launch(mpi_ranks{}, f)`.
struct mpi_ranks {
  /// How long a rank waits for another in one collective before it gives up.
  std::chrono::nanoseconds timeout = std::chrono::seconds{300};
  /// How long a rank that has failed waits for the others to hear of it, before it goes on and
  /// most likely ends, which makes mpirun end the others a second later.
  std::chrono::nanoseconds farewell = std::chrono::seconds{10};
};

/// Runs `f(group)` with the group of all processes and returns what it returns on this rank. If it
/// throws, tells all other ranks, and rethrows: Ikebana's own types with "rank r: " before the
/// text, others unchanged.
template <class F>
auto launch(const mpi_ranks& how, F&& f) {
  detail::mpi_process& process = detail::mpi_process::instance();
  try {
    mpi_group group = mpi_group::world(how.timeout);
    // First the others hear what happened, then what is under way is withdrawn.
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
