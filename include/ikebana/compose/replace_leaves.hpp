#pragma once

#include <array>
#include <boost/hana/tuple.hpp>
#include <boost/hana/unpack.hpp>
#include <cstddef>
#include <utility>

#include "ikebana/compose/replace_steps.hpp"
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

/// Leaves that are alike have no parameters; they are replaced as steps of their graph.
template <class Replace, std::size_t First, class C>
constexpr auto replace_in_child(const C& child) {
  if constexpr (is_alike<C>)
    return child;
  else
    return renamed<C>(replace_leaves<Replace, First>(module_of(child)));
}

/// By step of M: the code of its replacement, if its leaf has one and is alike others.
template <class Replace, std::size_t First, class M, class... C>
constexpr auto codes_of_steps() {
  constexpr const auto& w = wiring_of<M>;
  constexpr bool alike_child[]{is_alike<C>..., false};
  std::array<signed char, w.size()> codes{};
  for (std::size_t s = 0; s < w.size(); ++s) {
    const auto leaf = static_cast<std::size_t>(children_of<M>.starts[w.steps[s].number()].leaf);
    codes[s] =
        (alike_child[w.steps[s].child] ? Replace::step(First + leaf) : step_replacement{}).code();
  }
  return codes;
}

template <class Replace, std::size_t First, class M, std::size_t... I, class... C>
constexpr auto replace_in_children(const M&, std::index_sequence<I...> each, const C&... child) {
  constexpr bool replaces_steps = requires { typename Replace::replacements; }
  &&(is_alike<C> || ... || false);
  if constexpr (replaces_steps) {
    constexpr auto codes = codes_of_steps<Replace, First, M, C...>();
    constexpr bool has_any = [](const auto& all) {
      for (const signed char c : all)
        if (c >= 0) return true;
      return false;
    }(codes);
    if constexpr (has_any)
      return Replace::replacements::template make<M, codes>(
          each, replace_in_child<Replace, First + leaves_before<M>(I)>(child)...);
    else
      return M::rebind(replace_in_child<Replace, First + leaves_before<M>(I)>(child)...);
  } else {
    return M::rebind(replace_in_child<Replace, First + leaves_before<M>(I)>(child)...);
  }
}

/// M with each leaf replaced by `Replace::replace<L>(leaf)`, where L is its index in the order in
/// which leaves are declared. First is the index of M's first leaf. A leaf that is alike others
/// remains, unless `Replace::step(L)` names one of the modules of `Replace::replacements`, which
/// then takes its place.
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
