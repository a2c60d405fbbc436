#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/elementwise.hpp"

/// Matrices with orthonormal columns as products of Householder reflections: tall matrices, n x k
/// with n >= k, row-major. None allocates or throws.
namespace ikebana::cpu {

/// Column j of x below its diagonal as a reflection: v has zeros before j and 1 at j. Returns tau =
/// 2 / |v|^2, for which I - tau v v^T is orthogonal.
template <class T>
T reflection(dim_t n, dim_t k, dim_t j, const T* x, T* v) {
  std::fill_n(v, j, T{0});
  v[j] = T{1};
  T squares{1};
  for (dim_t i = j + 1; i < n; ++i) {
    v[i] = x[i * k + j];
    squares += v[i] * v[i];
  }
  return T{2} / squares;
}

/// e = (I - tau v v^T) e for e of n x k, where v is zero before row `from`. `products`: room for k
/// elements, which become e^T v of the former e.
template <class T>
void reflect(dim_t n, dim_t k, dim_t from, T tau, const T* v, T* e, T* products) {
  std::fill_n(products, k, T{0});
  for (dim_t i = from; i < n; ++i) axpy<T>(k, v[i], e + i * k, products);
  for (dim_t i = from; i < n; ++i) axpy<T>(k, -tau * v[i], products, e + i * k);
}

/// The sign that column j of the product is multiplied by.
template <class T>
T column_sign(dim_t k, dim_t j, const T* x) {
  return x[j * k + j] < T{0} ? T{-1} : T{1};
}

/// q = H_0 ... H_{k-1} I D: the first k columns of the product of the reflections of x, whose
/// columns have the signs of x's diagonal. `v`: n elements, `products`: k. O(n k^2).
template <class T>
void householder_product(dim_t n, dim_t k, const T* x, T* q, T* v, T* products) {
  for (dim_t i = 0; i < n; ++i)
    for (dim_t j = 0; j < k; ++j) q[i * k + j] = i == j ? column_sign(k, j, x) : T{0};
  for (dim_t j = k; j-- > 0;) {
    const T tau = reflection(n, k, j, x, v);
    reflect(n, k, j, tau, v, q, products);
  }
}

/// dx = the gradient of x below its diagonal, 0 elsewhere, from dq. Both q, the product, and dq are
/// destroyed: as reflections are their own inverses, the products before
/// each are computed back from the last. `products`: 2 k elements. O(n k^2).
template <class T>
void householder_product_backward(dim_t n, dim_t k, const T* x, T* q, T* dq, T* v, T* products,
                                  T* dx) {
  T *const a = products, *const b = products + k;
  std::fill_n(dx, n * k, T{0});
  for (dim_t j = 0; j < k; ++j) {
    const T tau = reflection(n, k, j, x, v);
    // b = dq^T v before dq is reflected; q becomes the product of the later reflections, a = q^T v.
    reflect(n, k, j, tau, v, q, a);
    for (dim_t c = 0; c < k; ++c) a[c] = -a[c];
    std::fill_n(b, k, T{0});
    for (dim_t i = j; i < n; ++i) axpy<T>(k, v[i], dq + i * k, b);
    T both{0};
    for (dim_t c = 0; c < k; ++c) both += a[c] * b[c];
    for (dim_t i = j + 1; i < n; ++i) {
      T sum{0};
      for (dim_t c = 0; c < k; ++c) sum += dq[i * k + c] * a[c] + q[i * k + c] * b[c];
      dx[i * k + j] = tau * (tau * both * v[i] - sum);
    }
    for (dim_t i = j; i < n; ++i) axpy<T>(k, -tau * v[i], b, dq + i * k);
  }
}

/// Replaces x by the reflections and signs of its QR decomposition with a positive diagonal of R,
/// so that householder_product gives Q. O(n k^2). The same bits under every instruction set.
template <class T>
void householder_of(dim_t n, dim_t k, T* x) {
  for (dim_t j = 0; j < k; ++j) {
    double squares = 0;
    for (dim_t i = j; i < n; ++i)
      squares += static_cast<double>(x[i * k + j]) * static_cast<double>(x[i * k + j]);
    const double first = static_cast<double>(x[j * k + j]);
    // The reflection maps the column to -sign(first) norm, which R's sign then makes positive.
    const double norm = std::sqrt(squares), head = first < 0 ? first - norm : first + norm;
    if (head != 0) {
      double own = 0;
      for (dim_t i = j + 1; i < n; ++i) {
        const double tail = static_cast<double>(x[i * k + j]) / head;
        x[i * k + j] = static_cast<T>(tail);
        own += tail * tail;
      }
      const double tau = 2 / (1 + own);
      for (dim_t c = j + 1; c < k; ++c) {
        double dot = static_cast<double>(x[j * k + c]);
        for (dim_t i = j + 1; i < n; ++i)
          dot += static_cast<double>(x[i * k + j]) * static_cast<double>(x[i * k + c]);
        x[j * k + c] = static_cast<T>(static_cast<double>(x[j * k + c]) - tau * dot);
        for (dim_t i = j + 1; i < n; ++i)
          x[i * k + c] = static_cast<T>(static_cast<double>(x[i * k + c]) -
                                        tau * dot * static_cast<double>(x[i * k + j]));
      }
    }
    x[j * k + j] = first < 0 ? T{1} : T{-1};
  }
}

}  // namespace ikebana::cpu
