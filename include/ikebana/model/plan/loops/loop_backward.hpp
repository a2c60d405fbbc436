#pragma once

#include <cstddef>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/broadcast.hpp"
#include "ikebana/cpu/detail/targets.hpp"
#include "ikebana/cpu/fused_loop.hpp"
#include "ikebana/model/plan/loops/loop_forward.hpp"

namespace ikebana::detail {
IKEBANA_CPU_BEGIN_SMALL

/// Writes the backward of a loop.
class loop_backward : protected loop_forward {
 protected:
  using loop_forward::loop_forward;

  [[gnu::cold]] void write_backward() {
    for (int k = l_->first; k <= l_->last; ++k) {
      if (!is_member(k) || is_view(k)) continue;
      loop_value& out = to_.values[p_.nodes[k].first_output];
      if (is_row(p_.nodes[k].first_output) && of_rows(k))
        out.now = {kinds::value, true, p_.nodes[k].first_output};
      else if (out.needed)
        compute(k, false);
    }
    for (int k = l_->last; k >= l_->first; --k)
      if (is_member(k) && !is_view(k) && plan_.runs_backward[k]) write_gradients(k);
  }

  /// The gradient of a value of the loop, with what comes from beyond it.
  operand gradient_of(int v) {
    loop_value& of = to_.values[v];
    if (of.given) {
      const operand from{kinds::gradient, !is_whole(v), v};
      of.given = false;
      if (!of.gradient.exists()) {
        of.gradient = from;
        of.owned = false;
      } else {
        add_to(of, from, false);
      }
    }
    return of.gradient;
  }
  void add_to(loop_value& to, const operand& x, bool owned) {
    if (!to.gradient.exists()) {
      to.gradient = x;
      to.owned = owned;
      return;
    }
    const operand sum = to.owned ? to.gradient : owned ? x : block(x.of_rows);
    emit(body, {.code = code::add, .of_rows = x.of_rows, .a = to.gradient, .b = x, .y = sum});
    to.gradient = sum;
    to.owned = true;
  }

  [[gnu::cold]] void write_gradients(int k) {
    const program_node& node = p_.nodes[k];
    const int out = node.first_output;
    // Views of it first: those from beyond the loop.
    for (int j = k + 1; j <= l_->last; ++j)
      if (is_member(j) && is_view(j) && same(p_.nodes[j].first_output) == out) {
        const int v = p_.nodes[j].first_output;
        if (!to_.values[v].given) continue;
        to_.values[v].given = false;
        add_to(to_.values[out], {kinds::gradient, !is_whole(v), v}, false);
      }
    const operand g = gradient_of(out);
    if (!g.exists()) return;
    if (const row_norm* const n = norm_of(k)) return write_norm_gradients(k, *n, g);
    const bool rows = of_rows(k);
    for_each_wanted(k, [&](int by, int e, int v) {
      const int reads = reads_of(node, by);
      if (reads < 0) return;
      if (is_fold(k)) return contribute(v, e, false, fold_gradient(k, g), true);
      instruction i{.of_rows = rows, .g = g};
      if (is_function(node)) {
        i.code = code::function_gradient;
        i.f = node.role.step.f;
        i.a = reads == 8 ? to_.values[out].now : read(k, 0);
      } else {
        const cpu::tensor_op f = node.role.step.op();
        if (f == cpu::tensor_op::add || (f == cpu::tensor_op::sub && by == 0))
          return contribute(v, e, rows, g, false);
        operand x[3];
        read_operands(k, x, static_cast<unsigned>(reads) & 7);
        i.code = code::map_gradient;
        i.f = node.role.step.f;
        i.by = static_cast<unsigned char>(by);
        i.a = x[0], i.b = x[1], i.c = x[2];
        if ((reads & 8) != 0) i.d = to_.values[out].now;
      }
      i.y = block(rows);
      contribute(v, e, rows, emit(body, i).y, true);
    });
  }

