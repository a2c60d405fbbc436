#pragma once

#include <cstddef>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "ikebana/core/error.hpp"
#include "ikebana/cpu/parallel.hpp"
#include "ikebana/cpu/strided.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/ops/shapes.hpp"

// Elements of a value of a graph in another order, or some of them: views where the readers of the
// result can take them as they are, else copies, O(elements of the result). No allocation.
namespace ikebana {

namespace ops {

enum class rearrange_op : unsigned char {
  permute,
  transpose,
  slice,
  select,
  narrow,
  chunk,
  flip,
  roll,
  expand
};

inline constexpr std::string_view rearrange_names[] = {
    "permute", "transpose", "slice", "select", "narrow", "chunk", "flip", "roll", "expand"};

struct rearrange {
  static constexpr std::string_view kind = "rearrange";
  static constexpr kept keeps = kept::nothing;

  rearrange_op f = rearrange_op::flip;
  number_list dims{};  ///< The dimensions, or the extents that `expand` makes.
  dim_t first = 0;     ///< The first index, or the shift.
  dim_t last = 0;      ///< One behind the last index; a length; the number of chunks.
  dim_t step = 1;

  constexpr bool operator==(const rearrange&) const = default;
  /// For products, which then read its input instead. Known for dimensions that count from the end.
  constexpr bool exchanges_last() const {
    return f == rearrange_op::transpose && dims[0] + dims[1] == -3 && dims[0] < 0 && dims[1] < 0;
  }
  constexpr strided_reader reads_strides() const {
    return f == rearrange_op::roll ? strided_reader::none : strided_reader::any;
  }
  constexpr bool adds_gradient() const { return f != rearrange_op::roll; }
  constexpr std::string_view name() const { return rearrange_names[static_cast<std::size_t>(f)]; }

  constexpr inferred infer(const shape& in) const {
    const auto rank = static_cast<dim_t>(in.rank());
    if (f == rearrange_op::expand) return infer_expand(in);
    for (std::size_t i = 0; i < dims.size(); ++i)
      if (!has_dim(dims[i], in.rank())) return refuse_dim(dims[i], in);
    if (f == rearrange_op::permute) {
      bool met[shape::max_rank]{};
      for (std::size_t i = 0; i < dims.size(); ++i) met[dim_of(dims[i], in.rank())] = true;
      shape out;
      for (std::size_t i = 0; i < dims.size(); ++i)
        if (dims.size() == in.rank() && met[i]) out.push_back(in[dim_of(dims[i], in.rank())]);
      if (out.rank() < in.rank() || dims.size() != in.rank())
        return diagnostic{"permute expects each of {expected} dimensions once (input {input})",
                          rank, 0, in};
      return out;
    }
    if (f == rearrange_op::transpose) {
      const std::size_t a = dim_of(dims[0], in.rank()), b = dim_of(dims[1], in.rank());
      return in.with(a, in[b]).with(b, in[a]);
    }
    if (f == rearrange_op::flip || f == rearrange_op::roll) return in;
    const std::size_t d = dim_of(dims[0], in.rank());
    const dim_t n = in[d];
    if (f == rearrange_op::select) {
      if (n >= 0 && (first >= n || first < -n))
        return diagnostic{"select expects an index below {expected}, got {number} (input {input})",
                          n, first, in};
      shape out;
      for (std::size_t i = 0; i < in.rank(); ++i)
        if (i != d) out.push_back(in[i]);
      return out;
    }
    if (f == rearrange_op::narrow) {
      if (first < 0 || last < 0 || (n >= 0 && first + last > n))
        return diagnostic{
            "narrow expects a range within {expected} elements, got one up to {number} (input "
            "{input})",
            n, first + last, in};
      return in.with(d, last);
    }
    if (n < 0) return in.with(d, dynamic);
    if (f == rearrange_op::chunk) {
      const dim_t each = (n + last - 1) / last;
      if (each * (last - 1) >= n && last > 1)
        return diagnostic{
            "chunk expects an extent that makes {expected} parts, got {got} (input "
            "{input})",
            last, n, in};
    }
    const range r = range_of(n);
    return in.with(d, r.count);
  }

  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  void describe(description& d) const {
    d.add("f", name());
    describe_numbers(d, f == rearrange_op::expand ? "shape" : "dim", dims);
    if (f == rearrange_op::slice || f == rearrange_op::select || f == rearrange_op::narrow ||
        f == rearrange_op::chunk || f == rearrange_op::roll)
      d.add("first", std::to_string(first)).add("last", std::to_string(last));
    if (step != 1) d.add("step", std::to_string(step));
  }

