#pragma once

#include <string>
#include <type_traits>
#include <utility>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/core/tensor.hpp"

namespace ikebana {

/// Whether the memory for all of a tensor's elements is allocated. True for a tensor without
/// elements, which needs none.
template <class T, shape S>
bool storage_allocated(const tensor<T, S>& t) {
  return t.size() == t.extents().numel();
}

/// Whether a buffer has memory.
template <class T>
bool storage_allocated(const aligned_buffer<T>& b) {
  return !b.empty();
}

/// Frees the memory of a tensor and keeps its extents; a no-op if it is freed already. Until
/// alloc_storage or an assignment, the tensor has no elements (`size()` is 0), and views of it must
/// not be used.
template <class T, shape S>
void free_storage(tensor<T, S>& t) noexcept {
  [[maybe_unused]] const tensor<T, S> freed(std::move(t));
}

template <class T>
void free_storage(aligned_buffer<T>& b) noexcept {
  b = aligned_buffer<T>();
}

/// Does not compile: only the owner frees memory, not a view.
template <tensor_like X>
void free_storage(const X&) {
  constexpr bool owned = std::is_void_v<X>;
  static_assert(owned,
                "ikebana: free_storage needs the sole owner of the memory: a tensor that is not "
                "const, not a view of one");
}

/// Allocates zeroed memory for the elements of a tensor whose storage was freed; a no-op if it is
/// allocated. If std::bad_alloc is thrown, the tensor is unchanged.
template <class T, shape S>
void alloc_storage(tensor<T, S>& t) {
  if (!storage_allocated(t)) t = tensor<T, S>(t.extents());
}

/// Allocates zeroed memory for `size` elements; a no-op if the buffer has that many. Throws
/// state_error if it has another number of elements, which must be freed first.
template <class T>
void alloc_storage(aligned_buffer<T>& b, dim_t size) {
  if (b.size() == size) return;
  if (!b.empty())
    throw state_error("alloc_storage: expected a buffer without memory, got one of " +
                      std::to_string(b.size()) + " elements (asked for " + std::to_string(size) +
                      ")");
  b = aligned_buffer<T>(size);
}

/// Does not compile; see free_storage.
template <tensor_like X>
void alloc_storage(const X&) {
  constexpr bool owned = std::is_void_v<X>;
  static_assert(owned,
                "ikebana: alloc_storage needs the sole owner of the memory: a tensor that is not "
                "const, not a view of one");
}

}  // namespace ikebana
