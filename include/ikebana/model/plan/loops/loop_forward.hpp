#pragma once

#include "ikebana/cpu/detail/targets.hpp"
#include "ikebana/cpu/fused_loop.hpp"
#include "ikebana/model/plan/loops/loop_writer.hpp"

namespace ikebana::detail {
IKEBANA_CPU_BEGIN_SMALL

/// Writes the forward of a loop.
class loop_forward : protected loop_writer {
 protected:
  using loop_writer::loop_writer;

  /// The forward of node k; only what the loop itself reads is computed again for backward.
  [[gnu::cold]] void compute(int k, bool forward) {
    const program_node& node = p_.nodes[k];
    const cpu::loop_step& s = node.role.step;
    const bool rows = of_rows(k);
    loop_value& out = to_.values[node.first_output];
    const operand memory{kinds::value, rows, node.first_output};
    const row_norm* const norm = norm_of(k);
    if (norm != nullptr && k != norm->end()) return;
    if (is_fold(k)) {
      const operand saved{kinds::saved, true, node.first_saved};
      emit(body, {.code = code::fold,
                  .f = s.f,
                  .by = static_cast<unsigned char>(folds_++),
                  .a = read(k, 0),
                  .b = saved,
                  .y = memory,
                  .number = s.number[0]});
      if (folds_ > cpu::most_loop_folds && !row_blocks_) fits_ = false;
    } else {
      if (!forward && out.stored_for_backward) {
        out.now = memory;
        return;
      }
      const operand y =
          forward && (rows || out.stored || out.stored_for_backward) ? memory : block(rows);
      if (norm != nullptr) {
        instruction i = normalise(*norm, code::normalise, y);
        if (norm->shift >= 0) i.e = affine(norm->shift, norm->bias);
        emit(body, i);
        if (divides(*norm)) invert(root_of(*norm), root_of(*norm));
      } else if (is_function(node)) {
        emit(body, {.code = code::function,
                    .f = node.role.step.f,
                    .of_rows = rows,
                    .a = read(k, 0),
                    .y = y});
      } else {
        operand x[3];
        read_operands(k, x);
        emit(body, {.code = code::map,
                    .f = s.f,
                    .of_rows = rows,
                    .a = x[0],
                    .b = x[1],
                    .c = x[2],
                    .y = y});
      }
      out.now = y;
      return;
    }
    out.now = memory;
  }

  instruction normalise(const row_norm& n, code c, const operand& y) {
    instruction i{.code = c,
                  .a = read(n.center, 0),
                  .b = {kinds::value, true, p_.nodes[n.mean].first_output},
                  .c = root_of(n),
                  .y = y,
                  .number = n.eps};
    if (n.scale < 0) return i;
    i.d = affine(n.scale, n.weight);
    i.map = p_.nodes[n.scale].first_edge + n.weight;
    to_.maps[i.map] = affine_map(n.scale, n.weight);
    return i;
  }
  operand affine(int k, int i) const { return {kinds::value, false, p_.nodes[k].inputs[i]}; }

  /// Of a quotient the root itself is left in memory, as by its steps one by one: a backward may
  /// follow either. The kernels take the inverse.
  bool divides(const row_norm& n) const {
    return p_.nodes[n.last].role.step.op() == cpu::tensor_op::div;
  }
  operand root_of(const row_norm& n) const {
    return {kinds::value, true, p_.nodes[n.root].first_output};
  }
  operand invert(const operand& x, const operand& y) {
    return emit(body, {.code = code::map,
                       .f = static_cast<unsigned char>(cpu::tensor_op::reciprocal),
                       .of_rows = true,
                       .a = x,
                       .y = y})
        .y;
  }
};

IKEBANA_CPU_END_SMALL
}  // namespace ikebana::detail
