#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/dependent.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/model/hooks.hpp"
#include "ikebana/model/hooks/module_call.hpp"
#include "ikebana/model/hooks/module_gradients.hpp"
#include "ikebana/model/network/network_state.hpp"
#include "ikebana/model/passes/execution.hpp"
#include "ikebana/module/lowering.hpp"

namespace ikebana::detail {

/// The calls of modules that have hooks. Runs the hooks in forward and backward, and owns the
/// copies of inputs and outputs that they write. Reads the network from its tables, so that it is
/// instantiated once per element type, and only if hooks are registered. Allocates in the first
/// step with hooks and when inputs grow.
template <class T>
class hooked_calls final : public backward_watch<T>, forward_values {
 public:
  /// All calls of the network, in the order in which they begin; filled in once.
  std::vector<dependent<program_call, T>> calls;

  /// Must be called before every forward. Resets the outputs that hooks wrote in the last forward
  /// to their planned memory. Throws state_error if a hook calls its own model.
  void restore_outputs(const network_state<T>& n, std::byte* workspace) {
    if (!active_.empty() || is_running_)
      throw_error(state_error("a hook calls the model that it is a hook of"));
    n_ = &n;
    workspace_ = workspace;
    for (hooked& h : hooked_) {
      for (std::size_t i = 0; i < h.call.outputs.count; ++i) {
        const int v = h.call.outputs.ids[i];
        const dim_t offset = n.plan.values[n.plan.root[v]];
        if (h.writes(i) && offset >= 0) n.values[v] = reinterpret_cast<T*>(workspace + offset);
      }
      h.replaced_inputs = h.written_outputs = 0;
    }
  }

  /// Must be called before a forward with hooks. Finds the calls of every hook if hooks have
  /// changed, and copies the model's buffers: after an exception they are as before.
  void begin_forward(const hook_set& set, bool training, std::span<std::byte> buffers) {
    const auto bytes = static_cast<dim_t>(buffers.size());
    if (buffers_before_.size() < bytes) buffers_before_ = aligned_buffer<std::byte>(bytes);
    std::copy_n(buffers.data(), bytes, buffers_before_.data());
    changing_buffers_ = buffers;
    training_ = training;
    if (version_ != set.version()) bind(set);
    follow_choices();
    next_ = 0;
    is_running_ = true;
    has_written_ = false;
  }

  void before_leaf(int k) { run_until(begins_[static_cast<std::size_t>(k)]); }
  void after_leaf(int k) { run_until(begins_[static_cast<std::size_t>(k)] + 1); }
  /// Whether a hook wrote to a value in this forward.
  bool has_written() const { return has_written_; }
  /// Whether the backward of this forward must be watched.
  bool end_forward() {
    run_until(2 * static_cast<int>(calls.size()));
    changing_buffers_ = {};
    return watches_backward_ || has_written_;
  }
  /// Ends all calls without running their hooks, after an exception in forward.
  void leave_forward() noexcept {
    std::copy_n(buffers_before_.data(), changing_buffers_.size(), changing_buffers_.data());
    changing_buffers_ = {};
    for (; !active_.empty(); active_.pop_back()) restore_inputs(hooked_[active_.back()]);
    is_running_ = false;
  }

  /// The path of node k.
  path_text path_of(int k) const {
    const program_view& p = n_->current;
    return p.path(p.leaves[p.nodes[k].leaf]);
  }

  void begin_backward() override { next_ = 0; }

  void before_backward(const execution<T>& run, int k) override {
    while (!active_.empty() && hooked_[active_.back()].call.first_node > k) end_call(run);
    for (; next_ < by_end_.size(); ++next_) {
      const program_call& call = hooked_[by_end_[next_]].call;
      if (call.end_node <= k) break;
      if (call.first_node <= k) begin_call(run, by_end_[next_]);
    }
  }
  void after_backward(const execution<T>& run, int k) override {
    while (!active_.empty() && hooked_[active_.back()].call.first_node == k) end_call(run);
  }
  void repeat_before(int k) override {
    const auto node = static_cast<std::size_t>(k);
    repeat_until(node < begins_.size() ? begins_[node] : 2 * static_cast<int>(calls.size()));
  }
  void repeat_after(int k) override { repeat_until(begins_[static_cast<std::size_t>(k)] + 1); }
  void end_backward(const execution<T>& run) override {
    while (!active_.empty()) end_call(run);
  }
  void abandon_backward(const execution<T>& run) noexcept override {
    for (; !active_.empty(); active_.pop_back()) {
      hooked& h = hooked_[active_.back()];
      for (redirected& r : h.redirections) restore_gradient(run, h, r);
      h.redirections.clear();
      h.edges.clear();
      restore_inputs(h);
    }
  }

