#pragma once

#include <cstddef>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ikebana/replicate/blocking_collectives.hpp"
#include "ikebana/replicate/process_group.hpp"
#include "ikebana/replicate/request.hpp"
#include "ikebana/replicate/threads/thread_engine.hpp"
#include "ikebana/replicate/threads/thread_shares.hpp"
#include "ikebana/replicate/threads/thread_world.hpp"

namespace ikebana {

template <class>
class basic_rendezvous;

/// A process group whose ranks are threads of this process; one object per rank, movable, used only
/// by the thread of that rank. `launch(threads{n}, f)` creates them.
///
/// Collectives are cooperative: there are no threads but the ranks'. Each rank announces its memory
/// in a table. A rank that notices, in `poll()` or `wait()`, that all have announced does its own
/// share, which for all_reduce is one of `size()` slices, summed over the ranks in order and
/// written to all. Equal inputs therefore give equal bits on every run. Collectives complete in the
/// order of their calls. None allocates.
///
/// Errors: if a rank throws, returns early, stays away for longer than the timeout or calls a
/// different collective, every other rank's next collective (or the one it waits in) throws
/// communication_error with the rank, the operation and the seconds waited. The contents of the
/// buffers are then unspecified, and the world stays failed.
///
/// A template, so that it is compiled only where it is used.
template <class Unused>
class basic_thread_group : public blocking_collectives<basic_thread_group<Unused>> {
  using thread_engine = detail::basic_thread_engine<Unused>;
  using thread_world = basic_thread_world<Unused>;
  using thread_work = collective_work<thread_engine>;

 public:
  basic_thread_group(thread_world& world, int rank)
      : engine_{std::make_unique<thread_engine>(world, rank)} {}
  basic_thread_group(basic_thread_group&&) = default;
  basic_thread_group& operator=(basic_thread_group&& other) noexcept {
    std::swap(part_, other.part_);
    std::swap(engine_, other.engine_);
    std::swap(exceptions_, other.exceptions_);
    return *this;
  }
  ~basic_thread_group() {
    if (part_ == nullptr || engine_ == nullptr) return;
    if (std::uncaught_exceptions() > exceptions_)
      engine_->give_up_on_exception();
    else
      engine_->leave();
  }

  int rank() const { return engine_->rank(); }
  int size() const { return engine_->size(); }

  /// The group of the ranks with the same color, ordered by key, and by rank for equal keys. Every
  /// rank of this group must call it, with nothing in flight that other ranks wait for. The part is
  /// independent: its errors are thrown to its ranks, but a failure of this group's world fails it
  /// too. A part may be destroyed before its parent. Allocates. Throws communication_error.
  template <class = void>
  basic_thread_group split(int color, int key) {
    const std::vector<detail::split_entry> members = detail::members_with(*this, color, key);
    int place = 0;
    while (members[static_cast<std::size_t>(place)].rank != rank()) ++place;

    // The first rank of the part creates its world; the others take it while it waits for them.
    thread_world& whole = engine_->world();
    std::shared_ptr<thread_world> part;
    if (place == 0) {
      std::vector<int> names;
      for (const detail::split_entry& e : members) names.push_back(whole.name_of(e.rank));
      part = std::make_shared<thread_world>(static_cast<int>(members.size()), whole.timeout(),
                                            std::move(names));
      whole.adopt(part);
    }
    std::vector<thread_world*> parts(static_cast<std::size_t>(size()));
    exchange(*this, part.get(), std::span{parts});
    if (place != 0) part = whole.part_at(parts[static_cast<std::size_t>(members[0].rank)]);
    this->barrier();
    return {std::move(part), place};
  }

  template <reducible T>
  thread_work all_reduce_async(std::span<T> data, reduce_op op) {
    check_op<T>(op);
    detail::request r = detail::request_of<T>(detail::collective::all_reduce, data.size());
    r.op = op;
    r.receive = data.data();
    if (size() == 1) return {};
    return start(r, &detail::all_reduce_share<T>);
  }

  template <transferable T>
  thread_work broadcast_async(std::span<T> data, int root) {
    detail::request r = detail::request_of<T>(detail::collective::broadcast, data.size());
    r.root = root;
    if (root < 0 || root >= size()) engine_->stop(r.text() + ": there is no such rank");
    r.receive = data.data();
    if (size() == 1) return {};
    return start(r, &detail::broadcast_share);
  }

  template <transferable T>
  thread_work all_gather_async(std::span<const T> mine, std::span<T> all) {
    detail::request r = detail::request_of<T>(detail::collective::all_gather, mine.size());
    check_room(r, all.size());
    r.send = mine.data();
    r.receive = all.data();
    return start(r, &detail::all_gather_share);
  }

  /// `mine` may be the slice `rank()` of `all`, and otherwise must not overlap it.
  template <reducible T>
  thread_work reduce_scatter_async(std::span<const T> all, std::span<T> mine, reduce_op op) {
    check_op<T>(op);
    detail::request r = detail::request_of<T>(detail::collective::reduce_scatter, mine.size());
    check_room(r, all.size());
    r.op = op;
    r.send = all.data();
    r.receive = mine.data();
    return start(r, &detail::reduce_scatter_share<T>);
  }

  thread_work barrier_async() { return start({}, &detail::barrier_share); }

  /// Announces that this rank calls no more collectives: ranks that wait for it find out at once.
  void leave() noexcept { engine_->leave(); }

 private:
  template <class>
  friend class basic_rendezvous;

  template <class T>
  void check_op(reduce_op op) {
    if constexpr (!std::is_integral_v<T>)
      if (op == reduce_op::bit_or) engine_->stop("bit_or is for integers");
  }

  void check_room(const detail::request& r, std::size_t all) {
    if (std::string wrong = detail::room_text(r, size(), all); !wrong.empty())
      engine_->stop(std::move(wrong));
  }

  thread_work start(const detail::request& asked, detail::share how) {
    return {*engine_, engine_->announce(asked, how)};
  }

  basic_thread_group(std::shared_ptr<thread_world> part, int rank)
      : part_{std::move(part)}, engine_{std::make_unique<thread_engine>(*part_, rank)} {}

  std::shared_ptr<thread_world> part_;  // Null for the group of the launcher.
  std::unique_ptr<thread_engine> engine_;
  int exceptions_ = std::uncaught_exceptions();
};
using thread_group = basic_thread_group<void>;

}  // namespace ikebana
