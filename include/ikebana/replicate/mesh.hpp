#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "ikebana/core/error.hpp"
#include "ikebana/replicate/process_group.hpp"

namespace ikebana {

/// The name of a dimension of a mesh, from a string literal.
struct dimension_name {
  char text[32]{};

  template <std::size_t N>
  requires(N > 1 && N <= sizeof(text)) consteval dimension_name(const char (&name)[N]) {
    for (std::size_t i = 0; i + 1 < N; ++i) text[i] = name[i];
  }
  constexpr std::string_view view() const { return text; }
  constexpr bool operator==(const dimension_name&) const = default;
};

/// The ranks of a group arranged as a grid with named dimensions, the last one varying fastest, and
/// a group along each dimension: the result of `mesh<"dp", "tp">(group, {2, 2})`, one on each rank.
/// Movable.
template <class Group, dimension_name... Names>
class process_mesh {
 public:
  static constexpr std::size_t rank_count = sizeof...(Names);
  using extents_type = std::array<int, rank_count>;
  using group_type = Group;

  /// See `mesh`.
  process_mesh(std::shared_ptr<Group> whole, const extents_type& extents)
      : whole_{std::move(whole)}, extents_{check(extents, whole_->size())} {
    int rest = whole_->rank();
    for (std::size_t d = rank_count; d-- > 0; rest /= extents_[d]) place_[d] = rest % extents_[d];
    for (std::size_t d = 0; d < rank_count; ++d) {
      // The index of the line along d that contains this rank.
      int line = 0;
      for (std::size_t e = 0; e < rank_count; ++e)
        if (e != d) line = line * extents_[e] + place_[e];
      groups_[d] =
          rank_count == 1 ? whole_ : std::make_shared<Group>(whole_->split(line, place_[d]));
    }
  }

  static constexpr std::array<dimension_name, rank_count> names() { return {Names...}; }

  /// The number of ranks along each dimension.
  const extents_type& shape() const { return extents_; }
  template <dimension_name Name>
  int extent() const {
    return extents_[index_of<Name>()];
  }
  int size() const { return whole_->size(); }

  /// The coordinates of this rank.
  const extents_type& coordinates() const { return place_; }
  template <dimension_name Name>
  int coordinate() const {
    return place_[index_of<Name>()];
  }

  /// The group of the ranks that differ from this one only along that dimension, ordered by it.
  template <dimension_name Name>
  Group& get_group() const {
    return *groups_[index_of<Name>()];
  }

  /// All ranks of the mesh.
  Group& group() const { return *whole_; }

  /// The sub-mesh of the named dimensions, in their order here, at this rank's coordinates in the
  /// others: `m.template slice<"dp">()`. It shares its groups with this mesh. A slice of one
  /// dimension already exists; for several, every rank of the mesh must call it, since a group is
  /// created (allocates; communication_error).
  template <dimension_name... Some>
  process_mesh<Group, Some...> slice() const {
    static_assert(sizeof...(Some) > 0, "ikebana: a slice of a mesh names one dimension or more");
    constexpr std::array<std::size_t, sizeof...(Some)> kept{index_of<Some>()...};
    static_assert(
        [&] {
          for (std::size_t i = 1; i < kept.size(); ++i)
            if (kept[i - 1] >= kept[i]) return false;
          return true;
        }(),
        "ikebana: a slice of a mesh names its dimensions once each, in the order of the mesh");
    if constexpr (sizeof...(Some) == 1) {
      return {groups_[kept[0]], {extents_[kept[0]]}};
    } else {
      int line = 0, key = 0;
      for (std::size_t d = 0, k = 0; d < rank_count; ++d) {
        const bool is_kept = k < kept.size() && kept[k] == d;
        if (is_kept) ++k;
        (is_kept ? key : line) = (is_kept ? key : line) * extents_[d] + place_[d];
      }
      return {std::make_shared<Group>(whole_->split(line, key)), {extents_[index_of<Some>()]...}};
    }
  }

 private:
  static_assert(rank_count > 0);

  static constexpr bool names_differ = [] {
    const std::array<dimension_name, rank_count> all{Names...};
    for (std::size_t i = 0; i < rank_count; ++i)
      for (std::size_t j = 0; j < i; ++j)
        if (all[i] == all[j]) return false;
    return true;
  }();
  static_assert(names_differ, "ikebana: two dimensions of a mesh have the same name");

  template <dimension_name Name>
  static constexpr std::size_t index_of() {
    constexpr std::size_t found = [] {
      std::size_t i = 0, at = rank_count;
      ((Names == Name ? void(at = i) : void(), ++i), ...);
      return at;
    }();
    static_assert(found < rank_count, "ikebana: this mesh has no dimension of that name");
    return found;
  }

  static const extents_type& check(const extents_type& extents, int ranks) {
    std::string text;
    long long places = 1;
    bool positive = true;
    for (int e : extents) {
      positive = positive && e > 0;
      if (places <= ranks) places *= e;
      text += (text.empty() ? "" : " x ") + std::to_string(e);
    }
    if (!positive || places != ranks)
      throw error("mesh: " + text + " is not the shape of " + std::to_string(ranks) + " ranks");
    return extents;
  }

  std::shared_ptr<Group> whole_;
  extents_type extents_{}, place_{};
  std::array<std::shared_ptr<Group>, rank_count> groups_;
};

/// Arranges the ranks of a group as a grid: `auto m = mesh<"dp", "tp">(group, {2, 2})`; then
/// `m.get_group<"dp">()` is the group of the ranks with the same "tp". All ranks of the group must
/// call it. The group must outlive the mesh and its slices. Throws ikebana::error unless the
/// extents are positive and their product is the number of ranks; communication_error. Allocates.
template <dimension_name... Names, divisible_group Group>
requires(sizeof...(Names) >
         0) process_mesh<Group, Names...> mesh(Group& group,
                                               const std::array<int, sizeof...(Names)>& extents) {
  return {std::shared_ptr<Group>(std::shared_ptr<void>{}, &group), extents};
}

/// All ranks in one dimension named "replicate".
template <divisible_group Group>
process_mesh<Group, "replicate"> mesh(Group& group) {
  return {std::shared_ptr<Group>(std::shared_ptr<void>{}, &group), {group.size()}};
}

}  // namespace ikebana