 private:
  struct edge_memory {
    int edge;
    T *gradient, *sum;
  };
  /// The gradient of an input whose contribution from this call is redirected to separate memory.
  struct redirected {
    std::size_t input;
    T* whole;                            ///< The contribution is added or copied to it.
    bool was_written;                    ///< If so, the contribution is added.
    std::size_t first_edge, edge_count;  ///< Of `edges`.
  };
  struct event {
    int time;
    std::size_t call;  ///< Index into hooked_.
    bool begins;
  };
  struct hooked {
    program_call call;
    path_text path;
    std::array<std::vector<hook_set::entry>, module_hook_points> hooks;
    /// Copies of inputs and outputs that hooks wrote.
    std::array<aligned_buffer<std::byte>, max_arity> inputs, outputs;
    std::array<T*, max_arity> originals{};              ///< Inputs that are replaced by copies now.
    unsigned replaced_inputs = 0, written_outputs = 0;  ///< Bit i: in the last forward.
    std::array<aligned_buffer<T>, max_arity> input_gradients;
    std::array<aligned_buffer<T>, max_arity> output_gradients;  ///< Copies for later hooks.
    unsigned given_outputs = 0;                                 ///< Bit i: has a gradient.
    std::vector<redirected> redirections;
    std::vector<edge_memory> edges;

    const std::vector<hook_set::entry>& at(hook_point p) const {
      return hooks[static_cast<std::size_t>(p)];
    }
    bool replaces(std::size_t i) const { return (replaced_inputs >> i & 1U) != 0; }
    bool writes(std::size_t i) const { return (written_outputs >> i & 1U) != 0; }
  };

  void bind(const hook_set& set) {
    hooked_.clear();
    begins_.assign(n_->current.n.nodes, 0);
    for (const program_call& call : calls) {
      // Several calls can consist of one node; the last of them is the leaf's.
      if (call.end_node == call.first_node + 1)
        begins_[static_cast<std::size_t>(call.first_node)] = call.begin;
      const path_text path = scope_path(n_->current.scopes, call.scope);
      hooked h;
      h.call = call;
      h.path = path;
      bool any = false;
      for (const hook_set::entry& e : set.entries())
        if (e->point <= hook_point::after_backward && e->path == path.view()) {
          h.hooks[static_cast<std::size_t>(e->point)].push_back(e);
          any = true;
        }
      if (any) hooked_.push_back(std::move(h));
    }
    events_.clear();
    by_end_.clear();
    watches_backward_ = false;
    for (std::size_t c = 0; c < hooked_.size(); ++c) {
      const hooked& h = hooked_[c];
      events_.push_back({h.call.begin, c, true});
      events_.push_back({h.call.end, c, false});
      by_end_.push_back(c);
      watches_backward_ = watches_backward_ || !h.at(hook_point::before_backward).empty() ||
                          !h.at(hook_point::after_backward).empty();
    }
    std::sort(events_.begin(), events_.end(),
              [](const event& a, const event& b) { return a.time < b.time; });
    std::sort(by_end_.begin(), by_end_.end(), [this](std::size_t a, std::size_t b) {
      return hooked_[a].call.end > hooked_[b].call.end;
    });
    active_.reserve(hooked_.size());
    version_ = set.version();
  }

  // Forward.

  /// The output of a choice, and its views, are in the memory of the alternative that runs.
  void follow_choices() {
    const program_view& p = n_->current;
    roots_.assign(n_->plan.root, n_->plan.root + p.n.values);
    if (p.n.choices == 0) return;
    for (std::size_t k = 0; k < p.n.nodes; ++k) {
      const program_node& node = p.nodes[k];
      const auto out = static_cast<std::size_t>(node.first_output);
      const auto root_of = [&](int v) { return roots_[static_cast<std::size_t>(v)]; };
      if (node.choice >= 0 && n_->run.does_run(node))
        roots_[out] = root_of(node.inputs[n_->run.partial.taken[node.choice]]);
      else if (node.is_view)
        roots_[out] = root_of(node.inputs[0]);
    }
  }

  void run_until(int time) {
    for (; next_ < events_.size() && events_[next_].time <= time; ++next_) {
      const event& e = events_[next_];
      hooked& h = hooked_[e.call];
      if (!does_run(h.call.arm)) continue;
      if (e.begins) {
        active_.push_back(e.call);
        run_forward_hooks(h, hook_point::before_forward);
      } else {
        run_forward_hooks(h, hook_point::after_forward);
        restore_inputs(h);
        active_.pop_back();
      }
    }
  }

