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

/// Where threads of this process meet to form a group, again whenever one has failed or another has
/// come. A thread that enters is a member until its token is gone, be it by an exception; a group
/// is all members there are, in the order in which they entered:
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
    bool waits = false;   // in meet()
    bool seated = false;  // has a group
    bool expelled = false;
    std::shared_ptr<thread_world> world;
    int rank = 0;
  };

 public:
  using clock = thread_world::clock;

  /// The first group waits for `first` members; later ones are of those who are left, or have come.
  /// `timeout`: how long a meeting waits for a member before it goes on without, for good, and how
  /// long the groups wait for a rank in one collective. Throws ikebana::error for a number that is
  /// not 1 to thread_world::max_size.
  explicit basic_rendezvous(int first, std::chrono::nanoseconds timeout = std::chrono::seconds{300})
      : first_{first}, timeout_{timeout} {
    if (first < 1 || first > thread_world::max_size)
      throw error("a rendezvous has 1 to " + std::to_string(thread_world::max_size) +
                  " members, not " + std::to_string(first));
  }
  basic_rendezvous(const basic_rendezvous&) = delete;
  basic_rendezvous& operator=(const basic_rendezvous&) = delete;

  /// What makes a thread a member.
  class [[nodiscard]] member {
   public:
    member(const member&) = delete;
    ~member() {
      // First the others hear of it, then they meet without this one.
      group_.reset();
      place_.leave(*seat_);
    }

    /// Of this member alone before the first meeting, then that of the last. Stays where it is.
    thread_group& group() { return *group_; }

    /// Returns when all other members have come, or left; the group is then of those who came.
    /// Throws communication_error where this one came too late, and is no member any more; and
    /// where a newcomer, or the first meeting, waits in vain.
    void meet() { *group_ = place_.meet(*seat_); }

    /// Whether someone waits to be let in, or has left; the same on all ranks of the group, who all
    /// call it: between two steps, as often as is wished. One all_reduce of an integer.
    bool should_meet() {
      std::int64_t others = place_.has_changed(*seat_) ? 1 : 0;
      group_->all_reduce(std::span{&others, 1}, reduce_op::max);
      return others != 0;
    }

    /// `step(group())` until `model.steps()` are made. Before each the members meet if there are
    /// others than before, after a communication_error those who are left do, and the model, made
    /// with `group()`, and the optimizer go on with the newest state of all (see
    /// replicated::set_process_group). A step that failed is made again, by all: what it changed
    /// beside parameters and the optimizer, such as running statistics, is not put back. Rethrows
    /// the third communication_error without a step between.
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

  /// Makes the calling thread a member, who is part of the next group.
  member enter() {
    auto alone = std::make_shared<thread_world>(1, timeout_);
    auto s = std::make_shared<seat>();
    {
      std::lock_guard lock{mutex_};
      seats_.push_back(s);
    }
    return {*this, std::move(s), thread_group(std::move(alone), 0)};
  }

  /// How many members there are.
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
        // Those who wait make the attempt themselves.
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

  /// Makes the group of all members, if all wait for it.
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
  std::vector<std::shared_ptr<seat>> seats_;  // of the members, in the order of their entering
  bool begun_ = false;
};

using rendezvous = basic_rendezvous<void>;

}  // namespace ikebana
