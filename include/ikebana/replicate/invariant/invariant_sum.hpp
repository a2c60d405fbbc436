#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/replicate/invariant.hpp"
#include "ikebana/replicate/process_group.hpp"

namespace ikebana::detail {

/// Sums an array over the shards of all ranks by one tree, whatever the number of ranks. A rank
/// joins its own shards as they come, in about log2(shards) arrays. If the numbers of shards and
/// ranks are powers of two, ranks then join their sums in pairs, pairs of pairs, and so on.
/// Otherwise the remaining nodes are gathered piecewise, and every rank joins them in the same way.
/// All memory is allocated at construction.
template <class T, process_group Group>
class invariant_sum {
 public:
  invariant_sum(Group& group, dim_t shards, dim_t length)
      : group_{&group},
        shards_{shards},
        length_{length},
        own_{invariant_shards(shards, group.rank(), group.size())},
        stack_{shards, own_.begin} {
    std::size_t deepest = 0;
    for (int r = 0; r < group.size(); ++r) {
      nodes_.push_back(stack_of(shards, invariant_shards(shards, r, group.size()), deepest));
      most_ = std::max(most_, nodes_.back().size());
      if (r == group.rank())
        for (std::size_t i = 0; i < deepest; ++i) slots_.emplace_back(length);
    }
    if (group.size() == 1) return;
    if constexpr (divisible_group<Group>) {
      if (most_ == 1 && std::has_single_bit(static_cast<std::size_t>(shards)) &&
          std::has_single_bit(static_cast<std::size_t>(group.size()))) {
        for (int apart = 1; apart < group.size(); apart *= 2)
          pairs_.push_back(group.split(group.rank() & ~apart, group.rank()));
        return;
      }
    }
    const dim_t width = static_cast<dim_t>(most_) * group.size();
    piece_ = std::min(length, std::max(dim_t{1024}, gathered_elements / width));
    for (auto& half : gathered_) half = aligned_buffer<T>(piece_ * width);
    if (most_ > 1)
      for (auto& half : sent_) half = aligned_buffer<T>(piece_ * static_cast<dim_t>(most_));
  }

  index_range own_shards() const { return own_; }

  /// Discards what was added.
  void clear() { stack_ = shard_stack(shards_, own_.begin); }

  /// Memory for the next shard's values, filled with zeros. Valid until `add`.
  T* next() {
    T* const slot = slots_[stack_.size()].data();
    cpu::fill<T>(length_, slot, T{0});
    return slot;
  }

  /// Adds what was written to `next()` as the next shard's values.
  void add() {
    stack_.push(stack_[stack_.size()].begin + 1, [this](std::size_t left, std::size_t right) {
      cpu::add<T>(length_, slots_[left].data(), slots_[right].data(), slots_[left].data());
    });
  }

  /// The sum over the shards of all ranks, once all own ones were added: the same bits on every
  /// rank. Valid until the next `next`.
  const T* total() {
    if constexpr (divisible_group<Group>)
      for (Group& pair : pairs_) pair.all_reduce(slots_[0].span(), reduce_op::sum);
    if (group_->size() > 1 && pairs_.empty()) {
      const dim_t pieces = (length_ + piece_ - 1) / piece_;
      start(0);
      for (dim_t p = 0; p < pieces; ++p) {
        if (p + 1 < pieces) start(p + 1);
        works_[static_cast<std::size_t>(p % 2)].wait();
        join(p);
      }
    }
    clear();
    return slots_[0].data();
  }

 private:
  static constexpr dim_t gathered_elements = dim_t{1} << 19;

  dim_t size_of_piece(dim_t p) const { return std::min(piece_, length_ - p * piece_); }

  void start(dim_t p) {
    const auto half = static_cast<std::size_t>(p % 2);
    const auto n = static_cast<std::size_t>(size_of_piece(p));
    const T* mine = slots_[0].data() + p * piece_;
    if (most_ > 1) {
      for (std::size_t i = 0; i < stack_.size(); ++i)
        std::copy_n(slots_[i].data() + p * piece_, n, sent_[half].data() + i * n);
      mine = sent_[half].data();
    }
    works_[half] =
        group_->all_gather_async(std::span<const T>{mine, n * most_},
                                 gathered_[half].span().first(n * most_ * nodes_.size()));
  }

  void join(dim_t p) {
    const dim_t n = size_of_piece(p);
    std::array<T*, shard_stack::most> sums{};
    shard_stack all(shards_, 0);
    for (std::size_t r = 0; r < nodes_.size(); ++r)
      for (std::size_t i = 0; i < nodes_[r].size(); ++i) {
        sums[all.size()] = gathered_[static_cast<std::size_t>(p % 2)].data() +
                           static_cast<dim_t>(r * most_ + i) * n;
        all.push(nodes_[r][i].end, [&](std::size_t left, std::size_t right) {
          cpu::add<T>(n, sums[left], sums[right], sums[left]);
        });
      }
    std::copy_n(sums[0], n, slots_[0].data() + p * piece_);
  }

  Group* group_;
  dim_t shards_, length_, piece_ = 0;
  index_range own_;
  shard_stack stack_;
  std::vector<shard_stack> nodes_;  // By rank: the nodes that remain of its shards.
  std::size_t most_ = 0;            // The largest number of these.
  std::vector<aligned_buffer<T>> slots_;
  std::vector<std::conditional_t<divisible_group<Group>, Group, single>> pairs_;
  std::array<aligned_buffer<T>, 2> gathered_, sent_;
  std::array<
      decltype(std::declval<Group&>().all_gather_async(std::span<const T>{}, std::span<T>{})), 2>
      works_{};
};

}  // namespace ikebana::detail
