#pragma once

namespace ikebana {

/// How a loss combines the losses of single elements or rows: `none` leaves them as they are, a
/// value for each, which is possible within graphs and with `loss_values`.
enum class reduction : unsigned char { mean, sum, none };

namespace detail {

constexpr const char* name_of_reduction(reduction r) {
  return r == reduction::mean ? "mean" : r == reduction::sum ? "sum" : "none";
}

}  // namespace detail
}  // namespace ikebana
