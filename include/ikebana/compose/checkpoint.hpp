#pragma once

#include <string_view>
#include <type_traits>
#include <utility>

#include "ikebana/core/shape.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/refusal.hpp"
#include "ikebana/module/symbol.hpp"

namespace ikebana {

namespace detail {

/// A composition that backward runs again.
template <composite_module M>
struct checkpointed : M {
  static constexpr std::string_view kind = "checkpoint";
  static constexpr bool is_checkpoint = true;

  constexpr checkpointed() = default;
  constexpr explicit checkpointed(const M& m) : M(m) {}

  template <class... C>
  static constexpr auto rebind(C... c) {
    const auto m = M::rebind(std::move(c)...);
    return checkpointed<std::remove_const_t<decltype(m)>>(m);
  }
  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

/// A leaf that backward runs again.
template <leaf_module Leaf>
struct checkpointed_leaf : Leaf {
  static constexpr bool is_checkpoint = true;

  constexpr checkpointed_leaf() = default;
  constexpr explicit checkpointed_leaf(const Leaf& leaf) : Leaf(leaf) {}

  template <shape... In>
  constexpr auto become() const requires requires(const Leaf& m) {
    m.template become<In...>();
  }
  {
    using resolved = decltype(std::declval<const Leaf&>().template become<In...>());
    return checkpointed_leaf<resolved>(Leaf::template become<In...>());
  }
  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

}  // namespace detail

/// A module that keeps only its inputs and outputs for backward, which runs it again before its own
/// backward (Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016;
/// torch.utils.checkpoint): `repeat<12>(checkpoint(block))`. The memory of what it computes is free
/// in between, so that `workspace_bytes` is smaller; `summary` shows by how much. A training step
/// costs another forward of the module, without its last leaves if backward does not read their
/// outputs. In training, gradients are the same bits: random numbers are those of the first run,
/// and the second one finds buffers, such as running statistics, as the first did, and leaves them
/// as they are. Paths and state are those of m, and inference is not affected. A checkpoint within
/// another is a part of it. Hooks run once; one that writes to a value within a checkpoint throws
/// state_error. A constant expression.
template <any_module M>
constexpr auto checkpoint(const M& m) {
  if constexpr (requires { M::is_checkpoint; })
    return m;
  else if constexpr (composite_module<M>)
    return detail::checkpointed<M>(m);
  else
    return detail::checkpointed_leaf<M>(m);
}

namespace detail::misuse {

IKEBANA_MISUSE(checkpoint_takes_a_module, "checkpoint takes a module: checkpoint(sequential(..))");

}  // namespace detail::misuse

template <class M>
requires(!any_module<M>) auto checkpoint(const M&)
    -> decltype(detail::refuse_for<detail::misuse::checkpoint_takes_a_module, M>());

}  // namespace ikebana
