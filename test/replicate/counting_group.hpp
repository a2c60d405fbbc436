#pragma once

#include <span>
#include <utility>

#include "ikebana/replicate/process_group.hpp"

/// A group that counts its calls. One per rank, around that rank's group.
template <ikebana::process_group Inner>
class counting_group {
 public:
  struct counts {
    int all_reduces = 0, broadcasts = 0;
    bool operator==(const counts&) const = default;
  };

  explicit counting_group(Inner& inner) : inner_{&inner} {}

  int rank() const { return inner_->rank(); }
  int size() const { return inner_->size(); }

  template <class T>
  void all_reduce(std::span<T> x, ikebana::reduce_op op) {
    ++counts_.all_reduces;
    inner_->all_reduce(x, op);
  }
  template <class T>
  void broadcast(std::span<T> x, int root) {
    ++counts_.broadcasts;
    inner_->broadcast(x, root);
  }
  template <class T>
  void all_gather(std::span<const T> mine, std::span<T> all) {
    inner_->all_gather(mine, all);
  }
  template <class T>
  void reduce_scatter(std::span<const T> all, std::span<T> mine, ikebana::reduce_op op) {
    inner_->reduce_scatter(all, mine, op);
  }
  void barrier() { inner_->barrier(); }
  template <class T>
  auto all_reduce_async(std::span<T> x, ikebana::reduce_op op) {
    ++counts_.all_reduces;
    return inner_->all_reduce_async(x, op);
  }
  template <class T>
  auto broadcast_async(std::span<T> x, int root) {
    ++counts_.broadcasts;
    return inner_->broadcast_async(x, root);
  }
  template <class T>
  auto all_gather_async(std::span<const T> mine, std::span<T> all) {
    return inner_->all_gather_async(mine, all);
  }
  template <class T>
  auto reduce_scatter_async(std::span<const T> all, std::span<T> mine, ikebana::reduce_op op) {
    return inner_->reduce_scatter_async(all, mine, op);
  }
  auto barrier_async() { return inner_->barrier_async(); }

  /// The calls since the last `take`.
  counts take() { return std::exchange(counts_, {}); }

 private:
  Inner* inner_;
  counts counts_;
};
