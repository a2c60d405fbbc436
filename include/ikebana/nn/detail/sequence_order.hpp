#pragma once

#include <cstdint>

#include "ikebana/core/shape.hpp"

namespace ikebana::detail {

/// Maps the steps of a batch of sequences to rows of an array. Rows are ordered as in the input or,
/// if sequences have different lengths, packed as in PyTorch: by time, with the sequences sorted by
/// decreasing length and those that have ended left out.
class sequence_order {
 public:
  sequence_order(dim_t steps, dim_t batch, bool batch_first)
      : input_steps_{steps},
        batch_{batch},
        steps_{steps},
        rows_{steps * batch},
        batch_first_{batch_first} {}

  /// Switches to packed rows. `given` has `batch` elements and `counts` twice `steps`;
  /// sort_by_length fills both.
  void pack(std::int64_t* given, std::int64_t* counts) {
    given_ = given;
    counts_ = counts;
    firsts_ = counts + input_steps_;
  }

  /// Fills the tables. Each length is between 1 and the number of steps. O(batch + steps).
  void sort_by_length(const std::int64_t* lengths) {
    for (dim_t t = 0; t < input_steps_; ++t) firsts_[t] = 0;
    for (dim_t b = 0; b < batch_; ++b) ++firsts_[lengths[b] - 1];
    for (dim_t t = input_steps_ - 1, longer = 0; t >= 0; --t) {
      // Sequences that end with step t follow the longer ones.
      counts_[t] = longer + firsts_[t];
      firsts_[t] = longer;
      longer = counts_[t];
    }
    for (dim_t b = 0; b < batch_; ++b) given_[firsts_[lengths[b] - 1]++] = b;
    count_rows();
    for (dim_t t = 0, row = 0; t < input_steps_; row += counts_[t++]) firsts_[t] = row;
  }

  /// Counts steps and rows from the tables that an earlier call filled.
  void count_rows() {
    for (steps_ = rows_ = 0; steps_ < input_steps_ && counts_[steps_] > 0; ++steps_)
      rows_ += counts_[steps_];
  }

  /// Steps of the longest sequence.
  dim_t steps() const { return steps_; }
  dim_t rows() const { return rows_; }
  /// The number of sequences that have a step t; they are the first ones.
  dim_t sequences(dim_t t) const { return is_packed() ? counts_[t] : batch_; }
  /// The row of step t of the first sequence, and the distance to the next sequence's row.
  dim_t first(dim_t t) const { return is_packed() ? firsts_[t] : batch_first_ ? t : t * batch_; }
  dim_t row_step() const { return batch_first_ && !is_packed() ? input_steps_ : 1; }
  /// The index in the input of the sequence at sorted position b; packed only.
  dim_t given(dim_t b) const { return given_[b]; }

  /// Calls f(row, corresponding row of the input or output) for each row; packed only.
  template <class F>
  void each_row(F f) const {
    for (dim_t t = 0; t < steps_; ++t)
      for (dim_t b = 0; b < counts_[t]; ++b)
        f(firsts_[t] + b, batch_first_ ? given_[b] * input_steps_ + t : t * batch_ + given_[b]);
  }

 private:
  bool is_packed() const { return given_ != nullptr || counts_ != nullptr; }

  dim_t input_steps_, batch_, steps_, rows_;
  bool batch_first_;
  std::int64_t *given_ = nullptr, *counts_ = nullptr, *firsts_ = nullptr;
};

}  // namespace ikebana::detail