  /// Those with elements in reversed order are copied.
  constexpr view_map view(const shape& in) const {
    view_map v;
    if (f == rearrange_op::roll || f == rearrange_op::flip) return v;
    const std::size_t rank = f == rearrange_op::expand ? dims.size() : in.rank();
    std::size_t n = 0;
    if (f == rearrange_op::expand) {
      for (std::size_t d = 0, skip = rank - in.rank(); d < rank; ++d)
        v.source[n++] = static_cast<signed char>(
            d < skip || in[d - skip] == 1 ? -1 : static_cast<int>(d - skip));
    } else if (f == rearrange_op::permute || f == rearrange_op::transpose) {
      for (std::size_t d = 0; d < rank; ++d) {
        std::size_t from = f == rearrange_op::permute ? dim_of(dims[d], rank) : d;
        if (f == rearrange_op::transpose) {
          const std::size_t a = dim_of(dims[0], rank), b = dim_of(dims[1], rank);
          from = d == a ? b : d == b ? a : d;
        }
        v.source[n++] = static_cast<signed char>(from);
      }
    } else {
      v.dim = dim_of(dims[0], rank);
      if (in[v.dim] < 0) return v;
      const range r = range_of(in[v.dim]);
      v.first = r.first;
      v.step = r.step;
      for (std::size_t d = 0; d < rank; ++d)
        if (f != rearrange_op::select || d != v.dim) v.source[n++] = static_cast<signed char>(d);
    }
    v.exists = in.is_static() && rank > 0 && in.rank() > 0;
    return v;
  }

  template <class T>
  void forward(const context<T>& c) const {
    if (f == rearrange_op::roll) return roll(c.input_shape(), c.input(), c.output(), first);
    const cpu::strided_map m = map(c.input_shape(), c.output_shape(), c.input_strides());
    const T* x = c.input();
    T* y = c.output();
    cpu::parallel_for(0, c.output_shape().numel(), cpu::elements_for_thread,
                      [&](dim_t b, dim_t e) { cpu::read_strided(m, x, b, e - b, y + b); });
  }

  template <class T>
  void backward(const context<T>& c) const {
    T* const dx = c.input_gradient();
    if (dx == nullptr) return;
    if (f == rearrange_op::roll) return roll(c.input_shape(), c.output_gradient(), dx, -first);
    const cpu::strided_map m = map(c.input_shape(), c.output_shape());
    const dim_t n = c.output_shape().numel(), own = c.input_shape().numel();
    if (c.writes_part()) return cpu::write_strided(m, dx, 0, n, c.output_gradient());
    if (c.adds_gradient()) return cpu::add_strided(m, dx, 0, n, c.output_gradient());
    const bool repeats = f == rearrange_op::expand;
    if (repeats || n != own)
      for (dim_t i = 0; i < own; ++i) dx[i] = T{};
    if (repeats)
      cpu::add_strided(m, dx, 0, n, c.output_gradient());
    else
      cpu::write_strided(m, dx, 0, n, c.output_gradient());
  }

