#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "ikebana/core/dtype.hpp"
#include "ikebana/model/hooks.hpp"
#include "ikebana/model/module_call.hpp"
#include "ikebana/module/lowering.hpp"

namespace ikebana {

namespace detail {

/// What a pass with hooks reads besides the tables of an execution.
struct hooked_tables {
  const program_scope* scopes = nullptr;
  const element_kind* kinds = nullptr;
  const program_node* nodes = nullptr;
  const shape* shapes = nullptr;
  const int* roots = nullptr;      ///< By value: whose memory it is.
  const dim_t* offsets = nullptr;  ///< By value: where in the workspace.
  const dim_t* saved_offsets = nullptr;
  const program_saved* saved = nullptr;
  void* const* values = nullptr;
  int inputs = 0;
  dim_t element_size = 0;
  dtype type = dtype::float32;
  bool training = true;
  const bool* runs = nullptr;  ///< By arm, where not all do.

  bool does_run(int arm) const { return arm < 0 || runs[arm]; }

  bool overlaps(int value, dim_t begin, dim_t bytes) const {
    const int root = roots[value];
    const dim_t own = offsets[root], size = shapes[root].numel() * element_size;
    return begin >= 0 && begin < own + size && own < begin + bytes;
  }

  /// Where the value is; null once a node before `end` has written something else there.
  static const void* read(const void* self, const module_call& call, int value) {
    const auto& t = *static_cast<const hooked_tables*>(self);
    if (t.roots[value] < t.inputs) return t.values[value];
    int k = 0;
    while (value < t.nodes[k].first_output ||
           value >= t.nodes[k].first_output + static_cast<int>(t.nodes[k].output_count))
      ++k;
    for (++k; k < (call.after_ ? call.end_node_ : call.first_node_); ++k) {
      const program_node& node = t.nodes[k];
      if (!t.does_run(node.arm)) continue;
      for (std::size_t i = 0; i < node.output_count; ++i) {
        const int w = node.first_output + static_cast<int>(i);
        if (t.roots[w] == w && t.offsets[w] >= 0 &&
            t.overlaps(value, t.offsets[w], t.shapes[w].numel() * t.element_size))
          return nullptr;
      }
      for (std::size_t i = 0; i < node.saved_count; ++i) {
        const std::size_t s = static_cast<std::size_t>(node.first_saved) + i;
        const saved_spec& spec = t.saved[s].spec;
        const dim_t size =
            spec.element_size == 0 ? t.element_size : static_cast<dim_t>(spec.element_size);
        if (t.overlaps(value, t.saved_offsets[s], spec.extents.numel() * size)) return nullptr;
      }
    }
    return t.values[value];
  }
};

/// The calls of a network and the hooks that each has, by the time at which they run.
///
/// A template, so that it is compiled only where it is used.
template <class>
struct basic_hooked_calls {
  struct bound {
    int time;
    int call;
    hook_set::entry hook;
  };
  std::vector<program_call> calls;
  std::vector<int> begins;  ///< By node: the time at which its leaf is called.
  std::shared_ptr<const std::vector<bound>> hooks;  ///< Never changed: a forward may read them.
  std::uint64_t version = 0;

  /// Finds the calls of every hook. A hook before a module runs when its call begins, one after it
  /// when it ends; those of one call in the order of the set.
  template <class = void>
  void bind(const hook_set& set, const program_scope* scopes, std::size_t nodes) {
    if (version == set.version()) return;
    begins.assign(nodes, 0);
    std::vector<bound> found;
    for (std::size_t c = 0; c < calls.size(); ++c) {
      const program_call& call = calls[c];
      // Of the calls that are of this node alone, the last is the leaf's.
      if (call.end_node == call.first_node + 1)
        begins[static_cast<std::size_t>(call.first_node)] = call.begin;
      const path_text path = scope_path(scopes, call.scope);
      for (const hook_set::entry& e : set.entries())
        if (e->point <= hook_point::after_forward && e->path == path.view())
          insert(found, {e->point == hook_point::before_forward ? call.begin : call.end,
                         static_cast<int>(c), e});
    }
    hooks = std::make_shared<const std::vector<bound>>(std::move(found));
    version = set.version();
  }

 private:
  /// By time; after those of the same time.
  template <class = void>
  static void insert(std::vector<bound>& sorted, bound b) {
    const auto at = std::upper_bound(sorted.begin(), sorted.end(), b.time,
                                     [](int time, const bound& x) { return time < x.time; });
    sorted.insert(at, std::move(b));
  }
};
using hooked_calls = basic_hooked_calls<void>;

/// Runs the hooks as their time comes.
struct hook_runner {
  const hooked_tables& tables;
  const std::vector<program_call>& calls;
  const std::shared_ptr<const std::vector<hooked_calls::bound>> hooks;
  std::size_t next = 0;

  template <class = void>
  void run_until(int time) {
    for (; next < hooks->size() && (*hooks)[next].time <= time; ++next) {
      const hooked_calls::bound& b = (*hooks)[next];
      if (b.hook->removed) continue;
      const program_call& from = calls[static_cast<std::size_t>(b.call)];
      if (!tables.does_run(from.arm)) continue;
      module_call call;
      call.path = b.hook->path;
      call.kind = from.kind;
      call.type = tables.type;
      call.training = tables.training;
      call.inputs_ = from.inputs;
      call.outputs_ = from.outputs;
      call.shapes_ = tables.shapes;
      call.kinds_ = tables.kinds;
      call.roots_ = tables.roots;
      call.model_inputs_ = tables.inputs;
      call.after_ = b.hook->point == hook_point::after_forward;
      call.owner_ = &tables;
      call.read_ = &hooked_tables::read;
      call.first_node_ = from.first_node;
      call.end_node_ = from.end_node;
      b.hook->run(&call);
    }
  }
};

}  // namespace detail
}  // namespace ikebana
