#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/core/number_format.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/round.hpp"
#include "ikebana/model/passes/execution.hpp"
#include "ikebana/module/lowering.hpp"
#include "ikebana/replicate/mixed/mixed_plan.hpp"

namespace ikebana::detail {

/// Rounds the inputs and outputs of the leaves of one model, which reads its parameters and writes
/// its gradients here; see mixed_precision.hpp. It sees the network as tables only. Allocates on
/// construction, and if inputs are larger than any before.
template <class T>
class mixed_boundary final : public leaf_boundary<T> {
 public:
  /// `of(path)` returns the leaf_precision of the leaf at that path. The memory of master weights,
  /// gradients and buffers must keep its address.
  template <class Model, class Of>
  mixed_boundary(Model& model, const model_precision& whole, const Of& of)
      : masters_{model.parameters()},
        sums_{model.gradients()},
        whole_{whole},
        parameters_(static_cast<dim_t>(masters_.size())),
        gradients_(static_cast<dim_t>(masters_.size())) {
    const auto& p = model.current_program();
    const auto& layout = model.layout();
    for (const program_leaf& from : p.all_leaves()) {
      leaf own{of(p.path(from).view()), {}, {}, 0, false};
      for (std::size_t i = 0; i < from.parameter_count; ++i) {
        const std::size_t at = static_cast<std::size_t>(from.first_parameter) + i;
        const dim_t begin = layout.offsets[at];
        own.parameters.push_back({begin, p.parameters[at].spec.extents.numel()});
        const bool is_master = own.to.param == number_format::full;
        parameter_table_.push_back((is_master ? masters_ : parameters_.span()).data() + begin);
        gradient_table_.push_back(gradients_.data() + begin);
      }
      for (std::size_t i = 0; i < from.buffer_count; ++i) {
        const std::size_t at = static_cast<std::size_t>(from.first_buffer) + i;
        const buffer_spec& spec = p.buffers[at].spec;
        own.buffers.push_back({model.buffers().data() + layout.buffer_offsets[at],
                               spec.extents.numel(), spec.follows_model ? dtype_of<T> : spec.type});
      }
      leaves_.push_back(std::move(own));
    }
    for (std::size_t l = 0; l < leaves_.size(); ++l) {
      leaves_[l].completed = layout.completed[l];
      if (!leaves_[l].parameters.empty()) order_.push_back(l);
    }
    std::sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) {
      return leaves_[a].completed < leaves_[b].completed;
    });
    std::vector<leaf_precision> precisions;
    for (const leaf& l : leaves_) precisions.push_back(l.to);
    plan_ = precision_plan(p, precisions, whole);
    for (const auto& c : plan_.inputs) inputs_.push_back({c.value, c.to, {}, nullptr});
    for (const auto& c : plan_.entries) entries_.push_back({c.value, c.to, {}, nullptr});
    for (const auto& c : plan_.outputs) outputs_.push_back({c.value, c.to, {}, nullptr});
  }

  /// By parameter: where leaves read it and write its gradient.
  T* const* parameters() const { return parameter_table_.data(); }
  T* const* gradients() const { return gradient_table_.data(); }

  void begin_forward(const execution<T>& run) override {
    restore_outputs(run);
    for (cast& c : inputs_) {
      c.round(run);
      run.values[c.value] = c.copy.data();
    }
  }

  void before_forward(const execution<T>& run, int k) override {
    const node& n = plan_.nodes[static_cast<std::size_t>(k)];
    const leaf& own = leaves_[n.leaf];
    if (own.to.param != number_format::full)
      for (const parameter& p : own.parameters)
        cpu::round_to<T>(p.size, own.to.param, masters_.data() + p.begin,
                         parameters_.data() + p.begin);
    round_buffers(own);
    for (std::size_t e = n.first_entry; e < n.end_entry; ++e) entries_[e].round(run);
    enter(run, n);
  }

  void after_forward(const execution<T>& run, int k) override {
    const node& n = plan_.nodes[static_cast<std::size_t>(k)];
    leave(run, n);
    const program_node& from = run.nodes[k];
    for (std::size_t i = 0; i < from.output_count; ++i) {
      const auto v = static_cast<std::size_t>(from.first_output) + i;
      T* const y = run.values[v];
      const dim_t size = run.shapes[v].numel();
      if (n.computes && n.output != number_format::full) cpu::round_to<T>(size, n.output, y, y);
      if (plan_.values[v].leaving != number_format::full)
        cpu::round_to<T>(size, plan_.values[v].leaving, y, y);
    }
    if (run.training) round_buffers(leaves_[n.leaf]);
  }

  /// The outputs become rounded copies, so that backward finds what forward left.
  void end_forward(const execution<T>& run) override {
    for (cast& c : outputs_) {
      c.round(run);
      c.original = std::exchange(run.values[c.value], c.copy.data());
    }
  }

  void begin_backward(const execution<T>& run) {
    accumulate_ = run.accumulate;
    next_ = 0;
    for (leaf& l : leaves_) l.was_run = false;
    restore_outputs(run);
    for (const std::size_t v : plan_.output_values) {
      if (run.partial.written != nullptr && !run.partial.written[v]) continue;
      T* const g = run.value_gradients[v];
      if (g == nullptr) continue;
      round(run, v, whole_.output, g);
      round(run, v, plan_.values[v].to, g);
    }
  }

  void end_backward(const execution<T>& run) {
    for (cast& c : outputs_) c.original = std::exchange(run.values[c.value], c.copy.data());
  }

  void before_backward(const execution<T>& run, int k) {
    enter(run, plan_.nodes[static_cast<std::size_t>(k)]);
  }

  void after_backward(const execution<T>& run, int k) {
    const node& n = plan_.nodes[static_cast<std::size_t>(k)];
    leave(run, n);
    leaf& own = leaves_[n.leaf];
    own.was_run = true;
    if (plan_.calls[n.leaf] > 1 && own.to.param != number_format::full)
      for (const parameter& p : own.parameters)
        cpu::round_to<T>(p.size, own.to.param, gradients_.data() + p.begin,
                         gradients_.data() + p.begin);
    if (!n.computes) return;
    const program_node& from = run.nodes[k];
    for (std::size_t i = 0; i < from.input_count; ++i) {
      T* const g = run.edge_gradients[from.first_edge + static_cast<int>(i)];
      if (g == nullptr) continue;
      const auto v = static_cast<std::size_t>(from.inputs[i]);
      if (enters(n, v)) round(run, v, own.to.param, g);
      round(run, v, plan_.values[v].to, g);
    }
  }

  void after_sums(const execution<T>& run, int k) {
    const program_node& from = run.nodes[k];
    for (std::size_t i = 0; i < from.input_count; ++i) {
      const auto v = static_cast<std::size_t>(from.inputs[i]);
      if (T* const sum = run.edge_sums[from.first_edge + static_cast<int>(i)])
        round(run, v, plan_.values[v].to, sum);
    }
  }

  /// The gradients of the first n elements are complete: they are added to those of the model.
  void complete(dim_t n) {
    for (; next_ < order_.size() && leaves_[order_[next_]].completed <= n; ++next_) {
      const leaf& own = leaves_[order_[next_]];
      if (!own.was_run) continue;
      for (const parameter& p : own.parameters)
        cpu::add_rounded<T>(p.size, own.to.param, gradients_.data() + p.begin, own.to.reduce,
                            accumulate_, sums_.data() + p.begin);
    }
  }

 private:
  struct parameter {
    dim_t begin, size;
  };
  struct buffer {
    std::byte* data;
    dim_t size;
    dtype type;
  };
  struct leaf {
    leaf_precision to;
    std::vector<parameter> parameters;
    std::vector<buffer> buffers;
    dim_t completed;  ///< The elements of all gradients complete after its own.
    bool was_run;
  };
  /// A value that is used in another precision.
  struct cast {
    std::size_t value;
    number_format to;
    aligned_buffer<T> copy;
    T* original;

    void round(const execution<T>& run) {
      const dim_t n = run.shapes[value].numel();
      const T* const from = run.values[value];
      if (copy.size() < n) copy = aligned_buffer<T>(n);
      cpu::round_to<T>(n, to, from, copy.data());
    }
  };
  using node = precision_plan::node;

  static void round(const execution<T>& run, std::size_t v, number_format to, T* g) {
    if (to != number_format::full) cpu::round_to<T>(run.shapes[v].numel(), to, g, g);
  }

  bool enters(const node& n, std::size_t v) const {
    for (std::size_t e = n.first_entry; e < n.end_entry; ++e)
      if (entries_[e].value == v) return true;
    return false;
  }
  void enter(const execution<T>& run, const node& n) {
    for (std::size_t e = n.first_entry; e < n.end_entry; ++e)
      entries_[e].original = std::exchange(run.values[entries_[e].value], entries_[e].copy.data());
  }
  void leave(const execution<T>& run, const node& n) {
    for (std::size_t e = n.first_entry; e < n.end_entry; ++e)
      run.values[entries_[e].value] = entries_[e].original;
  }
  /// Restores what end_forward replaced, unless others have changed it since.
  void restore_outputs(const execution<T>& run) {
    for (cast& c : outputs_)
      if (c.copy.data() != nullptr && run.values[c.value] == c.copy.data())
        run.values[c.value] = c.original;
  }

  void round_buffers(const leaf& own) const {
    if (!whole_.rounds_buffers) return;
    for (const buffer& b : own.buffers) {
      const auto all = [&]<class U>(U* x) { cpu::round_to<U>(b.size, whole_.buffer, x, x); };
      if (b.type == dtype::float32) all(reinterpret_cast<float*>(b.data));
      if (b.type == dtype::float64) all(reinterpret_cast<double*>(b.data));
    }
  }

  std::span<T> masters_;
  std::span<T> sums_;
  model_precision whole_;
  aligned_buffer<T> parameters_;  ///< The master weights, rounded.
  aligned_buffer<T> gradients_;   ///< Of one backward.
  std::vector<T*> parameter_table_, gradient_table_;
  std::vector<leaf> leaves_;
  std::vector<std::size_t> order_;  ///< Leaves with parameters, as backward completes them.
  precision_plan plan_;
  std::vector<cast> inputs_, entries_, outputs_;
  std::size_t next_ = 0;  ///< The first of order_ that is not complete.
  bool accumulate_ = false;
};

}  // namespace ikebana::detail
