#pragma once

#include <cstddef>

#include "ikebana/core/shape.hpp"

namespace ikebana::detail {

/// PowerSGD's state for one parameter of a bucket: its gradient as a matrix M (rows x columns). P
/// and Q are stored transposed, one row per column.
struct powersgd_matrix {
  std::size_t parameter = 0;
  dim_t begin = 0;  // In the bucket.
  dim_t rows = 0, columns = 0, rank = 0;
  dim_t p = 0, q = 0, error = 0;  // Offsets in the memory; p and error are -1 if there is none.

  dim_t elements() const { return rows * columns; }
};

struct powersgd_bucket {
  std::size_t first = 0, last = 0;  // Matrices.
  dim_t exact = 0;                  // Elements sent uncompressed, before the Ps.
  dim_t message = 0, message_size = 0;
  dim_t q = 0, q_size = 0;
  bool compressing = false;
};

}  // namespace ikebana::detail
