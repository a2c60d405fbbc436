#pragma once

#include <cstring>

#include "ikebana/core/error.hpp"
#include "ikebana/model/passes/leaf_visits.hpp"
#include "ikebana/module/lowering.hpp"
#include "ikebana/module/module.hpp"

namespace ikebana::detail {

/// Lowers the network for inputs of these shapes; the first time, leaves also bind what only run
/// time knows.
template <program_sizes N, any_module M>
using lowerer = void (*)(program<N>&, M&, const shape_list& inputs, bool first);

template <program_sizes N, any_module M>
void lower_at_run_time(program<N>& to, M& m, const shape_list& inputs, bool first) {
  lower_into(to, m, inputs);
  if (!first) return;
  if (!to.error.ok()) throw_error(shape_error(to.error));
  bind_leaves bind{to.nodes.data(), to.values.data()};
  for_each_leaf(m, bind);
  lower_into(to, m, inputs);
  for (const program_parameter& p : to.all_parameters())
    if (!p.spec.extents.is_static())
      throw_error(
          shape_error(diagnostic{"has shape {input}; the extents of the first input must be given",
                                 0,
                                 0,
                                 p.spec.extents,
                                 {},
                                 to.path(p)}));
}

/// The lowerer for inputs of the shapes In. If the compiler knows the lowered network, the lowering
/// code is not part of the program.
template <program_sizes N, any_module M, shape... In>
constexpr lowerer<N, M> lowerer_of() {
  if constexpr (is_stateless<M, true>() && (In.is_static() && ... && true))
    return [](program<N>& to, M&, const shape_list&, bool) {
      static constexpr const program<N>& known = lowered_of<M, In...>;
      // An assignment would be a store per number.
      std::memcpy(static_cast<void*>(&to), &known, sizeof to);
    };
  else
    return &lower_at_run_time<N, M>;
}

}  // namespace ikebana::detail
