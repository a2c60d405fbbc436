#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/core/span_of.hpp"
#include "ikebana/core/text.hpp"
#include "ikebana/replicate/join.hpp"
#include "ikebana/replicate/process_group.hpp"
#include "ikebana/replicate/utils/verify_parameters.hpp"

namespace ikebana {

namespace detail {

/// An optimizer whose state can be sent to new ranks: its state() names its arrays.
template <class O>
concept has_optimizer_state = requires(O& o) {
  o.step();
  { o.state()[0].name } -> std::convertible_to<std::string_view>;
  { o.state()[0].bytes } -> std::convertible_to<std::span<std::byte>>;
};

/// The first rank that has made the most steps; sets `steps` to its count.
template <process_group Group>
int newest_rank(Group& group, std::int64_t& steps) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(group.size()));
  exchange(group, steps, detail::span_of(all));
  std::size_t newest = 0;
  for (std::size_t r = 1; r < all.size(); ++r)
    if (all[r] > all[newest]) newest = r;
  steps = all[newest];
  return static_cast<int>(newest);
}

/// Compares an optimizer's state arrays across ranks. Throws state_error on every rank if they
/// differ.
template <class Optimizer, process_group Group>
void verify_optimizer(Optimizer& optimizer, Group& group, std::string_view who) {
  std::vector<parameter_identity> list;
  for (const auto& s : optimizer.state())
    list.push_back(
        {path_text{s.name}, s.type, shape{static_cast<dim_t>(s.bytes.size() / size_of(s.type))}});
  verify_parameters(detail::span_of(list), group, who);
}

/// Copies an optimizer's state from one rank to all.
template <class Optimizer, process_group Group>
void broadcast_optimizer(Optimizer& optimizer, Group& group, int from) {
  for (const auto& s : optimizer.state()) group.broadcast(s.bytes, from);
}

/// A hook without memory of earlier gradients: reset() if it has that; else a copy, if it can be
/// copied (it is prepared again); else a new one.
template <class Hook>
Hook renewed(Hook& hook) {
  constexpr bool holds_a_group = requires { requires Hook::holds_a_group; };
  static_assert(
      !holds_a_group,
      "ikebana: set_process_group needs a new hook as its second argument: this one holds "
      "a group of its own");
  if constexpr (requires { hook.reset(); }) {
    hook.reset();
    return std::move(hook);
  } else if constexpr (std::is_copy_constructible_v<Hook>) {
    return hook;
  } else {
    static_assert(
        std::is_default_constructible_v<Hook>,
        "ikebana: set_process_group needs a new hook as its second argument: this one can "
        "neither be reset nor copied nor made without arguments");
    return Hook();
  }
}

}  // namespace detail

/// The part of a replica that handles changes of the group: a base of `replicated`.
template <class Replica, class Policy, process_group Group>
class elastic_replica {
 public:
  /// The number of synchronised backwards: the same on all replicas.
  std::int64_t steps() const { return steps_; }
  /// For a replica that resumes from a checkpoint; otherwise it counts as new in set_process_group.
  void set_steps(std::int64_t steps) { steps_ = steps; }

  /// Continues in another group of any size: after a communication_error with the remaining ranks,
  /// or with new ranks. All ranks of that group must call it, with the same number of optimizers.
  /// `hook` replaces the communication hook, whose state starts anew in any case
  /// (`detail::renewed`). Compares models and optimizers as `replicate` does. Afterwards all have
  /// the parameters, persistent buffers, steps() and optimizer states of the replica that has made
  /// the most steps (the first of them; rank 0 if all have made equally many). Gradients are zero.
  /// `group` must outlive the replica; the former group may be gone. Returns the rank that provided
  /// the state. Throws state_error and communication_error. Allocates.
  template <class... Optimizer>
  int set_process_group(Group& group, Optimizer&... optimizers) requires(
      detail::has_optimizer_state<Optimizer>&&...) {
    return regroup(
        group, self().hook(), [this] { return detail::renewed(self().reducer_.hook()); },
        optimizers...);
  }
  template <class... Optimizer>
  int set_process_group(Group& group, typename Policy::hook_type hook, Optimizer&... optimizers) {
    return regroup(
        group, hook, [&hook] { return std::move(hook); }, optimizers...);
  }

 protected:
  std::int64_t steps_ = 0;

 private:
  Replica& self() { return static_cast<Replica&>(*this); }

  template <class MakeHook, class... Optimizer>
  int regroup(Group& group, const typename Policy::hook_type& hook, const MakeHook& make_hook,
              Optimizer&... optimizers) {
    static_assert(detail::joins_without_optimizer<Policy>,
                  "ikebana: under shard_optimizer a rank that is lost takes its part of the "
                  "optimizer's state along: continue from a checkpoint");
    self().forget_step();
    self().verify(group, hook, "set_process_group");
    (detail::verify_optimizer(optimizers, group, "set_process_group"), ...);
    const int source = detail::newest_rank(group, steps_);
    self().broadcast_states(group, source);
    (detail::broadcast_optimizer(optimizers, group, source), ...);
    self().enter(group, make_hook());
    return source;
  }
};

}  // namespace ikebana
