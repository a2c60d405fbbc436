#pragma once

#include <boost/hana/tuple.hpp>
#include <boost/hana/unpack.hpp>
#include <cstddef>
#include <utility>

#include "ikebana/module/alike.hpp"
#include "ikebana/module/lower_module.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/named.hpp"

namespace ikebana::detail {

/// The number of leaves of M before those of this child.
template <composite_module M>
constexpr std::size_t leaves_before(std::size_t child) {
  std::size_t c = 0;
  for (const numbered_child& n : numbered_children_of<M>) {
    if (n.child == static_cast<int>(child)) break;
    ++c;
  }
  return static_cast<std::size_t>(children_of<M>.starts[c].leaf);
}

template <class Replace, std::size_t First = 0, any_module M>
constexpr auto replace_leaves(const M& m);

/// Leaves that are alike have no parameters.
template <class Replace, std::size_t First, class C>
constexpr auto replace_in_child(const C& child) {
  if constexpr (is_alike<C>)
    return child;
  else
    return renamed<C>(replace_leaves<Replace, First>(module_of(child)));
}

template <class Replace, std::size_t First, class M, std::size_t... I, class... C>
constexpr auto replace_in_children(const M&, std::index_sequence<I...>, const C&... child) {
  return M::rebind(replace_in_child<Replace, First + leaves_before<M>(I)>(child)...);
}

/// M with each leaf replaced by `Replace::replace<L>(leaf)`, where L is its index in the order in
/// which leaves are declared. First is the index of M's first leaf. Leaves that are alike remain.
template <class Replace, std::size_t First, any_module M>
constexpr auto replace_leaves(const M& m) {
  if constexpr (composite_module<M>)
    return boost::hana::unpack(m.children, [&](const auto&... child) {
      return replace_in_children<Replace, First>(m, std::make_index_sequence<sizeof...(child)>{},
                                                 child...);
    });
  else
    return Replace::template replace<First>(m);
}

}  // namespace ikebana::detail
