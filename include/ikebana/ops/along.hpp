#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/ops/reduction.hpp"
#include "ikebana/ops/shapes.hpp"

// Sums and extremes along one dimension of a value of a graph. O(elements); no allocation.
namespace ikebana {

namespace ops {

/// y[i] = x[0] + .. + x[i] along a dimension.
struct cumsum {
  static constexpr std::string_view kind = "cumsum";
  static constexpr kept keeps = kept::nothing;

  dim_t dim = -1;

  constexpr bool operator==(const cumsum&) const = default;
  constexpr inferred infer(const shape& in) const {
    if (!has_dim(dim, in.rank()))
      return diagnostic{
          "cumsum expects a dim within {expected} dimensions, got {number} (input {input})",
          static_cast<dim_t>(in.rank()), dim, in};
    return in;
  }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }
  void describe(description& d) const { d.add("dim", std::to_string(dim)); }

  template <class T>
  void forward(const context<T>& c) const {
    run(c.input_shape(), c.input(), c.output(), false);
  }
  template <class T>
  void backward(const context<T>& c) const {
    if (c.input_gradient() != nullptr)
      run(c.input_shape(), c.output_gradient(), c.input_gradient(), true);
  }

 private:
  template <class T>
  void run(const shape& s, const T* x, T* y, bool reversed) const {
    const std::size_t d = dim_of(dim, s.rank());
    const dim_t outer = s.numel(0, d), n = s[d], inner = s.numel(d + 1, s.rank());
    const dim_t step = reversed ? -inner : inner;
    for (dim_t o = 0; o < outer; ++o)
      for (dim_t i = 0; i < n; ++i) {
        const dim_t at = (o * n + (reversed ? n - 1 - i : i)) * inner;
        for (dim_t k = at; k < at + inner; ++k) y[k] = i == 0 ? x[k] : y[k - step] + x[k];
      }
  }
};

/// The index of the largest or the least element along a dimension, or of all; of equal ones, the
/// first. A number of the model's type, without a gradient.
struct arg_extreme {
  static constexpr std::string_view kind = "arg_extreme";
  static constexpr kept keeps = kept::nothing;

  bool is_max = true;
  bool keepdim = false;
  number_list dims{};

  constexpr bool operator==(const arg_extreme&) const = default;
  constexpr inferred infer(const shape& in) const {
    for (std::size_t i = 0; i < dims.size(); ++i)
      if (!has_dim(dims[i], in.rank()))
        return diagnostic{
            is_max
                ? "argmax expects a dim within {expected} dimensions, got {number} (input {input})"
                : "argmin expects a dim within {expected} dimensions, got {number} (input {input})",
            static_cast<dim_t>(in.rank()), dims[i], in};
    shape out;
    for (std::size_t d = 0; d < in.rank(); ++d)
      if (dims.size() > 0 && d != dim_of(dims[0], in.rank()))
        out.push_back(in[d]);
      else if (keepdim)
        out.push_back(1);
    return out;
  }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }
  void describe(description& d) const {
    d.add("f", std::string_view{is_max ? "argmax" : "argmin"}).add("keepdim", keepdim);
    if (dims.size() > 0) d.add("dim", std::to_string(dims[0]));
  }

  template <class T>
  void forward(const context<T>& c) const {
    const shape& s = c.input_shape();
    const bool all = dims.size() == 0;
    const std::size_t d = all ? 0 : dim_of(dims[0], s.rank());
    const dim_t outer = all ? 1 : s.numel(0, d), n = all ? s.numel() : s[d],
                inner = all ? 1 : s.numel(d + 1, s.rank());
    const T* x = c.input();
    for (dim_t o = 0; o < outer; ++o, x += n * inner)
      for (dim_t k = 0; k < inner; ++k) {
        dim_t best = 0;
        for (dim_t i = 1; i < n; ++i) {
          const T a = x[i * inner + k], b = x[best * inner + k];
          // Not-a-number is both largest and least, as in PyTorch.
          if (b == b && (a != a || (is_max ? a > b : a < b))) best = i;
        }
        c.output()[o * inner + k] = static_cast<T>(best);
      }
  }
  template <class T>
  void backward(const context<T>& c) const {
    T* const dx = c.input_gradient();
    if (dx == nullptr) return;
    for (dim_t i = 0, n = c.input_shape().numel(); i < n; ++i) dx[i] = T{};
  }
};

}  // namespace ops

/// torch.cumsum.
template <dim_t Dim, symbolic X>
constexpr auto cumsum(const X& x) {
  return apply(ops::cumsum{Dim}, x);
}

/// torch.argmax along one dimension, or of all elements; the index as a number of the model's
/// type. Option: keepdim. It has no gradient.
template <dim_t... Dim, symbolic X, class... Options>
requires(sizeof...(Dim) <= 1 && (detail::is_keepdim<Options> &&
                                 ...)) constexpr auto argmax(const X& x, const Options&...) {
  return apply(ops::arg_extreme{true, sizeof...(Options) > 0, ops::number_list::of<Dim...>()}, x);
}
/// torch.argmin, likewise.
template <dim_t... Dim, symbolic X, class... Options>
requires(sizeof...(Dim) <= 1 && (detail::is_keepdim<Options> &&
                                 ...)) constexpr auto argmin(const X& x, const Options&...) {
  return apply(ops::arg_extreme{false, sizeof...(Options) > 0, ops::number_list::of<Dim...>()}, x);
}

}  // namespace ikebana
