#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "ikebana/core/shape.hpp"

namespace ikebana::detail {

/// The factor that gives a row of a table the norm `most`, if its norm is above: that of PyTorch's
/// embedding_renorm.
template <class T>
T factor_to_norm(dim_t n, const T* row, double most, double p) {
  double sum = 0;
  if (p == 2) {
    for (dim_t i = 0; i < n; ++i) sum += static_cast<double>(row[i]) * static_cast<double>(row[i]);
    sum = std::sqrt(sum);
  } else if (p == std::numeric_limits<double>::infinity()) {
    for (dim_t i = 0; i < n; ++i) sum = std::fmax(sum, std::fabs(static_cast<double>(row[i])));
  } else {
    for (dim_t i = 0; i < n; ++i) sum += std::pow(std::fabs(static_cast<double>(row[i])), p);
    sum = std::pow(sum, 1 / p);
  }
  return sum > most ? static_cast<T>(most / (sum + 1e-7)) : T(1);
}

/// Scales the rows that are selected, in place.
template <class T>
void renormalize_rows(dim_t n, const std::int64_t* index, dim_t width, double most, double p,
                      T* table) {
  for (dim_t i = 0; i < n; ++i) {
    T* const row = table + index[i] * width;
    const T factor = factor_to_norm(width, row, most, p);
    if (factor != T(1))
      for (dim_t k = 0; k < width; ++k) row[k] *= factor;
  }
}

}  // namespace ikebana::detail
