#pragma once

#include <cstddef>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/fused_loop.hpp"
#include "ikebana/model/plan/memory_planner.hpp"
#include "ikebana/module/program.hpp"

namespace ikebana::detail {

/// A fused loop of a network. `forward` runs with the last of its nodes, `backward` with the last
/// of those that have one.
struct fused_loop {
  int first = 0, last = -1;  ///< Nodes.
  cpu::loop_program forward{}, backward{};
};

/// What an edge carries out of its loop: nothing, a gradient that the loop writes, or one that is
/// zero before.
enum class loop_edge : unsigned char { nothing, gradient, sum };

/// Scratch of the builder, by value.
struct loop_value {
  int same = -1;  ///< The value that it is, of another shape; or itself.
  bool stored_for_backward = false;
  bool made = false, stored = false, needed = false, scattered = false, given = false;
  bool owned = false;  ///< The gradient is in memory that may be written.
  int contributions = 0;
  int carrier = -1;  ///< The edge that carries the gradient out of the loop.
  cpu::loop_operand now{}, wide{}, gradient{};
};

/// Tables of the loops of a network, on whose size they depend.
struct loop_tables {
  fused_loop* loops = nullptr;  ///< By number.
  cpu::loop_instruction* code = nullptr;
  int capacity = 0;
  cpu::strided_map* maps = nullptr;  ///< By edge.
  loop_edge* edges = nullptr;        ///< By edge.
  loop_value* values = nullptr;
  int* indices = nullptr;  ///< Scratch of twice the capacity.
};

/// Writes the instructions of the loops that were planned. A loop that does not fit into the tables
/// or the scratch of a thread is taken back: its nodes then run one by one.
class loop_builder {
 public:
  loop_builder(const program_view& p, const memory_tables& plan, std::size_t element_size,
               const loop_tables& to)
      : p_{p}, plan_{plan}, element_size_{static_cast<dim_t>(element_size)}, to_{to} {}

  [[gnu::cold]] void run() {
    const auto nodes = static_cast<int>(p_.n.nodes);
    for (std::size_t e = 0; e < p_.n.edges; ++e) to_.edges[e] = loop_edge::nothing;
    for (int k = 0; k < nodes; ++k) to_.loops[k] = {};
    for (int k = 0; k < nodes; ++k)
      if (const int loop = plan_.fusion.calls[k].loop; loop > 0) {
        fused_loop& l = to_.loops[loop - 1];
        if (l.last < 0) l.first = k;
        l.last = k;
      }
    int used = 0;
    for (int k = 0; k < nodes; ++k)
      if (const fused_call& f = plan_.fusion.calls[k]; f.loop > 0 && f.runs_loop) {
        const int before = used;
        if (!build(f.loop, used)) {
          used = before;
          take_back(f.loop);
        }
      }
  }

 private:
  using code = cpu::loop_code;
  using operand = cpu::loop_operand;
  using kinds = cpu::loop_operand::kinds;
  using instruction = cpu::loop_instruction;
  // Sections of a program.
  enum section { once, body };

  bool is_member(int k) const { return plan_.fusion.calls[k].loop == loop_; }
  bool is_view(int k) const { return p_.nodes[k].is_view; }
  int same(int v) const { return to_.values[v].same; }
  loop_value& value(int v) { return to_.values[same(v)]; }

  [[gnu::cold]] bool build(int loop, int& used) {
    loop_ = loop;
    fused_loop& l = to_.loops[loop - 1];
    l_ = &l;
    fits_ = true;
    analyse();
    used_ = &used;
    if (has_backward_) find_contributions();
    begin_program();
    for (int k = l.first; k <= l.last; ++k)
      if (is_member(k) && !is_view(k)) compute(k, true);
    end_program(l.forward, false);
    if (!fits_) return false;
    if (!has_backward_) return true;
    begin_program();
    backward_ = true;
    write_backward();
    end_program(l.backward, true);
    return fits_;
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
  }

  static constexpr dim_t short_row = 4096;  ///< In bytes.

  bool is_whole(int v) const { return p_.values[v].numel() == size_; }
  bool is_row(int v) const {
    return length_ < size_ ? p_.values[v].numel() * length_ == size_
                           : p_.values[v].numel() == 1 && size_ > 1;
  }
  bool of_rows(int k) const { return !is_whole(p_.nodes[k].first_output); }

