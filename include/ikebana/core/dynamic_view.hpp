#pragma once

#include <cstddef>
#include <type_traits>

#include "ikebana/core/shape.hpp"
#include "ikebana/core/tensor.hpp"

namespace ikebana {

/// A view of contiguous, row-major elements whose rank is known only at run time. It refers to
/// memory that must outlive it.
template <class T>
class dynamic_view {
 public:
  using value_type = std::remove_const_t<T>;

  constexpr dynamic_view() = default;
  /// `data` points to extents.numel() elements.
  constexpr dynamic_view(T* data, const shape& extents) : data_{data}, extents_{extents} {}

  constexpr T* data() const { return data_; }
  constexpr const shape& extents() const { return extents_; }
  constexpr std::size_t rank() const { return extents_.rank(); }
  constexpr dim_t size() const { return extents_.numel(); }
  constexpr T* begin() const { return data_; }
  constexpr T* end() const { return data_ + size(); }
  constexpr T& operator[](dim_t flat) const {
    detail::check_flat_index(*this, flat);
    return data_[flat];
  }

  /// The same elements as a tensor_view of shape S: `w.as<shape{dynamic, 3}>()`. Throws shape_error
  /// if the extents do not match.
  template <shape S>
  constexpr tensor_view<T, S> as() const {
    return {data_, extents_};
  }

 private:
  T* data_ = nullptr;
  shape extents_{};
};

}  // namespace ikebana