  void repeat_until(int time) {
    for (; next_ < events_.size() && events_[next_].time <= time; ++next_) {
      hooked& h = hooked_[events_[next_].call];
      if (!does_run(h.call.arm)) continue;
      if (events_[next_].begins) {
        take_inputs(h);
        continue;
      }
      restore_inputs(h);
      for (std::size_t i = 0; i < h.call.outputs.count; ++i)
        if (h.writes(i))
          n_->values[h.call.outputs.ids[i]] = reinterpret_cast<T*>(h.outputs[i].data());
    }
  }

  void describe(hooked_module& m, const hooked& h) const {
    m.path = h.path.view();
    m.kind = h.call.kind;
    m.type = dtype_of<T>;
    m.training = training_;
    m.call_ = &h.call;
    m.shapes_ = n_->current.values;
    m.kinds_ = n_->current.kinds;
  }

  void run_forward_hooks(const hooked& h, hook_point p) {
    if (h.at(p).empty()) return;
    module_call call;
    describe(call, h);
    call.values_ = this;
    call.model_inputs_ = static_cast<int>(n_->inputs);
    call.after_ = p == hook_point::after_forward;
    for (const hook_set::entry& e : h.at(p))
      if (!e->removed) e->run(&call);
  }

  // Implementation of forward_values.

  const void* read(const module_call& call, int value) const override {
    const network_state<T>& n = *n_;
    const T* const at = n.values[value];
    const int root = roots_[static_cast<std::size_t>(value)];
    if (root < static_cast<int>(n.inputs) || !is_planned(value)) return at;
    const int end = call.after_ ? call.call_->end_node : call.call_->first_node;
    for (int k = producer_of(value) + 1; k < end; ++k) {
      const program_node& node = n.current.nodes[k];
      if (!does_run(node.arm)) continue;
      for (std::size_t i = 0; i < node.output_count; ++i) {
        const int w = node.first_output + static_cast<int>(i);
        if (roots_[static_cast<std::size_t>(w)] == w &&
            overlaps(value, n.plan.values[w], bytes_of(w)))
          return nullptr;
      }
      for (std::size_t i = 0; i < node.saved_count; ++i) {
        const std::size_t s = static_cast<std::size_t>(node.first_saved) + i;
        const saved_spec& spec = n.current.saved[s].spec;
        const std::size_t size = spec.element_size == 0 ? sizeof(T) : spec.element_size;
        if (overlaps(value, n.plan.saved[s], spec.extents.numel() * static_cast<dim_t>(size)))
          return nullptr;
      }
    }
    return at;
  }

  void* replace_input(const module_call&, std::size_t i) override {
    hooked& h = hooked_[active_.back()];
    refuse_within_checkpoint(h, h.call.first_node);
    has_written_ = true;
    const int v = h.call.inputs.ids[i];
    for (std::size_t j = 0; j < h.call.inputs.count; ++j)
      if (h.call.inputs.ids[j] == v && h.replaces(j)) return n_->values[v];
    T* const copy = copy_of(v, h.inputs[i]);
    h.originals[i] = std::exchange(n_->values[v], copy);
    h.replaced_inputs |= 1U << i;
    return copy;
  }

  void* write_output(const module_call&, std::size_t i) override {
    hooked& h = hooked_[active_.back()];
    const int v = h.call.outputs.ids[i];
    if (v >= static_cast<int>(n_->inputs)) refuse_within_checkpoint(h, producer_of(v));
    has_written_ = true;
    if (!h.writes(i)) n_->values[v] = copy_of(v, h.outputs[i]);
    h.written_outputs |= 1U << i;
    return n_->values[v];
  }

  /// What a hook writes would not be there when backward runs the checkpoint again.
  void refuse_within_checkpoint(const hooked& h, int k) const {
    if (k < static_cast<int>(n_->current.n.nodes) && n_->current.nodes[k].checkpoint >= 0)
      throw_error(
          state_error(std::string(h.path.view()) +
                      ": a hook writes to a value within a checkpoint, which backward runs again"));
  }

  bool does_run(int arm) const { return arm < 0 || n_->run.partial.runs[arm]; }

  std::size_t element_bytes(int v) const {
    switch (n_->current.kinds[v]) {
      case element_kind::index:
        return sizeof(std::int64_t);
      case element_kind::boolean:
        return sizeof(bool);
      case element_kind::real:
        break;
    }
    return sizeof(T);
  }
  dim_t bytes_of(int v) const {
    return n_->current.values[v].numel() * static_cast<dim_t>(element_bytes(v));
  }

