#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/replicate/process_group.hpp"

namespace ikebana::detail {

/// A range of the flat gradient buffer, in elements.
struct element_range {
  dim_t begin = 0, size = 0;
};

/// One reduction of gradients that are not adjacent: they are packed, reduced, and unpacked.
template <floating T, process_group Group>
class delayed_reduction {
 public:
  delayed_reduction() = default;
  delayed_reduction(std::span<T> gradients, std::vector<element_range> pieces)
      : gradients_{gradients}, pieces_{std::move(pieces)} {
    dim_t size = 0;
    for (const element_range& p : pieces_) {
      size += p.size;
      end_ = std::max(end_, p.begin + p.size);
    }
    flat_ = aligned_buffer<T>(size);
  }

  bool empty() const { return pieces_.empty(); }
  /// The end of the last of them: the reduction can start once backward has reached it.
  dim_t end() const { return end_; }
  const std::vector<element_range>& pieces() const { return pieces_; }

  void start(Group& group, double divisor) {
    T* to = flat_.data();
    for (const element_range& p : pieces_)
      to = std::copy_n(gradients_.begin() + p.begin, p.size, to);
    factor_ = divisor == group.size() ? T{1} : T{1} / static_cast<T>(divisor);
    work_ = group.all_reduce_async(flat_.span(),
                                   divisor == group.size() ? reduce_op::avg : reduce_op::sum);
    under_way_ = true;
  }
  /// Waits for it if it was started.
  bool finish() {
    if (!under_way_) return false;
    work_.wait();
    under_way_ = false;
    if (factor_ != T{1}) cpu::scale<T>(flat_.size(), factor_, flat_.data());
    const T* from = flat_.data();
    for (const element_range& p : pieces_) {
      std::copy_n(from, p.size, gradients_.begin() + p.begin);
      from += p.size;
    }
    return true;
  }

  /// Withdraws it.
  void abandon() {
    [[maybe_unused]] const work_of<Group> withdrawn = std::exchange(work_, {});
    under_way_ = false;
  }

 private:
  std::span<T> gradients_{};
  std::vector<element_range> pieces_;
  dim_t end_ = 0;
  aligned_buffer<T> flat_;
  T factor_{1};
  work_of<Group> work_{};
  bool under_way_ = false;
};

}  // namespace ikebana::detail
