#pragma once

#include <concepts>
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
#include "ikebana/core/dependent.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/core/span_of.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/core/text.hpp"
#include "ikebana/model/state/name_index.hpp"
#include "ikebana/module/refusal.hpp"

namespace ikebana {

namespace detail {

/// The bytes of a tensor, or -1 if an extent is not a number or the size overflows. For the
/// overflow, extents of 0 count as 1, so that no partial product can overflow either.
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

template <class>
class basic_state_view;

namespace detail::misuse {
IKEBANA_MISUSE(state_view_kept_as_a_dict,
               "a state_view shows the model's memory and changes with it: model.snapshot() is a "
               "copy that stays");
}  // namespace detail::misuse

/// Named tensors in insertion order: what a model saves and loads. An entry is a view of memory
/// that outlives the dict (a model's parameters), or is owned by the dict, or is uninitialized (a
/// lazy module's). Movable, not copyable: `clone()` makes an owning copy. Spans stay valid when the
/// dict is moved.
///
/// A template, so that it is compiled only where it is used.
template <class X>
class basic_state_dict {
 public:
  /// A note about the tensors: its key and its text.
  using metadata_entry = std::pair<detail::dependent<std::string, X>, std::string>;
  struct entry {
    std::string name;
    dtype type;
    shape extents;
    std::span<const std::byte> bytes;
    bool uninitialized = false;  ///< No elements yet; unknown extents are `lazy`.

    /// The elements as a tensor. Throws state_error if there are none, or the type is not T, or the
    /// extents do not match S. No allocation otherwise.
    template <class T, shape S>
    tensor_view<const T, S> view() const {
      if (uninitialized)
        throw_error(state_error(name + ": has no elements, for its module is still lazy"));
      if (type != dtype_of<T> || !compatible(S, extents))
        throw_error(state_error(name + ": expected " + detail::describe(dtype_of<T>, S) + ", got " +
                                detail::describe(type, extents)));
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

  /// A view does not become owning by a change of type: use `model.snapshot()`, or `clone()` of the
  /// view.
  template <class View>
  requires std::same_as<std::remove_cvref_t<View>, basic_state_view<X>>
  __attribute__((unavailable(
      "a state_view shows the model's memory and changes with it: model.snapshot() is a copy that "
      "stays"))) basic_state_dict(View&&);
  template <class View>
  requires std::same_as<std::remove_cvref_t<View>, basic_state_view<X>>
  auto operator=(View&&)
      -> decltype(detail::refuse_as<
                  detail::misuse::state_view_kept_as_a_dict<detail::later<View>>>());

  /// Adds a view of `data`, which must outlive the dict and be aligned for `type`. Throws
  /// state_error if the name exists or the extents are not numbers.
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

  /// Adds an uninitialized entry. Throws state_error if the name exists.
  void add_uninitialized(std::string_view name, dtype type, const shape& extents) {
    check_name(name);
    append(name, type, extents, {});
    entries_.back().uninitialized = true;
  }

  /// Renames an entry. Throws state_error if `from` does not exist or `to` does. O(entries log
  /// entries); `rename_all` does many at once.
  void rename(std::string_view from, std::string_view to) {
    const std::size_t i = static_cast<std::size_t>(&at(from) - entries_.data());
    if (from == to) return;
    check_name(to);
    entries_[i].name = to;
    reindex();
  }

  /// Renames every entry to f(const entry&). Throws state_error, before anything has changed, if
  /// two names would be equal. O(entries log entries).
  template <class F>
  void rename_all(F&& f) {
    std::vector<detail::dependent<std::string, X>> names;
    names.reserve(entries_.size());
    for (const entry& e : entries_) names.push_back(f(e));
    detail::name_index index;
    const std::size_t twice =
        index.assign(names.size(), [&](std::size_t i) -> std::string_view { return names[i]; });
    if (twice != detail::name_index::none)
      throw_error(
          state_error(names[twice] + ": would be the name of two tensors of this state_dict"));
    for (std::size_t i = 0; i < names.size(); ++i) entries_[i].name.swap(names[i]);
    index_.swap(index);
  }

  /// Removes the entry of that name, if it exists. O(entries log entries).
  void erase(std::string_view name) {
    if (const entry* e = find(name)) {
      entries_.erase(entries_.begin() + (e - entries_.data()));
      reindex();
    }
  }

  /// The entry of that name, or null. O(log^2 entries), whatever the names are. The pointer is
  /// valid until the next addition.
  const entry* find(std::string_view name) const {
    const std::size_t i = index_.find(name, name_of());
    return i == detail::name_index::none ? nullptr : &entries_[i];
  }
  bool contains(std::string_view name) const { return find(name) != nullptr; }

  /// The entry of that name. Throws state_error if it does not exist.
  const entry& at(std::string_view name) const {
    if (const entry* e = find(name)) return *e;
    throw_error(state_error(std::string(name) + ": not in this state_dict"));
  }

  std::size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  const entry& operator[](std::size_t i) const { return entries_[i]; }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }

