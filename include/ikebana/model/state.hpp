#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "ikebana/core/dtype.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/model/hooks.hpp"
#include "ikebana/model/model.hpp"
#include "ikebana/model/only.hpp"
#include "ikebana/model/state/state_comparison.hpp"
#include "ikebana/model/state_dict.hpp"
#include "ikebana/module/refusal.hpp"

namespace ikebana {

namespace detail {

/// Calls f(path, dtype, extents, bytes) for each parameter and buffer, leaf by leaf in PyTorch's
/// order.
template <class Model, class F>
void for_each_state(Model& m, F&& f) {
  using T = typename std::remove_const_t<Model>::value_type;
  const auto& p = m.current_program();
  const auto& layout = m.layout();
  // Exposing the parameters for writing would disable packed weights, so this announces one change
  // instead.
  const T* parameters;
  if constexpr (requires { m.parameters_changed(); }) {
    parameters = std::as_const(m).parameters().data();
    m.parameters_changed();
  } else {
    parameters = m.parameters().data();
  }
  for (const program_leaf& leaf : p.all_leaves()) {
    for (std::size_t i = 0; i < leaf.parameter_count; ++i) {
      const std::size_t index = static_cast<std::size_t>(leaf.first_parameter) + i;
      const parameter_spec& spec = p.parameters[index].spec;
      f(p.path(leaf, spec.name), dtype_of<T>, spec.extents,
        std::as_writable_bytes(std::span{const_cast<T*>(parameters) + layout.offsets[index],
                                         static_cast<std::size_t>(spec.extents.numel())}));
    }
    for (std::size_t i = 0; i < leaf.buffer_count; ++i) {
      const std::size_t index = static_cast<std::size_t>(leaf.first_buffer) + i;
      const buffer_spec& spec = p.buffers[index].spec;
      if (!spec.persistent) continue;
      const dtype type = spec.follows_model ? dtype_of<T> : spec.type;
      f(p.path(leaf, spec.name), type, spec.extents,
        std::span{const_cast<std::byte*>(m.buffers().data()) + layout.buffer_offsets[index],
                  static_cast<std::size_t>(spec.extents.numel()) * size_of(type)});
    }
  }
}

}  // namespace detail

/// A model, replicated or not: it has a lowered program and flat parameters.
template <class Model>
concept initialized_model = requires(Model& m) {
  typename std::remove_cvref_t<Model>::value_type;
  m.current_program();
  m.layout();
  m.parameters();
  m.buffers();
};

namespace detail {

/// The state in memory, before any hook.
template <class Model>
state_view views_of_state(const Model& m) {
  dependent<state_view, Model> dict;
  for_each_state(m, [&](const path_text& path, dtype type, const shape& extents,
                        std::span<const std::byte> b) {
    dict.add_view(path.view(), type, extents, b.data());
  });
  return dict;
}

/// Calls f(path of the module, path of the tensor, since) for every tensor that was added by a
/// later version of its module.
template <class Model, class F>
void for_each_versioned(const Model& m, F&& f) {
  const auto& p = m.current_program();
  for (const program_leaf& leaf : p.all_leaves()) {
    for (std::size_t i = 0; i < leaf.parameter_count; ++i) {
      const auto& spec = p.parameters[static_cast<std::size_t>(leaf.first_parameter) + i].spec;
      if (spec.since > 1) f(p.path(leaf), p.path(leaf, spec.name), spec.since);
    }
    for (std::size_t i = 0; i < leaf.buffer_count; ++i) {
      const auto& spec = p.buffers[static_cast<std::size_t>(leaf.first_buffer) + i].spec;
      if (spec.since > 1 && spec.persistent) f(p.path(leaf), p.path(leaf, spec.name), spec.since);
    }
  }
}

/// Whether the state lacks a tensor because an older version of its module, without it, wrote it.
inline bool is_older(const state_dict& given, std::string_view module, std::string_view path,
                     int since) {
  return since > 1 && !given.contains(path) && given.version(module) < since;
}

/// Removes from the model's state the tensors that the given state is too old to have.
template <class Model>
void leave_out_newer(const Model& m, state_dict& own, const state_dict& given) {
  for_each_versioned(m, [&](const path_text& module, const path_text& path, int since) {
    if (is_older(given, module.view(), path.view(), since)) own.erase(path.view());
  });
}

template <class Model>
const hook_set* hooks_of(const Model& m) {
  if constexpr (requires { m.registered_hooks(); })
    return m.registered_hooks();
  else
    return nullptr;
}

/// Copies the entries whose name, shape and type match.
template <class Model>
void copy_state(Model& m, const state_dict& dict) {
  for_each_state(
      m, [&](const path_text& path, dtype type, const shape& extents, std::span<std::byte> to) {
        const auto* e = dict.find(path.view());
        if (e != nullptr && entry_fits(*e, type, extents)) copy_elements(to.data(), type, *e);
      });
}

/// Throws state_error if a model would apply again what is folded into the tensors.
template <class X>
[[gnu::cold]] void refuse_folded(const basic_state_dict<X>& dict) {
  if (dict.is_folded())
    throw_error(state_error(
        "norms, scalings or computed weights are folded into this state of a frozen network: a "
        "model loads the state of a model, or, if it is without them, this one after "
        "state.set_folded(false)"));
}

/// Runs the loading hooks around `load`, which gets the dict that the hooks made.
template <class Load>
void load_with_hooks(const hook_set* hooks, const state_dict& dict, Load&& load) {
  if (hooks == nullptr) {
    refuse_folded(dict);
    return load(dict);
  }
  dependent<state_view, Load> seen = dict.views();
  hooks->run(hook_point::loading, static_cast<state_dict&>(seen));
  refuse_folded(seen);
  load(seen);
  hooks->run(hook_point::loaded, static_cast<const state_dict&>(seen));
}

}  // namespace detail

/// The parameters and buffers of a model by path, in PyTorch's names and order, as views of its
/// memory: they show later changes, and the model must outlive them. `model.snapshot()` returns an
/// owning copy. Allocates the table.
template <initialized_model Model>
state_view get_state_dict(const Model& m) {
  detail::dependent<state_view, Model> dict = detail::views_of_state(m);
  detail::for_each_versioned(m, [&](const path_text& module, const path_text&, int since) {
    if (dict.version(module.view()) < since) dict.set_version(module.view(), since);
  });
  if (const hook_set* hooks = detail::hooks_of(m))
    hooks->run(hook_point::saving, static_cast<state_dict&>(dict));
  return dict;
}

/// The state of some modules: `get_state_dict(model, only<"backbone">)`. Names keep the whole path.
template <initialized_model Model, detail::literal Path, detail::literal... Paths>
requires(detail::has_modules<typename Model::module_type, detail::only_modules<Path, Paths...>>)
    state_view get_state_dict(const Model& m, detail::only_modules<Path, Paths...> modules) {
  return detail::of_modules(get_state_dict(m), modules.paths);
}
template <initialized_model Model, detail::literal Path, detail::literal... Paths>
requires(!detail::has_modules<
         typename Model::module_type,
         detail::only_modules<Path, Paths...>>) auto get_state_dict(const Model&,
                                                                    detail::only_modules<Path,
                                                                                         Paths...>)
    -> decltype(detail::refuse_modules<typename Model::module_type,
                                       detail::only_modules<Path, Paths...>>());

namespace detail::misuse {
IKEBANA_MISUSE(
    get_state_dict_of_a_module,
    "get_state_dict needs an initialized model: initialize<T, shape>(module, seed) gives "
    "one");
IKEBANA_MISUSE(load_state_dict_takes_a_model_and_a_state,
               "load_state_dict takes a model and a state: load_state_dict(model, load(path))");
IKEBANA_MISUSE(load_state_dict_needs_a_model_that_is_not_const,
               "load_state_dict needs a model that is not const: it writes the parameters");
IKEBANA_MISUSE(load_state_dict_of_a_module,
               "load_state_dict needs an initialized model, or a lazy_model: initialize<T, "
               "shape>(module, seed) gives one");
}  // namespace detail::misuse

template <any_module M>
auto get_state_dict(const M&)
    -> decltype(detail::refuse_for<detail::misuse::get_state_dict_of_a_module, M>());

/// Options of load_state_dict.
struct load_options {
  bool strict = true;  ///< If false, copies what matches and returns the names of the rest.
};

namespace detail {

/// Loads all of a state or some of its modules. Only the requested case is compiled.
template <bool Some, class Model>
state_differences load_selected(Model& m, const state_dict& dict, const load_options& options,
                                std::span<const std::string_view> modules) {
  dependent<state_complaint, Model> wrong;
  load_with_hooks(hooks_of(m), dict, [&](const state_dict& all) {
    dependent<state_view, Model> own = views_of_state(m);
    leave_out_newer(m, own, all);
    if (!Some || modules.empty()) {
      wrong.compare(own, all, true);
      if (options.strict) wrong.throw_if_any();
      copy_state(m, all);
    } else if constexpr (Some) {
      const dependent<state_view, Model> given = of_modules(all, modules);
      wrong.compare(of_modules(own, modules), given, true);
      if (options.strict) wrong.throw_if_any();
      copy_state(m, given);
    }
  });
  return wrong.lists();
}

}  // namespace detail

/// Copies a state into a model. Every parameter and buffer must be present with its shape and
/// elements, and nothing else; otherwise throws a state_error that lists all mismatches, before
/// anything has changed. A tensor may be missing if the state was written by a version of its
/// module that did not have it (`since` in its spec); it is not changed. Elements are converted
/// between float32 and float64. Hooks may rename keys first; `dict` is not changed. A state into
/// which a frozen network has folded norms or scalings is refused, too. O(elements).
template <initialized_model Model>
void load_state_dict(Model& m, const state_dict& dict) {
  detail::load_selected<false>(m, dict, {}, {});
}

/// The same with options: `load_state_dict(model, dict, {.strict = false})` copies the tensors that
/// match, and returns the names of those in the model or the state that do not. (PyTorch throws for
/// mismatched shapes even if not strict.)
template <initialized_model Model>
state_differences load_state_dict(Model& m, const state_dict& dict, const load_options& options) {
  return detail::load_selected<false>(m, dict, options, {});
}

/// Loads some modules: `load_state_dict(model, dict, only<"backbone">)`. Entries of the state that
/// belong to other modules are ignored, and the other modules of the model are not changed.
template <initialized_model Model, detail::literal Path, detail::literal... Paths>
requires(detail::has_modules<typename Model::module_type, detail::only_modules<Path, Paths...>>)
    state_differences
    load_state_dict(Model& m, const state_dict& dict, detail::only_modules<Path, Paths...> modules,
                    const load_options& options = {}) {
  return detail::load_selected<true>(m, dict, options, modules.paths);
}
template <initialized_model Model, detail::literal Path, detail::literal... Paths>
requires(!detail::has_modules<
         typename Model::module_type,
         detail::only_modules<Path, Paths...>>) auto load_state_dict(Model&, const state_dict&,
                                                                     detail::only_modules<Path,
                                                                                          Paths...>,
                                                                     const load_options& = {})
    -> decltype(detail::refuse_modules<typename Model::module_type,
                                       detail::only_modules<Path, Paths...>>());

template <any_module M>
auto load_state_dict(const M&, const state_dict&)
    -> decltype(detail::refuse_for<detail::misuse::load_state_dict_of_a_module, M>());

namespace detail {

/// Whether A is a model, initialized or lazy.
template <class A>
concept any_model = requires {
  typename A::module_type;
};
template <class... A>
inline constexpr bool refuses_load_state = false;
template <class A, class... B>
inline constexpr bool refuses_load_state<A, B...> = [] {
  if constexpr (any_model<A>)
    return !(std::is_base_of_v<state_dict, B> || ...);
  else
    return std::is_base_of_v<state_dict, A> && (any_model<B> || ...);
}();

}  // namespace detail

template <class... A>
requires(detail::refuses_load_state<A...>) auto load_state_dict(const A&...)
    -> decltype(detail::refuse_for<detail::misuse::load_state_dict_takes_a_model_and_a_state,
                                   A...>());
template <initialized_model Model>
auto load_state_dict(const Model&, const state_dict&)
    -> decltype(detail::refuse_for<detail::misuse::load_state_dict_needs_a_model_that_is_not_const,
                                   Model>());
template <initialized_model Model>
auto load_state_dict(const Model&, const state_dict&, const load_options&)
    -> decltype(detail::refuse_for<detail::misuse::load_state_dict_needs_a_model_that_is_not_const,
                                   Model>());

}  // namespace ikebana
