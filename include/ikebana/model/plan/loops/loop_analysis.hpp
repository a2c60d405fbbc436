#pragma once

#include <cstddef>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/broadcast.hpp"
#include "ikebana/cpu/detail/targets.hpp"
#include "ikebana/cpu/fused_loop.hpp"
#include "ikebana/model/plan/loops/fused_loop.hpp"
#include "ikebana/model/plan/loops/row_norm.hpp"
#include "ikebana/model/plan/memory_planner.hpp"
#include "ikebana/module/program.hpp"

namespace ikebana::detail {
IKEBANA_CPU_BEGIN_SMALL

/// What a loop computes: its extents, what is made and read where, and what its backward reads.
class loop_analysis {
 protected:
  using code = cpu::loop_code;
  using operand = cpu::loop_operand;
  using kinds = cpu::loop_operand::kinds;
  using instruction = cpu::loop_instruction;

  loop_analysis(const program_view& p, const memory_tables& plan, std::size_t element_size,
                const loop_tables& to)
      : p_{p}, plan_{plan}, element_size_{static_cast<dim_t>(element_size)}, to_{to} {}

  bool is_member(int k) const { return plan_.fusion.calls[k].loop == loop_; }
  bool is_view(int k) const { return p_.nodes[k].is_view; }
  int same(int v) const { return to_.values[v].same; }
  loop_value& value(int v) { return to_.values[same(v)]; }

  bool is_fold(int k) const { return p_.nodes[k].role.step.kind == cpu::loop_step::kinds::fold; }

  static bool is_function(const program_node& node) {
    return node.role.step.kind == cpu::loop_step::kinds::function;
  }
  /// The extents of the loop, and what is made and read where.
  [[gnu::cold]] void analyse() {
    const auto nodes = static_cast<int>(p_.n.nodes);
    for (int v = 0; v < static_cast<int>(p_.n.values); ++v) {
      to_.values[v] = {};
      to_.values[v].same = v;
    }
    size_ = length_ = 0;
    has_backward_ = row_blocks_ = false;
    for (int k = l_->first; k <= l_->last; ++k) {
      if (!is_member(k)) continue;
      const program_node& node = p_.nodes[k];
      loop_value& out = to_.values[node.first_output];
      if (is_view(k)) {
        out.same = same(node.inputs[0]);
      } else {
        out.made = true;
        if (const auto& s = node.role.step; s.kind == cpu::loop_step::kinds::fold) {
          size_ = p_.values[node.inputs[0]].numel();
          length_ = size_ / p_.values[node.first_output].numel();
        } else if (const dim_t n = p_.values[node.first_output].numel(); n > size_) {
          size_ = n;
        }
      }
      has_backward_ = has_backward_ || plan_.runs_backward[k];
    }
    if (length_ == 0) length_ = size_;
    // What is read beyond the loop is stored, and whole rows are in a block if their reductions
    // are read within it.
    for (int k = l_->first; k < nodes; ++k) {
      const program_node& node = p_.nodes[k];
      for (std::size_t i = 0; i < node.input_count; ++i) {
        loop_value& v = value(node.inputs[i]);
        if (!v.made) continue;
        if (!is_member(k)) {
          v.stored = true;
          if (plan_.edge_needed[node.first_edge + static_cast<int>(i)])
            to_.values[node.inputs[i]].given = true;
        } else if (!is_view(k) && is_row(node.inputs[i]) && is_whole(node.first_output)) {
          row_blocks_ = true;
        }
      }
      if (is_member(k) && node.role.step.kind == cpu::loop_step::kinds::fold &&
          node.role.step.reduction() != cpu::reduction_op::sum &&
          node.role.step.reduction() != cpu::reduction_op::mean)
        row_blocks_ = true;
    }
    for (std::size_t i = 0; i < p_.output_count; ++i) {
      loop_value& v = value(p_.outputs[i]);
      if (v.made) v.stored = to_.values[p_.outputs[i]].given = true;
    }
    // Short rows are together in blocks.
    if (length_ < size_ && length_ * element_size_ <= short_row) row_blocks_ = true;
    find_norms();
  }