  /// A copy with the same names, order, metadata and bytes, which owns all of its memory.
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

  /// Views of the same memory, which must outlive them, under names that may be changed.
  basic_state_view<X> views() const {
    basic_state_view<X> copy;
    basic_state_dict& to = copy;
    to.entries_ = entries_;
    to.index_ = index_;
    to.metadata_ = metadata_;
    return copy;
  }

  /// Notes about the tensors (a format, an epoch), in the order in which they were set.
  std::span<const metadata_entry> metadata() const { return detail::span_of(metadata_); }

  /// The note with this key, or null. O(number of notes).
  const std::string* find_metadata(std::string_view key) const {
    for (const auto& [k, v] : metadata_)
      if (k == key) return &v;
    return nullptr;
  }

  /// Sets a note; replaces the one with the same key if it exists. O(number of notes).
  void set_metadata(std::string_view key, std::string_view value) {
    for (auto& [k, v] : metadata_) {
      if (k == key) {
        v = value;
        return;
      }
    }
    metadata_.emplace_back(key, value);
  }

  /// The version of a module's state, by the module's path; 0 if the metadata do not contain it, as
  /// in states that PyTorch wrote. O(size of the metadata).
  [[gnu::cold]] int version(std::string_view module) const {
    const std::string* note = find_metadata(version_note(module));
    int n = 0;
    if (note == nullptr) return 0;
    for (const char c : *note) {
      if (c < '0' || c > '9' || n > 100'000'000) return 0;
      n = 10 * n + (c - '0');
    }
    return n;
  }
  [[gnu::cold]] void set_version(std::string_view module, int version) {
    set_metadata(version_note(module), std::to_string(version));
  }

  static constexpr std::string_view folded_note = "ikebana.folded";
  /// Whether norms, scalings or computed weights of the network are part of these tensors, as in
  /// the state of a frozen network. Files keep it. O(number of notes).
  [[gnu::cold]] bool is_folded() const {
    const std::string* note = find_metadata(folded_note);
    return note != nullptr && *note == "true";
  }
  [[gnu::cold]] void set_folded(bool folded) {
    if (folded || find_metadata(folded_note) != nullptr)
      set_metadata(folded_note, folded ? "true" : "false");
  }

  /// Replaces all notes. Requires that their keys differ.
  void set_metadata(std::vector<metadata_entry> notes) { metadata_ = std::move(notes); }

 private:
  [[gnu::cold]] static std::string version_note(std::string_view module) {
    return "ikebana.version:" + std::string(module);
  }

  void check_name(std::string_view name) const {
    if (contains(name))
      throw_error(state_error(std::string(name) + ": already in this state_dict"));
  }

  std::size_t check(std::string_view name, dtype type, const shape& extents) const {
    check_name(name);
    const dim_t size = detail::checked_byte_size(type, extents);
    if (size < 0)
      throw_error(
          state_error(std::string(name) + ": no size for " + detail::describe(type, extents)));
    return static_cast<std::size_t>(size);
  }

  void append(std::string_view name, dtype type, const shape& extents,
              std::span<const std::byte> bytes) {
    entries_.push_back(entry{std::string(name), type, extents, bytes, false});
    struct undo {
      std::vector<entry>& entries;
      bool added = false;
      ~undo() {
        if (!added) entries.pop_back();
      }
    } last{entries_};
    index_.add(name_of());
    last.added = true;
  }

  auto name_of() const {
    return [this](std::size_t i) -> std::string_view { return entries_[i].name; };
  }

  void reindex() { index_.assign(entries_.size(), name_of()); }

  void swap(basic_state_dict& other) noexcept {
    entries_.swap(other.entries_);
    owned_.swap(other.owned_);
    index_.swap(other.index_);
    metadata_.swap(other.metadata_);
  }

  std::vector<entry> entries_;
  std::vector<aligned_buffer<detail::dependent<std::byte, X>>> owned_;
  detail::name_index index_;
  std::vector<metadata_entry> metadata_;
};
using state_dict = basic_state_dict<void>;

/// A state_dict whose memory belongs to another object, usually a model: it shows later changes and
/// must not outlive the owner. It is accepted wherever a state_dict is; `clone()` makes a copy to
/// keep.
template <class X>
class basic_state_view : public basic_state_dict<X> {
  using dict = basic_state_dict<X>;

 public:
  basic_state_view() = default;
  /// Transfers what a dict owns to the view.
  explicit basic_state_view(dict&& owner) noexcept : dict(std::move(owner)) {}
  basic_state_view(basic_state_view&& other) noexcept : dict(static_cast<dict&&>(other)) {}
  basic_state_view& operator=(basic_state_view&& other) noexcept {
    dict::operator=(static_cast<dict&&>(other));
    return *this;
  }
};
using state_view = basic_state_view<void>;

}  // namespace ikebana
