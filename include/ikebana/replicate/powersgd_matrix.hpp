#pragma once

#include <cstddef>

#include "ikebana/core/shape.hpp"

namespace ikebana::detail {

/// What PowerSGD keeps of one parameter of a bucket: its gradient as a matrix M (rows x columns).
/// P and Q are kept transposed, a row for each of their columns.
struct powersgd_matrix {
  std::size_t parameter = 0;
  dim_t begin = 0;  // in the bucket
  dim_t rows = 0, columns = 0, rank = 0;
  dim_t p = 0, q = 0, error = 0;  // where in the memory; p and error are -1 where there is none

  dim_t elements() const { return rows * columns; }
};

struct powersgd_bucket {
  std::size_t first = 0, last = 0;  // matrices
  dim_t exact = 0;                  // elements sent as they are, before the Ps
  dim_t message = 0, message_size = 0;
  dim_t q = 0, q_size = 0;
  bool compressing = false;
};

}  // namespace ikebana::detail
