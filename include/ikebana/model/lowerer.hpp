#pragma once

#include <boost/hana/tuple.hpp>
#include <cstddef>
#include <type_traits>

#include "ikebana/core/error.hpp"
#include "ikebana/model/leaf_visits.hpp"
#include "ikebana/module/lowering.hpp"
#include "ikebana/module/module.hpp"

namespace ikebana::detail {

/// Writes down the network for inputs of these shapes; the first time, it lets the leaves take over
/// what only run time knows.
template <program_sizes N, any_module M>
using lowerer = void (*)(program<N>&, M&, const shape_list& inputs, bool first);

template <program_sizes N, any_module M>
void lower_at_run_time(program<N>& to, M& m, const shape_list& inputs, bool first) {
  lower_into(to, m, inputs);
  if (!first) return;
  if (!to.error.ok()) throw shape_error(to.error);
  bind_leaves bind{to.nodes.data(), to.values.data()};
  for_each_leaf(m, bind);
  lower_into(to, m, inputs);
  for (const program_parameter& p : to.all_parameters())
    if (!p.spec.extents.is_static())
      throw shape_error(
          diagnostic{"has shape {input}; the extents of the first input must be given",
                     0,
                     0,
                     p.spec.extents,
                     {},
                     to.path(p)});
}

/// Whether a module has nothing that its type does not say.
template <any_module M>
constexpr bool is_stateless() {
  if constexpr (composite_module<M>)
    return []<class... C>(const boost::hana::tuple<C...>*) {
      return (is_stateless<typename unwrap_named<C>::type>() && ... && true);
    }(static_cast<const decltype(M::children)*>(nullptr));
  else
    return std::is_empty_v<M>;
}

}  // namespace ikebana::detail