 private:
  struct range {
    dim_t first, step, count;
  };
  constexpr range range_of(dim_t n) const {
    const auto within = [n](dim_t i) {
      const dim_t from_begin = i < 0 ? i + n : i;
      return from_begin < 0 ? 0 : from_begin > n ? n : from_begin;
    };
    if (f == rearrange_op::narrow) return {first, 1, last};
    if (f == rearrange_op::select) return {first < 0 ? first + n : first, 1, 1};
    if (f == rearrange_op::chunk) {
      const dim_t each = (n + last - 1) / last, from = each * first;
      return {from, 1, n - from < each ? n - from : each};
    }
    const dim_t from = within(first), to = within(last);
    return {from, step, to <= from ? 0 : (to - from + step - 1) / step};
  }

  constexpr diagnostic refuse_dim(dim_t d, const shape& in) const {
    constexpr const char* sentences[] = {
        "permute expects dims within {expected} dimensions, got {number} (input {input})",
        "transpose expects dims within {expected} dimensions, got {number} (input {input})",
        "slice expects a dim within {expected} dimensions, got {number} (input {input})",
        "select expects a dim within {expected} dimensions, got {number} (input {input})",
        "narrow expects a dim within {expected} dimensions, got {number} (input {input})",
        "chunk expects a dim within {expected} dimensions, got {number} (input {input})",
        "flip expects dims within {expected} dimensions, got {number} (input {input})",
        "roll expects a dim within {expected} dimensions, got {number} (input {input})"};
    return {sentences[static_cast<std::size_t>(f)], static_cast<dim_t>(in.rank()), d, in};
  }

  constexpr inferred infer_expand(const shape& in) const {
    shape to;
    for (std::size_t i = 0; i < dims.size(); ++i) to.push_back(dims[i]);
    if (to.rank() < in.rank())
      return diagnostic{"expand expects at least as many dimensions, got {input} and {other}", 0, 0,
                        in, to};
    const std::size_t skip = to.rank() - in.rank();
    for (std::size_t d = 0; d < to.rank(); ++d) {
      const dim_t own = d < skip ? 1 : in[d - skip];
      if (to[d] < 0) to[d] = own;
      if (own >= 0 && own != 1 && own != to[d])
        return diagnostic{"expand expects extents of 1 or equal ones, got {input} and {other}", 0,
                          0, in, to};
    }
    return to;
  }

  cpu::strided_map map(const shape& in, const shape& out, const dim_t* strides = nullptr) const {
    if (f == rearrange_op::expand) return cpu::broadcast_map(in, out, strides);
    const cpu::strided_map own = cpu::dense_map(in, strides);
    cpu::strided_map m = own;
    const std::size_t d = dims.size() > 0 ? dim_of(dims[0], in.rank()) : 0;
    switch (f) {
      case rearrange_op::permute:
        for (std::size_t i = 0; i < dims.size(); ++i) {
          m.extents[i] = own.extents[dim_of(dims[i], in.rank())];
          m.strides[i] = own.strides[dim_of(dims[i], in.rank())];
        }
        break;
      case rearrange_op::transpose:
        std::swap(m.extents[d], m.extents[dim_of(dims[1], in.rank())]);
        std::swap(m.strides[d], m.strides[dim_of(dims[1], in.rank())]);
        break;
      case rearrange_op::flip:
        for (std::size_t i = 0; i < dims.size(); ++i) {
          const std::size_t k = dim_of(dims[i], in.rank());
          m.offset += own.strides[k] * (in[k] - 1);
          m.strides[k] = -own.strides[k];
        }
        break;
      default: {
        const range r = range_of(in[d]);
        m.offset = r.first * own.strides[d];
        m.extents[d] = r.count;
        m.strides[d] = own.strides[d] * r.step;
      }
    }
    return cpu::merged(m);
  }

