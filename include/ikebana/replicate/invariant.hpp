#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "ikebana/core/shape.hpp"

namespace ikebana {

namespace detail {

struct invariant_key {};

inline constexpr dim_t most_shards = 4096;

}  // namespace detail

/// The global batch is divided into `Shards` parts, whose gradients are summed by one fixed tree.
/// Training therefore gives the same bits for every number of ranks up to `Shards`, on every kind
/// of group. Each shard draws its own random numbers (dropout) and has its own batch norm
/// statistics, as with so many ranks of one shard each.
template <dim_t Shards>
struct invariant {
  static_assert(Shards > 0 && Shards <= detail::most_shards,
                "ikebana: invariant expects a number of shards from 1 to 4096");
  using replicate_key = detail::invariant_key;
  static constexpr dim_t value = Shards;
};

/// The indices [begin, end) of shards or rows.
struct index_range {
  dim_t begin = 0, end = 0;

  constexpr dim_t size() const { return end - begin; }
  constexpr bool operator==(const index_range&) const = default;
};

/// The shards that a rank runs.
constexpr index_range invariant_shards(dim_t shards, int rank, int ranks) {
  return {rank * shards / ranks, (rank + 1) * shards / ranks};
}

/// The rows of these shards in a batch of `rows` that is divided into `shards` parts: equal ones,
/// or the first rows % shards of them one row longer (as torch.tensor_split does).
constexpr index_range invariant_rows(dim_t rows, dim_t shards, index_range of) {
  const dim_t least = rows / shards, longer = rows % shards;
  const auto first = [=](dim_t shard) { return shard * least + std::min(shard, longer); };
  return {first(of.begin), first(of.end)};
}

/// The rows of a batch of `rows` that a rank trains on.
constexpr index_range invariant_rows(dim_t rows, dim_t shards, int rank, int ranks) {
  return invariant_rows(rows, shards, invariant_shards(shards, rank, ranks));
}

namespace detail {

/// Whether the shards [a, b) are a node, with the children [a, m) and [m, b), of the tree over [0,
/// shards). The left child of a node of n shards has the largest power of two below n.
constexpr bool are_siblings(dim_t shards, dim_t a, dim_t m, dim_t b) {
  index_range node{0, shards};
  while (node.size() > 1) {
    dim_t left = 1;
    while (2 * left < node.size()) left *= 2;
    const dim_t cut = node.begin + left;
    if (node == index_range{a, b}) return cut == m;
    if (b <= cut)
      node.end = cut;
    else if (a >= cut)
      node.begin = cut;
    else
      return false;
  }
  return false;
}

/// Sums of consecutive shards, starting at some shard: the fewest nodes of the tree that cover what
/// was pushed.
class shard_stack {
 public:
  static constexpr std::size_t most = 32;

  constexpr shard_stack(dim_t shards, dim_t begin) : shards_{shards} { bounds_[0] = begin; }

  constexpr std::size_t size() const { return size_; }
  constexpr index_range operator[](std::size_t i) const { return {bounds_[i], bounds_[i + 1]}; }

  /// Adds a node that ends before shard `end`; `join(i, i + 1)` is called for each pair that is
  /// merged into position i.
  template <class Join>
  constexpr void push(dim_t end, Join&& join) {
    bounds_[++size_] = end;
    while (size_ > 1 &&
           are_siblings(shards_, bounds_[size_ - 2], bounds_[size_ - 1], bounds_[size_])) {
      join(size_ - 2, size_ - 1);
      bounds_[size_ - 1] = bounds_[size_];
      --size_;
    }
  }

 private:
  dim_t shards_;
  std::size_t size_ = 0;
  std::array<dim_t, most + 1> bounds_{};
};

/// The stack after all shards of a rank were pushed; sets `deepest` to its maximal size.
constexpr shard_stack stack_of(dim_t shards, index_range of, std::size_t& deepest) {
  shard_stack stack(shards, of.begin);
  deepest = 0;
  for (dim_t s = of.begin; s < of.end; ++s) {
    deepest = std::max(deepest, stack.size() + 1);
    stack.push(s + 1, [](std::size_t, std::size_t) {});
  }
  return stack;
}

}  // namespace detail
}  // namespace ikebana
