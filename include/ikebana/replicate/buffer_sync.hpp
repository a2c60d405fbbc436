#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/core/span_of.hpp"
#include "ikebana/module/lowering.hpp"
#include "ikebana/replicate/parameter_groups.hpp"
#include "ikebana/replicate/policy.hpp"
#include "ikebana/replicate/process_group.hpp"

namespace ikebana {

namespace detail {
struct buffer_comm_hook_key {};
}  // namespace detail

/// A buffer of a replica as a buffer hook sees it.
struct named_buffer {
  path_text path;
  dtype type = dtype::float32;
  shape extents;
  std::span<std::byte> bytes;

  /// Its elements, if `type` is that of T; else empty.
  template <class T>
  std::span<T> values() const {
    if (type != dtype_of<T>) return {};
    return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
};

/// When a buffer hook runs: after a synchronised backward, once gradients are reduced, or before
/// the first forward in training mode that follows one.
enum class buffer_hook_location : std::uint8_t { after_backward, before_forward };

/// Replaces the broadcast of buffers from rank 0: `Hook{}(std::span<const named_buffer>, group)` is
/// called on every rank, once per synchronised backward, with the persistent buffers that are not
/// ignored.
template <class Hook, buffer_hook_location Location = buffer_hook_location::after_backward>
struct buffer_comm_hook {
  using replicate_key = detail::buffer_comm_hook_key;
  using type = Hook;
  static constexpr buffer_hook_location location = Location;
};

/// A buffer hook that averages running statistics over the ranks and leaves counters unchanged.
struct average_buffers {
  template <process_group G>
  void operator()(std::span<const named_buffer> buffers, G& group) const {
    for (const named_buffer& b : buffers) {
      if (b.type == dtype::float32) group.all_reduce(b.values<float>(), reduce_op::avg);
      if (b.type == dtype::float64) group.all_reduce(b.values<double>(), reduce_op::avg);
    }
  }
};

namespace detail {

/// Synchronises the buffers of replicas, once per synchronised backward.
template <class Policy, process_group Group>
class buffer_sync {
  using option = policy_option<Policy, buffer_comm_hook_key>;
  static constexpr bool has_hook = policy_has<Policy, buffer_comm_hook_key>;
  struct no_hook {};
  template <class Option>
  struct hook_of {
    using type = typename Option::type;
    static constexpr auto location = Option::location;
  };
  template <class Option>
  requires std::same_as<Option, void>
  struct hook_of<Option> {
    using type = no_hook;
    static constexpr auto location = buffer_hook_location::after_backward;
  };

 public:
  using hook_type = typename hook_of<option>::type;

  template <class Model>
  explicit buffer_sync(Model& m) {
    const auto& p = m.current_program();
    // Frozen parameters are equal from the start.
    bool is_part = parameter_groups<Policy>::ignores_any;
    for (std::size_t i = 0; i < p.all_buffers().size(); ++i) {
      const program_buffer& b = p.all_buffers()[i];
      const path_text path = p.path(b);
      if (!b.spec.persistent || parameter_groups<Policy>::is_ignored(path.view())) continue;
      is_part = is_part || !b.spec.changes;
      if (!b.spec.changes) continue;
      const dtype type = b.spec.follows_model ? dtype_of<typename Model::value_type> : b.spec.type;
      buffers_.push_back(
          {path, type, b.spec.extents,
           m.buffers().subspan(static_cast<std::size_t>(m.layout().buffer_offsets[i]),
                               static_cast<std::size_t>(b.spec.extents.numel()) * size_of(type))});
    }
    if (!is_part) {
      if (!m.persistent_buffers().empty()) pieces_.push_back(m.persistent_buffers());
    } else {
      for (const named_buffer& b : buffers_) pieces_.push_back(b.bytes);
    }
  }

  hook_type& hook() { return hook_; }

  void before_forward(Group& group, bool training) {
    if (!is_due_ || !training) return;
    is_due_ = false;
    run(group, 0);
  }
  /// Called after a synchronised backward. In a join, a broadcast is postponed until the ranks of
  /// the next step are known, and a hook runs immediately.
  void after_backward(Group& group, bool is_joined) {
    constexpr bool waits = hook_of<option>::location == buffer_hook_location::before_forward;
    is_due_ = has_hook ? waits && !is_joined
                       : Policy::broadcasts_buffers && is_joined && !pieces_.empty();
    if (!is_due_) run(group, 0);
  }
  /// Returns whether a run was postponed, and cancels it.
  bool take_due() { return std::exchange(is_due_, false); }

  void run(Group& group, [[maybe_unused]] int source) {
    if constexpr (has_hook)
      hook_(span_of(std::as_const(buffers_)), group);
    else if constexpr (Policy::broadcasts_buffers)
      for (const std::span<std::byte> piece : pieces_) group.broadcast(piece, source);
  }

 private:
  std::vector<named_buffer> buffers_;
  std::vector<std::span<std::byte>> pieces_;
  [[no_unique_address]] hook_type hook_{};
  bool is_due_ = false;
};

}  // namespace detail
}  // namespace ikebana
