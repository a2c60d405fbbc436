#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ikebana/core/error.hpp"
#include "ikebana/replicate/process_group.hpp"
#include "ikebana/replicate/request.hpp"
#include "ikebana/replicate/thread_group.hpp"
#include "ikebana/replicate/threads/thread_world.hpp"

namespace ikebana {

/// Where threads of this process meet to form a group, and a new one whenever a thread has failed
/// or joined. A thread that enters is a member until its token is destroyed, possibly by an
/// exception. A group consists of all members, in the order in which they entered:
///
///     ike::rendezvous place(4);
///     // each thread, also one that is started later:
///     auto member = place.enter();
///     auto model = ike::replicate(made(), member.group());
///     ike::adam optimizer{model};
///     member.train(model, optimizer, 1000, [&](ike::thread_group& group) {
///       model.train_step(x(model.steps(), group), y(model.steps(), group), loss, optimizer);
///     });
///
/// It must outlive its members.
///
/// A template, so that it is compiled only where it is used.
template <class>
class basic_rendezvous {
  struct seat {
    bool waits = false;   // In meet().
    bool seated = false;  // Has a group.
    bool expelled = false;
    std::shared_ptr<thread_world> world;
    int rank = 0;
  };

 public:
  using clock = thread_world::clock;

  /// The first group waits for `first` members; later ones consist of those that remain or have
  /// joined. `timeout` is how long a meeting waits for a member before it goes on without it,
  /// permanently, and how long the groups wait for a rank in one collective. Throws ikebana::error
  /// unless `first` is between 1 and thread_world::max_size.
  explicit basic_rendezvous(int first, std::chrono::nanoseconds timeout = std::chrono::seconds{300})
      : first_{first}, timeout_{timeout} {
    if (first < 1 || first > thread_world::max_size)
      throw error("a rendezvous has 1 to " + std::to_string(thread_world::max_size) +
                  " members, not " + std::to_string(first));
  }
  basic_rendezvous(const basic_rendezvous&) = delete;
  basic_rendezvous& operator=(const basic_rendezvous&) = delete;

  /// Makes a thread a member.
  class [[nodiscard]] member {
   public:
    member(const member&) = delete;
    ~member() {
      // The others must be notified before they meet without this member.
      group_.reset();
      place_.leave(*seat_);
    }

    /// A group of this member alone before the first meeting, then that of the last one. Its
    /// address is fixed.
    thread_group& group() { return *group_; }

    /// Returns when all other members have arrived or left; the group then consists of those that
    /// arrived. Throws communication_error if this member came too late, and is no longer one, or
    /// if a newcomer or the first meeting waited in vain.
    void meet() { *group_ = place_.meet(*seat_); }

    /// Whether someone waits to join or has left; the same on all ranks of the group, which must
    /// all call it, between two steps and as often as desired. One all_reduce of an integer.
    bool should_meet() {
      std::int64_t others = place_.has_changed(*seat_) ? 1 : 0;
      group_->all_reduce(std::span{&others, 1}, reduce_op::max);
      return others != 0;
    }

    /// Calls `step(group())` until `model.steps()` reaches `steps`. Members meet before a step if
    /// the membership has changed, and after a communication_error the remaining ones do. The
    /// model, which was created with `group()`, and the optimizer then continue from the newest
    /// state (see replicated::set_process_group). All members repeat a failed step; what it changed
    /// besides parameters and optimizer, such as running statistics, is not restored. Rethrows the
    /// third communication_error without a step in between.
    template <class Model, class Optimizer, class Step>
    void train(Model& model, Optimizer& optimizer, std::int64_t steps, Step&& step) {
      int failures = 0;
      for (bool is_new = true; is_new || model.steps() < steps;) {
        const std::int64_t made = model.steps();
        try {
          if (std::exchange(is_new, false) || failures > 0 || should_meet()) {
            meet();
            model.set_process_group(*group_, optimizer);
          }
          if (model.steps() < steps) step(*group_);
          failures = 0;
        } catch (const communication_error&) {
          failures = model.steps() > made ? 1 : failures + 1;
          if (failures == 3 || place_.has_expelled(*seat_)) throw;
        }
      }
    }

