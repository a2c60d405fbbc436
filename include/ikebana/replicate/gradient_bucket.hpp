#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/core/shape.hpp"

namespace ikebana {

/// A parameter from the point of view of code that handles its gradient.
struct bucket_parameter {
  path_text path;
  shape extents;
  dim_t begin = 0;      ///< Offset of its gradient in the flat gradient buffer, in elements.
  bool sparse = false;  ///< Its gradient is rows, `sparse<true>` of embedding, and in no bucket.
};

/// A contiguous slice of the flat gradient buffer, passed to the communication hook as soon as
/// backward has finished it. Buckets come in the order of their index on every rank. `data` holds
/// the gradients of `parameters` in order; the gaps between them are zero.
template <class T>
struct gradient_bucket {
  std::span<T> data;
  std::size_t index = 0;
  std::size_t count = 1;                           ///< The number of buckets in one backward.
  std::span<const bucket_parameter> parameters{};  ///< Empty if unknown.
  dim_t begin = 0;                                 ///< Offset of `data` in the flat buffer.

  constexpr bool is_last() const { return index + 1 == count; }

  /// The gradient of parameters[i], row-major.
  constexpr std::span<T> gradient(std::size_t i) const {
    const bucket_parameter& p = parameters[i];
    return data.subspan(static_cast<std::size_t>(p.begin - begin),
                        static_cast<std::size_t>(p.extents.numel()));
  }

  /// The gradient of the parameter with that path; empty if it is not in this bucket.
  /// O(parameters).
  constexpr std::span<T> gradient(std::string_view path) const {
    for (std::size_t i = 0; i < parameters.size(); ++i)
      if (parameters[i].path.view() == path) return gradient(i);
    return {};
  }
};

}  // namespace ikebana