  /// Norms of rows, of whose steps nothing else reads a result.
  [[gnu::cold]] void find_norms() {
    norms_ = 0;
    if (!row_blocks_ || length_ >= size_) return;
    // The gradient of a norm is that of all its steps.
    for (int k = l_->first; k <= l_->last; ++k)
      if (is_member(k) && is_view(k) && p_.nodes[k].role.stops_gradient) return;
    const auto maker = [this](int v) {
      for (int k = l_->first; k <= l_->last; ++k)
        if (is_member(k) && !is_view(k) && p_.nodes[k].first_output == same(v)) return k;
      return -1;
    };
    for (int k = l_->first; k <= l_->last && norms_ < most_norms; ++k) {
      row_norm& n = norm_[norms_];
      if (!is_member(k) || is_view(k) || !find_row_norm(p_, k, maker, n)) continue;
      if (!is_whole(p_.nodes[k].first_output) || !is_whole(p_.nodes[n.center].inputs[0])) continue;
      n.scale = find_affine(cpu::tensor_op::mul, k, maker, n.weight);
      if (n.scale >= 0) n.shift = find_affine(cpu::tensor_op::add, n.scale, maker, n.bias);
      if (n.shift >= 0 && !are_alike(n)) n.shift = -1;
      // Fewer steps if others read what is between them.
      for (;; (n.shift >= 0 ? n.shift : n.scale) = -1) {
        if (is_alone(n, maker)) {
          ++norms_;
          break;
        }
        if (n.scale < 0) break;
      }
    }
  }
  template <class Maker>
  bool is_alone(const row_norm& n, const Maker& maker) const {
    const auto is_inner = [&](int v) {
      const int by = maker(v);
      return by != n.end() && n.has(by);
    };
    for (int j = l_->first; j < static_cast<int>(p_.n.nodes); ++j)
      for (std::size_t i = 0; i < p_.nodes[j].input_count; ++i)
        if (is_inner(p_.nodes[j].inputs[i]) && !n.has(j) && !(is_member(j) && is_view(j)))
          return false;
    for (std::size_t i = 0; i < p_.output_count; ++i)
      if (is_inner(p_.outputs[i])) return false;
    return true;
  }
  /// The step that multiplies the result of node k by weights, or adds biases to it, which are for
  /// the elements of a row or for channels; and which of its inputs they are. -1 if there is none.
  template <class Maker>
  int find_affine(cpu::tensor_op f, int k, const Maker& maker, int& which) const {
    for (int j = k + 1; j <= l_->last; ++j) {
      const program_node& node = p_.nodes[j];
      const cpu::loop_step& s = node.role.step;
      if (!is_member(j) || is_view(j) || s.kind != cpu::loop_step::kinds::map || s.op() != f ||
          s.numbers != 0 || !is_whole(node.first_output))
        continue;
      for (int i = 0; i < 2; ++i) {
        const int v = node.inputs[i];
        if (maker(node.inputs[1 - i]) != k || to_.values[same(v)].made ||
            plan_.layouts[v].is_strided)
          continue;
        which = i;
        const cpu::strided_map m = affine_map(j, i);
        if (repeats_rows(m)) return j;
        // Channels, a whole number of which is in each row.
        const std::size_t r = m.rank;
        if ((r == 2 || (r == 3 && m.strides[0] == 0)) && m.strides[r - 1] == 0 &&
            m.strides[r - 2] == 1 && length_ % m.extents[r - 1] == 0 &&
            m.extents[r - 2] % (length_ / m.extents[r - 1]) == 0)
          return j;
      }
    }
    return -1;
  }
  cpu::strided_map affine_map(int k, int i) const {
    return cpu::broadcast_map(p_.values[p_.nodes[k].inputs[i]],
                              p_.values[p_.nodes[k].first_output]);
  }
  /// Whether a norm takes these weights and biases together: different ones, of the same elements.
  bool are_alike(const row_norm& n) const {
    const cpu::strided_map a = affine_map(n.scale, n.weight), b = affine_map(n.shift, n.bias);
    const dim_t inner = cpu::inner_of(a);
    return same(p_.nodes[n.scale].inputs[n.weight]) != same(p_.nodes[n.shift].inputs[n.bias]) &&
           inner == cpu::inner_of(b) &&
           (inner == 1 || a.extents[a.rank - 2] == b.extents[b.rank - 2]);
  }
  /// The norm of which node k is a step, if any.
  const row_norm* norm_of(int k) const {
    for (int i = 0; i < norms_; ++i)
      if (norm_[i].has(k)) return &norm_[i];
    return nullptr;
  }

