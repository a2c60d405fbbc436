#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/core/tensor.hpp"

// Sequences of different lengths as one tensor, and back. Each allocates its result; O(elements).
namespace ikebana {

/// Options of pad_sequence, PyTorch's.
template <class T>
struct pad_options {
  bool batch_first = false;
  T padding_value{};
};

namespace detail {

/// [dynamic, dynamic, the extents of one element...].
constexpr shape padded_shape(const shape& sequence) {
  shape s{dynamic, dynamic};
  for (std::size_t i = 1; i < sequence.rank(); ++i) s.push_back(sequence[i]);
  return s;
}
/// [dynamic, the extents of one element...].
constexpr shape unpadded_shape(const shape& padded) {
  shape s{dynamic};
  for (std::size_t i = 2; i < padded.rank(); ++i) s.push_back(padded[i]);
  return s;
}

/// Whether these are the extents of a sequence of any length.
constexpr bool is_sequence(const shape& s) {
  return s.rank() >= 1 && s[0] == dynamic && s.rank() < shape::max_rank;
}

}  // namespace detail

/// Sequences [length, ...] as [longest, N, ...], or [N, longest, ...] with batch_first, filled up
/// with padding_value (torch.nn.utils.rnn.pad_sequence): the input of a recurrent module with
/// lengths. Throws shape_error if there is none, or elements differ in shape.
template <class T, shape S>
auto pad_sequence(std::span<const tensor<T, S>> sequences, const pad_options<T>& options = {}) {
  static_assert(detail::is_sequence(S),
                "ikebana: pad_sequence takes tensors [dynamic, ...] of at most 7 dimensions");
  if (sequences.empty())
    throw_error(shape_error(
        diagnostic{"pad_sequence expects at least {expected} sequence, got {got}", 1, 0}));
  dim_t longest = 0;
  shape extents = sequences[0].extents();
  for (const auto& s : sequences) {
    longest = std::max(longest, s.extents()[0]);
    if (s.extents().with(0, 0) != extents.with(0, 0))
      throw_error(shape_error(
          diagnostic{"pad_sequence expects elements of one shape, got {input} and {other}", 0, 0,
                     extents, s.extents()}));
  }
  const auto n = static_cast<dim_t>(sequences.size());
  shape all{options.batch_first ? n : longest, options.batch_first ? longest : n};
  for (std::size_t i = 1; i < extents.rank(); ++i) all.push_back(extents[i]);
  tensor<T, detail::padded_shape(S)> out(all);
  std::fill(out.begin(), out.end(), options.padding_value);
  const dim_t element = extents.numel(1, extents.rank());
  for (dim_t i = 0; i < n; ++i) {
    const auto& s = sequences[static_cast<std::size_t>(i)];
    for (dim_t t = 0; t < s.extents()[0]; ++t)
      std::copy_n(s.data() + t * element, element,
                  out.data() + (options.batch_first ? i * longest + t : t * n + i) * element);
  }
  return out;
}
template <class T, shape S>
auto pad_sequence(const std::vector<tensor<T, S>>& sequences, const pad_options<T>& options = {}) {
  return pad_sequence(std::span<const tensor<T, S>>(sequences), options);
}

/// The sequences of these lengths in such a tensor (unpad_sequence). Throws shape_error unless
/// there is a length from 0 to the longest for each.
template <tensor_like X>
auto unpad_sequence(const X& padded, std::span<const std::int64_t> lengths,
                    bool batch_first = false) {
  static_assert(X::static_shape.rank() >= 2,
                "ikebana: unpad_sequence takes a tensor of at least 2 dimensions");
  using T = std::remove_const_t<typename X::value_type>;
  constexpr shape S = detail::unpadded_shape(X::static_shape);
  const shape& all = padded.extents();
  const dim_t n = all[batch_first ? 0 : 1], longest = all[batch_first ? 1 : 0];
  if (static_cast<dim_t>(lengths.size()) != n)
    throw_error(shape_error(
        diagnostic{"unpad_sequence expects {expected} lengths, got {got} (input {input})", n,
                   static_cast<dim_t>(lengths.size()), all}));
  for (const std::int64_t length : lengths)
    if (length < 0 || length > longest)
      throw_error(shape_error(diagnostic{
          "unpad_sequence expects lengths up to {expected}, got {number} (input {input})", longest,
          static_cast<dim_t>(length), all}));
  const dim_t element = all.numel(2, all.rank());
  std::vector<tensor<T, S>> out;
  for (dim_t i = 0; i < n; ++i) {
    shape extents{static_cast<dim_t>(lengths[static_cast<std::size_t>(i)])};
    for (std::size_t k = 2; k < all.rank(); ++k) extents.push_back(all[k]);
    tensor<T, S>& s = out.emplace_back(extents);
    for (dim_t t = 0; t < extents[0]; ++t)
      std::copy_n(padded.data() + (batch_first ? i * longest + t : t * n + i) * element, element,
                  s.data() + t * element);
  }
  return out;
}

}  // namespace ikebana
