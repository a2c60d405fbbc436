#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ikebana/cpu/dense_layer.hpp"
#include "ikebana/cpu/detail/targets.hpp"
#include "ikebana/model/passes/gradient_presence.hpp"
#include "ikebana/model/plan/fusion.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/program.hpp"

namespace ikebana::detail {

struct loop_tables;

/// Tables of a pass in which some leaves do not run; null if all do.
template <class T>
struct partial_tables {
  const bool* runs = nullptr;         ///< By arm.
  const int* taken = nullptr;         ///< By choice.
  bool* written = nullptr;            ///< By value: it has a gradient.
  const bool* edge_needed = nullptr;  ///< By edge.
  T* const* scratch = nullptr;        ///< By edge, for those that may add to a gradient.
  gradient_presence* presence = nullptr;
  const int* places = nullptr;  ///< By leaf: index of its first parameter in memory order.
  T* flat_gradients = nullptr;

  bool is_written(const program_node& node) const {
    for (std::size_t i = 0; i < node.output_count; ++i)
      if (written[node.first_output + static_cast<int>(i)]) return true;
    return false;
  }
};

template <class T>
struct execution;

/// How the loops of a network run; see loop_run.hpp.
template <class T>
using loop_function = void (*)(const execution<T>&, int k, bool backward);

/// Callbacks of a backward around the backward of each leaf, by which hooks run. k is the node;
/// only nodes that a gradient reaches are reported.
template <class T>
class backward_watch {
 public:
  virtual ~backward_watch() = default;
  virtual void begin_backward() = 0;
  virtual void before_backward(const execution<T>&, int k) = 0;
  virtual void after_backward(const execution<T>&, int k) = 0;
  virtual void end_backward(const execution<T>&) = 0;
  /// Restores the tables if an exception ended the backward; has no effect after end_backward.
  virtual void abandon_backward(const execution<T>&) noexcept = 0;
  /// Called after begin_backward, in the order of forward: restores the inputs and outputs of leaf
  /// k that hooks wrote. The last call is repeat_before(number of nodes).
  virtual void repeat_before(int k) = 0;
  virtual void repeat_after(int k) = 0;
};

template <class T>
struct execution;
template <class T>
context<T> fused_forward_context(const execution<T>& run, const program_node& node);
template <class T>
context<T> fused_backward_context(const execution<T>& run, const program_node& node);

/// How a backward runs the checkpoints of a network again.
template <class T>
struct checkpoint_runs {
  void (*run)(void* engine, const execution<T>&, int checkpoint) = nullptr;
  void* engine = nullptr;
  int last = -1;  ///< The one that ran last in this backward.
};

/// Everything that a pass over the leaves needs, as plain tables without the types of the network.
template <class T>
struct execution {
  const program_node* nodes = nullptr;
  const program_leaf* leaves = nullptr;
  const shape* shapes = nullptr;
  const value_layout* layouts = nullptr;
  T** values = nullptr;
  T** value_gradients = nullptr;
  T** edge_gradients = nullptr;
  T** edge_sums =
      nullptr;  ///< By edge: the gradient to which the edge's contribution is added; null for none.
  const bool* runs_backward = nullptr;
  const bool* first_call = nullptr;  ///< By node: no earlier node runs the same leaf.
  const bool* last_call = nullptr;   ///< By node: no later node runs the same leaf.
  const bool* unwritten = nullptr;   ///< By value: nothing writes its gradient, so it is zero.
  T* const* parameters = nullptr;
  T* const* gradients = nullptr;
  const dim_t* completed = nullptr;
  std::byte* const* buffers = nullptr;
  std::byte** saved = nullptr;
  std::byte* plans = nullptr;  ///< What leaves keep from one run to the next; null for nothing.
  seed model_seed{};
  std::uint64_t step = 0;
  std::uint32_t stream = 0;
  bool training = true;
  bool accumulate = false;
  bool repeats = false;                       ///< Forward is repeated; stateful leaves are skipped.
  bool keeps_buffers = false;                 ///< For the repeated forward of checkpoints.
  const bool* runs_again = nullptr;           ///< By node: within a checkpoint.
  checkpoint_runs<T>* checkpoints = nullptr;  ///< Null if there are none.
  const program_saved* saved_specs = nullptr;
  std::uint64_t stamp = 0;            ///< Version of the parameters; 0 if they may change anytime.
  const fused_call* fused = nullptr;  ///< By node; null if leaves run unfused.
  const bool* full_precision = nullptr;          ///< By leaf; null if there are no exceptions.
  cpu::dense_chain<T>* chains = nullptr;         ///< By node, for those that start a chain.
  cpu::activation_kernel<T> activate = nullptr;  ///< For all activations of the network.
  /// For all layers that can run in one call.
  void (*make_product)(const cpu::gemm_call<T>&) = nullptr;
  const loop_tables* loops = nullptr;
  loop_function<T> run_loop = nullptr;  ///< Null if the network has no loops.
  partial_tables<T> partial{};
  backward_watch<T>* watch = nullptr;  ///< Of the backward of this forward; null without hooks.