  T* copy_of(int v, aligned_buffer<std::byte>& to) const {
    const dim_t bytes = bytes_of(v);
    if (to.size() < bytes || to.empty()) to = aligned_buffer<std::byte>(bytes + 1);
    if (bytes > 0) std::memcpy(to.data(), n_->values[v], static_cast<std::size_t>(bytes));
    return reinterpret_cast<T*>(to.data());
  }
  int producer_of(int value) const {
    const program_node* const nodes = n_->current.nodes;
    int k = 0;
    while (value < nodes[k].first_output ||
           value >= nodes[k].first_output + static_cast<int>(nodes[k].output_count))
      ++k;
    return k;
  }

  /// Whether a value is in its planned memory.
  bool is_planned(int value) const {
    return reinterpret_cast<const std::byte*>(n_->values[value]) ==
           workspace_ + n_->plan.values[roots_[static_cast<std::size_t>(value)]];
  }
  bool overlaps(int value, dim_t begin, dim_t bytes) const {
    const int root = roots_[static_cast<std::size_t>(value)];
    const dim_t own = n_->plan.values[root];
    return begin >= 0 && begin < own + bytes_of(root) && own < begin + bytes;
  }

  void take_inputs(hooked& h) const {
    for (std::size_t i = 0; i < h.call.inputs.count; ++i)
      if (h.replaces(i))
        h.originals[i] = std::exchange(n_->values[h.call.inputs.ids[i]],
                                       reinterpret_cast<T*>(h.inputs[i].data()));
  }
  void restore_inputs(const hooked& h) const noexcept {
    for (std::size_t i = h.call.inputs.count; i-- > 0;)
      if (h.replaces(i)) n_->values[h.call.inputs.ids[i]] = h.originals[i];
  }

  // Backward.

  void begin_call(const execution<T>& run, std::size_t c) {
    hooked& h = hooked_[c];
    active_.push_back(c);
    take_inputs(h);
    run_backward_hooks(run, h, hook_point::before_backward);
    if (h.at(hook_point::after_backward).empty()) return;
    h.given_outputs = 0;
    for (std::size_t o = 0; o < h.call.outputs.count; ++o) keep_output_gradient(run, h, o);
    for (std::size_t i = 0; i < h.call.inputs.count; ++i)
      if (is_first(h.call, i)) redirect(run, h, i);
  }

  void end_call(const execution<T>& run) {
    hooked& h = hooked_[active_.back()];
    run_backward_hooks(run, h, hook_point::after_backward);
    for (redirected& r : h.redirections) {
      const int v = h.call.inputs.ids[r.input];
      const T* const part = h.input_gradients[r.input].data();
      const bool is_there = is_written(run, h, r);
      restore_gradient(run, h, r);
      if (!is_there) continue;
      if (r.was_written)
        cpu::add<T>(run.shapes[v].numel(), r.whole, part, r.whole);
      else if (run.bytes_of(v) > 0)
        std::memcpy(r.whole, part, run.bytes_of(v));
      if (run.partial.written != nullptr) run.partial.written[v] = true;
    }
    h.redirections.clear();
    h.edges.clear();
    restore_inputs(h);
    active_.pop_back();
  }

  void run_backward_hooks(const execution<T>& run, const hooked& h, hook_point p) const {
    if (h.at(p).empty()) return;
    module_gradients g;
    describe(g, h);
    g.after_ = p == hook_point::after_backward;
    for (std::size_t o = 0; o < h.call.outputs.count; ++o)
      g.output_gradients_[o] = g.after_ ? (h.given_outputs >> o & 1U) != 0
                                              ? const_cast<T*>(h.output_gradients[o].data())
                                              : nullptr
                                        : output_gradient(run, h.call.outputs.ids[o]);
    for (const redirected& r : h.redirections)
      if (is_written(run, h, r))
        for (std::size_t i = 0; i < h.call.inputs.count; ++i)
          if (h.call.inputs.ids[i] == h.call.inputs.ids[r.input])
            g.input_gradients_[i] = const_cast<T*>(h.input_gradients[r.input].data());
    for (const hook_set::entry& e : h.at(p))
      if (!e->removed) e->run(&g);
  }

  /// Null if there is none.
  T* output_gradient(const execution<T>& run, int v) const {
    const bool is_there =
        run.partial.written != nullptr ? run.partial.written[v] : !run.unwritten[v];
    return v >= static_cast<int>(n_->inputs) && is_there ? run.value_gradients[v] : nullptr;
  }

