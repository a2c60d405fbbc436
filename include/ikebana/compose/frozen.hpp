#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include "ikebana/compose/replace_leaves.hpp"
#include "ikebana/core/diagnostic.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/lazy.hpp"
#include "ikebana/module/lower_module.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/parameter.hpp"
#include "ikebana/module/path_pattern.hpp"
#include "ikebana/module/program.hpp"
#include "ikebana/module/refusal.hpp"
#include "ikebana/module/shape_list.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/module/unknown_path.hpp"

namespace ikebana {

namespace detail {

/// A leaf whose parameters are buffers, under the same names: they are initialised, saved and
/// loaded as before, but have no gradients, and whatever updates, reduces or clips parameters does
/// not see them. If it has buffers, such as running statistics, it runs as in evaluation.
template <leaf_module Leaf>
struct frozen_leaf : Leaf {
  static constexpr bool is_frozen = true;
  static constexpr bool is_stateful = false;
  static constexpr std::size_t own_parameters = parameter_count<Leaf>();
  static constexpr std::size_t own_buffers = buffer_count<Leaf>();
  static constexpr std::size_t own_saved = saved_count<Leaf>();
  /// The leaf cannot leave out the gradients of its parameters, so that they need memory.
  static constexpr std::size_t unused_gradients = [] {
    if constexpr (requires { Leaf::skips_parameter_gradients; })
      return Leaf::skips_parameter_gradients ? std::size_t{0} : own_parameters;
    else
      return own_parameters;
  }();

  constexpr frozen_leaf() = default;
  constexpr explicit frozen_leaf(const Leaf& leaf) : Leaf(leaf) {}

  /// The leaf as it was.
  constexpr const Leaf& trainable() const { return *this; }

  void parameters() const = delete;

  constexpr std::array<buffer_spec, own_parameters + own_buffers> buffers() const {
    std::array<buffer_spec, own_parameters + own_buffers> all{};
    std::size_t n = 0;
    if constexpr (own_parameters > 0)
      for (const parameter_spec& p : Leaf::parameters())
        all[n++] = {.name = p.name,
                    .extents = p.extents,
                    .init = p.init,
                    .since = p.since,
                    .drawn_as = p.drawn_as,
                    .changes = false};
    if constexpr (own_buffers > 0)
      for (const buffer_spec& b : Leaf::buffers()) {
        all[n] = b;
        all[n++].changes = false;
      }
    return all;
  }

  constexpr std::array<saved_spec, own_saved + unused_gradients> saved(const shape_list& in) const
      requires(own_saved + unused_gradients > 0) {
    std::array<saved_spec, own_saved + unused_gradients> all{};
    std::size_t n = 0;
    if constexpr (own_saved > 0)
      for (const saved_spec& s : Leaf::saved(in)) all[n++] = s;
    if constexpr (unused_gradients > 0)
      for (const parameter_spec& p : Leaf::parameters()) all[n++] = {0, p.extents};
    return all;
  }

  template <shape... In>
  constexpr auto become() const requires requires(const Leaf& m) {
    m.template become<In...>();
  }
  {
    using resolved = decltype(std::declval<const Leaf&>().template become<In...>());
    return frozen_leaf<resolved>(Leaf::template become<In...>());
  }

  constexpr void bind_state(std::span<const shape>, std::span<const shape> all) requires
      requires(Leaf& m, std::span<const shape> s) {
    m.bind_state(s, s);
  }
  { Leaf::bind_state(all.first(own_parameters), all.subspan(own_parameters)); }

  constexpr diagnostic check(const shape_list& in, bool training) const requires
      requires(const Leaf& m, const shape_list& s) {
    m.check(s, true);
  }
  { return Leaf::check(in, training && own_buffers == 0); }

  template <class T>
  void finish_initialization(T* const*, std::byte* const* all) const requires
      requires(const Leaf& m, T* const* p, std::byte* const* b) {
    m.template finish_initialization<T>(p, b);
  }
  {
    T* own[own_parameters + 1]{};
    for (std::size_t i = 0; i < own_parameters; ++i) own[i] = reinterpret_cast<T*>(all[i]);
    Leaf::template finish_initialization<T>(own, all + own_parameters);
  }

  void describe(description& d) const {
    if constexpr (requires(const Leaf& m) { m.describe(d); }) Leaf::describe(d);
    d.add("frozen", true);
  }

  template <class Context>
  void forward(const Context& c) const requires requires(const Leaf& m) {
    m.forward(c);
  }
  {
    typename Context::value_type* own[own_parameters + 1]{};
    Leaf::forward(inner(c, own));
  }

  template <class Context>
  void backward(const Context& c) const requires requires(const Leaf& m) {
    m.backward(c);
  }
  {
    using T = typename Context::value_type;
    T* own[own_parameters + 1]{};
    T* unused[own_parameters + 1]{};
    for (std::size_t i = 0; i < unused_gradients; ++i)
      unused[i] = c.template saved<T>(own_saved + i);
    Context seen = inner(c, own);
    seen.gradients = unused;
    seen.accumulating = false;
    Leaf::backward(seen);
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }

