#pragma once

#include <cstdint>
#include <type_traits>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/bfloat16.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/core/float16.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/collective.hpp"
#include "ikebana/replicate/process_group.hpp"

/// The arithmetic of reductions, shared by all kinds of groups so that they give the same bits: in
/// rank order, element by element, independent of how the data is sliced.
namespace ikebana::detail {

struct slice {
  dim_t begin = 0, end = 0;
  constexpr dim_t size() const { return end - begin; }
};

/// Slice `part` of [0, n), cut into `parts` at multiples of `step`, if the memory starts `lead`
/// elements after such a multiple. The slices are as equal as possible and cover [0, n) in order.
constexpr slice slice_of(dim_t n, int parts, int part, dim_t step, dim_t lead) {
  const dim_t lines = (n + lead + step - 1) / step;
  const dim_t per_part = (lines + parts - 1) / parts * step;
  const auto cut = [&](int p) {
    const dim_t at = per_part * p - lead;
    return at < 0 ? 0 : at > n ? n : at;
  };
  return {cut(part), cut(part + 1)};
}

/// The type in which T is reduced.
template <class T>
using accumulator_of =
    std::conditional_t<std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>, float, T>;

/// out[r][at + i] = finish(combine(... combine(in[0][from + i], in[1][from + i]) ...)), in rank
/// order. `outs` is the number of pointers in out, which may equal those of in at the same offset.
template <class T, class Combine, class Finish>
void reduce_slice(dim_t n, const T* const* in, int size, dim_t from, T* const* out, int outs,
                  dim_t at, Combine combine, Finish finish) {
  using A = accumulator_of<T>;
  constexpr dim_t block = 256;
  alignas(storage_alignment) A sum[block];
  for (dim_t first = 0; first < n; first += block) {
    const dim_t m = n - first < block ? n - first : block;
    const T* x = in[0] + from + first;
    for (dim_t i = 0; i < m; ++i) sum[i] = static_cast<A>(x[i]);
    for (int r = 1; r < size; ++r) {
      x = in[r] + from + first;
      for (dim_t i = 0; i < m; ++i) sum[i] = combine(sum[i], static_cast<A>(x[i]));
    }
    for (dim_t i = 0; i < m; ++i) sum[i] = finish(sum[i]);
    for (int r = 0; r < outs; ++r) {
      T* y = out[r] + at + first;
      for (dim_t i = 0; i < m; ++i) y[i] = static_cast<T>(sum[i]);
    }
  }
}

template <class T>
void reduce_slice(reduce_op op, dim_t n, const T* const* in, int size, dim_t from, T* const* out,
                  int outs, dim_t at) {
  using A = accumulator_of<T>;
  const auto reduce = [&](auto combine, auto finish) {
    reduce_slice(n, in, size, from, out, outs, at, combine, finish);
  };
  const auto keep = [](A x) { return x; };
  const auto add = [](A a, A b) {
    // Integers wrap around, as on every supported machine.
    if constexpr (std::is_integral_v<A>) {
      using U = std::make_unsigned_t<A>;
      return static_cast<A>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
    } else {
      return a + b;
    }
  };
  switch (op) {
    case reduce_op::sum:
      return reduce(add, keep);
    case reduce_op::avg:
      if constexpr (std::is_integral_v<A>) {
        using wide = std::conditional_t<std::is_signed_v<A>, std::int64_t, std::uint64_t>;
        return reduce(add, [size](A x) { return static_cast<A>(x / static_cast<wide>(size)); });
      } else {
        const A scale = A{1} / static_cast<A>(size);
        return reduce(add, [=](A x) { return x * scale; });
      }
    case reduce_op::max:
      return reduce([](A a, A b) { return a < b ? b : a; }, keep);
    case reduce_op::min:
      return reduce([](A a, A b) { return b < a ? b : a; }, keep);
    case reduce_op::bit_or:
      if constexpr (std::is_integral_v<A>)
        return reduce([](A a, A b) { return static_cast<A>(a | b); }, keep);
  }
}

/// For i in [from, from + n), replaces every ranks[r][i] by the reduction of all of them.
template <class T>
void reduce_in_place(reduce_op op, dim_t n, T* const* ranks, int size, dim_t from) {
  if constexpr (floating<T>) {
    if (op == reduce_op::sum || op == reduce_op::avg) {
      const T scale = op == reduce_op::sum ? T{1} : T{1} / static_cast<T>(size);
      return cpu::average_slice(n, ranks, size, from, scale);
    }
  }
  reduce_slice<T>(op, n, ranks, size, from, ranks, size, from);
}

}  // namespace ikebana::detail
