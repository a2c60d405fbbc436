#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/vec.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/parallel.hpp"

#define IKEBANA_CPU_BODY "ikebana/cpu/embedding-inl.hpp"
#define IKEBANA_CPU_SETS 1
#include "ikebana/cpu/detail/foreach_target.hpp"

/// Rows of a table, by index. Every index must be one of a row. None allocates or throws.
namespace ikebana::cpu {

/// y[i] = table[index[i]], rows of `width`, for i < n.
template <class T>
void gather_rows(dim_t n, dim_t width, const std::int64_t* index, const T* table, T* y) {
  detail::share_rows(n, width, IKEBANA_CPU_DISPATCH_ONE_WIDTH(gather_table<T>),
                     [=](auto* kernel, dim_t b, dim_t e) {
                       kernel(e - b, width, index + b, table, y + b * width);
                     });
}

/// table[index[i]] += dy[i], in the order of i, over a table of zeros or, if `accumulate`, over
/// what stands there; but for row `skipped` (-1: none). `frequencies`, where given, is room for a
/// number for each of `rows`: each dy[i] is then divided by how often its index occurs.
template <class T>
void scatter_rows(dim_t n, dim_t width, const std::int64_t* index, const T* dy, dim_t rows,
                  dim_t skipped, std::int32_t* frequencies, T* table, bool accumulate) {
  // Each thread looks for the indices of its own rows of the table.
  const dim_t all = (n + rows) * width;
  const dim_t of_row = all <= elements_for_thread || rows == 0 ? 0 : all / rows;
  detail::share_rows(rows, of_row, IKEBANA_CPU_DISPATCH_ONE_WIDTH(scatter_table<T>),
                     [=](auto* kernel, dim_t b, dim_t e) {
                       kernel(n, width, index, dy, b, e, skipped, frequencies, table, accumulate);
                     });
}

IKEBANA_CPU_KERNEL(gather_rows, scatter_rows)

}  // namespace ikebana::cpu
