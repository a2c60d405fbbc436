#pragma once

#include <array>
#include <cstddef>
#include <type_traits>

#include "ikebana/core/shape.hpp"
#include "ikebana/core/tensor.hpp"

// Copies of tensors with other element types or other orders of dimensions. Each allocates its
// result; O(elements).
namespace ikebana {

namespace detail {

/// The extents of s in the order of `dims`.
template <std::size_t N>
constexpr shape permuted(const shape& s, const std::array<std::size_t, N>& dims) {
  shape out;
  for (std::size_t d : dims) out.push_back(s[d]);
  return out;
}

/// Whether each of 0, ..., N - 1 is in `dims`.
template <std::size_t N>
constexpr bool is_permutation_of(const std::array<std::size_t, N>& dims) {
  bool met[N + 1] = {};
  for (std::size_t d : dims) {
    if (d >= N || met[d]) return false;
    met[d] = true;
  }
  return true;
}

}  // namespace detail

/// The elements as numbers of type U, each times `factor`: `cast<float>(bytes, 1 / 255.f)`.
template <class U, tensor_like X>
auto cast(const X& x, U factor = U{1}) {
  tensor<U, X::static_shape> out(x.extents());
  const auto* from = x.data();
  for (U& to : out) to = static_cast<U>(static_cast<U>(*from++) * factor);
  return out;
}

/// The elements with the dimensions in another order, as torch.permute: `permute<0, 3, 1, 2>(x)` of
/// images [N, height, width, C] is [N, C, height, width].
template <std::size_t... Dims, tensor_like X>
auto permute(const X& x) {
  constexpr std::size_t n = sizeof...(Dims);
  constexpr std::array<std::size_t, n> dims{Dims...};
  static_assert(n == X::static_shape.rank() && detail::is_permutation_of(dims),
                "ikebana: permute takes each dimension once");
  const shape from = x.extents();
  std::array<dim_t, n + 1> strides{}, step{};
  strides[n] = 1;
  for (std::size_t i = n; i-- > 0;) strides[i] = i + 1 == n ? 1 : strides[i + 1] * from[i + 1];
  for (std::size_t i = 0; i < n; ++i) step[i] = strides[dims[i]];
  tensor<typename X::value_type, detail::permuted(X::static_shape, dims)> out(
      detail::permuted(from, dims));
  const shape to = out.extents();
  std::array<dim_t, n + 1> index{};
  const auto* source = x.data();
  for (auto& element : out) {
    element = *source;
    for (std::size_t i = n; i-- > 0;) {
      source += step[i];
      if (++index[i] < to[i]) break;
      source -= step[i] * to[i];
      index[i] = 0;
    }
  }
  return out;
}

/// A matrix with rows and columns exchanged.
template <tensor_like X>
auto transpose(const X& x) {
  static_assert(X::static_shape.rank() == 2, "ikebana: transpose takes a matrix; see permute");
  return permute<1, 0>(x);
}

}  // namespace ikebana
