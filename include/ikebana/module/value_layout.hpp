#pragma once

#include <cstddef>

#include "ikebana/core/shape.hpp"

namespace ikebana {

/// The output of a leaf as a view of its input: which of its dimensions each one of the output
/// follows, and the elements of one dimension that are taken.
struct view_map {
  bool exists = false;
  signed char source[shape::max_rank]{};  ///< By dimension of the output; -1: repeats the input.
  std::size_t dim = 0;                    ///< Of the input: starts at `first`, with this step.
  dim_t first = 0;
  dim_t step = 1;
};

/// Where the elements of a value are.
// No initial values: g++ 12 drops those of array members in a constant expression.
struct value_layout {
  bool is_view;     ///< In the memory of the input of the leaf that defines it.
  bool is_strided;  ///< Not in row-major order without gaps: leaves that cannot read it so do not.
  dim_t offset;     ///< Of a view: its first element, counted from that of the input.
  dim_t strides[shape::max_rank];
  bool is_part;  ///< Writes its place in the gradient of the input, and others the remaining ones.
  /// Of what is made as a part of a whole: its first element in the whole's memory, and that of its
  /// gradient in the memory of the whole's; else 0.
  dim_t first_in_whole, first_in_gradient;
};

/// How a leaf reads an input that is not contiguous.
enum class strided_reader : unsigned char {
  none,
  rows,     ///< Elements that are together in the last dimension, or repeated along it.
  product,  ///< Elements that are together in one of the last two dimensions.
  any
};

}  // namespace ikebana
