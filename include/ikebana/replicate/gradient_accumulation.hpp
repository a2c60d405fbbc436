#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <type_traits>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/core/shape.hpp"

namespace ikebana {

namespace detail {
struct gradient_accumulation_key {};
}  // namespace detail

/// The type in which the gradients of several backwards are accumulated, at least as wide as the
/// model's: `gradient_accumulation<double>`. Each backward's gradients are computed separately and
/// then added; the sum is rounded to the model's type once, before it is reduced. (The sum of a
/// float model is float whatever a hook sends: with bf16_compress, PyTorch's reduce_dtype, the
/// option is not needed.) Needs memory for one T per parameter.
template <class T>
struct gradient_accumulation {
  using replicate_key = detail::gradient_accumulation_key;
  using type = T;
};

namespace detail {

/// A no-op: the model's own sums suffice.
struct native_sums {
  template <class T>
  explicit native_sums(std::span<T>) {}
  void begin(bool) {}
  void add_up_to(dim_t) {}
  void replace(dim_t, dim_t) {}
};

/// Sums in A for gradients of T, which hold the rounded sums between two backwards.
template <floating A, floating T>
class wide_sums {
 public:
  explicit wide_sums(std::span<T> gradients)
      : gradients_{gradients}, sums_(static_cast<dim_t>(gradients.size())) {}

  /// Called before a backward, which starts from zero gradients if it accumulates.
  void begin(bool accumulate) {
    added_ = 0;
    accumulate_ = accumulate;
    if (!accumulate) return;
    // Other changes of the gradients count, such as zero_grad and clipping.
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      A& sum = sums_.data()[i];
      if (static_cast<T>(sum) != gradients_[i]) sum = static_cast<A>(gradients_[i]);
    }
    std::ranges::fill(gradients_, T{0});
  }
  /// Called when the first `elements` of this backward's gradients are final.
  void add_up_to(dim_t elements) {
    for (; added_ < elements; ++added_) {
      A& sum = sums_.data()[added_];
      T& gradient = gradients_[static_cast<std::size_t>(added_)];
      sum = accumulate_ ? sum + static_cast<A>(gradient) : static_cast<A>(gradient);
      gradient = static_cast<T>(sum);
    }
  }
  /// Called after the gradients in [begin, begin + n) were reduced.
  void replace(dim_t begin, dim_t n) {
    std::copy_n(gradients_.begin() + begin, n, sums_.data() + begin);
  }

 private:
  std::span<T> gradients_;
  aligned_buffer<A> sums_;
  dim_t added_ = 0;
  bool accumulate_ = false;
};

template <class A, floating T>
struct sums_of {
  static_assert(std::is_floating_point_v<A> && sizeof(A) >= sizeof(T),
                "ikebana: gradient_accumulation expects float or double, at least as wide as the "
                "model's type");
  using type = wide_sums<A, T>;
};
template <floating T>
struct sums_of<T, T> {
  using type = native_sums;
};
template <floating T>
struct sums_of<void, T> {
  using type = native_sums;
};

}  // namespace detail
}  // namespace ikebana
