#pragma once

#include <span>

#include "ikebana/replicate/process_group.hpp"

namespace ikebana {

/// The blocking collectives of a Group, implemented by its asynchronous ones.
template <class Group>
class blocking_collectives {
 public:
  template <reducible T>
  void all_reduce(std::span<T> data, reduce_op op) {
    self().all_reduce_async(data, op).wait();
  }
  template <transferable T>
  void broadcast(std::span<T> data, int root) {
    self().broadcast_async(data, root).wait();
  }
  template <transferable T>
  void all_gather(std::span<const T> mine, std::span<T> all) {
    self().all_gather_async(mine, all).wait();
  }
  template <reducible T>
  void reduce_scatter(std::span<const T> all, std::span<T> mine, reduce_op op) {
    self().reduce_scatter_async(all, mine, op).wait();
  }
  void barrier() { self().barrier_async().wait(); }

 private:
  Group& self() { return static_cast<Group&>(*this); }
};

}  // namespace ikebana
