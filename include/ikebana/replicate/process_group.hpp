#pragma once

#include <concepts>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

#include "ikebana/core/bfloat16.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/float16.hpp"

namespace ikebana {

/// How a collective combines the values of the ranks. It is always in rank order, so that equal
/// values give equal bits on every run and on every kind of group. `avg` of integers rounds towards
/// zero; `bit_or` is for integers. bfloat16 and float16 are summed in float and rounded once.
enum class reduce_op : std::uint8_t { sum, avg, max, min, bit_or };

constexpr const char* name(reduce_op op) {
  switch (op) {
    case reduce_op::sum:
      return "sum";
    case reduce_op::avg:
      return "avg";
    case reduce_op::max:
      return "max";
    case reduce_op::min:
      return "min";
    case reduce_op::bit_or:
      return "bit_or";
  }
  return "?";
}

/// What a collective can transfer: trivially copyable types.
template <class T>
concept transferable = std::is_trivially_copyable_v<T> && !std::is_const_v<T>;

/// What a collective can reduce.
template <class T>
concept reducible =
    transferable<T> && !std::same_as<T, bool> &&
    (std::is_arithmetic_v<T> || std::same_as<T, bfloat16> || std::same_as<T, float16>);

/// The handle of a collective in flight. `poll()` makes progress without waiting and returns
/// whether the collective is complete; `wait()` returns once it is. Both throw communication_error
/// if it can never complete.
template <class W>
concept pending_work = std::movable<W> && requires(W& w) {
  { w.poll() } -> std::same_as<bool>;
  w.wait();
};

/// The ranks that train together, as seen by one of them. Every rank must call the same collectives
/// in the same order with the same lengths, types and operations; if a group detects a mismatch,
/// every rank throws communication_error.
///
/// - `all_reduce(x, op)`: reduces x over all ranks; every rank gets the result.
/// - `broadcast(x, root)`: sets x to its value on rank `root`.
/// - `all_gather(mine, all)`: copies rank r's `mine` to `all[r * mine.size()]` on every rank.
/// - `reduce_scatter(all, mine, op)`: sets `mine` to the reduced slice `rank()` of `all`.
/// - `barrier()`: returns when all ranks have called it.
/// - each of them with `_async` after its name: the same, returning a `pending_work`. Its spans
///   must stay valid and untouched until it is complete.
template <class G>
concept process_group = requires(G& g, const G& c, std::span<float> x, std::span<const float> y,
                                 std::span<double> d, std::span<bfloat16> h,
                                 std::span<std::int64_t> i, std::span<std::uint8_t> b, int root) {
  { c.rank() } -> std::same_as<int>;
  { c.size() } -> std::same_as<int>;
  g.all_reduce(x, reduce_op::sum);
  g.all_reduce(d, reduce_op::avg);
  g.all_reduce(h, reduce_op::avg);
  g.all_reduce(i, reduce_op::max);
  g.all_reduce(b, reduce_op::bit_or);
  g.broadcast(x, root);
  g.broadcast(i, root);
  g.all_gather(y, x);
  g.reduce_scatter(y, x, reduce_op::sum);
  g.barrier();
  { g.all_reduce_async(x, reduce_op::avg) } -> pending_work;
  { g.all_reduce_async(d, reduce_op::avg) } -> pending_work;
  { g.broadcast_async(x, root) } -> pending_work;
  { g.all_gather_async(y, x) } -> pending_work;
  { g.reduce_scatter_async(y, x, reduce_op::sum) } -> pending_work;
  { g.barrier_async() } -> pending_work;
};

/// A group that can be split: `g.split(color, key)` gives each rank the group of those that called
/// it with the same color, ordered by key, and by rank for equal keys. All ranks must call it.
/// Roots are ranks within the group; errors use the ranks of the whole world.
template <class G>
concept divisible_group = process_group<G> && std::movable<G> && requires(G& g, int i) {
  { g.split(i, i) } -> std::same_as<G>;
};

/// The handle of an asynchronous collective of the group G. A default-constructed one is complete.
template <class G>
using work_of = decltype(std::declval<G&>().barrier_async());

/// Gathers one value from every rank: sets `all[r]` to rank r's `mine`. For comparing hashes,
/// counts and the like. Throws communication_error; no allocation. `all` has `group.size()`
/// elements.
template <process_group G, transferable T>
void exchange(G& group, const T& mine, std::span<T> all) {
  group.all_gather(std::span<const T>{&mine, 1}, all);
}

/// A collective that was complete when it was started.
struct complete_work {
  constexpr bool poll() const { return true; }
  constexpr void wait() const {}
};

/// A group of one rank, for programs written for process groups; its collectives cost nothing or a
/// copy. Throws communication_error for a root other than 0, and if lengths differ. Does not
/// allocate.
class single {
 public:
  static constexpr int rank() { return 0; }
  static constexpr int size() { return 1; }

  template <reducible T>
  void all_reduce(std::span<T>, reduce_op) {}

  template <transferable T>
  void broadcast(std::span<T>, int root) {
    if (root != 0) throw communication_error("rank 0: broadcast from a rank that is not there");
  }

  template <transferable T>
  void all_gather(std::span<const T> mine, std::span<T> all) {
    copy(mine, all);
  }

  template <reducible T>
  void reduce_scatter(std::span<const T> all, std::span<T> mine, reduce_op) {
    copy(all, mine);
  }

  void barrier() {}

  template <reducible T>
  complete_work all_reduce_async(std::span<T>, reduce_op) {
    return {};
  }
  template <transferable T>
  complete_work broadcast_async(std::span<T> data, int root) {
    broadcast(data, root);
    return {};
  }
  template <transferable T>
  complete_work all_gather_async(std::span<const T> mine, std::span<T> all) {
    copy(mine, all);
    return {};
  }
  template <reducible T>
  complete_work reduce_scatter_async(std::span<const T> all, std::span<T> mine, reduce_op) {
    copy(all, mine);
    return {};
  }
  complete_work barrier_async() { return {}; }

  static constexpr single split(int /*color*/, int /*key*/) { return {}; }

 private:
  template <class T>
  static void copy(std::span<const T> from, std::span<T> to) {
    if (from.size() != to.size())
      throw communication_error("rank 0: a collective of one rank expects equal lengths");
    if (!from.empty()) std::memmove(to.data(), from.data(), from.size_bytes());
  }
};

}  // namespace ikebana
