#pragma once

#include <cstdint>

#include "ikebana/core/shape.hpp"

namespace ikebana::detail {

/// Where the steps of a batch of sequences stand among the rows of an array: as in the input, or,
/// where sequences have lengths of their own, as PyTorch packs them, by time, the sequences sorted
/// by falling length, those that have ended left out.
class sequence_order {
 public:
  sequence_order(dim_t steps, dim_t batch, bool batch_first)
      : input_steps_{steps},
        batch_{batch},
        steps_{steps},
        rows_{steps * batch},
        batch_first_{batch_first} {}

  /// Rows are packed; the tables, of `batch` and twice `steps` elements, are written by
  /// sort_by_length.
  void pack(std::int64_t* given, std::int64_t* counts) {
    given_ = given;
    counts_ = counts;
    firsts_ = counts + input_steps_;
  }

  /// Each length is between 1 and the number of steps. O(batch + steps).
  void sort_by_length(const std::int64_t* lengths) {
    for (dim_t t = 0; t < input_steps_; ++t) firsts_[t] = 0;
    for (dim_t b = 0; b < batch_; ++b) ++firsts_[lengths[b] - 1];
    for (dim_t t = input_steps_ - 1, longer = 0; t >= 0; --t) {
      // Sequences that end with step t stand behind the longer ones.
      counts_[t] = longer + firsts_[t];
      firsts_[t] = longer;
      longer = counts_[t];
    }
    for (dim_t b = 0; b < batch_; ++b) given_[firsts_[lengths[b] - 1]++] = b;
    count_rows();
    for (dim_t t = 0, row = 0; t < input_steps_; row += counts_[t++]) firsts_[t] = row;
  }

  /// Steps and rows by the tables of an earlier call.
  void count_rows() {
    for (steps_ = rows_ = 0; steps_ < input_steps_ && counts_[steps_] > 0; ++steps_)
      rows_ += counts_[steps_];
  }

  /// Those of the longest sequence.
  dim_t steps() const { return steps_; }
  dim_t rows() const { return rows_; }
  /// How many sequences have a step t: the first ones.
  dim_t sequences(dim_t t) const { return is_packed() ? counts_[t] : batch_; }
  /// The row of step t of the first sequence, and how far the next sequence's is from it.
  dim_t first(dim_t t) const { return is_packed() ? firsts_[t] : batch_first_ ? t : t * batch_; }
  dim_t row_step() const { return batch_first_ && !is_packed() ? input_steps_ : 1; }
  /// The place in the input of the sequence that stands at place b; packed only.
  dim_t given(dim_t b) const { return given_[b]; }

  /// f(row, the row of the input or output that it stands for); packed only.
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
