#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "ikebana/core/error.hpp"
#include "ikebana/cpu/broadcast.hpp"
#include "ikebana/module/broadcast_shapes.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/ops/shapes.hpp"

// Elements of a value of a graph at indices (inputs of std::int64_t) or where an input of bool
// says. Indices are checked before anything runs: `error`. O(elements); no allocation.
namespace ikebana {

namespace ops {

enum class index_op : unsigned char { gather, index_select, scatter_add, one_hot };

inline constexpr std::string_view index_names[] = {"gather", "index_select", "scatter_add",
                                                   "one_hot"};

struct index {
  static constexpr std::string_view kind = "index";
  static constexpr kept keeps = kept::input;

  index_op f = index_op::one_hot;
  dim_t dim = 0;  ///< The dimension, or the number of classes.

  constexpr bool operator==(const index&) const = default;
  constexpr std::string_view name() const { return index_names[static_cast<std::size_t>(f)]; }

  static constexpr element_kind input_kind(std::size_t i, std::size_t count) {
    return i == (count == 1 ? 0u : 1u) ? element_kind::index : element_kind::real;
  }

  constexpr inferred infer(const shape_list& in) const {
    const shape& x = in[0];
    if (f == index_op::one_hot) {
      if (x.rank() == shape::max_rank)
        return diagnostic{"one_hot expects fewer than {expected} dimensions, got {input}",
                          static_cast<dim_t>(shape::max_rank), 0, x};
      shape out = x;
      out.push_back(dim);
      return out;
    }
    const shape& at = in[1];
    if (!has_dim(dim, x.rank()))
      return diagnostic{
          f == index_op::gather
              ? "gather expects a dim within {expected} dimensions, got {number} (input {input})"
          : f == index_op::index_select
              ? "index_select expects a dim within {expected} dimensions, got {number} (input "
                "{input})"
              : "scatter_add expects a dim within {expected} dimensions, got {number} (input "
                "{input})",
          static_cast<dim_t>(x.rank()), dim, x};
    const std::size_t d = dim_of(dim, x.rank());
    if (f == index_op::index_select) {
      if (at.rank() != 1)
        return diagnostic{"index_select expects one dimension of indices, got {input}", 1, 0, at};
      return x.with(d, at[0]);
    }
    bool fits = at.rank() == x.rank();
    for (std::size_t i = 0; fits && i < x.rank(); ++i)
      fits = i == d || x[i] < 0 || at[i] < 0 || at[i] <= x[i];
    if (!fits)
      return diagnostic{f == index_op::gather
                            ? "gather expects indices that are within the other dimensions of "
                              "{input}, got {other}"
                            : "scatter_add expects indices that are within the other dimensions "
                              "of {input}, got {other}",
                        0, 0, x, at};
    if (f == index_op::gather) return at;
    if (!compatible(at, in[2]))
      return diagnostic{"scatter_add expects an index for each number, got {input} and {other}", 0,
                        0, at, in[2]};
    return x;
  }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }
  void describe(description& d) const {
    d.add("f", name()).add(f == index_op::one_hot ? "num_classes" : "dim", std::to_string(dim));
  }

  template <class T>
  void validate(const context<T>& c) const {
    const std::size_t at = f == index_op::one_hot ? 0 : 1;
    const dim_t limit =
        f == index_op::one_hot ? dim : c.input_shape()[dim_of(dim, c.input_shape().rank())];
    const std::int64_t* const i = c.template input<std::int64_t>(at);
    for (dim_t k = 0, n = c.input_shape(at).numel(); k < n; ++k)
      if (i[k] < 0 || i[k] >= limit)
        throw_error(error(std::string(name()) + " expects indices from 0 to " +
                          std::to_string(limit - 1) + ", got " + std::to_string(i[k])));
  }

  template <class T>
  void forward(const context<T>& c) const {
    T* const y = c.output();
    const T* const x = c.input();
    if (f == index_op::one_hot) {
      const std::int64_t* const i = c.template input<std::int64_t>();
      for (dim_t k = 0, n = c.output_shape().numel(); k < n; ++k) y[k] = T{};
      for (dim_t k = 0, n = c.input_shape().numel(); k < n; ++k) y[k * dim + i[k]] = T{1};
    } else if (f == index_op::scatter_add) {
      const T* const from = c.input(2);
      for (dim_t k = 0, n = c.output_shape().numel(); k < n; ++k) y[k] = x[k];
      for_each_index(c, [=](dim_t k, dim_t at) { y[at] += from[k]; });
    } else {
      for_each_index(c, [=](dim_t k, dim_t at) { y[k] = x[at]; });
    }
  }

