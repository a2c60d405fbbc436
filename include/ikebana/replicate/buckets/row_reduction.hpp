#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/core/span_of.hpp"
#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/module/gradient_rows.hpp"
#include "ikebana/replicate/process_group.hpp"

namespace ikebana::detail {

/// A parameter whose gradient is rows, and its group.
struct row_parameter {
  gradient_rows rows;
  std::size_t group = 0;
};

/// Averages gradients that are rows: of those that any rank lists, and of no others. Afterwards all
/// ranks list the same rows in the same order, so that what they compute of them has the same bits.
/// Three collectives for all parameters together: the numbers of rows, their indices, and the sum
/// of the rows, which has the bits of that of a dense gradient. All ranks must call each function
/// at the same point.
template <floating T, process_group Group>
class row_reduction {
 public:
  row_reduction() = default;
  row_reduction(std::span<T> gradients, std::vector<row_parameter> parameters)
      : gradients_{gradients}, parameters_{std::move(parameters)}, reduced_(parameters_.size()) {}

  /// Allocates for a group of this size.
  void prepare(const Group& group) {
    own_counts_.assign(parameters_.size(), 0);
    counts_.assign(parameters_.size() * static_cast<std::size_t>(group.size()), 0);
    forget();
  }
  /// The gradients contain nothing reduced.
  void forget() { std::fill(reduced_.begin(), reduced_.end(), std::uint8_t{0}); }

  /// Scales the listed rows of what was reduced before by `factor_of(group)`.
  template <class Factor>
  void scale_reduced(const Factor& factor_of) {
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
      const T factor = static_cast<T>(factor_of(parameters_[p].group));
      if (reduced_[p] == 0 || factor == T{1}) continue;
      for (const std::int32_t row : parameters_[p].rows.listed())
        cpu::scale<T>(parameters_[p].rows.width, factor, row_of(p, row));
    }
  }

  /// Reduces the parameters whose group `takes_part`; sums are divided by `divisor_of(group)`.
  /// Allocates if the ranks list more rows than ever before. O(rows that a rank lists * ranks).
  template <class TakesPart, class Divisor>
  void run(Group& group, const TakesPart& takes_part, const Divisor& divisor_of) {
    if (parameters_.empty()) return;
    const std::size_t ranks = static_cast<std::size_t>(group.size()), n = parameters_.size();
    for (std::size_t p = 0; p < n; ++p)
      own_counts_[p] = takes_part(parameters_[p].group) ? parameters_[p].rows.list[0] : 0;
    group.all_gather(span_of(std::as_const(own_counts_)), span_of(counts_));
    dim_t most = 0;  // The rows of a rank.
    for (std::size_t r = 0; r < ranks; ++r) {
      dim_t sum = 0;
      for (std::size_t p = 0; p < n; ++p) sum += counts_[r * n + p];
      most = std::max(most, sum);
    }
    if (most > 0) {
      gather_indices(group, most);
      unite(takes_part, ranks, most);
      sum_rows(group, takes_part, divisor_of);
    }
    for (std::size_t p = 0; p < n; ++p)
      if (takes_part(parameters_[p].group)) reduced_[p] = 1;
  }

 private:
  T* row_of(std::size_t p, std::int32_t row) {
    const gradient_rows& r = parameters_[p].rows;
    return gradients_.data() + r.begin + row * r.width;
  }

  template <class U>
  static void grow(aligned_buffer<U>& buffer, dim_t size) {
    if (buffer.size() < size) buffer = aligned_buffer<U>(std::max(size, 2 * buffer.size()));
  }

  /// The lists of all ranks, each with as much room as the longest takes.
  void gather_indices(Group& group, dim_t most) {
    grow(own_indices_, most);
    grow(indices_, most * group.size());
    std::int32_t* to = own_indices_.data();
    for (std::size_t p = 0; p < parameters_.size(); ++p)
      to = std::copy_n(parameters_[p].rows.list + 1, own_counts_[p], to);
    group.all_gather(std::span<const std::int32_t>(own_indices_.data(), span_size(most)),
                     std::span<std::int32_t>(indices_.data(), span_size(most * group.size())));
  }

  /// Makes each list that of all ranks.
  template <class TakesPart>
  void unite(const TakesPart& takes_part, std::size_t ranks, dim_t most) {
    const std::size_t n = parameters_.size();
    for (std::size_t p = 0; p < n; ++p)
      if (takes_part(parameters_[p].group)) list_of(p).forget();
    for (std::size_t r = 0; r < ranks; ++r) {
      const std::int32_t* row = indices_.data() + static_cast<dim_t>(r) * most;
      for (std::size_t p = 0; p < n; ++p)
        for (std::int32_t i = 0; i < counts_[r * n + p]; ++i) list_of(p).add(*row++);
    }
  }

  /// In parts of parameters with the same divisor: almost always one.
  template <class TakesPart, class Divisor>
  void sum_rows(Group& group, const TakesPart& takes_part, const Divisor& divisor_of) {
    const std::size_t n = parameters_.size();
    for (std::size_t first = 0; first < n;) {
      const double divisor = divisor_of(parameters_[first].group);
      std::size_t last = first;
      dim_t size = 0;
      for (; last < n && divisor_of(parameters_[last].group) == divisor; ++last)
        if (takes_part(parameters_[last].group))
          size += parameters_[last].rows.list[0] * parameters_[last].rows.width;
      if (size > 0) {
        grow(values_, size);
        const std::span<T> sum(values_.data(), span_size(size));
        for_each_row(first, last, takes_part,
                     [](T* row, dim_t width, T* packed) { std::copy_n(row, width, packed); });
        const bool is_mean = divisor == group.size();
        group.all_reduce(sum, is_mean ? reduce_op::avg : reduce_op::sum);
        if (!is_mean) cpu::scale<T>(size, T{1} / static_cast<T>(divisor), sum.data());
        for_each_row(first, last, takes_part,
                     [](T* row, dim_t width, const T* packed) { std::copy_n(packed, width, row); });
      }
      first = last;
    }
  }

  /// Calls f(row, width, its place in the packed values) for the listed rows of [first, last).
  template <class TakesPart, class F>
  void for_each_row(std::size_t first, std::size_t last, const TakesPart& takes_part, const F& f) {
    T* at = values_.data();
    for (std::size_t p = first; p < last; ++p) {
      if (!takes_part(parameters_[p].group)) continue;
      for (const std::int32_t row : parameters_[p].rows.listed()) {
        f(row_of(p, row), parameters_[p].rows.width, at);
        at += parameters_[p].rows.width;
      }
    }
  }

  row_list<T> list_of(std::size_t p) {
    const gradient_rows& r = parameters_[p].rows;
    return {r.list, r.rows, r.width, gradients_.data() + r.begin};
  }
  static std::size_t span_size(dim_t n) { return static_cast<std::size_t>(n); }

  std::span<T> gradients_{};
  std::vector<row_parameter> parameters_;
  std::vector<std::uint8_t> reduced_;  ///< Since the gradients were last zero or local.
  std::vector<std::int32_t> own_counts_, counts_;
  aligned_buffer<std::int32_t> own_indices_, indices_;
  aligned_buffer<T> values_;  ///< The listed rows, packed.
};

}  // namespace ikebana::detail
