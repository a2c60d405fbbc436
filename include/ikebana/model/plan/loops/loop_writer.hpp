#pragma once

#include <cstddef>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/broadcast.hpp"
#include "ikebana/cpu/detail/targets.hpp"
#include "ikebana/cpu/fused_loop.hpp"
#include "ikebana/model/plan/loops/loop_analysis.hpp"

namespace ikebana::detail {
IKEBANA_CPU_BEGIN_SMALL

/// Writes instructions of a loop, and what they read, and gives them blocks of scratch.
class loop_writer : protected loop_analysis {
 protected:
  // Sections of a program.
  enum section { once, body };

  using loop_analysis::loop_analysis;

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
    const value_layout& at = plan_.layouts[v];
    // What is strided is loaded into a block once.
    const bool is_shared = at.is_strided && is_whole(v);
    if (is_shared && of.now.exists()) return of.now;
    const operand memory{kinds::value, rows, v};
    if (is_fold(k)) return memory;
    cpu::strided_map& m = to_.maps[e];
    m = cpu::broadcast_map(p_.values[v], p_.values[node.first_output],
                           at.is_strided ? at.strides : nullptr);
    if (m.is_dense()) return memory;
    if (m.is_repeated())
      return once_only({.code = code::fill, .of_rows = rows, .a = memory, .number = 0});
    if (!rows && repeats_for_rows(m)) return widen(of, {kinds::value, true, v});
    if (!rows && repeats_rows(m)) return once_only({.code = code::load, .map = e, .a = memory});
    instruction load{.code = code::load, .of_rows = rows, .map = e, .a = memory};
    load.y = block(rows);
    if (is_shared) of.now = load.y;
    return emit(body, load).y;
  }
  operand widen(loop_value& of, const operand& rows) {
    if (!of.wide.exists()) of.wide = expand(rows, 1);
    return of.wide;
  }
  operand expand(const operand& rows, double factor) {
    return emit(body, {.code = code::expand, .a = rows, .y = block(false), .number = factor}).y;
  }
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

  bool fits_ = true, in_order_ = false, backward_ = false;
  int* used_ = nullptr;
  int begin_ = 0, once_ = 0, blocks_ = 0, folds_ = 0;
};

IKEBANA_CPU_END_SMALL
}  // namespace ikebana::detail
