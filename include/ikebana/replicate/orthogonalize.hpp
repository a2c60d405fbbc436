#pragma once

#include <cmath>
#include <limits>

#include "ikebana/core/shape.hpp"

namespace ikebana::detail {

template <class T>
double dot(dim_t n, const T* a, const T* b) {
  double s = 0;
  for (dim_t i = 0; i < n; ++i) s += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return s;
}

/// Makes the rows of a (rows x n, row-major) orthonormal by the modified Gram-Schmidt process. A
/// row that is, up to rounding, a combination of the rows before it is filled by `replace(row)` and
/// orthogonalized again. It becomes 0 if that fails too or if `replace` returns false. `epsilon` is
/// added to each norm before the division. Equal input gives equal bits. O(rows^2 n); no
/// allocation.
template <class T, class Replace>
void orthonormalize_rows(dim_t rows, dim_t n, T* a, double epsilon, Replace replace) {
  // The order of magnitude of what remains of a row in their span after subtracting the
  // projections.
  const double lost = 16 * static_cast<double>(std::numeric_limits<T>::epsilon()) *
                      std::sqrt(static_cast<double>(n));
  for (dim_t i = 0; i < rows; ++i) {
    T* const row = a + i * n;
    for (bool replaced = false;; replaced = true) {
      const double before = std::sqrt(dot(n, row, row));
      // Two passes suffice even for nearly dependent rows (Giraud, Langou, Rozloznik, 2005).
      for (int pass = 0; pass < 2; ++pass)
        for (dim_t j = 0; j < i; ++j) {
          const double c = dot(n, a + j * n, row);
          for (dim_t k = 0; k < n; ++k)
            row[k] =
                static_cast<T>(static_cast<double>(row[k]) - c * static_cast<double>(a[j * n + k]));
        }
      const double norm = std::sqrt(dot(n, row, row));
      if (!(norm <= lost * before)) {  // NaN is kept.
        for (dim_t k = 0; k < n; ++k)
          row[k] = static_cast<T>(static_cast<double>(row[k]) / (norm + epsilon));
        break;
      }
      if (replaced || !replace(i)) {
        for (dim_t k = 0; k < n; ++k) row[k] = 0;
        break;
      }
    }
  }
}

}  // namespace ikebana::detail