  bool does_run(const program_node& node) const { return node.arm < 0 || partial.runs[node.arm]; }

  bool is_full(const program_node& node) const {
    return full_precision != nullptr && full_precision[node.leaf];
  }

  /// Points the output of a node to where it is in the input's memory; false if it is not there.
  bool follow_view(const program_node& node) const {
    const value_layout& out = layouts[node.first_output];
    if (out.is_view) values[node.first_output] = values[node.inputs[0]] + out.offset;
    return out.is_view;
  }

  std::size_t bytes_of(int value) const {
    return static_cast<std::size_t>(shapes[value].numel()) * sizeof(T);
  }

  /// Whether node k is a step of a loop, which runs with the last of them.
  bool is_step(int k) const { return fused[k].loop > 0 && (run_step(k), true); }
  [[gnu::noinline]] void run_step(int k) const {
    const program_node& node = nodes[k];
    if (node.is_view) values[node.first_output] = values[node.inputs[0]];
    if (fused[k].runs_loop) run_loop(*this, k, false);
  }
  /// The same of its backward.
  bool is_step_backward(int k) const {
    if (fused == nullptr || fused[k].loop == 0) return false;
    if (fused[k].runs_loop_backward) run_loop(*this, k, true);
    return true;
  }

  /// Before the backward of node k: runs the checkpoint that contains it again.
  void run_again_before(int k) const {
    const int c = nodes[k].checkpoint;
    if (c < 0 || c == checkpoints->last) return;
    checkpoints->last = c;
    checkpoints->run(checkpoints->engine, *this, c);
  }

  /// The bytes of saved tensor s.
  std::size_t saved_bytes(int s) const {
    const saved_spec& spec = saved_specs[s].spec;
    return static_cast<std::size_t>(spec.extents.numel()) *
           (spec.element_size == 0 ? sizeof(T) : spec.element_size);
  }
  /// Copies the buffers of a node of a checkpoint to its saved tensors, or back; those from before
  /// forward, or those from before the repeated forward.
  [[gnu::noinline]] void copy_buffers(const program_node& node, bool later, bool back) const {
    // In evaluation, forward changes no others.
    if (!training && !node.role.is_stateful) return;
    const std::size_t n = node.kept_buffers;
    const int first =
        node.first_saved + static_cast<int>(node.saved_count + (later ? n : std::size_t{0}));
    for (int i = 0; i < static_cast<int>(n); ++i) {
      std::byte* const buffer = buffers[leaves[node.leaf].first_buffer + i];
      if (const std::size_t bytes = saved_bytes(first + i); bytes > 0)
        std::memcpy(back ? buffer : saved[first + i], back ? saved[first + i] : buffer, bytes);
    }
  }

  context<T> context_of(const program_node& node) const {
    const program_leaf& leaf = leaves[node.leaf];
    // Designated initialisers for all members avoid filling them with zeros first, which takes
    // longer.
    return {.shapes = shapes,
            .inputs = node.inputs,
            .arity = node.input_count,
            .first_output = node.first_output,
            .layouts = layouts,
            .values = values,
            .value_gradients = value_gradients,
            .edge_gradients = edge_gradients + node.first_edge,
            .edge_sums = edge_sums + node.first_edge,
            .parameters = parameters + leaf.first_parameter,
            .gradients = gradients + leaf.first_parameter,
            .buffers = buffers + leaf.first_buffer,
            .saved_data = saved + node.first_saved,
            .plan_data = plans == nullptr || node.first_plan == program_node::no_plan
                             ? nullptr
                             : plans + node.first_plan,
            .is_training = training,
            .stamp = stamp,
            .stream = random_stream{model_seed, leaf.path_hash, step, stream}};
  }

