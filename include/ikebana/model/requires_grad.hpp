#pragma once

#include <array>
#include <cstddef>

#include "ikebana/core/text.hpp"
#include "ikebana/model/state/patterns.hpp"
#include "ikebana/module/lowering.hpp"
#include "ikebana/module/path_pattern.hpp"
#include "ikebana/module/refusal.hpp"

namespace ikebana {

namespace detail {

/// Which leaves can leave out the gradients of their parameters.
template <class Model, std::size_t Leaves>
struct find_skipping_leaves {
  const Model& model;
  std::array<bool, Leaves + 1>& skips;
  std::size_t node = 0;

  template <class Leaf>
  void operator()(const Leaf&) {
    const auto l = static_cast<std::size_t>(model.current_program().nodes[node++].leaf);
    if constexpr (requires { Leaf::skips_parameter_gradients; })
      skips[l] = Leaf::skips_parameter_gradients;
  }
};

template <class Patterns, class Model>
constexpr auto chosen_parameters() {
  std::array<bool, Model::parameter_count + 1> chosen{};
  for (std::size_t i = 0; i < Model::parameter_count; ++i)
    chosen[i] = Patterns::size == 0 ||
                Patterns::matches(Model::lowered().path(Model::lowered().parameters[i]).view());
  return chosen;
}

}  // namespace detail

/// Sets whether the parameters that match a pattern are trained from now on:
/// `requires_grad<"backbone">(model, false)`, later `requires_grad<"backbone">(model, true)`;
/// without a pattern, all. (PyTorch's requires_grad_.) Those that are not have a gradient of zero,
/// which is neither computed nor stored where all parameters of a leaf of
/// `skips_parameter_gradients` are concerned (linear, convolutions, embedding, batch and layer
/// norm), and optimizers leave them and their state as they are; so do clipping and norms of
/// gradients. Modes stay as they are: batch norm still updates its statistics. `frozen<..>`, in the
/// type, saves the memory and the backward below, too.
///
/// In a pattern, `*` stands for any characters; a module stands for its parameters. A pattern that
/// matches nothing is a compile error. Every rank of a replica must make the same calls, between
/// steps. A clone, and a `part` that was made before, train all. Throws error with mixed_precision,
/// before anything has changed. Allocates.
template <detail::literal... Patterns, class Model>
requires(detail::all_match<Model, detail::pattern_list<Patterns...>>) void requires_grad(Model& m,
                                                                                         bool on) {
  static constexpr auto chosen =
      detail::chosen_parameters<detail::pattern_list<Patterns...>, Model>();
  constexpr std::size_t leaves = Model::lowered().leaves.size();
  std::array<bool, leaves + 1> skips{};
  detail::find_skipping_leaves<Model, leaves> find{m, skips};
  detail::for_each_leaf(m.module(), find);
  m.set_frozen(chosen.data(), skips.data(), !on);
}
template <detail::literal... Patterns, class Model>
requires(!detail::all_match<Model, detail::pattern_list<Patterns...>>) auto requires_grad(Model&,
                                                                                          bool)
    -> detail::pattern_refusal<Model, detail::pattern_list<Patterns...>>;

/// Whether all parameters that match a pattern are trained.
template <detail::literal... Patterns, class Model>
requires(detail::all_match<Model, detail::pattern_list<Patterns...>>) bool requires_grad(
    const Model& m) {
  static constexpr auto chosen =
      detail::chosen_parameters<detail::pattern_list<Patterns...>, Model>();
  for (std::size_t i = 0; i < Model::parameter_count; ++i)
    if (chosen[i] && m.is_frozen(i)) return false;
  return true;
}
template <detail::literal... Patterns, class Model>
requires(!detail::all_match<Model, detail::pattern_list<Patterns...>>) auto requires_grad(
    const Model&) -> detail::pattern_refusal<Model, detail::pattern_list<Patterns...>>;

namespace detail::misuse {
IKEBANA_MISUSE(requires_grad_takes_patterns_in_angle_brackets,
               "requires_grad takes its patterns in angle brackets: requires_grad<\"fc1\">(model, "
               "false)");
}  // namespace detail::misuse

template <class Model, class Path>
auto requires_grad(const Model&, const Path&, bool)
    -> decltype(detail::refuse_for<detail::misuse::requires_grad_takes_patterns_in_angle_brackets,
                                   Model, Path>());

}  // namespace ikebana
