#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/core/shape.hpp"

namespace ikebana::detail {

/// The buffers of a model during a step of several shards, each of which starts from their values
/// before the step. Buffers of the model's type T are summed along with the gradients, each
/// followed by the number of shards that changed it; of the others, the first shard's are kept.
template <class T>
class invariant_buffers {
 public:
  template <class Model>
  explicit invariant_buffers(const Model& m) : before_(static_cast<dim_t>(m.buffers().size())) {
    const auto& p = m.current_program();
    for (std::size_t b = 0; b < p.all_buffers().size(); ++b) {
      const auto& spec = p.all_buffers()[b].spec;
      const dim_t n = spec.extents.numel();
      if (n == 0) continue;
      if (spec.follows_model || spec.type == dtype_of<T>) {
        summed_.push_back({m.layout().buffer_offsets[b], n});
        length_ += n + 1;
      } else {
        const dim_t bytes = n * static_cast<dim_t>(size_of(spec.type));
        kept_.push_back({m.layout().buffer_offsets[b], bytes});
        kept_bytes_ += bytes;
      }
    }
    first_ = aligned_buffer<std::byte>(kept_bytes_);
  }

  /// The number of elements that are summed.
  dim_t length() const { return length_; }

  void begin(std::span<const std::byte> buffers) {
    if (!buffers.empty()) std::memcpy(before_.data(), buffers.data(), buffers.size());
  }
  void restore(std::span<std::byte> buffers) const {
    if (!buffers.empty()) std::memcpy(buffers.data(), before_.data(), buffers.size());
  }

  /// Writes a shard's buffers, times its weight, to `to`.
  void take(std::span<const std::byte> buffers, T weight, T* to, bool is_first) {
    for (const place& b : summed_) {
      const T* now = at(buffers, b);
      const T* before = at(before_.span(), b);
      const bool changed =
          std::memcmp(now, before, static_cast<std::size_t>(b.size) * sizeof(T)) != 0;
      for (dim_t i = 0; i < b.size; ++i) to[i] = weight * now[i];
      to[b.size] = changed ? T{1} : T{0};
      to += b.size + 1;
    }
    if (!is_first) return;
    std::byte* copy = first_.data();
    for (const place& b : kept_) {
      std::memcpy(copy, buffers.data() + b.offset, static_cast<std::size_t>(b.size));
      copy += b.size;
    }
  }

  /// Gets the buffers that are not summed from rank 0, which has run the first shard.
  template <class Group>
  void share(Group& group) {
    if (!first_.empty()) group.broadcast(first_.span(), 0);
  }

  /// Sets the buffers to the means and to the kept values.
  void finish(const T* sums, T divisor, std::span<std::byte> buffers) const {
    restore(buffers);
    for (const place& b : summed_) {
      if (sums[b.size] != T{0}) {
        T* to = reinterpret_cast<T*>(buffers.data() + b.offset);
        for (dim_t i = 0; i < b.size; ++i) to[i] = sums[i] / divisor;
      }
      sums += b.size + 1;
    }
    const std::byte* copy = first_.data();
    for (const place& b : kept_) {
      std::memcpy(buffers.data() + b.offset, copy, static_cast<std::size_t>(b.size));
      copy += b.size;
    }
  }

 private:
  struct place {
    dim_t offset, size;  // In bytes; in elements of T, or in bytes if it is not summed.
  };

  static const T* at(std::span<const std::byte> buffers, const place& b) {
    return reinterpret_cast<const T*>(buffers.data() + b.offset);
  }

  std::vector<place> summed_, kept_;
  dim_t length_ = 0, kept_bytes_ = 0;
  aligned_buffer<std::byte> before_, first_;
};

}  // namespace ikebana::detail