  /// The same with what is fused into the call.
  context<T> forward_context_of(const program_node& node) const {
    return fused_forward_context(*this, node);
  }
  context<T> backward_context_of(const program_node& node) const {
    return fused_backward_context(*this, node);
  }

  /// The backward of a view: the gradient of its input is its own, possibly in the same memory
  /// `to`.
  [[gnu::noinline]] void pass_on_gradient(const program_node& view, T* to) const {
    const T* const from = value_gradients[view.first_output];
    if (to != nullptr && to != from) std::memcpy(to, from, bytes_of(view.first_output));
  }
};

// scale[c] x + shift[c] = (x - mean) / sqrt(variance + eps) weight + bias.
template <class T>
void take_norm(const execution<T>& run, const program_node& norm, context<T>& c) {
  const program_leaf& leaf = run.leaves[norm.leaf];
  T* const* const affine = run.parameters + leaf.first_parameter;
  const auto buffer = [&](int i) {
    return reinterpret_cast<const T*>(run.buffers[leaf.first_buffer + i]);
  };
  c.scale = reinterpret_cast<T*>(run.saved[norm.first_saved]);
  c.shift = reinterpret_cast<T*>(run.saved[norm.first_saved + 1]);
  const T eps = static_cast<T>(norm.role.eps);
  for (dim_t i = 0; i < run.shapes[norm.inputs[0]][1]; ++i) {
    const T weight = norm.role.is_affine ? affine[0][i] : T{1};
    c.scale[i] = weight / std::sqrt(buffer(1)[i] + eps);
    c.shift[i] = (norm.role.is_affine ? affine[1][i] : T{0}) - buffer(0)[i] * c.scale[i];
  }
}

// Not inlined: shared by all leaves.
template <class T>
[[gnu::noinline]] context<T> fused_forward_context(const execution<T>& run,
                                                   const program_node& node) {
  context<T> c = run.context_of(node);
  if (run.fused == nullptr) return c;
  const fused_call& f = run.fused[&node - run.nodes];
  if (f.adds) c.added = run.values[f.added];
  c.applied = {f.function, run.activate};
  if (f.gives_other) c.other_output = run.values[f.output];
  if (f.normalises) take_norm(run, run.nodes[f.norm], c);
  return c;
}
IKEBANA_CPU_KERNEL(fused_forward_context)

template <class T>
[[gnu::noinline]] context<T> fused_backward_context(const execution<T>& run,
                                                    const program_node& node) {
  context<T> c = run.context_of(node);
  if (run.fused != nullptr) c.slope = run.fused[&node - run.nodes].slope;
  return c;
}
IKEBANA_CPU_KERNEL(fused_backward_context)

/// Reports the begin of a backward to its watch, and its end, also by an exception.
template <class T>
class watched_pass {
 public:
  explicit watched_pass(const execution<T>& run) : run_{run} {
    if (run.watch != nullptr) run.watch->begin_backward();
  }
  watched_pass(const watched_pass&) = delete;
  ~watched_pass() {
    if (run_.watch != nullptr) run_.watch->abandon_backward(run_);
  }
  void end() const {
    if (run_.watch != nullptr) run_.watch->end_backward(run_);
  }

 private:
  const execution<T>& run_;
};

/// Callbacks around every call of a leaf, by which mixed precision rounds inputs and outputs. k is
/// the node. A pass without a boundary has no overhead.
template <class T>
class leaf_boundary {
 public:
  virtual void begin_forward(const execution<T>&) = 0;
  virtual void before_forward(const execution<T>&, int k) = 0;
  virtual void after_forward(const execution<T>&, int k) = 0;
  virtual void end_forward(const execution<T>&) = 0;

 protected:
  ~leaf_boundary() = default;
};

}  // namespace ikebana::detail