  /// The memory of the output gradient may be reused after the call's backward.
  void keep_output_gradient(const execution<T>& run, hooked& h, std::size_t o) const {
    const int v = h.call.outputs.ids[o];
    const T* const from = output_gradient(run, v);
    if (from == nullptr) return;
    own_memory(h.output_gradients[o], run.shapes[v].numel());
    if (run.bytes_of(v) > 0) std::memcpy(h.output_gradients[o].data(), from, run.bytes_of(v));
    h.given_outputs |= 1U << o;
  }

  /// Grows `own` if it is too small; it is never null afterwards.
  static void own_memory(aligned_buffer<T>& own, dim_t size) {
    if (own.size() < size || own.empty()) own = aligned_buffer<T>(size + 1);
  }

  static bool is_first(const program_call& call, std::size_t i) {
    for (std::size_t j = 0; j < i; ++j)
      if (call.inputs.ids[j] == call.inputs.ids[i]) return false;
    return true;
  }

  /// Makes the call write its contribution to the gradient of input i to separate memory.
  void redirect(const execution<T>& run, hooked& h, std::size_t i) const {
    const int v = h.call.inputs.ids[i];
    if (n_->current.kinds[v] != element_kind::real) return;
    aligned_buffer<T>& own = h.input_gradients[i];
    own_memory(own, run.shapes[v].numel());
    if (bool* const written = run.partial.written) {
      if (run.value_gradients[v] == nullptr) return;
      h.redirections.push_back({i, std::exchange(run.value_gradients[v], own.data()),
                                std::exchange(written[v], false), 0, 0});
      return;
    }
    const std::size_t first = h.edges.size();
    for (int k = h.call.end_node; k-- > h.call.first_node;) {
      const program_node& node = run.nodes[k];
      for (std::size_t j = 0; run.runs_backward[k] && j < node.input_count; ++j) {
        const int e = node.first_edge + static_cast<int>(j);
        if (node.inputs[j] != v || run.edge_gradients[e] == nullptr) continue;
        const bool is_first_part = h.edges.size() == first;
        h.edges.push_back({e, run.edge_gradients[e], run.edge_sums[e]});
        // Every contribution but the first is added, by way of scratch or by the leaf.
        if (is_first_part || run.edge_gradients[e] == run.edge_sums[e])
          run.edge_gradients[e] = own.data();
        run.edge_sums[e] = is_first_part ? nullptr : own.data();
      }
    }
    if (h.edges.size() == first) return;
    const edge_memory& e = h.edges[first];
    h.redirections.push_back({i, e.sum != nullptr ? e.sum : e.gradient, e.sum != nullptr, first,
                              h.edges.size() - first});
  }

  static bool is_written(const execution<T>& run, const hooked& h, const redirected& r) {
    return run.partial.written == nullptr || run.partial.written[h.call.inputs.ids[r.input]];
  }

  static void restore_gradient(const execution<T>& run, const hooked& h,
                               const redirected& r) noexcept {
    const int v = h.call.inputs.ids[r.input];
    if (run.partial.written != nullptr) {
      run.value_gradients[v] = r.whole;
      run.partial.written[v] = r.was_written;
    }
    for (std::size_t e = r.first_edge; e < r.first_edge + r.edge_count; ++e) {
      run.edge_gradients[h.edges[e].edge] = h.edges[e].gradient;
      run.edge_sums[h.edges[e].edge] = h.edges[e].sum;
    }
  }

  const network_state<T>* n_ = nullptr;
  std::vector<dependent<int, T>> roots_;  ///< By value: the value that owns its memory.
  const std::byte* workspace_ = nullptr;
  bool training_ = true;
  std::vector<hooked> hooked_;                     ///< In the order of their beginnings.
  std::vector<event> events_;                      ///< Beginnings and ends, in order of time.
  std::vector<dependent<std::size_t, T>> by_end_;  ///< Indices into hooked_, the last end first.
  std::vector<dependent<int, T>> begins_;          ///< By node: the time at which its leaf begins.
  std::vector<dependent<std::size_t, T>> active_;  ///< Calls in progress, the outermost first.
  std::size_t next_ = 0;                   ///< Index into events_, or into by_end_ in backward.
  std::span<std::byte> changing_buffers_;  ///< The model's, in a forward.
  aligned_buffer<std::byte> buffers_before_;
  std::uint64_t version_ = 0;
  bool watches_backward_ = false;
  bool is_running_ = false;
  bool has_written_ = false;  ///< Whether a hook wrote in this forward.
};

}  // namespace ikebana::detail
