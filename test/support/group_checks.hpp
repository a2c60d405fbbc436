#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <thread>
#include <type_traits>
#include <vector>

#include "ikebana/core/bfloat16.hpp"
#include "ikebana/core/float16.hpp"
#include "ikebana/core/random.hpp"
#include "ikebana/replicate/mesh.hpp"
#include "ikebana/replicate/process_group.hpp"

// Checks of every kind of process group, whatever its number of ranks. All ranks call each
// function, which returns the number of failures on this rank: 0.
namespace group_checks {

namespace ike = ikebana;
using ike::reduce_op;

inline constexpr std::array<std::size_t, 9> lengths{0, 1, 3, 15, 16, 17, 255, 1000, 4099};

/// Small integers, exact in every type and under every order of summation.
template <class T>
std::vector<T> values(int rank, std::size_t n) {
  std::vector<T> x(n);
  for (std::size_t i = 0; i < n; ++i) {
    const auto small = static_cast<std::uint8_t>((i * 7 + 13 * std::size_t(rank)) % 50);
    if constexpr (std::is_integral_v<T>)
      x[i] = static_cast<T>(small);
    else
      x[i] = static_cast<T>(static_cast<float>(small));
  }
  return x;
}

/// Numbers whose sum depends on the order.
template <class T>
std::vector<T> awkward(int rank, std::size_t n) {
  std::vector<double> x(n);
  ike::fill_uniform(ike::random_stream{ike::seed{99}, static_cast<std::uint64_t>(rank)}, 1.0,
                    x.data(), static_cast<ike::dim_t>(n));
  std::vector<T> y(n);
  for (std::size_t i = 0; i < n; ++i) {
    if constexpr (std::is_same_v<T, ike::bfloat16> || std::is_same_v<T, ike::float16>)
      y[i] = T(static_cast<float>(x[i]));
    else
      y[i] = static_cast<T>(x[i]);
  }
  return y;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

/// The reduction by definition, in rank order.
template <class T, class Values>
std::vector<T> expected(reduce_op op, int ranks, std::size_t n, Values of_rank) {
  using A = std::conditional_t<std::is_integral_v<T>, std::int64_t,
                               std::conditional_t<sizeof(T) == 2, float, T>>;
  std::vector<A> sum(n);
  for (int r = 0; r < ranks; ++r) {
    const std::vector<T> y = of_rank(r, n);
    for (std::size_t i = 0; i < n; ++i) {
      const A v = static_cast<A>(y[i]);
      if (r == 0)
        sum[i] = v;
      else if (op == reduce_op::sum || op == reduce_op::avg)
        sum[i] += v;
      else if (op == reduce_op::max)
        sum[i] = std::max(sum[i], v);
      else if (op == reduce_op::min)
        sum[i] = std::min(sum[i], v);
      else if constexpr (std::is_integral_v<A>)
        sum[i] |= v;
    }
  }
  std::vector<T> x(n);
  for (std::size_t i = 0; i < n; ++i) {
    if (op == reduce_op::avg) {
      if constexpr (std::is_integral_v<A>)
        sum[i] /= ranks;
      else
        sum[i] *= A{1} / static_cast<A>(ranks);
    }
    x[i] = static_cast<T>(sum[i]);
  }
  return x;
}

/// Every collective of T, every operation, with empty to odd to long data.
template <class T, ike::process_group G>
int collectives(G& group) {
  int failures = 0;
  const auto same = [&](const auto& a, const auto& b) { failures += !same_bits(a, b); };
  const auto world = static_cast<std::size_t>(group.size());
  const auto own = static_cast<std::size_t>(group.rank());
  for (std::size_t n : lengths) {
    for (reduce_op op :
         {reduce_op::sum, reduce_op::avg, reduce_op::max, reduce_op::min, reduce_op::bit_or}) {
      if (op == reduce_op::bit_or && !std::is_integral_v<T>) continue;
      std::vector<T> x = values<T>(group.rank(), n);
      group.all_reduce(std::span<T>(x), op);
      same(x, expected<T>(op, group.size(), n, values<T>));

      std::vector<T> all = values<T>(group.rank(), n * world), mine(n);
      group.reduce_scatter(std::span<const T>(all), std::span<T>(mine), op);
      const std::vector<T> whole = expected<T>(op, group.size(), n * world, values<T>);
      const auto from = whole.begin() + static_cast<std::ptrdiff_t>(n * own);
      same(mine, std::vector<T>(from, from + static_cast<std::ptrdiff_t>(n)));
      const std::span<T> place = std::span<T>(all).subspan(n * own, n);
      group.reduce_scatter(std::span<const T>(all), place, op);
      same(std::vector<T>(place.begin(), place.end()), mine);
    }

    for (int root = 0; root < group.size(); ++root) {
      std::vector<T> x = values<T>(group.rank(), n);
      group.broadcast(std::span<T>(x), root);
      same(x, values<T>(root, n));
    }

    std::vector<T> mine = values<T>(group.rank(), n), all(n * world), whole;
    group.all_gather(std::span<const T>(mine), std::span<T>(all));
    for (int r = 0; r < group.size(); ++r) {
      const std::vector<T> part = values<T>(r, n);
      whole.insert(whole.end(), part.begin(), part.end());
    }
    same(all, whole);
    const std::span<T> place = std::span<T>(all).subspan(n * own, n);
    group.all_gather(std::span<const T>(place), std::span<T>(all));
    same(all, whole);
    group.barrier();
  }
  return failures;
}

/// Sums are in rank order, bit by bit, which makes different kinds of groups agree.
template <class T, ike::process_group G>
int order_of_sums(G& group) {
  int failures = 0;
  for (std::size_t n : {std::size_t{7}, std::size_t{1003}, std::size_t{20011}})
    for (reduce_op op : {reduce_op::sum, reduce_op::avg}) {
      std::vector<T> x = awkward<T>(group.rank(), n);
      group.all_reduce(std::span<T>(x), op);
      failures += !same_bits(x, expected<T>(op, group.size(), n, awkward<T>));
    }
  return failures;
}

/// More works at once than groups have room for, waited for in the opposite order.
template <ike::process_group G>
int many_at_once(G& group) {
  constexpr std::size_t count = 3 * 64 + 5;
  std::vector<std::vector<double>> data(count);
  std::vector<ike::work_of<G>> works(count);
  for (std::size_t i = 0; i < count; ++i) {
    data[i].assign(i * 5, static_cast<double>(i));
    works[i] = group.all_reduce_async(std::span<double>(data[i]), reduce_op::sum);
  }
  int failures = 0;
  for (std::size_t i = count; i-- > 0;) {
    works[i].wait();
    failures += data[i] != std::vector<double>(
                               i * 5, static_cast<double>(group.size()) * static_cast<double>(i));
  }
  return failures;
}

/// Works of different collectives complete by polling only.
template <ike::process_group G>
int polling(G& group) {
  const auto world = static_cast<std::size_t>(group.size());
  const int last = group.size() - 1;
  std::vector<float> a(1000, 1.0f), b(10, static_cast<float>(group.rank())), c(world * 300, 1.0f),
      d(300);
  std::vector<std::int64_t> all(world);
  const std::int64_t mine = 10 + group.rank();
  std::array works{
      group.all_reduce_async(std::span<float>(a), reduce_op::sum),
      group.broadcast_async(std::span<float>(b), last),
      group.all_gather_async(std::span<const std::int64_t>(&mine, 1), std::span<std::int64_t>(all)),
      group.reduce_scatter_async(std::span<const float>(c), std::span<float>(d), reduce_op::sum),
      group.barrier_async()};
  for (std::size_t complete = 0; complete < works.size();)
    works[complete].poll() ? void(++complete) : std::this_thread::yield();
  int failures = 0;
  failures += a != std::vector<float>(1000, static_cast<float>(group.size()));
  failures += b != std::vector<float>(10, static_cast<float>(last));
  failures += d != std::vector<float>(300, static_cast<float>(group.size()));
  for (std::size_t r = 0; r < world; ++r) failures += all[r] != 10 + static_cast<std::int64_t>(r);
  return failures;
}

/// Parts by parity, in the opposite order, and parts of those, all working at once.
template <ike::divisible_group G>
int split(G& group) {
  int failures = 0;
  const int parity = group.rank() % 2;
  G part = group.split(parity, -group.rank());
  const int members = (group.size() + 1 - parity) / 2;
  failures += part.size() != members;
  failures += part.rank() != members - 1 - group.rank() / 2;

  std::vector<int> ranks(static_cast<std::size_t>(part.size()));
  ike::exchange(part, group.rank(), std::span<int>(ranks));
  for (int i = 0; i < part.size(); ++i)
    failures += ranks[static_cast<std::size_t>(i)] != 2 * (part.size() - 1 - i) + parity;

  // Collectives of the whole and of the part, interleaved.
  std::vector<float> x(5000, 1.0f), y(3000, 1.0f);
  auto first = group.all_reduce_async(std::span<float>(x), reduce_op::sum);
  auto second = part.all_reduce_async(std::span<float>(y), reduce_op::sum);
  first.wait();
  second.wait();
  failures += x != std::vector<float>(5000, static_cast<float>(group.size()));
  failures += y != std::vector<float>(3000, static_cast<float>(members));

  // A part of a part; and all ranks in one part, with equal keys.
  G alone = part.split(part.rank(), 0);
  failures += alone.size() != 1 || alone.rank() != 0;
  failures += collectives<float>(alone);
  G everyone = group.split(7, 0);
  failures += everyone.size() != group.size() || everyone.rank() != group.rank();
  G moved = std::move(everyone);
  failures += order_of_sums<float>(moved);
  return failures;
}

/// The ranks as a grid of 2 columns, and in one row.
template <ike::divisible_group G>
int mesh(G& group) {
  int failures = 0;
  const auto row = ike::mesh(group);
  failures += row.shape() != std::array{group.size()};
  failures += row.template coordinate<"replicate">() != group.rank();
  failures += &row.template get_group<"replicate">() != &group;

  const auto throws = [&](std::array<int, 2> extents) {
    try {
      static_cast<void>(ike::mesh<"dp", "tp">(group, extents));
      return false;
    } catch (const ike::error&) {
      return true;
    }
  };
  failures += !throws({group.size(), 2});
  failures += !throws({-1, -group.size()});

  if (group.size() % 2 != 0) return failures;
  const int rows = group.size() / 2;
  const auto grid = ike::mesh<"dp", "tp">(group, {rows, 2});
  failures += grid.coordinates() != std::array{group.rank() / 2, group.rank() % 2};
  failures += grid.template extent<"tp">() != 2 || grid.size() != group.size();
  auto& dp = grid.template get_group<"dp">();
  auto& tp = grid.template get_group<"tp">();
  failures += dp.size() != rows || dp.rank() != group.rank() / 2;
  failures += tp.size() != 2 || tp.rank() != group.rank() % 2;

  std::array<std::int64_t, 1> x{group.rank()}, y{group.rank()};
  dp.all_reduce(std::span<std::int64_t>(x), reduce_op::sum);
  tp.all_reduce(std::span<std::int64_t>(y), reduce_op::sum);
  failures += x[0] != rows * (rows - 1) + rows * (group.rank() % 2);
  failures += y[0] != 4 * (group.rank() / 2) + 1;

  // Slices share the groups; one of several dimensions has its own group.
  const auto columns = grid.template slice<"dp">();
  failures += &columns.template get_group<"dp">() != &dp || columns.size() != rows;
  const auto cube = ike::mesh<"pp", "dp", "tp">(group, {1, rows, 2});
  const auto face = cube.template slice<"dp", "tp">();
  failures += face.shape() != std::array{rows, 2} || face.coordinates() != grid.coordinates();
  failures += face.group().rank() != group.rank();
  const auto side = cube.template slice<"pp", "dp">();
  failures += side.size() != rows || side.template coordinate<"dp">() != group.rank() / 2;
  std::array<std::int64_t, 1> z{1};
  side.group().all_reduce(std::span<std::int64_t>(z), reduce_op::sum);
  failures += z[0] != rows;
  return failures;
}

}  // namespace group_checks
