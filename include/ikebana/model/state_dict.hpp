#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/random.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/core/span_of.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/core/text.hpp"

namespace ikebana {

namespace detail {

/// The bytes of a tensor, or -1 if an extent is not a number or the size overflows. Extents of 0
/// count as 1 for the overflow, so that no product of a part of the extents can overflow either.
constexpr dim_t checked_byte_size(dtype type, const shape& extents) {
  constexpr dim_t most = std::numeric_limits<dim_t>::max();
  auto bytes = static_cast<dim_t>(size_of(type));
  bool empty = false;
  for (dim_t d : extents) {
    if (d < 0) return -1;
    if (d == 0) {
      empty = true;
      continue;
    }
    if (bytes > most / d) return -1;
    bytes *= d;
  }
  return empty ? 0 : bytes;
}

template <class = void>
std::string describe(dtype type, const shape& extents) {
  return std::string(name(type)) + ' ' + text<200>{}.append(extents).c_str();
}

}  // namespace detail

/// Named tensors in the order in which they were added: what a model saves and loads. An entry is
/// either a view of memory that outlives the dict (a model's parameters) or owned by it, or only
/// says that there is nothing yet (a lazy module's). Movable, not copyable: `clone()` says what a
/// copy means. Spans stay valid when the dict is moved.
///
/// A template, so that it is compiled only where it is used.
template <class>
class basic_state_dict {
 public:
  struct entry {
    std::string name;
    dtype type;
    shape extents;
    std::span<const std::byte> bytes;
    bool uninitialized = false;  ///< No elements yet; extents that are not known are `lazy`.

    /// The elements as a tensor. Throws state_error if the type is not T or the extents do not fit
    /// S. Does not allocate otherwise.
    template <class T, shape S>
    tensor_view<const T, S> view() const {
      if (uninitialized)
        throw state_error(name + ": has no elements, for its module is still lazy");
      if (type != dtype_of<T> || !compatible(S, extents))
        throw state_error(name + ": expected " + detail::describe(dtype_of<T>, S) + ", got " +
                          detail::describe(type, extents));
      return {reinterpret_cast<const T*>(bytes.data()), extents};
    }
  };

  basic_state_dict() = default;
  basic_state_dict(basic_state_dict&& other) noexcept { swap(other); }
  basic_state_dict& operator=(basic_state_dict&& other) noexcept {
    basic_state_dict taken(std::move(other));
    swap(taken);
    return *this;
  }

  /// Adds a view of `data`, which must outlive the dict and be aligned for `type`. Throws
  /// state_error if the name is there already or the extents are not numbers.
  void add_view(std::string_view name, dtype type, const shape& extents, const void* data) {
    const std::size_t size = check(name, type, extents);
    append(name, type, extents, {static_cast<const std::byte*>(data), size});
  }

  /// Adds zeroed memory, aligned to 64 bytes, and returns it to be filled (null if it has no
  /// bytes). Throws state_error as add_view does.
  std::byte* add_owned(std::string_view name, dtype type, const shape& extents) {
    const std::size_t size = check(name, type, extents);
    // Owned first: if appending the entry throws, the memory is merely unused, not lost.
    owned_.emplace_back(static_cast<dim_t>(size));
    std::byte* const data = owned_.back().data();
    append(name, type, extents, {data, size});
    return data;
  }

  /// Adds the mark of a tensor that is not there yet. Throws state_error if the name is there
  /// already.
  void add_uninitialized(std::string_view name, dtype type, const shape& extents) {
    check_name(name);
    append(name, type, extents, {});
    entries_.back().uninitialized = true;
  }

  /// Gives the entry of that name another. Throws state_error if there is none of the first or one
  /// of the second. O(entries).
  void rename(std::string_view from, std::string_view to) {
    const std::size_t i = static_cast<std::size_t>(&at(from) - entries_.data());
    if (from == to) return;
    check_name(to);
    entries_[i].name = to;
    reindex();
  }

  /// Takes the entry of that name away, if there is one. O(entries).
  void erase(std::string_view name) {
    if (const entry* e = find(name)) {
      entries_.erase(entries_.begin() + (e - entries_.data()));
      reindex();
    }
  }