  // The weights and the biases of a norm, as its operands.
  static constexpr int weight_of_norm = 8, bias_of_norm = 9;
  static constexpr dim_t short_row = 4096;  ///< In bytes.

  bool is_whole(int v) const { return p_.values[v].numel() == size_; }
  bool is_row(int v) const {
    return length_ < size_ ? p_.values[v].numel() * length_ == size_
                           : p_.values[v].numel() == 1 && size_ > 1;
  }
  bool of_rows(int k) const { return !is_whole(p_.nodes[k].first_output); }

  /// Whether a map repeats each number for a row.
  bool repeats_for_rows(const cpu::strided_map& m) const {
    return row_blocks_ && length_ < size_ && m.rank == 2 && m.extents[1] == length_ &&
           m.strides[1] == 0 && m.strides[0] == 1;
  }
  bool repeats_rows(const cpu::strided_map& m) const {
    return row_blocks_ && m.rank == 2 && m.extents[1] == length_ && m.strides[0] == 0 &&
           m.strides[1] == 1;
  }

  // ---- backward ----

  /// What the gradient of operand `by` reads: a bit for each operand, 8 for the result. -1 if there
  /// is none.
  static int gradient_reads(cpu::tensor_op f, int by) {
    using op = cpu::tensor_op;
    switch (f) {
      case op::neg:
      case op::add:
      case op::sub:
        return 0;
      case op::exp:
      case op::sqrt:
      case op::rsqrt:
      case op::reciprocal:
        return 8;
      case op::log:
      case op::square:
      case op::abs:
      case op::erf:
        return 1;
      case op::mul:
        return by == 0 ? 2 : 1;
      case op::div:
        return by == 0 ? 2 : 10;
      case op::pow:
        return by == 0 ? 3 : 11;
      case op::minimum:
      case op::maximum:
        return 3;
      case op::where:
        return by == 0 ? -1 : 1;
      case op::clamp:
        return by == 0 ? 7 : -1;
      default:
        return -1;
    }
  }
  static bool reads_result(cpu::activation f) {
    return f == cpu::activation::relu || f == cpu::activation::tanh ||
           f == cpu::activation::sigmoid;
  }
  static int reads_of(const program_node& node, int by) {
    if (is_function(node))
      return reads_result(static_cast<cpu::activation>(node.role.step.f)) ? 8 : 1;
    if (node.role.step.kind == cpu::loop_step::kinds::fold) {
      const auto f = node.role.step.reduction();
      return f == cpu::reduction_op::sum || f == cpu::reduction_op::mean ? 0 : 1;
    }
    return gradient_reads(node.role.step.op(), by);
  }

