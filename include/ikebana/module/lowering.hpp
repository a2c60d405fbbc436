#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/module/lower_module.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/program.hpp"
#include "ikebana/module/program_builder.hpp"

namespace ikebana {

/// The sizes of the tables of M's lowered form, for `inputs` input values.
template <any_module M>
constexpr program_sizes sizes_of(std::size_t inputs) {
  return detail::count_network<M>(inputs).n;
}

/// The number of module calls in one forward of M, for `inputs` input values.
template <any_module M>
constexpr std::size_t count_calls(std::size_t inputs) {
  return detail::count_network<M>(inputs).call_count;
}

/// Writes the program of m for inputs of these shapes to p. `p.error` is then the diagnostic, with
/// the path, or empty. `calls`, unless null, has room for count_calls. O(nodes); no allocation.
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

namespace detail {

/// The program of M, whose type determines it, for inputs of these shapes. Evaluated once.
template <any_module M, shape... In>
inline constexpr auto lowered_of = lower<sizes_of<M>(sizeof...(In))>(M{}, shape_list{In...});

}  // namespace detail

/// The number of inputs of a composition; 1 for a leaf, which may take more.
template <any_module M>
constexpr std::size_t input_count_of() {
  if constexpr (composite_module<M>)
    return static_cast<std::size_t>(detail::wiring_of<M>.inputs);
  else
    return 1;
}

/// The program of m without shapes: its modules, their paths and parameters.
template <any_module M>
constexpr auto outline(const M& m) {
  constexpr std::size_t inputs = input_count_of<M>();
  program<sizes_of<M>(inputs)> p;
  shape_list unknown;
  while (unknown.size() < inputs) unknown.push_back({});
  // An existing error suppresses further checks.
  lower_into(p, m, unknown, nullptr, {"no shapes are given"});
  return p;
}

namespace detail {

template <program_sizes N>
constexpr inferred outputs_of(const program<N>& p) {
  if (!p.error.ok()) return p.error;
  shape_list out;
  for (std::size_t i = 0; i < p.output_count; ++i) out.push_back(p.output(i));
  return out;
}

template <program_sizes N, any_module M>
[[gnu::cold, gnu::noinline]] constexpr inferred infer_in_compiler(const M& m,
                                                                  const shape_list& inputs) {
  return outputs_of(lower<N>(m, inputs));
}

/// The program is too large for the stack of a thread.
template <program_sizes N, any_module M>
[[gnu::cold, gnu::noinline]] inferred infer_on_heap(const M& m, const shape_list& inputs) {
  const auto p = std::make_unique<program<N>>();
  lower_into(*p, m, inputs);
  return outputs_of(*p);
}

}  // namespace detail

/// The output shapes of m for inputs of these shapes, or a diagnostic with the path of the module
/// that refuses them. Allocates at run time.
template <any_module M>
constexpr inferred infer(const M& m, const shape_list& inputs) {
  if constexpr (composite_module<M>) {
    constexpr int expected = detail::wiring_of<M>.inputs;
    if (inputs.size() != static_cast<std::size_t>(expected))
      return detail::wrong_input_count(expected, inputs.size());
    constexpr program_sizes n = sizes_of<M>(static_cast<std::size_t>(detail::wiring_of<M>.inputs));
    if (std::is_constant_evaluated()) return detail::infer_in_compiler<n>(m, inputs);
    return detail::infer_on_heap<n>(m, inputs);
  } else if constexpr (!detail::has_protocol<M>) {
    return diagnostic{detail::protocol_sentence<M>.data};
  } else {
    return detail::infer_leaf(m, inputs);
  }
}

}  // namespace ikebana
