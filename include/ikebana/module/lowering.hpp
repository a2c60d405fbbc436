#pragma once

#include <cstddef>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/module/lower_module.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/program.hpp"
#include "ikebana/module/program_builder.hpp"

namespace ikebana {

/// How much of each table the lowered form of M has, for `inputs` input values.
template <any_module M>
constexpr program_sizes sizes_of(std::size_t inputs) {
  return detail::count_network<M>(inputs).n;
}

/// How often the modules of M are called in one forward, for `inputs` input values.
template <any_module M>
constexpr std::size_t count_calls(std::size_t inputs) {
  return detail::count_network<M>(inputs).call_count;
}

/// Writes the program of m for inputs of these shapes to p. `p.error` then says what is wrong with
/// them, with the path. `calls`, where it is not null, has room for count_calls. O(nodes); does not
/// allocate.
template <program_sizes N, any_module M>
constexpr void lower_into(program<N>& p, const M& m, const shape_list& inputs,
                          program_call* calls = nullptr, const diagnostic& known_error = {}) {
  detail::program_builder to;
  to.calls = calls;
  to.error = known_error;
  to.nodes = p.nodes.data();
  to.values = p.values.data();
  to.leaves = p.leaves.data();
  to.scopes = p.scopes.data();
  to.parameters = p.parameters.data();
  to.buffers = p.buffers.data();
  to.saved = p.saved.data();
  to.kinds = p.kinds.data();
  to.choices = p.choices.data();
  to.arms = p.arms.data();
  to.inputs = inputs.size();
  value_list in;
  for (std::size_t i = 0; i < inputs.size(); ++i) in.ids[in.count++] = to.add_value(inputs[i]);
  const value_list out = detail::lower_root(m, to, in);
  for (p.output_count = 0; p.output_count < out.count; ++p.output_count)
    p.outputs[p.output_count] = out.ids[p.output_count];
  p.error = to.error;
}

/// The same as a value, for constant expressions.
template <program_sizes N, any_module M>
constexpr program<N> lower(const M& m, const shape_list& inputs) {
  program<N> p;
  lower_into(p, m, inputs);
  return p;
}

/// How many inputs a module takes, as far as that can be told without them: a leaf may take more.
template <any_module M>
constexpr std::size_t input_count_of() {
  if constexpr (composite_module<M>)
    return static_cast<std::size_t>(M::wiring().inputs);
  else
    return 1;
}

/// The program of m without any shapes: its modules, their paths and parameters.
template <any_module M>
constexpr auto outline(const M& m) {
  constexpr std::size_t inputs = input_count_of<M>();
  program<sizes_of<M>(inputs)> p;
  shape_list unknown;
  while (unknown.size() < inputs) unknown.push_back({});
  // What is wrong already is not looked for.
  lower_into(p, m, unknown, nullptr, {"no shapes are given"});
  return p;
}

/// The output shapes of m for inputs of these shapes, or the diagnostic with the path of the module
/// that refuses them.
template <any_module M>
constexpr inferred infer(const M& m, const shape_list& inputs) {
  if constexpr (composite_module<M>) {
    constexpr program_sizes n = sizes_of<M>(static_cast<std::size_t>(M::wiring().inputs));
    const program<n> p = lower<n>(m, inputs);
    if (!p.error.ok()) return p.error;
    shape_list out;
    for (std::size_t i = 0; i < p.output_count; ++i) out.push_back(p.output(i));
    return out;
  } else {
    return detail::infer_leaf(m, inputs);
  }
}

}  // namespace ikebana
