#pragma once

#include <array>
#include <cstddef>
#include <type_traits>

#include "ikebana/module/named.hpp"

namespace ikebana {

/// The unnamed leaves of one type in a graph, as one child of it, so that what is instantiated for
/// each child does not grow with their number. Graph knows their number, `count<M>`, and their
/// values, `values<M>`, which need no memory unless the graph's function captures something.
template <class Graph, class M>
struct alike {
  static constexpr bool is_empty = true;
  static constexpr const M& at(int part) {
    return Graph::template values<M>[static_cast<std::size_t>(part)];
  }
};

template <class Graph, class M>
requires(Graph::captures && !std::is_empty_v<M>) struct alike<Graph, M> {
  static constexpr bool is_empty = false;
  std::array<M, Graph::template count<M>> held = Graph::template values<M>;

  constexpr const M& at(int part) const { return held[static_cast<std::size_t>(part)]; }
};

/// A child of a composition, or a part of one: those that bear an index or a name, in this order.
struct numbered_child {
  int child = 0;
  int part = 0;
};

/// The name of a child, or its index if that is its name.
struct child_name {
  const char* name = nullptr;
  int index = -1;  ///< Negative if it has another name.
};

namespace detail {

template <class Graph, class M>
struct unwrap_named<alike<Graph, M>> : std::type_identity<M> {};

template <class C>
inline constexpr bool is_alike = false;
template <class Graph, class M>
inline constexpr bool is_alike<alike<Graph, M>> = true;

/// The number of modules for which a child stands.
template <class C>
inline constexpr std::size_t part_count = 1;
template <class Graph, class M>
inline constexpr std::size_t part_count<alike<Graph, M>> = Graph::template count<M>;

/// One of them.
template <class C>
constexpr auto& part_of(C& child, [[maybe_unused]] int part) {
  if constexpr (is_alike<std::remove_const_t<C>>)
    return child.at(part);
  else
    return module_of(child);
}

/// Its value as far as the type of the child determines it.
template <class C>
struct part_value {
  static constexpr typename unwrap_named<C>::type at(int) { return {}; }
};
template <class Graph, class M>
struct part_value<alike<Graph, M>> {
  static constexpr const M& at(int part) {
    return Graph::template values<M>[static_cast<std::size_t>(part)];
  }
};

}  // namespace detail
}  // namespace ikebana
