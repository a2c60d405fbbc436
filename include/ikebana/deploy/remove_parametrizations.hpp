#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <type_traits>

#include "ikebana/compose/frozen.hpp"
#include "ikebana/compose/replace_leaves.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/deploy/fold.hpp"
#include "ikebana/deploy/freeze.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/model.hpp"
#include "ikebana/module/lowering.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/path_pattern.hpp"
#include "ikebana/module/program.hpp"
#include "ikebana/module/refusal.hpp"
#include "ikebana/module/shape_list.hpp"

namespace ikebana {

namespace detail {

namespace misuse {
IKEBANA_MISUSE(remove_parametrizations_takes_an_initialized_model,
               "remove_parametrizations takes an initialized model: "
               "remove_parametrizations(initialize<float, shape{dynamic, 4}>(module, seed{1}))");
}  // namespace misuse

/// The leaf that Leaf computes a parameter of, if it does.
template <class Leaf>
concept computes_a_parameter = folds_itself<Leaf> && !std::is_same_v<plain_t<Leaf>, Leaf>;

/// Replaces the leaves that Choice covers by those whose parameters they compute.
template <class Choice>
struct remove_parametrization {
  template <std::size_t L, class Leaf>
  static constexpr auto replace(const Leaf& leaf) {
    if constexpr (Choice::frozen[L] && computes_a_parameter<Leaf>)
      return plain(leaf);
    else
      return leaf;
  }
};

/// Writes the parameters and buffers of the model without parametrizations.
template <class T, class Choice>
struct plain_values {
  const program_node* nodes;
  const program_leaf* from;
  const T* const* parameters;
  const std::byte* const* buffers;
  const program_view& made;
  T* const* made_parameters;
  std::byte* const* made_buffers;
  int k = 0;

  template <class Leaf>
  [[gnu::noinline]] void operator()(const Leaf& leaf) {
    const auto l = static_cast<std::size_t>(nodes[k++].leaf);
    const program_leaf& to = made.leaves[l];
    const T* const* const p = parameters + from[l].first_parameter;
    const std::byte* const* const b = buffers + from[l].first_buffer;
    bool is_replaced = false;
    if constexpr (computes_a_parameter<Leaf>) {
      is_replaced = Choice::frozen[l];
      if (is_replaced) leaf.template fold_parameters<T>(p, b, made_parameters + to.first_parameter);
    }
    for (std::size_t i = 0; !is_replaced && i < parameter_count<Leaf>(); ++i) {
      const std::size_t at = static_cast<std::size_t>(to.first_parameter) + i;
      std::copy_n(p[i], made.parameters[at].spec.extents.numel(), made_parameters[at]);
    }
    copy_persistent_buffers<T>(made, to, b, made_buffers);
  }
};

}  // namespace detail

/// A second model, in which the leaves that weight_norm, spectral_norm, orthogonal and parametrized
/// wrap have plain parameters with the values that those computed last: `auto plain =
/// remove_parametrizations(model)`, of the modules that match a pattern
/// `remove_parametrizations<"backbone">(model)` (remove_weight_norm, remove_spectral_norm and
/// remove_parametrizations of torch.nn.utils). It has the paths, other parameters, persistent
/// buffers, mode and choices of the first, which is unchanged; an optimizer, hooks and
/// `requires_grad` are set anew. Modules that `frozen` covers stay as they are. A pattern that
/// matches nothing is a compile error. Throws state_error if a function chooses the alternative of
/// a `choose`. O(parameters); allocates.
template <detail::literal... Patterns, model_element E, resolved_module M, shape... In>
requires(
    detail::all_are_modules<
        M, detail::pattern_list<Patterns...>>) auto remove_parametrizations(const model<E, M,
                                                                                        In...>& m) {
  using T = element_of<E>;
  using chosen = detail::freezing<M, detail::pattern_list<Patterns...>, (sizeof...(Patterns) > 0)>;
  const auto& from = m.current_program();
  constexpr program_sizes n = std::remove_cvref_t<decltype(from)>::sizes;
  for (std::size_t c = 0; c < n.choices; ++c)
    if (m.set_choice(c) < 0)
      throw_error(state_error(
          std::string(from.path(from.choices[c]).view()) +
          ": a function chooses the alternative; remove_parametrizations needs one that is set"));
  shape_list inputs;
  for (std::size_t i = 0; i < sizeof...(In); ++i) inputs.push_back(from.values[i]);

  const auto module = detail::replace_leaves<detail::remove_parametrization<chosen>>(m.module());
  model<E, std::remove_const_t<decltype(module)>, In...> out(module, m.seed(), inputs);
  const auto& made = out.current_program();
  constexpr program_sizes to = std::remove_cvref_t<decltype(made)>::sizes;
  program_table<const T*, n.parameters> parameters{};
  program_table<const std::byte*, n.buffers> buffers{};
  program_table<T*, to.parameters> out_parameters{};
  program_table<std::byte*, to.buffers> out_buffers{};
  for (std::size_t i = 0; i < n.parameters; ++i)
    parameters[i] = m.parameters().data() + m.layout().offsets[i];
  for (std::size_t b = 0; b < n.buffers; ++b)
    buffers[b] = m.buffers().data() + m.layout().buffer_offsets[b];
  for (std::size_t i = 0; i < to.parameters; ++i)
    out_parameters[i] = out.parameters().data() + out.layout().offsets[i];
  for (std::size_t b = 0; b < to.buffers; ++b)
    out_buffers[b] = out.buffers().data() + out.layout().buffer_offsets[b];
  const program_view view = made.view();
  detail::plain_values<T, chosen> write{
      from.nodes.data(),     from.leaves.data(), parameters.data(), buffers.data(), view,
      out_parameters.data(), out_buffers.data()};
  for_each_leaf(m.module(), write);

  out.train(m.is_training());
  out.set_fusion(m.fuses());
  for (std::size_t c = 0; c < n.choices; ++c) out.set_choice(c, m.set_choice(c));
  return out;
}
template <detail::literal... Patterns, model_element E, resolved_module M, shape... In>
auto remove_parametrizations(const model<E, M, In...>&) ->
    typename detail::find_module_refusal<M, detail::pattern_list<Patterns...>>::type;
template <detail::literal... Patterns, class X>
requires(!detail::freezable<X>) auto remove_parametrizations(const X&)
    -> decltype(detail::refuse_for<
                detail::misuse::remove_parametrizations_takes_an_initialized_model, X>());

}  // namespace ikebana
