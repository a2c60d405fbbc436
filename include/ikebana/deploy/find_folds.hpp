#pragma once

#include <cstddef>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/broadcast.hpp"
#include "ikebana/model/plan/value_uses.hpp"
#include "ikebana/module/program.hpp"

namespace ikebana::detail {

/// What a leaf means for the weights of others.
struct fold_ability {
  /// In evaluation y = scale x + shift, by numbers of dimension 1, of the last one, or of a formula
  /// with a number or a parameter.
  enum class map : unsigned char { none, channels, last, formula };

  int calls = 0;
  std::size_t weight_rank = 0;  ///< Of what takes a bias; else 0.
  dim_t transposed_groups = 0;  ///< Of weights (in, out of a group, ..); of others 0.
  bool knows_channels = false;  ///< It tells which dimensions its channels are.
  bool adds_zeros = false;      ///< To its input.
  bool is_parameter = false;    ///< It gives its parameter.
  bool computes_weights = false;
  map maps = map::none;
  cpu::tensor_op f{};          ///< Of a formula.
  unsigned char operands = 1;  ///< Of a formula.
  unsigned char numbers = 0;   ///< A bit for each operand that is a number.
};

/// Where a leaf is folded.
struct fold_target {
  int leaf = -1;  ///< The leaf with weights; -1 for none.
  bool is_before = false;
  bool reads_caller = false;  ///< Its input is the caller's.
  int x = 0;                  ///< The input that passes, if one is a parameter.
  int parameter = -1;         ///< The leaf of the other.
  dim_t transposed_groups = 0;
};

/// Finds the leaves of a program that are folded into weights: those that map each channel of what
/// weights give, if nothing else reads it, or of what weights take, if nothing else reads their
/// result.
class fold_finder {
 public:
  constexpr fold_finder(const program_view& program, const fold_ability* abilities,
                        const value_use* value_uses, fold_target* targets, bool* biases)
      : p{program}, known{abilities}, uses{value_uses}, folds{targets}, needs_bias{biases} {}

  [[gnu::cold]] constexpr void run() {
    for (int k = 0; k < static_cast<int>(p.n.nodes); ++k) fold_after(k);
    for (int k = static_cast<int>(p.n.nodes); k-- > 0;) fold_before(k);
  }

 private:
  /// A node as a map of channels.
  struct map_of_node {
    bool exists = false;
    bool is_uniform = false;
    std::size_t dim = 0;
    bool shifts = true;
    int x = 0, parameter = -1;
  };
  struct channel_dim {
    bool exists = false;
    std::size_t at = 0;
  };

  constexpr const program_node& node_of(int k) const { return p.nodes[k]; }

  constexpr map_of_node map_at(int k) const {
    const program_node& node = node_of(k);
    const fold_ability& is = known[node.leaf];
    map_of_node m;
    if (is.maps == fold_ability::map::none || is.calls != 1) return m;
    const shape& in = p.values[node.inputs[0]];
    if (is.maps == fold_ability::map::channels) {
      m.exists = in.rank() >= 2;
      m.dim = 1;
    } else if (is.maps == fold_ability::map::last) {
      m.exists = in.rank() >= 1;
      m.dim = in.rank() - 1;
    } else if (node.input_count == 1) {
      m.exists = is_affine(is, (is.numbers & 1) == 0);
      m.is_uniform = true;
    } else if (node.input_count == 2) {
      m.x = is_lone_parameter(node.inputs[0], k) ? 1 : 0;
      m = with_parameter(k, m);
    }
    if (is.maps == fold_ability::map::formula)
      m.shifts = is.f == cpu::tensor_op::add || is.f == cpu::tensor_op::sub;
    return m;
  }

  static constexpr bool is_affine(const fold_ability& is, bool x_is_first) {
    switch (is.f) {
      case cpu::tensor_op::neg:
        return is.operands == 1;
      case cpu::tensor_op::add:
      case cpu::tensor_op::sub:
      case cpu::tensor_op::mul:
        return is.operands == 2;
      case cpu::tensor_op::div:
        return is.operands == 2 && x_is_first;
      default:
        return false;
    }
  }

