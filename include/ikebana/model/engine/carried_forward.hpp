#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/model/element.hpp"
#include "ikebana/model/network/network_state.hpp"
#include "ikebana/model/passes/execution.hpp"
#include "ikebana/model/passes/forward_pass.hpp"

namespace ikebana::detail {

/// The results of a forward whose memory is about to be planned again for the same inputs.
/// Allocates.
template <class T>
class carried_forward {
 public:
  carried_forward(const network_state<T>& n, aligned_buffer<std::byte>&& workspace)
      : workspace_{std::move(workspace)},
        values_(static_cast<dim_t>(n.current.n.values)),
        saved_(static_cast<dim_t>(n.current.n.saved)),
        ran_backward_(static_cast<dim_t>(n.current.n.nodes)),
        ran_again_(static_cast<dim_t>(n.current.n.nodes)),
        repeats_(static_cast<dim_t>(n.current.n.nodes)) {
    std::copy_n(n.values, values_.size(), values_.data());
    std::copy_n(n.saved, saved_.size(), saved_.data());
    std::copy_n(n.plan.runs_backward, ran_backward_.size(), ran_backward_.data());
    std::copy_n(n.plan.runs_again, ran_again_.size(), ran_again_.data());
    for (dim_t k = 0; k < repeats_.size(); ++k)
      repeats_.data()[k] = n.plan.fusion.calls[k].loop > 0 ||
                           n.plan.layouts[n.current.nodes[k].first_output].is_view;
  }

  /// The memory that views of the last outputs show.
  aligned_buffer<std::byte> take_workspace() { return std::move(workspace_); }

  void restore_inputs(network_state<T>& n) const {
    std::copy_n(values_.data(), n.inputs, n.values);
  }

  /// Whether node k is of a checkpoint, which keeps nothing but its buffers, and runs again.
  bool runs_again(int k) const { return ran_again_.data()[k]; }

  /// Copies what node k left for backward to its new place, if the node must not run again or if
  /// everything it left is available. Returns whether it did.
  bool carry(const execution<T>& run, int k) const {
    const program_node& node = run.nodes[k];
    if (runs_again(k)) {
      for (std::size_t i = 0; i < node.kept_buffers; ++i)
        carry_saved(run, node, node.saved_count + i);
      return false;
    }
    if (node.choice >= 0 || repeats_.data()[k]) return false;
    if (!ran_backward_[k] && (run.leaves[node.leaf].buffer_count == 0 || node.role.is_frozen))
      return false;
    if (!run.does_run(node)) return true;
    for (std::size_t i = 0; i < node.output_count; ++i) {
      const int v = node.first_output + static_cast<int>(i);
      copy(run.values[v], values_[v], run.bytes_of(v));
    }
    for (std::size_t i = 0; i < node.saved_count; ++i) carry_saved(run, node, i);
    return true;
  }

 private:
  void carry_saved(const execution<T>& run, const program_node& node, std::size_t i) const {
    const int s = node.first_saved + static_cast<int>(i);
    copy(run.saved[s], saved_[s], run.saved_bytes(s));
  }
  static void copy(void* to, const void* from, std::size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }

  aligned_buffer<std::byte> workspace_;
  aligned_buffer<T*> values_;
  aligned_buffer<std::byte*> saved_;
  aligned_buffer<bool> ran_backward_;
  aligned_buffer<bool> ran_again_;
  /// Views, and steps of a loop, which keeps no results between them.
  aligned_buffer<bool> repeats_;
};

/// Visits the leaves in order and restores what each kept in the last forward. Leaves before the
/// first parameter, and steps of a loop, kept nothing and run again, except those with buffers,
/// which may have changed since.
template <class E, bool Partial>
struct carry_pass {
  using T = element_of<E>;
  const execution<T>& run;
  const carried_forward<T>& last;
  leaf_boundary<T>* boundary;
  int k = 0;

  template <class Leaf>
  [[gnu::noinline]] void operator()(const Leaf& leaf) {
    if (run.watch != nullptr) run.watch->repeat_before(k);
    const bool carried = last.carry(run, k);
    if (last.runs_again(k)) {
      if (run.does_run(run.nodes[k])) forward_again<E, Partial>(run, boundary, k, leaf);
    } else if (!carried) {
      forward_pass<E, leaf_boundary<T>*, Partial> one{run, k, boundary};
      one(leaf);
    }
    if (run.watch != nullptr) run.watch->repeat_after(k);
    ++k;
  }
};

}  // namespace ikebana::detail
