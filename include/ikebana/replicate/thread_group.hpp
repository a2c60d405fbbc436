#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <type_traits>

#include "ikebana/core/shape.hpp"
#include "ikebana/replicate/process_group.hpp"
#include "ikebana/replicate/thread_engine.hpp"
#include "ikebana/replicate/thread_shares.hpp"
#include "ikebana/replicate/thread_world.hpp"

namespace ikebana {

/// A process group whose ranks are threads of this process; one object for each rank, used by the
/// thread of that rank alone. `launch(threads{n}, f)` makes them.
///
/// Collectives are cooperative: there is no thread but the ranks'. Each announces its memory in a
/// table; whoever notices, in `poll()` or `wait()`, that all have come does its own share, which
/// for all_reduce is one of `size()` slices, summed over the ranks in their order and written to
/// all. So equal inputs give equal bits on every run. Collectives complete in the order of their
/// calls. None allocates.
///
/// Errors: when a rank throws, returns early, stays away for longer than the timeout or calls a
/// different collective, every other rank's next collective (or the one it waits in) throws
/// communication_error with the rank, the operation and the seconds waited; the contents of the
/// buffers are then unspecified, and the world stays failed.
class thread_group {
 public:
  thread_group(thread_world& world, int rank) : engine_{world, rank} {}
  thread_group(const thread_group&) = delete;
  thread_group& operator=(const thread_group&) = delete;

  int rank() const { return engine_.rank(); }
  int size() const { return engine_.size(); }

  template <reducible T>
  thread_work all_reduce_async(std::span<T> data, reduce_op op) {
    check_op<T>(op);
    detail::request r = request_of<T>(detail::collective::all_reduce, data.size());
    r.op = op;
    r.receive = data.data();
    if (size() == 1) return {};
    return start(r, &detail::all_reduce_share<T>);
  }

  template <transferable T>
  thread_work broadcast_async(std::span<T> data, int root) {
    detail::request r = request_of<T>(detail::collective::broadcast, data.size());
    r.root = root;
    if (root < 0 || root >= size()) engine_.stop(r.text() + ": there is no such rank");
    r.receive = data.data();
    if (size() == 1) return {};
    return start(r, &detail::broadcast_share);
  }

  template <transferable T>
  thread_work all_gather_async(std::span<const T> mine, std::span<T> all) {
    detail::request r = request_of<T>(detail::collective::all_gather, mine.size());
    check_room(r, all.size());
    r.send = mine.data();
    r.receive = all.data();
    return start(r, &detail::all_gather_share);
  }

  /// `mine` may be the slice `rank()` of `all`, and otherwise does not overlap it.
  template <reducible T>
  thread_work reduce_scatter_async(std::span<const T> all, std::span<T> mine, reduce_op op) {
    check_op<T>(op);
    detail::request r = request_of<T>(detail::collective::reduce_scatter, mine.size());
    check_room(r, all.size());
    r.op = op;
    r.send = all.data();
    r.receive = mine.data();
    return start(r, &detail::reduce_scatter_share<T>);
  }

  thread_work barrier_async() { return start({}, &detail::barrier_share); }

  template <reducible T>
  void all_reduce(std::span<T> data, reduce_op op) {
    all_reduce_async(data, op).wait();
  }
  template <transferable T>
  void broadcast(std::span<T> data, int root) {
    broadcast_async(data, root).wait();
  }
  template <transferable T>
  void all_gather(std::span<const T> mine, std::span<T> all) {
    all_gather_async(mine, all).wait();
  }
  template <reducible T>
  void reduce_scatter(std::span<const T> all, std::span<T> mine, reduce_op op) {
    reduce_scatter_async(all, mine, op).wait();
  }
  void barrier() { barrier_async().wait(); }

  /// Says that this rank calls no more collectives: who waits for it then learns so at once.
  void leave() noexcept { engine_.leave(); }

 private:
  template <class T>
  static detail::request request_of(detail::collective what, std::size_t length) {
    detail::request r;
    r.what = what;
    r.element = detail::element_type_of<T>();
    r.length = static_cast<dim_t>(length);
    return r;
  }

  template <class T>
  void check_op(reduce_op op) {
    if constexpr (!std::is_integral_v<T>)
      if (op == reduce_op::bit_or) engine_.stop("bit_or is for integers");
  }

  void check_room(const detail::request& r, std::size_t all) {
    if (static_cast<dim_t>(all) != r.length * size())
      engine_.stop(r.text() + ": expects " + std::to_string(r.length * size()) +
                   " elements for all ranks together, got " + std::to_string(all));
  }

  thread_work start(const detail::request& asked, detail::share how) {
    return {engine_, engine_.announce(asked, how)};
  }

  detail::thread_engine engine_;
};

static_assert(process_group<single> && process_group<thread_group>);

}  // namespace ikebana