  // ---- writing instructions ----

  void begin_program() {
    begin_ = *used_;
    once_ = 0;
    blocks_ = 0;
    in_order_ = backward_ = false;
    folds_ = 0;
    for (std::size_t v = 0; v < p_.n.values; ++v)
      to_.values[v].now = to_.values[v].wide = to_.values[v].gradient = {};
  }

  /// Blocks are numbered as they are written, and share memory afterwards.
  operand block(bool rows) { return {kinds::block, rows, blocks_++}; }

  instruction& emit(section s, const instruction& i) {
    if (*used_ == to_.capacity) {
      fits_ = false;
      --*used_;
    }
    int at = (*used_)++;
    if (s == once) {
      for (; at > begin_ + once_; --at) to_.code[at] = to_.code[at - 1];
      ++once_;
    }
    return to_.code[at] = i;
  }
  /// The last instruction's result, unless the same is there already.
  operand once_only(instruction i) {
    for (int k = begin_; k < begin_ + once_; ++k) {
      const instruction& o = to_.code[k];
      if (o.code == i.code && o.of_rows == i.of_rows && o.a == i.a && o.number == i.number &&
          (o.map == i.map || (o.map >= 0 && i.map >= 0 && is_equal(o.map, i.map))))
        return o.y;
    }
    i.y = block(i.of_rows);
    return emit(once, i).y;
  }
  bool is_equal(int a, int b) const {
    const cpu::strided_map &x = to_.maps[a], &y = to_.maps[b];
    if (x.rank != y.rank) return false;
    for (std::size_t d = 0; d < x.rank; ++d)
      if (x.extents[d] != y.extents[d] || x.strides[d] != y.strides[d]) return false;
    return true;
  }

  /// Whether a map repeats each number for a row.
  bool repeats_for_rows(const cpu::strided_map& m) const {
    return row_blocks_ && length_ < size_ && m.rank == 2 && m.extents[1] == length_ &&
           m.strides[1] == 0 && m.strides[0] == 1;
  }
  bool repeats_rows(const cpu::strided_map& m) const {
    return row_blocks_ && m.rank == 2 && m.extents[1] == length_ && m.strides[0] == 0 &&
           m.strides[1] == 1;
  }

  /// Operand i, a value, of node k.
  operand read(int k, std::size_t i) {
    const program_node& node = p_.nodes[k];
    const int v = node.inputs[i];
    const bool rows = of_rows(k) && !is_fold(k);
    loop_value& of = value(v);
    if (of.made) {
      if (is_row(v) && !rows) return widen(of, of.now);
      return of.now;
    }
    const int e = node.first_edge + static_cast<int>(i);
    const operand memory{kinds::value, rows, v};
    if (is_fold(k)) return memory;
    cpu::strided_map& m = to_.maps[e];
    m = cpu::broadcast_map(p_.values[v], p_.values[node.first_output]);
    if (m.is_dense()) return memory;
    if (m.is_repeated())
      return once_only({.code = code::fill, .of_rows = rows, .a = memory, .number = 0});
    if (!rows && repeats_for_rows(m)) return widen(of, {kinds::value, true, v});
    if (!rows && repeats_rows(m)) return once_only({.code = code::load, .map = e, .a = memory});
    instruction load{.code = code::load, .of_rows = rows, .map = e, .a = memory};
    load.y = block(rows);
    return emit(body, load).y;
  }
  operand widen(loop_value& of, const operand& rows) {
    if (!of.wide.exists()) of.wide = expand(rows, 1);
    return of.wide;
  }
  operand expand(const operand& rows, double factor) {
    return emit(body, {.code = code::expand, .a = rows, .y = block(false), .number = factor}).y;
  }
  bool is_fold(int k) const { return p_.nodes[k].role.step.kind == cpu::loop_step::kinds::fold; }

