#pragma once

#include <cstddef>
#include <span>
#include <type_traits>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/core/shape.hpp"

namespace ikebana {

/// The maximal number of inputs or outputs of a module.
inline constexpr std::size_t max_arity = 8;

/// The shapes of a module's inputs or outputs. Structural.
struct shape_list {
  shape items[max_arity]{};
  std::size_t count = 0;

  constexpr shape_list() = default;
  template <class... S>
  requires(sizeof...(S) > 0 &&
           (std::is_same_v<S, shape> && ...)) constexpr shape_list(const S&... s)
      : items{s...}, count{sizeof...(S)} {}

  constexpr std::size_t size() const { return count; }
  constexpr const shape& operator[](std::size_t i) const { return items[i]; }
  constexpr shape& operator[](std::size_t i) { return items[i]; }
  constexpr void push_back(const shape& s) { items[count++] = s; }
};

/// The shapes of a module's own parameters or buffers, as passed to bind_state.
using shape_span = std::span<const shape>;

/// The result of shape inference: a module's output shapes, or a diagnostic that tells what is
/// wrong.
struct inferred {
  shape_list outputs{};
  diagnostic error{};

  constexpr inferred(const shape& s) : outputs{s} {}
  constexpr inferred(const shape_list& s) : outputs{s} {}
  constexpr inferred(const diagnostic& d) : error{d} {}

  constexpr bool ok() const { return error.ok(); }
  constexpr const shape& output(std::size_t i = 0) const { return outputs[i]; }
};

}  // namespace ikebana
