#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/random.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/model/state_dict.hpp"
#include "ikebana/optim/optimizer.hpp"
#include "ikebana/optim/optimizer_state_dict.hpp"

namespace ikebana {

namespace detail {

inline constexpr std::string_view model_prefix = "model.", random_name = "random";

enum class state_use { names, read, write };

/// Calls f(name, type, extents, bytes) for all that an optimizer remembers. What is laid out as the
/// parameters are goes by parameter: "optimizer.exp_avg.fc1.weight". Where ranks share the
/// optimizer's work that is memory which lives for the call: for `read` all ranks' parts, put
/// together by all of them; for `write` what this rank takes its part from.
template <class Model, class Optimizer, class F>
void for_each_optimizer_state(Model& m, Optimizer& optimizer, [[maybe_unused]] state_use use,
                              F&& f) {
  using T = typename Model::value_type;
  const auto& p = m.current_program();
  const auto& layout = m.layout();
  if constexpr (sharded_optimizable<Model>) {
    const auto size = static_cast<std::size_t>(layout.parameter_elements) * sizeof(T);
    for (const optimizer_state& state : optimizer.state()) {
      if (!state.in_use) continue;
      const std::string name = "optimizer." + std::string(state.name);
      if (!is_elementwise<T>(state)) {
        f(name, state.type, shape{static_cast<dim_t>(state.bytes.size() / size_of(state.type))},
          state.bytes);
        continue;
      }
      aligned_buffer<T> whole = use == state_use::read
                                    ? gather_state(m, state)
                                    : aligned_buffer<T>(layout.parameter_elements);
      for (std::size_t i = 0; size > 0 && i < p.all_parameters().size(); ++i) {
        const auto& parameter = p.all_parameters()[i];
        const shape& extents = parameter.spec.extents;
        f(name + '.' + p.path(parameter).c_str(), state.type, extents,
          std::as_writable_bytes(whole.span().subspan(static_cast<std::size_t>(layout.offsets[i]),
                                                      static_cast<std::size_t>(extents.numel()))));
      }
      if (use == state_use::write) take_state(m, state, whole);
    }
    return;
  }
  for (const optimizer_state& state : optimizer.state()) {
    if (state.bytes.empty()) continue;
    const std::size_t element = size_of(state.type);
    const std::string name = "optimizer." + std::string(state.name);
    if (state.bytes.size() / element != static_cast<std::size_t>(layout.parameter_elements)) {
      f(name, state.type, shape{state.bytes.size() / element}, state.bytes);
      continue;
    }
    for (std::size_t i = 0; i < p.all_parameters().size(); ++i) {
      const auto& parameter = p.all_parameters()[i];
      const shape& extents = parameter.spec.extents;
      f(name + '.' + p.path(parameter).c_str(), state.type, extents,
        state.bytes.subspan(static_cast<std::size_t>(layout.offsets[i]) * element,
                            static_cast<std::size_t>(extents.numel()) * element));
    }
  }
}

}  // namespace detail

/// All that training goes on from to the same bits: parameters and buffers ("model.fc1.weight"),
/// what the optimizer remembers ("optimizer.exp_avg.fc1.weight", "optimizer.step"), and where the
/// random numbers stand ("random": the seed, its path, the step). Options of the optimizer, and
/// where the data stands, are the caller's. Views of both, but for the last: `save` it, or
/// `clone()` it. Of a replica whose ranks agree, any rank's; with shard_optimizer all ranks must
/// call it, and what the optimizers remember is put together. Allocates.
template <initialized_model Model, class Optimizer>
state_dict get_training_state(Model& m, Optimizer& optimizer) {
  state_dict dict;
  const state_dict model = get_state_dict(m);
  for (const auto& e : model)
    dict.add_view(std::string(detail::model_prefix) + e.name, e.type, e.extents, e.bytes.data());
  detail::for_each_optimizer_state(
      m, optimizer, detail::state_use::read,
      [&](const std::string& name, dtype type, const shape& extents, std::span<std::byte> bytes) {
        if constexpr (!sharded_optimizable<Model>)
          dict.add_view(name, type, extents, bytes.data());
        else if (std::byte* to = dict.add_owned(name, type, extents))
          std::memcpy(to, bytes.data(), bytes.size());
      });
  const std::array<std::int64_t, 3> random{std::bit_cast<std::int64_t>(m.seed().value),
                                           std::bit_cast<std::int64_t>(m.seed().path),
                                           std::int64_t{m.random_step()}};
  std::memcpy(dict.add_owned(detail::random_name, dtype::int64, shape{3}), random.data(),
              sizeof random);
  return dict;
}

/// Copies such a state into a model and its optimizer, replicated or not: every rank loads it, of
/// whatever number of ranks it was. Strict, as load_state_dict is: state_error names what is wrong
/// before anything has changed. The optimizer must be of the same kind, with the same arrays in
/// use. float32 and float64 convert. Allocates.
template <initialized_model Model, class Optimizer>
void load_training_state(Model& m, Optimizer& optimizer, const state_dict& dict) {
  state_dict expected, given, model;
  detail::for_each_optimizer_state(
      m, optimizer, detail::state_use::names,
      [&](const std::string& name, dtype type, const shape& extents, std::span<std::byte>) {
        expected.add_uninitialized(name, type, extents);
      });
  expected.add_owned(detail::random_name, dtype::int64, shape{3});
  for (const auto& e : dict) {
    const bool of_model = e.name.starts_with(detail::model_prefix);
    state_dict& to = of_model ? model : given;
    const std::string name = of_model ? e.name.substr(detail::model_prefix.size()) : e.name;
    if (e.uninitialized)
      to.add_uninitialized(name, e.type, e.extents);
    else
      to.add_view(name, e.type, e.extents, e.bytes.data());
  }
  detail::state_complaint wrong;
  detail::compare_state(wrong, expected, given, true);
  wrong.throw_if_any();
  load_state_dict(m, model);
  detail::for_each_optimizer_state(
      m, optimizer, detail::state_use::write,
      [&](const std::string& name, dtype type, const shape&, std::span<std::byte> bytes) {
        detail::copy_elements(bytes.data(), type, given.at(name));
      });
  const auto random = given.at(detail::random_name).template view<std::int64_t, shape{3}>();
  m.set_seed({std::bit_cast<std::uint64_t>(random[0]), std::bit_cast<std::uint64_t>(random[1])});
  m.set_random_step(static_cast<std::uint32_t>(random[2]));
}

}  // namespace ikebana
