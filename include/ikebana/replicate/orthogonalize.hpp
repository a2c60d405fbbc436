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
/// row that lies in the span of those before it, up to rounding, has no direction of its own: it is
/// filled by `replace(row)` and tried once more, and becomes 0 if that is no better or `replace`
/// says false. `epsilon` is added to each norm that divides. The same bits for equal input.
/// O(rows^2 n); allocates nothing.
template <class T, class Replace>
void orthonormalize_rows(dim_t rows, dim_t n, T* a, double epsilon, Replace replace) {
  // What subtracting the projections leaves of a row in their span is of this order.
  const double lost = 16 * static_cast<double>(std::numeric_limits<T>::epsilon()) *
                      std::sqrt(static_cast<double>(n));
  for (dim_t i = 0; i < rows; ++i) {
    T* const row = a + i * n;
    for (bool replaced = false;; replaced = true) {
      const double before = std::sqrt(dot(n, row, row));
      // Twice is enough (Giraud, Langou, Rozloznik, 2005): also where the row is nearly dependent.
      for (int pass = 0; pass < 2; ++pass)
        for (dim_t j = 0; j < i; ++j) {
          const double c = dot(n, a + j * n, row);
          for (dim_t k = 0; k < n; ++k)
            row[k] =
                static_cast<T>(static_cast<double>(row[k]) - c * static_cast<double>(a[j * n + k]));
        }
      const double norm = std::sqrt(dot(n, row, row));
      if (!(norm <= lost * before)) {  // not-a-number stays
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