  constexpr bool is_lone_parameter(int v, int reader) const {
    if (uses[v].producer < 0 || uses[v].consumers != 1 || uses[v].is_output) return false;
    const program_node& made = node_of(uses[v].producer);
    return known[made.leaf].is_parameter && known[made.leaf].calls == 1 &&
           made.arm == node_of(reader).arm;
  }

  /// Of a formula of a value and a parameter that has one extent beside those of 1.
  constexpr map_of_node with_parameter(int k, map_of_node m) const {
    const program_node& node = node_of(k);
    const int other = node.inputs[1 - m.x];
    const shape &in = p.values[node.inputs[m.x]], &e = p.values[other];
    if (!is_lone_parameter(other, k) || !is_affine(known[node.leaf], m.x == 0) ||
        !(p.values[node.first_output] == in) || e.rank() > in.rank())
      return m;
    m.is_uniform = m.exists = true;
    for (std::size_t d = 0; d < e.rank(); ++d) {
      if (e[d] == 1) continue;
      const std::size_t at = in.rank() - e.rank() + d;
      if (!m.is_uniform || in[at] != e[d]) m.exists = false;
      m.is_uniform = false;
      m.dim = at;
    }
    m.parameter = node_of(uses[other].producer).leaf;
    return m;
  }

  constexpr channel_dim channels_of(int leaf, const shape& s) const {
    const fold_ability& is = known[leaf];
    if (!is.knows_channels) return {is.weight_rank == s.rank() && s.rank() > 1, 1};
    const std::size_t behind = is.weight_rank - 2;
    if (is.weight_rank < 2 || s.rank() < behind + 1) return {};
    return {behind == 0 || s.rank() <= behind + 2, s.rank() - behind - 1};
  }

  constexpr bool has_one_reader(int v) const {
    return uses[v].consumers == 1 && !uses[v].is_output;
  }
  constexpr bool has_weights(int leaf) const {
    return known[leaf].weight_rank > 0 && known[leaf].calls == 1;
  }
  static constexpr bool fits(const map_of_node& m, const channel_dim& d) {
    return m.is_uniform || (d.exists && d.at == m.dim);
  }
  constexpr void fold(int k, const map_of_node& m, int leaf, bool is_before) {
    const program_node& node = node_of(k);
    folds[node.leaf] = {leaf, is_before,   uses[node.inputs[m.x]].producer < 0,
                        m.x,  m.parameter, known[leaf].transposed_groups};
    if (m.parameter >= 0) folds[m.parameter] = folds[node.leaf];
    if (m.shifts) needs_bias[leaf] = true;
  }

  [[gnu::cold]] constexpr void fold_after(int k) {
    const map_of_node m = map_at(k);
    if (!m.exists) return;
    const int v = node_of(k).inputs[m.x];
    if (uses[v].producer < 0 || !has_one_reader(v)) return;
    const program_node& made = node_of(uses[v].producer);
    int by = made.leaf;
    if (folds[by].leaf >= 0 && known[by].maps != fold_ability::map::none) by = folds[by].leaf;
    if (has_weights(by) && made.arm == node_of(k).arm && made.output_count == 1 &&
        fits(m, channels_of(by, p.values[v])))
      fold(k, m, by, false);
  }

  [[gnu::cold]] constexpr void fold_before(int k) {
    const map_of_node m = map_at(k);
    const program_node& node = node_of(k);
    if (!m.exists || folds[node.leaf].leaf >= 0 || !has_one_reader(node.first_output)) return;
    const program_node& reader = node_of(uses[node.first_output].last_consumer);
    int by = reader.leaf;
    if (folds[by].leaf >= 0 && folds[by].is_before && known[by].maps != fold_ability::map::none)
      by = folds[by].leaf;
    else if (reader.input_count != 1)
      return;
    if (has_weights(by) && known[by].knows_channels && known[by].weight_rank >= 2 &&
        reader.arm == node.arm && !(m.shifts && known[by].adds_zeros) &&
        fits(m, channels_of(by, p.values[node.first_output])))
      fold(k, m, by, true);
  }

  program_view p;
  const fold_ability* known;  ///< By leaf.
  const value_use* uses;      ///< By value.
  fold_target* folds;         ///< By leaf.
  bool* needs_bias;           ///< By leaf.
};

}  // namespace ikebana::detail