  /// The entry of that name, or null. O(1) on average. The pointer is valid until the next
  /// addition.
  const entry* find(std::string_view name) const {
    if (slots_.empty()) return nullptr;
    const std::uint32_t slot = slots_[slot_of(name)];
    return slot == 0 ? nullptr : &entries_[slot - 1];
  }
  bool contains(std::string_view name) const { return find(name) != nullptr; }

  /// The entry of that name. Throws state_error if there is none.
  const entry& at(std::string_view name) const {
    if (const entry* e = find(name)) return *e;
    throw state_error(std::string(name) + ": not in this state_dict");
  }

  std::size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  const entry& operator[](std::size_t i) const { return entries_[i]; }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }

  /// A dict with the same names, order, metadata and bytes, which owns all of its memory.
  basic_state_dict clone() const {
    basic_state_dict copy;
    for (const entry& e : entries_) {
      if (e.uninitialized) {
        copy.add_uninitialized(e.name, e.type, e.extents);
        continue;
      }
      std::byte* data = copy.add_owned(e.name, e.type, e.extents);
      if (!e.bytes.empty()) std::memcpy(data, e.bytes.data(), e.bytes.size());
    }
    copy.metadata_ = metadata_;
    return copy;
  }

  /// A dict of views of the same memory, which must outlive it: for changing names.
  basic_state_dict views() const {
    basic_state_dict copy;
    copy.entries_ = entries_;
    copy.slots_ = slots_;
    copy.metadata_ = metadata_;
    return copy;
  }

  /// Notes that travel with the tensors (a format, an epoch), in the order in which they were set.
  std::span<const std::pair<std::string, std::string>> metadata() const {
    return detail::span_of(metadata_);
  }

  /// The note of that key, or null. O(notes).
  const std::string* find_metadata(std::string_view key) const {
    for (const auto& [k, v] : metadata_)
      if (k == key) return &v;
    return nullptr;
  }

  /// Sets a note, in place of the one of the same key if there is one. O(notes).
  void set_metadata(std::string_view key, std::string_view value) {
    for (auto& [k, v] : metadata_) {
      if (k == key) {
        v = value;
        return;
      }
    }
    metadata_.emplace_back(key, value);
  }

  /// Replaces all notes at once; their keys must differ.
  void set_metadata(std::vector<std::pair<std::string, std::string>> notes) {
    metadata_ = std::move(notes);
  }

 private:
  void check_name(std::string_view name) const {
    if (contains(name)) throw state_error(std::string(name) + ": already in this state_dict");
  }

  std::size_t check(std::string_view name, dtype type, const shape& extents) const {
    check_name(name);
    const dim_t size = detail::checked_byte_size(type, extents);
    if (size < 0)
      throw state_error(std::string(name) + ": no size for " + detail::describe(type, extents));
    return static_cast<std::size_t>(size);
  }

  void append(std::string_view name, dtype type, const shape& extents,
              std::span<const std::byte> bytes) {
    if (2 * (entries_.size() + 1) > slots_.size()) rehash();
    entries_.push_back(entry{std::string(name), type, extents, bytes, false});
    slots_[slot_of(name)] = static_cast<std::uint32_t>(entries_.size());
  }

  /// The slot that holds the name, or the free one where it belongs. Slots hold index + 1.
  std::size_t slot_of(std::string_view name) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t i = static_cast<std::size_t>(hash_path(name)) & mask;
    while (slots_[i] != 0 && entries_[slots_[i] - 1].name != name) i = (i + 1) & mask;
    return i;
  }

  void rehash() {
    slots_.resize(slots_.empty() ? 16 : 2 * slots_.size());
    reindex();
  }

  void reindex() {
    slots_.assign(slots_.size(), 0);
    for (std::size_t i = 0; i < entries_.size(); ++i)
      slots_[slot_of(entries_[i].name)] = static_cast<std::uint32_t>(i + 1);
  }

  void swap(basic_state_dict& other) noexcept {
    entries_.swap(other.entries_);
    owned_.swap(other.owned_);
    slots_.swap(other.slots_);
    metadata_.swap(other.metadata_);
  }

  std::vector<entry> entries_;
  std::vector<aligned_buffer<std::byte>> owned_;
  std::vector<std::uint32_t> slots_;
  std::vector<std::pair<std::string, std::string>> metadata_;
};
using state_dict = basic_state_dict<void>;

}  // namespace ikebana
