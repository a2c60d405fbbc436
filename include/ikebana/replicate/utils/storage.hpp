#pragma once

#include <string>
#include <type_traits>
#include <utility>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/core/tensor.hpp"

namespace ikebana {

/// Whether the memory of all of a tensor's elements is there. True for a tensor without elements:
/// it needs none.
template <class T, shape S>
bool storage_allocated(const tensor<T, S>& t) {
  return t.size() == t.extents().numel();
}

/// Whether a buffer holds memory.
template <class T>
bool storage_allocated(const aligned_buffer<T>& b) {
  return !b.empty();
}

/// Gives the memory of a tensor back and keeps its extents; nothing if that has happened already.
/// Until alloc_storage or an assignment it has no elements (`size()` is 0), and views of it must
/// not be used.
template <class T, shape S>
void free_storage(tensor<T, S>& t) noexcept {
  [[maybe_unused]] const tensor<T, S> freed(std::move(t));
}

template <class T>
void free_storage(aligned_buffer<T>& b) noexcept {
  b = aligned_buffer<T>();
}

/// Does not compile: memory is given back by who owns it, not through a view.
template <tensor_like X>
void free_storage(const X&) {
  constexpr bool owned = std::is_void_v<X>;
  static_assert(owned,
                "ikebana: free_storage needs the sole owner of the memory: a tensor that is not "
                "const, not a view of one");
}

/// Takes memory for the elements of a tensor whose storage was freed, zeroed, for the extents it
/// has; nothing if it has it. std::bad_alloc leaves it as it was.
template <class T, shape S>
void alloc_storage(tensor<T, S>& t) {
  if (!storage_allocated(t)) t = tensor<T, S>(t.extents());
}

/// Takes memory for `size` elements, zeroed; nothing if the buffer has as many. Throws state_error
/// if it has another number of them: they are freed first, and not by mistake.
template <class T>
void alloc_storage(aligned_buffer<T>& b, dim_t size) {
  if (b.size() == size) return;
  if (!b.empty())
    throw state_error("alloc_storage: expected a buffer without memory, got one of " +
                      std::to_string(b.size()) + " elements (asked for " + std::to_string(size) +
                      ")");
  b = aligned_buffer<T>(size);
}

/// Does not compile: see free_storage.
template <tensor_like X>
void alloc_storage(const X&) {
  constexpr bool owned = std::is_void_v<X>;
  static_assert(owned,
                "ikebana: alloc_storage needs the sole owner of the memory: a tensor that is not "
                "const, not a view of one");
}

}  // namespace ikebana
