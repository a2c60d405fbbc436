#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/model/passes/output_gradients.hpp"
#include "ikebana/module/program.hpp"

namespace ikebana::detail {

// Output gradients from the caller and input gradients for the caller of an engine.

template <class Engine>
using gradients_of_outputs = output_gradients<typename Engine::T, Engine::output_count>;

template <class Engine>
void check_gradients(const Engine& e, const gradients_of_outputs<Engine>& given) {
  const auto& t = e.tables();
  for (std::size_t i = 0; i < Engine::output_count; ++i)
    t.check_output_gradient(i, given.given[i] ? given.shapes[i] : t.current.output(i));
}

template <class Engine>
void copy_gradients(Engine& e, const gradients_of_outputs<Engine>& given) {
  e.complete_forward();
  for (std::size_t i = 0; i < Engine::output_count; ++i) {
    e.set_output_written(i, given.given[i]);
    if (auto* to = e.tables().output_gradient(i); to != nullptr && given.given[i])
      std::copy_n(given.data[i], given.shapes[i].numel(), to);
  }
}

/// Sets the gradients that the next run_backward begins with.
template <class Engine>
void set_output_gradients(Engine& e, const gradients_of_outputs<Engine>& given) {
  check_gradients(e, given);
  copy_gradients(e, given);
}

/// The same, and makes that run_backward also write the gradients of the inputs that are numbers;
/// `extents` and `data` have one element for each.
template <class Engine>
void begin_input_gradients(Engine& e, gradients_of_outputs<Engine> given, const shape* extents,
                           typename Engine::T* const* data) {
  using T = typename Engine::T;
  check_gradients(e, given);
  auto& t = e.tables();
  std::array<T*, Engine::input_count + 1> to{};
  for (std::size_t v = 0, i = 0; v < Engine::input_count; ++v) {
    if (t.lowered.kinds[v] != element_kind::real) continue;
    t.check_input_gradient(v, extents[i]);
    to[v] = data[i++];
  }
  std::array<aligned_buffer<T>, Engine::output_count> kept;
  if (!t.input_gradients) {
    // The given gradients may be in memory that is about to be planned again.
    for (std::size_t i = 0; i < Engine::output_count; ++i) {
      if (!given.given[i]) continue;
      const dim_t n = given.shapes[i].numel();
      kept[i] = aligned_buffer<T>(n);
      std::copy_n(given.data[i], n, kept[i].data());
      given.data[i] = kept[i].data();
    }
    e.plan_input_gradients();
  }
  copy_gradients(e, given);
  t.set_input_gradients(to.data(), e.network.memory.workspace.data());
  // An output that is itself an input.
  for (std::size_t i = 0; i < Engine::output_count; ++i)
    if (t.lowered.outputs[i] < static_cast<int>(Engine::input_count) && given.given[i])
      std::copy_n(given.data[i], given.shapes[i].numel(), t.output_gradient(i));
}

/// At its end, also by an exception, no gradient is written to the caller's memory any more.
template <class Engine>
struct input_gradients_scope {
  Engine& engine;
  explicit input_gradients_scope(Engine& e) : engine{e} {}
  input_gradients_scope(const input_gradients_scope&) = delete;
  input_gradients_scope& operator=(const input_gradients_scope&) = delete;
  ~input_gradients_scope() {
    const std::array<typename Engine::T*, Engine::input_count + 1> none{};
    engine.tables().set_input_gradients(none.data(), engine.network.memory.workspace.data());
  }
};

}  // namespace ikebana::detail