  /// Calls f(operand, edge, value) for the inputs of node k that get a gradient.
  template <class F>
  void for_each_wanted(int k, F f) {
    const program_node& node = p_.nodes[k];
    const cpu::loop_step& s = node.role.step;
    if (const row_norm* const n = norm_of(k)) {
      if (k != n->end()) return;
      const auto want = [&](int by, int step, int i) {
        if (step < 0) return;
        const int e = p_.nodes[step].first_edge + i;
        if (plan_.edge_needed[e]) f(by, e, p_.nodes[step].inputs[i]);
      };
      want(0, n->reader, 0);
      want(weight_of_norm, n->scale, n->weight);
      want(bias_of_norm, n->shift, n->bias);
      return;
    }
    const bool is_map = s.kind == cpu::loop_step::kinds::map;
    int by = 0;
    for (int i = 0; i < static_cast<int>(node.input_count); ++i, ++by) {
      if (is_map)
        while ((s.numbers >> by & 1) != 0) ++by;
      const int e = node.first_edge + i;
      if (plan_.edge_needed[e]) f(by, e, node.inputs[i]);
    }
  }

  [[gnu::cold]] void find_contributions() {
    for (int k = l_->last; k >= l_->first; --k) {
      if (!is_member(k)) continue;
      const program_node& node = p_.nodes[k];
      if (is_view(k)) {
        // Of a view, the gradient from beyond the loop is one more.
        if (to_.values[node.first_output].given) ++value(node.first_output).contributions;
        continue;
      }
      if (!plan_.runs_backward[k]) continue;
      loop_value& out = to_.values[node.first_output];
      if (!out.given && out.contributions == 0) continue;
      for_each_wanted(k, [&](int by, int e, int v) {
        const int reads = by < weight_of_norm ? reads_of(node, by) : 0;
        loop_value& to = value(v);
        if (!to.made && to.carrier < 0) {
          to.carrier = e;
          to_.edges[e] = loop_edge::sum;
        }
        if (reads < 0) return;
        ++to.contributions;
        if (by >= weight_of_norm) {
          to.scattered = true;
        } else if (!to.made && !is_fold(k) && norm_of(k) == nullptr) {
          const cpu::strided_map m = cpu::broadcast_map(p_.values[v], p_.values[node.first_output]);
          if (!m.is_dense() && (of_rows(k) || !repeats_for_rows(m))) to.scattered = true;
        }
        need(k, reads);
      });
    }
    for (std::size_t v = 0; v < p_.n.values; ++v)
      if (const loop_value& of = to_.values[v];
          of.carrier >= 0 && of.contributions > 0 && !of.scattered)
        to_.edges[of.carrier] = loop_edge::gradient;
    for (int k = l_->last; k >= l_->first; --k)
      if (is_member(k) && !is_view(k) && !of_rows(k)) {
        loop_value& out = to_.values[p_.nodes[k].first_output];
        out.stored_for_backward = out.needed && plan_.fusion.calls[k].is_costly;
        if (out.needed && !out.stored_for_backward) need(k, 7);
      }
  }
  void need(int k, int reads) {
    const program_node& node = p_.nodes[k];
    const cpu::loop_step& s = node.role.step;
    if (const row_norm* const n = norm_of(k)) {
      value(p_.nodes[n->center].inputs[0]).needed = true;
      return;
    }
    if ((reads & 8) != 0) to_.values[node.first_output].needed = true;
    const bool is_map = s.kind == cpu::loop_step::kinds::map;
    int operand_at = 0;
    for (std::size_t i = 0; i < node.input_count; ++i, ++operand_at) {
      if (is_map)
        while ((s.numbers >> operand_at & 1) != 0) ++operand_at;
      if ((reads >> operand_at & 1) != 0) value(node.inputs[i]).needed = true;
    }
  }

  program_view p_;
  memory_tables plan_;
  dim_t element_size_;
  loop_tables to_;
  fused_loop* l_ = nullptr;
  int loop_ = 0;
  dim_t size_ = 0, length_ = 0;
  bool has_backward_ = false, row_blocks_ = false;
  static constexpr int most_norms = 4;
  row_norm norm_[most_norms];
  int norms_ = 0;
};

IKEBANA_CPU_END_SMALL
}  // namespace ikebana::detail