  /// The operands of a map.
  void read_operands(int k, operand (&x)[3], unsigned wanted = 7) {
    const cpu::loop_step& s = p_.nodes[k].role.step;
    std::size_t input = 0;
    for (unsigned i = 0; i < s.operands; ++i) {
      const bool is_number = (s.numbers >> i & 1) != 0;
      if ((wanted >> i & 1) != 0)
        x[i] = is_number
                   ? once_only({.code = code::fill, .of_rows = of_rows(k), .number = s.number[i]})
                   : read(k, input);
      if (!is_number) ++input;
    }
  }

  /// The forward of node k; only what the loop itself reads is computed again for backward.
  [[gnu::cold]] void compute(int k, bool forward) {
    const program_node& node = p_.nodes[k];
    const cpu::loop_step& s = node.role.step;
    const bool rows = of_rows(k);
    loop_value& out = to_.values[node.first_output];
    const operand memory{kinds::value, rows, node.first_output};
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
      if (is_function(node)) {
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
  static bool is_function(const program_node& node) {
    return node.role.step.kind == cpu::loop_step::kinds::function;
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
    const bool is_map = s.kind == cpu::loop_step::kinds::map;
    int by = 0;
    for (int i = 0; i < static_cast<int>(node.input_count); ++i, ++by) {
      if (is_map)
        while ((s.numbers >> by & 1) != 0) ++by;
      const int e = node.first_edge + i;
      if (plan_.edge_needed[e]) f(by, e, node.inputs[i]);
    }
  }

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
        const int reads = reads_of(node, by);
        loop_value& to = value(v);
        if (!to.made && to.carrier < 0) {
          to.carrier = e;
          to_.edges[e] = loop_edge::sum;
        }
        if (reads < 0) return;
        ++to.contributions;
        if (!to.made && !is_fold(k)) {
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
    if ((reads & 8) != 0) to_.values[node.first_output].needed = true;
    const bool is_map = s.kind == cpu::loop_step::kinds::map;
    int operand_at = 0;
    for (std::size_t i = 0; i < node.input_count; ++i, ++operand_at) {
      if (is_map)
        while ((s.numbers >> operand_at & 1) != 0) ++operand_at;
      if ((reads >> operand_at & 1) != 0) value(node.inputs[i]).needed = true;
    }
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
      cpu::strided_map& m = to_.maps[e];
      if (is_fold(node_of(e)))
        m = cpu::merged(cpu::dense_map(p_.values[v]));
      else
        m = cpu::broadcast_map(p_.values[v], p_.values[p_.nodes[node_of(e)].first_output]);
      emit(body, {.code = code::scatter,
                  .of_rows = rows,
                  .map = e,
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

  // ---- blocks ----

  [[gnu::cold]] void end_program(cpu::loop_program& to, bool backward) {
    if (!fits_) return;
    instruction* const first = to_.code + begin_;
    const int count = *used_ - begin_;
    to.code = first;
    to.once = once_;
    to.before = to.after = 0;
    to.within = count - once_;
    to.length = length_;
    to.rows = length_ > 0 ? size_ / length_ : 0;
    to.maps = to_.maps;
    bool has_folds = false;
    for (int i = once_; i < count; ++i) has_folds = has_folds || first[i].code == code::fold;
    if (!row_blocks_) {
      // In backward, no gradient of a row depends on one of its elements; in forward, the reverse.
      int moved = once_;
      for (int i = once_; i < count; ++i)
        if (first[i].of_rows == backward) {
          const instruction here = first[i];
          for (int j = i; j > moved; --j) first[j] = first[j - 1];
          first[moved++] = here;
        }
      if (backward) {
        to.before = moved - once_;
        to.within = count - moved;
      } else {
        to.within = moved - once_;
        to.after = count - moved;
      }
    }
    const int row_blocks = share_blocks(first, count, true),
              blocks = share_blocks(first, count, false);
    to.blocks = blocks;
    to.in_order =
        in_order_ || (to.rows <= 1 && (row_blocks_ || has_folds || to.before > 0 || to.after > 0));
    constexpr dim_t preferred = 24 * 1024;  // Within a first-level cache.
    const dim_t each = element_size_ * (blocks > 0 ? blocks : 1);
    if (row_blocks_) {
      dim_t rows = preferred / (each * length_ + element_size_ * row_blocks);
      rows = rows < 1 ? 1 : rows > 256 ? 256 : rows;
      if (rows > to.rows) rows = to.rows;
      to.block_rows = rows;
      to.block = rows * length_;
    } else {
      dim_t n = preferred / each / 64 * 64;
      n = n < 128 ? 128 : n > 4096 ? 4096 : n;
      if (n > size_) n = size_;
      to.block_rows = 0;
      to.block = n;
    }
    to.stride = (to.block + 15) / 16 * 16;
    const dim_t row_size = to.block_rows > 0 ? to.block_rows : 1;
    if (each * to.stride + element_size_ * row_blocks * row_size > cpu::loop_scratch_bytes)
      fits_ = false;
  }

  /// Renumbers blocks so that those not needed together are one. Returns their number.
  [[gnu::cold]] int share_blocks(instruction* first, int count, bool rows) {
    int* const last_use = to_.indices;
    int* const place = to_.indices + to_.capacity;
    if (blocks_ > to_.capacity) {
      fits_ = false;
      return 0;
    }
    const auto is_one = [rows](const operand& o) {
      return o.kind == kinds::block && o.of_rows == rows;
    };
    for (int b = 0; b < blocks_; ++b) last_use[b] = place[b] = -1;
    for (int i = 0; i < count; ++i)
      for (const operand* o :
           {&first[i].a, &first[i].b, &first[i].c, &first[i].d, &first[i].g, &first[i].y})
        if (is_one(*o)) last_use[o->id] = i;
    // What is written once stays.
    for (int i = 0; i < once_; ++i)
      if (is_one(first[i].y)) last_use[first[i].y.id] = count;
    constexpr int most_blocks = 64;
    bool taken[most_blocks]{};
    int most = 0;
    // The first block is where gradients go that nobody wants.
    if (backward_ && !rows) taken[0] = true, most = 1;
    for (int i = 0; i < count; ++i) {
      instruction& at = first[i];
      operand* const y = &at.y;
      const bool may_overwrite =
          at.code == code::map || at.code == code::function || at.code == code::add;
      for (operand* o : {&at.a, &at.b, &at.c, &at.d, &at.g})
        if (is_one(*o)) {
          const int b = o->id;
          o->id = place[b];
          if (last_use[b] == i && may_overwrite) taken[place[b]] = false;
        }
      const int made = is_one(*y) ? y->id : -1;
      if (made >= 0 && place[made] < 0) {
        int free = 0;
        while (free < most_blocks && taken[free]) ++free;
        if (free == most_blocks) {
          fits_ = false;
          return 0;
        }
        taken[free] = true;
        place[made] = free;
        if (free + 1 > most) most = free + 1;
      }
      if (made >= 0) y->id = place[made];
      for (int b = 0; b < blocks_ && !may_overwrite; ++b)
        if (last_use[b] == i && place[b] >= 0) taken[place[b]] = false;
      if (made >= 0 && last_use[made] == i) taken[place[made]] = false;
    }
    return most;
  }

  [[gnu::cold]] void take_back(int loop) {
    for (std::size_t k = 0; k < p_.n.nodes; ++k)
      for (fused_call* calls : {plan_.fusion.calls, plan_.fusion.evaluation_calls})
        if (calls[k].loop == loop) calls[k] = {};
    for (int k = l_->first; k <= l_->last; ++k)
      for (std::size_t i = 0; i < p_.nodes[k].input_count; ++i)
        to_.edges[p_.nodes[k].first_edge + static_cast<int>(i)] = loop_edge::nothing;
  }

  program_view p_;
  memory_tables plan_;
  dim_t element_size_;
  loop_tables to_;
  fused_loop* l_ = nullptr;
  int loop_ = 0;
  dim_t size_ = 0, length_ = 0;
  bool has_backward_ = false, row_blocks_ = false, fits_ = true, in_order_ = false,
       backward_ = false;
  int* used_ = nullptr;
  int begin_ = 0, once_ = 0, blocks_ = 0, folds_ = 0;
};

/// Writes the loops that were planned for a network of T. Compiled with the kernels.
template <class T>
void build_loops(const program_view& p, const memory_tables& plan, const loop_tables& to) {
  loop_builder(p, plan, sizeof(T), to).run();
}
IKEBANA_CPU_KERNEL(build_loops)

}  // namespace ikebana::detail