   private:
    friend class basic_rendezvous;
    member(basic_rendezvous& place, std::shared_ptr<seat> s, thread_group alone)
        : place_{place}, seat_{std::move(s)}, group_{std::move(alone)} {}

    basic_rendezvous& place_;
    std::shared_ptr<seat> seat_;
    std::optional<thread_group> group_;
  };

  /// Makes the calling thread a member, to be included in the next group.
  member enter() {
    auto alone = std::make_shared<thread_world>(1, timeout_);
    auto s = std::make_shared<seat>();
    {
      std::lock_guard lock{mutex_};
      seats_.push_back(s);
    }
    return {*this, std::move(s), thread_group(std::move(alone), 0)};
  }

  /// The number of members.
  int size() const {
    std::lock_guard lock{mutex_};
    return static_cast<int>(seats_.size());
  }

 private:
  void leave(const seat& s) noexcept {
    {
      std::lock_guard lock{mutex_};
      std::erase_if(seats_, [&](const auto& other) { return other.get() == &s; });
      try {
        seat_all_if_complete();
      } catch (...) {
        // Waiting members retry by themselves.
      }
    }
    condition_.notify_all();
  }

  bool has_changed(const seat& s) const {
    std::lock_guard lock{mutex_};
    if (s.world == nullptr || static_cast<int>(seats_.size()) != s.world->size()) return true;
    return std::any_of(seats_.begin(), seats_.end(),
                       [](const auto& other) { return other->waits; });
  }

  bool has_expelled(const seat& s) const {
    std::lock_guard lock{mutex_};
    return s.expelled;
  }

  thread_group meet(seat& own) {
    const clock::time_point start = clock::now();
    std::unique_lock lock{mutex_};
    const bool is_new = own.world == nullptr;
    own.waits = true;
    own.seated = false;
    own.world = nullptr;
    while (!own.seated) {
      if (own.expelled)
        throw communication_error(
            "rendezvous: the others went on without this member, who did not "
            "come in time");
      if (seat_all_if_complete()) break;
      if (condition_.wait_until(lock, start + timeout_) == std::cv_status::timeout && !own.seated)
        give_up_the_absent(own, is_new, start);
    }
    condition_.notify_all();
    return {own.world, own.rank};
  }

  /// Forms the group of all members, if all are waiting for it.
  bool seat_all_if_complete() {
    if (seats_.empty() || (!begun_ && static_cast<int>(seats_.size()) < first_)) return false;
    for (const auto& s : seats_)
      if (!s->waits) return false;
    auto world = std::make_shared<thread_world>(static_cast<int>(seats_.size()), timeout_);
    int rank = 0;
    for (const auto& s : seats_) {
      s->world = world;
      s->rank = rank++;
      s->waits = false;
      s->seated = true;
    }
    begun_ = true;
    return true;
  }

  void give_up_the_absent(seat& own, bool is_new, clock::time_point start) {
    if (is_new) {
      own.waits = false;
      const std::string waited =
          " (waited " +
          detail::seconds_text(std::chrono::duration<double>(clock::now() - start).count()) + ")";
      throw communication_error(
          begun_ ? "rendezvous: the others do not come to meet a new member" + waited
                 : "rendezvous: expected " + std::to_string(first_) + " members, got " +
                       std::to_string(seats_.size()) + waited);
    }
    for (const auto& s : seats_) s->expelled = !s->waits;
    std::erase_if(seats_, [](const auto& s) { return s->expelled; });
  }

  const int first_;
  const std::chrono::nanoseconds timeout_;
  mutable std::mutex mutex_;
  std::condition_variable condition_;
  std::vector<std::shared_ptr<seat>> seats_;  // Of the members, in the order of entry.
  bool begun_ = false;
};

using rendezvous = basic_rendezvous<void>;

}  // namespace ikebana
