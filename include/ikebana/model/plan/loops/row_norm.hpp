#pragma once

#include "ikebana/cpu/loop_step.hpp"
#include "ikebana/cpu/tensor_ops.hpp"
#include "ikebana/module/program.hpp"

namespace ikebana::detail {

/// Steps of a loop that normalise rows x by their own mean and variance, by their nodes: the
/// product or quotient `last` of `center`, x - mean, and of `root`, that of the variance and eps.
/// Its product with weights, `scale`, and the sum of that and of biases, `shift`, may follow.
struct row_norm {
  int mean = -1, center = -1, squares = -1, variance = -1, shifted = -1, root = -1, last = -1;
  int scale = -1, shift = -1;
  int weight = 0, bias = 0;  ///< Which inputs of these two they are.
  int reader = -1;           ///< The last of them that reads x, and gives its gradient.
  double eps = 0;

  constexpr bool has(int k) const {
    return k >= 0 && (k == mean || k == center || k == squares || k == variance || k == shifted ||
                      k == root || k == last || k == scale || k == shift);
  }
  /// The node with the result.
  constexpr int end() const { return shift >= 0 ? shift : scale >= 0 ? scale : last; }
};

/// Whether node k is the last step of a norm of rows. `maker(v)` is the node of the loop that makes
/// the value v, or a value of which it is a view, or -1.
template <class Maker>
[[gnu::cold]] bool find_row_norm(const program_view& p, int k, const Maker& maker, row_norm& to) {
  using op = cpu::tensor_op;
  using reduction = cpu::reduction_op;
  const auto is_map = [&p](int node, op f, unsigned numbers) {
    if (node < 0) return false;
    const cpu::loop_step& s = p.nodes[node].role.step;
    return s.kind == cpu::loop_step::kinds::map && s.op() == f && s.numbers == numbers;
  };
  const auto is_fold = [&p](int node, reduction f) {
    if (node < 0) return false;
    const cpu::loop_step& s = p.nodes[node].role.step;
    return s.kind == cpu::loop_step::kinds::fold && s.reduction() == f;
  };
  const auto input = [&p](int node, int i) { return p.nodes[node].inputs[i]; };
  const bool divides = is_map(k, op::div, 0);
  if (!divides && !is_map(k, op::mul, 0)) return false;
  for (int side = 0; side < (divides ? 1 : 2); ++side) {
    row_norm n{.center = maker(input(k, side)), .root = maker(input(k, 1 - side)), .last = k};
    if (!is_map(n.center, op::sub, 0) || !is_map(n.root, divides ? op::sqrt : op::rsqrt, 0))
      continue;
    n.shifted = maker(input(n.root, 0));
    const bool number_first = is_map(n.shifted, op::add, 1);
    if (!number_first && !is_map(n.shifted, op::add, 2)) continue;
    n.eps = p.nodes[n.shifted].role.step.number[number_first ? 0 : 1];
    n.mean = maker(input(n.center, 1));
    n.variance = maker(input(n.shifted, 0));
    if (!is_fold(n.mean, reduction::mean)) continue;
    const int x = input(n.center, 0);
    const auto is_x = [&](int v) { return v == x || (maker(v) >= 0 && maker(v) == maker(x)); };
    if (!is_x(input(n.mean, 0))) continue;
    if (is_fold(n.variance, reduction::mean)) {
      n.squares = maker(input(n.variance, 0));
      const bool is_square = is_map(n.squares, op::square, 0),
                 is_mul = is_map(n.squares, op::mul, 0);
      if ((!is_square && !is_mul) || maker(input(n.squares, 0)) != n.center ||
          (is_mul && maker(input(n.squares, 1)) != n.center))
        continue;
    } else if (!is_fold(n.variance, reduction::var) ||
               p.nodes[n.variance].role.step.number[0] != 0 ||
               (!is_x(input(n.variance, 0)) && maker(input(n.variance, 0)) != n.center)) {
      continue;
    }
    n.reader = n.center;
    if (n.squares < 0 && n.variance > n.center && is_x(input(n.variance, 0))) n.reader = n.variance;
    to = n;
    return true;
  }
  return false;
}

}  // namespace ikebana::detail
