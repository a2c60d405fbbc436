#pragma once

#include <cstddef>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/targets.hpp"
#include "ikebana/model/plan/fusion.hpp"
#include "ikebana/model/plan/value_uses.hpp"
#include "ikebana/module/program.hpp"
#include "ikebana/module/value_layout.hpp"

namespace ikebana::detail {
IKEBANA_CPU_BEGIN_SMALL

/// Finds the values that need no copy: parts and permutations of others whose elements are in
/// order, or whose readers take strides. Runs when the loops are known. O(nodes * views that are
/// copied after all).
class view_planner {
 public:
  /// `allowed`: leaves run fused; else all values are in memory of their own, except those that
  /// only have another shape.
  constexpr view_planner(const program_view& program, const value_use* value_uses,
                         const fused_call* fused_calls, value_layout* value_layouts, bool allowed)
      : p{program},
        uses{value_uses},
        calls{fused_calls},
        layouts{value_layouts},
        is_allowed{allowed} {}

  [[gnu::cold]] constexpr void run() {
    bool any = false;
    for (std::size_t v = 0; v < p.n.values; ++v) layouts[v] = {false, false, 0, {}, false, 0, 0};
    for (std::size_t k = 0; k < p.n.nodes; ++k) {
      const program_node& node = p.nodes[k];
      value_layout& out = layouts[node.first_output];
      out.is_view = node.is_view || (is_allowed && can_be_view(node));
      any = any || (out.is_view && !node.is_view);
    }
    if (!any) return;
    for (std::size_t i = 0; i < p.output_count; ++i) leave_input(p.outputs[i]);
    do find_strides();
    while (copy_one());
  }

 private:
  constexpr bool can_be_view(const program_node& node) const {
    return node.view.exists && p.kinds[node.first_output] == element_kind::real &&
           p.values[node.first_output].numel() > 0;
  }

  /// Copies a part of an input that would be an output, because that is memory of the model.
  constexpr void leave_input(int v) {
    int part = -1;
    for (; uses[v].producer >= 0 && layouts[v].is_view; v = p.nodes[uses[v].producer].inputs[0])
      if (!p.nodes[uses[v].producer].is_view) part = v;
    if (uses[v].producer < 0 && part >= 0) layouts[part].is_view = false;
  }

  static constexpr void set_dense(value_layout& layout, const shape& s) {
    layout.is_strided = false;
    dim_t step = 1;
    for (std::size_t d = s.rank(); d-- > 0; step *= s[d]) layout.strides[d] = step;
  }

  [[gnu::cold]] constexpr void find_strides() {
    for (std::size_t v = 0; v < p.n.values; ++v) set_dense(layouts[v], p.values[v]);
    for (std::size_t k = 0; k < p.n.nodes; ++k) {
      const program_node& node = p.nodes[k];
      value_layout& out = layouts[node.first_output];
      const value_layout& in = layouts[node.inputs[0]];
      if (!out.is_view) continue;
      if (node.is_view) {
        if (in.is_strided) reshape(p.values[node.inputs[0]], in, p.values[node.first_output], out);
        continue;
      }
      const shape& s = p.values[node.first_output];
      out.offset = node.view.first * in.strides[node.view.dim];
      for (std::size_t d = 0; d < s.rank(); ++d) {
        const int from = node.view.source[d];
        out.strides[d] = from < 0 ? 0 : in.strides[from];
        if (from == static_cast<int>(node.view.dim)) out.strides[d] *= node.view.step;
      }
      out.is_strided = !is_dense(out, s);
    }
  }
  static constexpr bool is_dense(const value_layout& layout, const shape& s) {
    dim_t step = 1;
    for (std::size_t d = s.rank(); d-- > 0; step *= s[d])
      if (s[d] != 1 && layout.strides[d] != step) return false;
    return true;
  }

  /// Strides of the same elements under another shape, as PyTorch's view finds them. If there are
  /// none, `out` is not marked as strided although `in` is.
  static constexpr void reshape(const shape& from, const value_layout& in, const shape& to,
                                value_layout& out) {
    std::size_t o = to.rank();
    dim_t n = 1, made = 1, step = in.strides[from.rank() - 1];
    for (std::size_t i = from.rank(); i-- > 0;) {
      n *= from[i];
      if (i > 0 && (from[i - 1] == 1 || in.strides[i - 1] == n * step)) continue;
      // The dimensions from i on are contiguous with each other, not with the one before.
      for (; o > 0 && (made < n || to[o - 1] == 1); made *= to[--o])
        out.strides[o - 1] = made * step;
      if (made != n) return;
      if (i > 0) step = in.strides[i - 1];
      n = made = 1;
    }
    out.is_strided = o == 0;
  }

  /// Finds a value that its readers cannot take as it is, and copies it. Returns whether it did.
  [[gnu::cold]] constexpr bool copy_one() {
    bool copies = false;
    for (std::size_t i = 0; i < p.output_count; ++i)
      if (layouts[p.outputs[i]].is_strided) copies = copy(p.outputs[i]) || copies;
    for (std::size_t k = p.n.nodes; k-- > 0 && !copies;) {
      const program_node& node = p.nodes[k];
      for (std::size_t i = 0; i < node.input_count && !copies; ++i)
        if (const int v = node.inputs[i]; layouts[v].is_strided && !reads(static_cast<int>(k), v))
          copies = copy(v);
    }
    return copies;
  }
  /// Whether node k can read the strided value v.
  constexpr bool reads(int k, int v) const {
    const program_node& node = p.nodes[k];
    if (node.is_view) return layouts[node.first_output].is_strided;
    if (node.choice >= 0) return false;
    const bool is_step = calls[k].loop > 0 && node.role.step.kind != cpu::loop_step::kinds::fold;
    const strided_reader r = is_step ? strided_reader::rows : node.role.reads_strides;
    if (r == strided_reader::any) return true;
    if (r == strided_reader::none) return false;
    const shape& s = p.values[v];
    std::size_t last = s.rank();
    while (last > 0 && s[last - 1] == 1) --last;
    if (last == 0) return true;
    const dim_t* const by = layouts[v].strides;
    if (r == strided_reader::rows) return by[last - 1] == 1 || by[last - 1] == 0;
    const std::size_t n = s.rank();
    if (n < 2) return by[0] == 1;
    return (by[n - 1] == 1 && by[n - 2] != 0) || (by[n - 2] == 1 && by[n - 1] != 0);
  }

  /// Makes the nearest view before v that can be copied a copy.
  constexpr bool copy(int v) {
    while (p.nodes[uses[v].producer].is_view) v = p.nodes[uses[v].producer].inputs[0];
    layouts[v].is_view = false;
    layouts[v].offset = 0;
    return true;
  }

  program_view p;
  const value_use* uses;
  const fused_call* calls;
  value_layout* layouts;
  bool is_allowed;
};

IKEBANA_CPU_END_SMALL
}  // namespace ikebana::detail