  [[gnu::cold]] void write_norm_gradients(int k, const row_norm& n, const operand& g) {
    instruction i = normalise(n, code::normalise_gradient, {});
    i.g = g;
    int x = -1, edge = -1;
    for_each_wanted(k, [&](int by, int e, int v) {
      if (by < weight_of_norm) {
        x = v, edge = e;
        return;
      }
      (by == weight_of_norm ? i.e : i.h) = {kinds::edge, false, value(v).carrier};
      --value(v).contributions;
      in_order_ = true;
    });
    if (x < 0 && !in_order_) return;
    if (divides(n)) i.c = invert(i.c, block(true));
    // Blocks are numbered as they are written.
    i.y = block(false);
    emit(body, i);
    if (x >= 0) contribute(x, edge, false, i.y, true);
  }

  operand fold_gradient(int k, const operand& g) {
    const program_node& node = p_.nodes[k];
    const cpu::loop_step& s = node.role.step;
    const auto n = static_cast<double>(length_);
    const operand y{kinds::value, true, node.first_output};
    const auto wide = [&](cpu::fold_op f, const operand& m, const operand& of_g, double factor) {
      instruction i{.code = code::fold_gradient,
                    .f = static_cast<unsigned char>(f),
                    .a = read(k, 0),
                    .number = factor};
      if (m.exists()) i.b = expand(m, 1);
      i.g = expand(of_g, 1);
      i.y = block(false);
      return emit(body, i).y;
    };
    const auto shared = [&] {
      return emit(body, {.code = code::share,
                         .f = s.f,
                         .of_rows = true,
                         .a = read(k, 0),
                         .b = y,
                         .g = g,
                         .y = block(true)})
          .y;
    };
    switch (s.reduction()) {
      case cpu::reduction_op::sum:
        return expand(g, 1);
      case cpu::reduction_op::mean:
        return expand(g, 1 / n);
      case cpu::reduction_op::var:
        return wide(cpu::fold_op::deviation, {kinds::saved, true, node.first_saved}, g,
                    2 / (n - s.number[0]));
      case cpu::reduction_op::logsumexp:
        return wide(cpu::fold_op::exp, y, g, 1);
      case cpu::reduction_op::norm:
        return wide(cpu::fold_op::square, {}, shared(), 1);
      default:
        return wide(cpu::fold_op::max, y, shared(), 1);
    }
  }

  /// Adds x, of the elements or rows of a step, to the gradient of its input v.
  void contribute(int v, int e, bool rows, operand x, bool owned) {
    loop_value& to = value(v);
    --to.contributions;
    if (!to.made && to.scattered) {
      const int at = e + static_cast<int>(p_.n.edges);
      cpu::strided_map& m = to_.maps[at];
      if (is_fold(node_of(e)))
        m = cpu::merged(cpu::dense_map(p_.values[v]));
      else
        m = cpu::broadcast_map(p_.values[v], p_.values[p_.nodes[node_of(e)].first_output]);
      emit(body, {.code = code::scatter,
                  .of_rows = rows,
                  .map = at,
                  .a = x,
                  .y = {kinds::edge, false, to.carrier}});
      in_order_ = true;
      return;
    }
    if (!rows && !is_whole(v)) {
      x = emit(body, {.code = code::sum_rows, .of_rows = true, .a = x, .y = block(true)}).y;
      owned = true;
    }
    add_to(to, x, owned);
    if (to.made || to.contributions > 0) return;
    // The last contribution is written where the gradient belongs.
    const operand memory{kinds::edge, !is_whole(v), to.carrier};
    if (instruction& last = to_.code[*used_ - 1]; to.owned && last.y == to.gradient)
      last.y = memory;
    else
      emit(body, {.code = code::copy, .of_rows = memory.of_rows, .a = to.gradient, .y = memory});
  }
  int node_of(int e) const {
    int k = l_->first;
    while (!is_member(k) || e < p_.nodes[k].first_edge ||
           e >= p_.nodes[k].first_edge + static_cast<int>(p_.nodes[k].input_count))
      ++k;
    return k;
  }
};

IKEBANA_CPU_END_SMALL
}  // namespace ikebana::detail