 private:
  /// The context of the leaf as it was; `own` receives its parameters.
  template <class Context>
  static Context inner(const Context& c, typename Context::value_type** own) {
    for (std::size_t i = 0; i < own_parameters; ++i)
      own[i] = c.template buffer<typename Context::value_type>(i);
    Context seen = c;
    seen.parameters = own;
    seen.buffers = c.buffers + own_parameters;
    if constexpr (own_buffers > 0) seen.is_training = false;
    return seen;
  }
};

/// Which leaves of M are frozen, in the order in which they are declared: those that the patterns
/// cover, or all others.
template <any_module M, class Patterns, bool Covered>
struct freezing {
  static constexpr auto frozen = [] {
    const auto& p = outline_of<M>;
    std::array<bool, outline_of<M>.sizes.leaves + 1> is{};
    for (std::size_t l = 0; l < outline_of<M>.sizes.leaves; ++l)
      is[l] = Patterns::matches(p.path(p.leaves[l]).view()) == Covered;
    return is;
  }();
};

/// Freezes the leaves that Freezing tells.
template <class Freezing>
struct freeze_leaf {
  template <std::size_t L, leaf_module Leaf>
  static constexpr auto replace(const Leaf& leaf) {
    if constexpr (Freezing::frozen[L] && parameter_count<Leaf>() + buffer_count<Leaf>() > 0 &&
                  !requires { Leaf::is_frozen; })
      return frozen_leaf<Leaf>(leaf);
    else
      return leaf;
  }
};

/// The paths of the modules of M.
template <any_module M>
struct paths_of_modules {
  static constexpr const char* what = "module";
  static constexpr std::size_t count = outline_of<M>.sizes.scopes;
  static constexpr path_text path(std::size_t i) {
    return scope_path(outline_of<M>.scopes.data(), static_cast<int>(i));
  }
};
template <any_module M, class Patterns>
inline constexpr bool all_are_modules =
    Patterns::find_useless(paths_of_modules<M>{}) == Patterns::size;

template <any_module M, class Patterns>
struct find_module_refusal {};
template <any_module M, class Patterns>
requires(!all_are_modules<M, Patterns>) struct find_module_refusal<M, Patterns> {
  using type =
      decltype(refuse_path<
               typename Patterns::template nth<Patterns::find_useless(paths_of_modules<M>{})>,
               paths_of_modules<M>>());
};

namespace misuse {
IKEBANA_MISUSE(frozen_takes_a_module,
               "frozen takes a module, before it is initialized: initialize<T, "
               "shape>(frozen<\"fc1\">(net), seed{1}); for a model there is "
               "requires_grad<\"fc1\">(model, false)");
IKEBANA_MISUSE(trainable_takes_a_module,
               "trainable takes a module, before it is initialized: initialize<T, "
               "shape>(trainable<\"fc1\">(net), seed{1}); for a model there is "
               "requires_grad<\"fc1\">(model, true)");
}  // namespace misuse

}  // namespace detail

/// A network in which the modules that match a pattern are not trained: `frozen<"backbone">(net)`;
/// without a pattern, the whole of it. Their parameters become buffers with the same paths, initial
/// values and state dict (`model.buffer("backbone.fc.weight"_s)`), so that optimizers, buckets and
/// clipping do not know them. Their gradients are neither computed nor stored, and backward ends
/// where no module before needs it. (Leaves that cannot leave out their parameters' gradients
/// compute them into the workspace: those without `skips_parameter_gradients`, which linear,
/// convolutions, embedding, batch and layer norm have.) Batch norm, and what else has buffers, runs
/// as in evaluation; dropout as before. In a pattern, `*` stands for any characters; a module
/// stands for all that it contains. A pattern that matches nothing is a compile error. A constant
/// expression.
template <detail::literal... Patterns, any_module M>
requires(detail::all_are_modules<M, detail::pattern_list<Patterns...>>) constexpr auto frozen(
    const M& net) {
  // Without patterns, those that none covers are all.
  return detail::replace_leaves<detail::freeze_leaf<
      detail::freezing<M, detail::pattern_list<Patterns...>, (sizeof...(Patterns) > 0)>>>(net);
}
template <detail::literal... Patterns, any_module M>
auto frozen(const M&) ->
    typename detail::find_module_refusal<M, detail::pattern_list<Patterns...>>::type;
template <detail::literal... Patterns, class M>
requires(!any_module<M>) auto frozen(const M&)
    -> decltype(detail::refuse_for<detail::misuse::frozen_takes_a_module, M>());

/// A network in which only the modules that match a pattern are trained: `trainable<"head">(net)`.
/// See frozen.
template <detail::literal... Patterns, any_module M>
requires(sizeof...(Patterns) > 0 &&
         detail::all_are_modules<
             M, detail::pattern_list<Patterns...>>) constexpr auto trainable(const M& net) {
  return detail::replace_leaves<
      detail::freeze_leaf<detail::freezing<M, detail::pattern_list<Patterns...>, false>>>(net);
}
template <detail::literal... Patterns, any_module M>
auto trainable(const M&) ->
    typename detail::find_module_refusal<M, detail::pattern_list<Patterns...>>::type;
template <detail::literal... Patterns, class M>
requires(!any_module<M>) auto trainable(const M&)
    -> decltype(detail::refuse_for<detail::misuse::trainable_takes_a_module, M>());

}  // namespace ikebana
