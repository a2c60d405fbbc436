#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "ikebana/core/shape.hpp"
#include "ikebana/module/parameter.hpp"

namespace ikebana {

/// A parameter, a matrix, whose gradient is zero but for the rows that are listed: those that
/// backward has written since the gradients were last cleared. What reads or clears gradients needs
/// no other rows.
struct gradient_rows {
  dim_t begin = 0;  ///< Its first element among all parameters.
  dim_t rows = 0;
  dim_t width = 0;
  std::int32_t* list = nullptr;  ///< The number of rows that are listed, then these.

  dim_t end() const { return begin + rows * width; }
  std::span<const std::int32_t> listed() const {
    return {list + 1, static_cast<std::size_t>(list[0])};
  }
};

namespace detail {

inline constexpr dim_t most_listed_rows = dim_t{1} << 30;

/// The buffer of a leaf whose parameter has such a gradient: the number of rows that are listed,
/// room for the list, and for each row whether it is listed. It is zero at first.
inline constexpr buffer_spec row_list_spec(dim_t rows) {
  return {.name = "gradient_rows",
          .extents = shape{1 + extent_product(2, rows)},
          .type = dtype::int32,
          .follows_model = false,
          .persistent = false,
          .is_cache = true};
}

/// What writes it in backward.
template <class T>
class row_list {
 public:
  row_list(std::int32_t* buffer, dim_t rows, dim_t width, T* gradient)
      : count_{buffer}, listed_{buffer + 1 + rows}, width_{width}, gradient_{gradient} {}

  /// Sets the listed rows to zero, and lists none.
  void clear() {
    for (std::int32_t i = 1; i <= *count_; ++i) {
      const std::int32_t row = count_[i];
      std::fill_n(gradient_ + row * width_, width_, T{0});
    }
    forget();
  }
  /// Lists none, and leaves their values.
  void forget() {
    for (std::int32_t i = 1; i <= *count_; ++i) listed_[count_[i]] = 0;
    *count_ = 0;
  }
  void add(std::int64_t row) {
    if (listed_[row] != 0) return;
    listed_[row] = 1;
    count_[++*count_] = static_cast<std::int32_t>(row);
  }

 private:
  std::int32_t* count_;
  std::int32_t* listed_;
  dim_t width_;
  T* gradient_;
};

/// Calls f(begin, end) for the elements of [begin, end) whose gradients may differ from zero, in
/// order of the parameters; `all` are in this order, too. With f of adjacent elements as wide as
/// possible but for rows, each of which is a call.
template <class F>
void for_each_nonzero(std::span<const gradient_rows> all, dim_t begin, dim_t end, F&& f) {
  for (const gradient_rows& r : all) {
    // One that is cut in two is taken as dense.
    if (r.begin < begin || r.end() > end || r.rows == 0) continue;
    if (r.begin > begin) f(begin, r.begin);
    for (const std::int32_t row : r.listed())
      f(r.begin + row * r.width, r.begin + (row + 1) * r.width);
    begin = r.end();
  }
  if (begin < end) f(begin, end);
}

}  // namespace detail
}  // namespace ikebana
