#pragma once

#include <cstddef>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/gemm.hpp"

IKEBANA_CPU_BEGIN_SMALL
namespace ikebana::cpu {

/// A dimension of a contraction: its extent, and how far a step along it leads in the two factors
/// and in the result; 0 where an array lacks it or repeats along it.
struct contracted_dim {
  dim_t extent = 1;
  dim_t a = 0, b = 0, c = 0;
};

/// The dimensions of c = the sum over what c lacks of a * b.
struct contraction {
  static constexpr std::size_t most = 3 * shape::max_rank;
  contracted_dim dims[most]{};
  std::size_t count = 0;
  bool is_empty = false;  ///< An extent is 0.

  /// Joins a dimension that is contiguous with the one before it in all three arrays.
  constexpr void push_back(const contracted_dim& d) {
    if (d.extent == 0) is_empty = true;
    if (d.extent == 1) return;
    if (count > 0) {
      contracted_dim& last = dims[count - 1];
      if (last.a == d.a * d.extent && last.b == d.b * d.extent && last.c == d.c * d.extent) {
        last = {last.extent * d.extent, d.a, d.b, d.c};
        return;
      }
    }
    dims[count++] = d;
  }
};

namespace detail {

/// One product of matrices in a contraction, and the loops around it.
struct contraction_plan {
  contracted_dim m{}, n{}, k{};
  contracted_dim loops[contraction::most]{};
  std::size_t loop_count = 0;
  bool accumulates = false;  ///< Several products are added to one result.
  bool is_gemm = false;
  bool swaps = false;  ///< The transposed product: c has contiguous columns.
  transpose ta = transpose::no, tb = transpose::no;
  dim_t lda = 1, ldb = 1, ldc = 1;
};

/// Whether a matrix with these steps between rows and columns can be a factor of a gemm.
constexpr bool is_factor(dim_t row, dim_t column, transpose& t, dim_t& ld, dim_t rows,
                         dim_t columns) {
  if (column == 1 || columns == 1) {
    t = transpose::no;
    ld = rows == 1 ? columns : row;
    return columns == 1 ? row > 0 || rows == 1 : ld >= columns;
  }
  t = transpose::yes;
  ld = columns == 1 ? rows : column;
  return (row == 1 || rows == 1) && ld >= rows;
}

constexpr contraction_plan plan_contraction(const contraction& of) {
  contraction_plan p;
  // The innermost dimension of each role is part of the product.
  int m = -1, n = -1, k = -1;
  const auto less = [&](int at, dim_t step, dim_t contracted_dim::*by) {
    return at < 0 || step < of.dims[at].*by;
  };
  for (std::size_t i = 0; i < of.count; ++i) {
    const contracted_dim& d = of.dims[i];
    const int at = static_cast<int>(i);
    if (d.a != 0 && d.c != 0 && d.b == 0 && less(m, d.c, &contracted_dim::c)) m = at;
    if (d.b != 0 && d.c != 0 && d.a == 0 && less(n, d.c, &contracted_dim::c)) n = at;
    if (d.a != 0 && d.b != 0 && d.c == 0 && less(k, d.a, &contracted_dim::a)) k = at;
  }
  for (std::size_t i = 0; i < of.count; ++i) {
    const int at = static_cast<int>(i);
    if (at == m || at == n || at == k) continue;
    p.loops[p.loop_count++] = of.dims[i];
    p.accumulates = p.accumulates || of.dims[i].c == 0;
  }
  if (m >= 0) p.m = of.dims[m];
  if (n >= 0) p.n = of.dims[n];
  if (k >= 0) p.k = of.dims[k];
  // c with contiguous rows: as it is; with contiguous columns: the transposed product.
  p.swaps = !(p.n.c == 1 || p.n.extent == 1) || (p.n.extent == 1 && p.m.extent > 1 && p.m.c == 1);
  if (p.swaps) {
    const contracted_dim old_m = p.m;
    p.m = {p.n.extent, p.n.b, 0, p.n.c};
    p.n = {old_m.extent, 0, old_m.a, old_m.c};
    p.k = {p.k.extent, p.k.b, p.k.a, 0};
  }
  p.ldc = p.m.extent == 1 ? p.n.extent : p.m.c;
  p.is_gemm = (p.n.c == 1 || p.n.extent == 1) && p.ldc >= p.n.extent &&
              is_factor(p.m.a, p.k.a, p.ta, p.lda, p.m.extent, p.k.extent) &&
              is_factor(p.k.b, p.n.b, p.tb, p.ldb, p.k.extent, p.n.extent);
  return p;
}

/// One product without gemm.
template <class T>
void contract_plainly(const contraction_plan& p, T alpha, const T* a, const T* b, T* c, bool adds) {
  for (dim_t i = 0; i < p.m.extent; ++i)
    for (dim_t j = 0; j < p.n.extent; ++j) {
      const T *u = a + i * p.m.a, *v = b + j * p.n.b;
      T sum{};
      for (dim_t k = 0; k < p.k.extent; ++k) sum += u[k * p.k.a] * v[k * p.k.b];
      T& to = c[i * p.m.c + j * p.n.c];
      to = adds ? to + alpha * sum : alpha * sum;
    }
}

template <class T>
void contract_from(const contraction_plan& p, std::size_t loop, T alpha, const T* a, const T* b,
                   T* c) {
  if (loop < p.loop_count) {
    const contracted_dim& d = p.loops[loop];
    const dim_t da = p.swaps ? d.b : d.a, db = p.swaps ? d.a : d.b;
    if (loop + 1 == p.loop_count && p.is_gemm && !p.accumulates)
      return gemm_batched<T>(d.extent, p.ta, p.tb, p.m.extent, p.n.extent, p.k.extent, alpha, a,
                             p.lda, da, b, p.ldb, db, T{}, c, p.ldc, d.c);
    for (dim_t i = 0; i < d.extent; ++i)
      contract_from(p, loop + 1, alpha, a + i * da, b + i * db, c + i * d.c);
  } else if (p.is_gemm) {
    gemm<T>(p.ta, p.tb, p.m.extent, p.n.extent, p.k.extent, alpha, a, p.lda, b, p.ldb,
            p.accumulates ? T{1} : T{}, c, p.ldc);
  } else {
    contract_plainly(p, alpha, a, b, c, p.accumulates);
  }
}

}  // namespace detail

/// c = alpha * the sum over what c lacks of a * b, for c of `size` elements. The innermost
/// dimensions are a matrix product, read in place if a stride of each factor is 1; the others are
/// loops around it. O(product of the extents); allocates as `gemm` does.
template <class T>
void contract(const contraction& of, T alpha, const T* a, const T* b, dim_t size, T* c) {
  const detail::contraction_plan p = detail::plan_contraction(of);
  if (of.is_empty || p.accumulates)
    for (dim_t i = 0; i < size; ++i) c[i] = T{};
  if (of.is_empty) return;
  if (p.swaps)
    detail::contract_from(p, 0, alpha, b, a, c);
  else
    detail::contract_from(p, 0, alpha, a, b, c);
}
IKEBANA_CPU_KERNEL(contract)

}  // namespace ikebana::cpu
IKEBANA_CPU_END_SMALL
