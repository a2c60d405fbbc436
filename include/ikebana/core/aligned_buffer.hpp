#pragma once

#include <cstddef>
#include <cstring>
#include <limits>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

#include "ikebana/core/shape.hpp"

namespace ikebana {

/// Alignment of all storage in bytes: a cache line, and the widest vector register.
inline constexpr std::size_t storage_alignment = 64;

/// An owning array of trivial elements on the heap, zero-initialised and aligned to 64 bytes.
/// Movable, not copyable; a moved-from buffer is empty. Only construction with size > 0 allocates.
/// It throws std::bad_alloc, or std::bad_array_new_length if the size is negative or its bytes
/// overflow.
template <class T>
class aligned_buffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  aligned_buffer() = default;

  explicit aligned_buffer(dim_t size) : size_{size} {
    if (size == 0) return;
    if (size < 0 ||
        size > std::numeric_limits<std::ptrdiff_t>::max() / static_cast<dim_t>(sizeof(T)))
      throw_error(std::bad_array_new_length());
    const std::size_t bytes = static_cast<std::size_t>(size) * sizeof(T);
    data_ = static_cast<T*>(::operator new (bytes, std::align_val_t{storage_alignment}));
    std::memset(static_cast<void*>(data_), 0, bytes);
  }

  aligned_buffer(aligned_buffer&& other) noexcept
      : data_{std::exchange(other.data_, nullptr)}, size_{std::exchange(other.size_, 0)} {}

  aligned_buffer& operator=(aligned_buffer&& other) noexcept {
    aligned_buffer taken(std::move(other));
    std::swap(data_, taken.data_);
    std::swap(size_, taken.size_);
    return *this;
  }

  ~aligned_buffer() {
    if (data_ != nullptr) ::operator delete (data_, std::align_val_t{storage_alignment});
  }

  /// The same memory as bytes; this buffer is then empty. Does not allocate.
  aligned_buffer<std::byte> release_bytes() && {
    aligned_buffer<std::byte> bytes;
    bytes.size_ = std::exchange(size_, 0) * static_cast<dim_t>(sizeof(T));
    bytes.data_ = reinterpret_cast<std::byte*>(std::exchange(data_, nullptr));
    return bytes;
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  dim_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::span<T> span() { return {data_, static_cast<std::size_t>(size_)}; }
  std::span<const T> span() const { return {data_, static_cast<std::size_t>(size_)}; }
  T& operator[](dim_t i) { return data_[i]; }
  const T& operator[](dim_t i) const { return data_[i]; }

 private:
  template <class U>
  friend class aligned_buffer;

  T* data_ = nullptr;
  dim_t size_ = 0;
};

/// n elements of `element_size` bytes, rounded up so that they fill whole units of the storage
/// alignment.
constexpr dim_t round_up_to_alignment(dim_t n, std::size_t element_size) {
  const dim_t step =
      element_size >= storage_alignment ? 1 : static_cast<dim_t>(storage_alignment / element_size);
  return (n + step - 1) / step * step;
}
/// The same for elements of T.
template <class T>
constexpr dim_t round_up_to_alignment(dim_t n) {
  return round_up_to_alignment(n, sizeof(T));
}

}  // namespace ikebana