  template <class T>
  void backward(const context<T>& c) const {
    if (f == index_op::one_hot) return;
    const T* const dy = c.output_gradient();
    if (T* const dx = c.input_gradient(); dx != nullptr) {
      const bool scatters = f == index_op::scatter_add;
      for (dim_t k = 0, n = c.input_shape().numel(); k < n; ++k) dx[k] = scatters ? dy[k] : T{};
      if (!scatters) for_each_index(c, [=](dim_t k, dim_t at) { dx[at] += dy[k]; });
    }
    if (f != index_op::scatter_add) return;
    if (T* const d = c.input_gradient(2); d != nullptr)
      for_each_index(c, [=](dim_t k, dim_t at) { d[k] = dy[at]; });
  }

 private:
  /// Calls g(k, at): what the k-th index, or the k-th element of index_select's result, stands for
  /// is element `at` of the first input.
  template <class T, class G>
  void for_each_index(const context<T>& c, G g) const {
    const shape& s = c.input_shape();
    const std::int64_t* const i = c.template input<std::int64_t>(1);
    const std::size_t d = dim_of(dim, s.rank());
    if (f == index_op::index_select) {
      const dim_t outer = s.numel(0, d), inner = s.numel(d + 1, s.rank()),
                  n = c.input_shape(1).numel();
      dim_t k = 0;
      for (dim_t o = 0; o < outer; ++o)
        for (dim_t j = 0; j < n; ++j)
          for (dim_t e = 0; e < inner; ++e) g(k++, (o * s[d] + i[j]) * inner + e);
      return;
    }
    // The positions of the indices in the first input, without the dimension that they replace.
    cpu::strided_map m = cpu::dense_map(s);
    const dim_t step = m.strides[d];
    m.strides[d] = 0;
    for (std::size_t e = 0; e < m.rank; ++e) m.extents[e] = c.input_shape(1)[e];
    cpu::for_each_run(m, 0, c.input_shape(1).numel(),
                      [=](dim_t at, dim_t stride, dim_t k, dim_t count) {
                        for (dim_t e = 0; e < count; ++e)
                          g(k + e, at + e * stride + i[k + e] * step);
                      });
  }
};

/// x, but `value` where a mask is true.
struct masked_fill {
  static constexpr std::string_view kind = "masked_fill";
  static constexpr kept keeps = kept::input;

  double value = 0;

  constexpr bool operator==(const masked_fill&) const = default;

  static constexpr element_kind input_kind(std::size_t i, std::size_t) {
    return i == 1 ? element_kind::boolean : element_kind::real;
  }
  constexpr inferred infer(const shape& x, const shape& mask) const {
    shape out = x;
    if (!broadcast_into(out, mask) || !compatible(x, out))
      return diagnostic{"masked_fill expects a mask that can be broadcast to {input}, got {other}",
                        0, 0, x, mask};
    return x;
  }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }
  void describe(description& d) const { d.add("value", value); }

  template <class T>
  void forward(const context<T>& c) const {
    run(c, c.input(), static_cast<T>(value), c.output());
  }
  template <class T>
  void backward(const context<T>& c) const {
    if (c.input_gradient() != nullptr) run(c, c.output_gradient(), T{}, c.input_gradient());
  }

 private:
  template <class T>
  void run(const context<T>& c, const T* x, T fill, T* y) const {
    const bool* const mask = c.template input<bool>(1);
    cpu::for_each_run(cpu::broadcast_map(c.input_shape(1), c.output_shape()), 0,
                      c.output_shape().numel(), [=](dim_t at, dim_t stride, dim_t k, dim_t count) {
                        for (dim_t e = 0; e < count; ++e)
                          y[k + e] = mask[at + e * stride] ? fill : x[k + e];
                      });
  }
};

}  // namespace ops

/// x at the indices along a dimension, for each of them: torch.gather.
template <dim_t Dim, symbolic X, symbolic I>
constexpr auto gather(const X& x, const I& indices) {
  return apply(ops::index{ops::index_op::gather, Dim}, x, indices);
}

/// The elements of a dimension at these indices (one dimension of them): torch.index_select.
template <dim_t Dim, symbolic X, symbolic I>
constexpr auto index_select(const X& x, const I& indices) {
  return apply(ops::index{ops::index_op::index_select, Dim}, x, indices);
}

/// x plus each number of `from` at its index along a dimension: torch.scatter_add. Added in the
/// order of `from`.
template <dim_t Dim, symbolic X, symbolic I, symbolic F>
constexpr auto scatter_add(const X& x, const I& indices, const F& from) {
  return apply(ops::index{ops::index_op::scatter_add, Dim}, x, indices, from);
}

/// 1 at each index of a new last dimension, else 0: torch.nn.functional.one_hot.
template <dim_t Classes, symbolic I>
constexpr auto one_hot(const I& indices) {
  static_assert(Classes > 0, "ikebana: one_hot takes a number of classes");
  return apply(ops::index{ops::index_op::one_hot, Classes}, indices);
}

/// x, but `value` where the mask, an input of bool that is broadcast, is true:
/// torch.Tensor.masked_fill.
template <symbolic X, symbolic M>
constexpr auto masked_fill(const X& x, const M& mask, double value) {
  return apply(ops::masked_fill{value}, x, mask);
}

}  // namespace ikebana