  /// y[i + shift] = x[i], around the end.
  template <class T>
  void roll(const shape& s, const T* x, T* y, dim_t shift) const {
    const bool all = dims.size() == 0;
    const std::size_t d = all ? 0 : dim_of(dims[0], s.rank());
    const dim_t outer = all ? 1 : s.numel(0, d), n = all ? s.numel() : s[d],
                inner = all ? 1 : s.numel(d + 1, s.rank());
    if (outer * n * inner == 0) return;
    const dim_t by = (shift % n + n) % n * inner, size = n * inner;
    for (dim_t o = 0; o < outer; ++o, x += size, y += size) {
      std::memcpy(y + by, x, static_cast<std::size_t>(size - by) * sizeof(T));
      std::memcpy(y, x + (size - by), static_cast<std::size_t>(by) * sizeof(T));
    }
  }
};

}  // namespace ops

/// The dimensions in this order: torch.permute.
template <dim_t... Dims, symbolic X>
constexpr auto permute(const X& x) {
  return apply(ops::rearrange{ops::rearrange_op::permute, ops::number_list::of<Dims...>()}, x);
}

/// Two dimensions exchanged: torch.transpose.
template <dim_t A, dim_t B, symbolic X>
constexpr auto transpose(const X& x) {
  return apply(ops::rearrange{ops::rearrange_op::transpose, ops::number_list::of<A, B>()}, x);
}

/// The elements first, first + step, .. before last of a dimension, which count from the end if
/// negative and stop there: x[first:last:step] of NumPy.
template <dim_t Dim, symbolic X>
constexpr auto slice(const X& x, dim_t first, dim_t last = std::numeric_limits<dim_t>::max(),
                     dim_t step = 1) {
  if (step < 1) throw_error(error("slice takes a step of at least 1"));
  return apply(
      ops::rearrange{ops::rearrange_op::slice, ops::number_list::of<Dim>(), first, last, step}, x);
}

/// Element i of a dimension, without the dimension: torch.select.
template <dim_t Dim, symbolic X>
constexpr auto select(const X& x, dim_t i) {
  return apply(ops::rearrange{ops::rearrange_op::select, ops::number_list::of<Dim>(), i, 1}, x);
}

/// `length` elements of a dimension from `start` on: torch.narrow.
template <dim_t Dim, symbolic X>
constexpr auto narrow(const X& x, dim_t start, dim_t length) {
  return apply(
      ops::rearrange{ops::rearrange_op::narrow, ops::number_list::of<Dim>(), start, length}, x);
}

/// N parts of a dimension, equal but for the last, as a std::tuple: torch.chunk, but refused where
/// that makes fewer parts.
template <dim_t N, dim_t Dim = 0, symbolic X>
requires(N > 0) constexpr auto chunk(const X& x) {
  return [&]<dim_t... I>(std::integer_sequence<dim_t, I...>) {
    return std::tuple{
        apply(ops::rearrange{ops::rearrange_op::chunk, ops::number_list::of<Dim>(), I, N}, x)...};
  }
  (std::make_integer_sequence<dim_t, N>{});
}

/// In reversed order along these dimensions: torch.flip.
template <dim_t... Dims, symbolic X>
constexpr auto flip(const X& x) {
  return apply(ops::rearrange{ops::rearrange_op::flip, ops::number_list::of<Dims...>()}, x);
}

/// Moved by `shift` along a dimension, or along all elements, around the end: torch.roll.
template <dim_t... Dim, symbolic X>
requires(sizeof...(Dim) <= 1) constexpr auto roll(const X& x, dim_t shift) {
  return apply(ops::rearrange{ops::rearrange_op::roll, ops::number_list::of<Dim...>(), shift}, x);
}

/// Repeated to these extents, of which -1 keeps one as it is: torch.expand. Operations that
/// broadcast need none.
template <dim_t... Sizes, symbolic X>
constexpr auto expand(const X& x) {
  return apply(ops::rearrange{ops::rearrange_op::expand, ops::number_list::of<Sizes...>()}, x);
}

}  // namespace ikebana
