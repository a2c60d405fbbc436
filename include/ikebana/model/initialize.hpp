#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "ikebana/core/random.hpp"
#include "ikebana/model/calls/loss_network.hpp"
#include "ikebana/model/model.hpp"
#include "ikebana/module/lazy.hpp"
#include "ikebana/module/refusal.hpp"

namespace ikebana {

namespace detail::misuse {

IKEBANA_MISUSE(initialize_takes_an_element_type_first,
               "initialize takes float, double or a precision as its first template argument: "
               "initialize<float, shape{dynamic, 784}>(net, seed{1})");
IKEBANA_MISUSE(initialize_takes_a_module_and_a_seed,
               "initialize takes a module and a seed: initialize<float, shape{dynamic, "
               "784}>(net, seed{1})");
IKEBANA_MISUSE(initialize_needs_a_seed_after_the_module,
               "initialize needs a seed after the module: initialize<float, shape{dynamic, "
               "784}>(net, seed{1})");
IKEBANA_MISUSE(initialize_takes_a_module_not_a_model,
               "initialize takes a module, not a model, which is initialized already");
IKEBANA_MISUSE(initialize_takes_a_module_without_a_name,
               "initialize takes a module without a name; a composition gives its children names: "
               "sequential(\"fc\"_m = linear<4, 2>{})");
IKEBANA_MISUSE(initialize_takes_shapes_as_template_arguments,
               "initialize takes the shape of each input as a template argument: initialize<float, "
               "shape{dynamic, 784}>(net, seed{1}); extents known only at run time come after the "
               "seed, one shape for each");

}  // namespace detail::misuse

namespace detail {

/// The first parameter of M whose shape is known only at run time.
template <any_module M, shape... In>
constexpr diagnostic unknown_parameter() {
  constexpr const auto& p = lowered_of<M, In...>;
  constexpr bool batch_alone = ((In.rank() > 1 && In.with(0, 1).is_static()) && ...);
  for (const program_parameter& parameter : p.all_parameters())
    if (!parameter.spec.extents.is_static())
      return {batch_alone && parameter.spec.extents.rank() > 2
                  ? "has shape {input}: the batch, dimension 0 of the input, has become channels; "
                    "an input of convolutions is [batch, channels, ...]"
              : batch_alone ? "has shape {input}: the batch, dimension 0 of the input, has become "
                              "features; flatten<> keeps it, flatten<start_dim<0>> does not"
                            : "has shape {input}: give initialize the extents of the first input",
              0,
              0,
              parameter.spec.extents,
              {},
              p.path(parameter)};
  return {};
}

/// Returns the error of initialize<E, In...>(M), if any. If All, the extents of every parameter
/// must be known from In.
template <class E, any_module M, bool All, shape... In>
constexpr diagnostic check_initialize() {
  if constexpr (composite_module<M>) {
    constexpr int inputs = wiring_of<M>.inputs;
    if (sizeof...(In) != inputs)
      return {
          "initialize takes a shape for each input of the network, here {expected}, got {got}: "
          "initialize<float, shape{dynamic, 784}>(net, seed{1})",
          inputs, static_cast<dim_t>(sizeof...(In))};
  }
  constexpr inferred made = infer(M{}, shape_list{In...});
  if constexpr (!made.ok()) {
    return made.error;
  } else {
    using resolved = become_t<M, In...>;
    if constexpr (All)
      if (const diagnostic wrong = unknown_parameter<resolved, In...>(); !wrong.ok()) return wrong;
    if constexpr (element_traits<E>::has_exceptions)
      return element_traits<E>::check(lowered_of<resolved, In...>);
    return {};
  }
}

/// The refusal of `initialize<E, In...>(A...)`.
template <class E, shape... In>
struct initialize_call {
  template <class... A>
  static constexpr auto find_refusal() {
    if constexpr (requires { typename element_traits<E>::misuse; })
      return std::type_identity<typename element_traits<E>::misuse>{};
    else if constexpr (!model_element<E>)
      return because<misuse::initialize_takes_an_element_type_first>{};
    else if constexpr (sizeof...(A) == 0)
      return because<misuse::initialize_takes_a_module_and_a_seed>{};
    else
      return of_module<A...>();
  }

 private:
  template <class M, class... A>
  static constexpr auto of_module() {
    if constexpr (any_module<M>) {
      if constexpr (sizeof...(A) == 0)
        return because<misuse::initialize_needs_a_seed_after_the_module>{};
      else
        return of_module_and_seed<M, A...>();
    } else if constexpr (is_named<M>) {
      return because<misuse::initialize_takes_a_module_without_a_name>{};
    } else if constexpr (requires { typename M::module_type; }) {
      return because<misuse::initialize_takes_a_module_not_a_model>{};
    } else {
      return because<misuse::initialize_takes_a_module_and_a_seed>{};
    }
  }

  template <class M, class Seed, class... Extents>
  static constexpr auto of_module_and_seed() {
    if constexpr (!std::is_convertible_v<Seed, seed>)
      return because<misuse::initialize_needs_a_seed_after_the_module>{};
    else if constexpr (sizeof...(Extents) == 0)
      return detail::find_refusal<check_initialize<E, M, true, In...>>();
    else if constexpr (sizeof...(Extents) == sizeof...(In) &&
                       (std::is_same_v<Extents, shape> && ...))
      return detail::find_refusal<check_initialize<E, M, false, In...>>();
    else
      return because<misuse::initialize_takes_shapes_as_template_arguments>{};
  }
};

template <class Call, class... A>
inline constexpr bool accepts_call =
    std::is_same_v<decltype(Call::template find_refusal<A...>()), accepted>;
template <class Call, class... A>
auto refuse_call() -> decltype(declared(Call::template find_refusal<A...>()));

}  // namespace detail

/// Makes a model from a module, for element type T and inputs of the shapes In: `initialize<float,
/// shape{dynamic, 784}>(mlp, seed{1})`. Lazy dimensions are inferred, the compiler checks every
/// shape, and parameters get PyTorch's initial distributions. The weights depend only on seed and
/// path: they are the same bits whether dimensions were written out or inferred. Allocates; throws
/// only std::bad_alloc.
template <model_element T, shape... In, any_module M>
requires(detail::accepts<detail::check_initialize<T, M, true, In...>>) auto initialize(const M& m,
                                                                                       seed s) {
  return model<T, become_t<M, In...>, In...>(become<shape_list{In...}>(m), s, shape_list{In...});
}

/// The same if parameters depend on extents known only at run time (the columns of a file).
/// `inputs` are the extents of a first input, against which every later input is checked; the batch
/// may differ. Throws shape_error if they do not match the declared shapes or the module.
template <model_element T, shape... In, any_module M, std::same_as<shape>... Extents>
requires(
    sizeof...(Extents) == sizeof...(In) && sizeof...(In) > 0 &&
    detail::accepts<
        detail::check_initialize<T, M, false, In...>>) auto initialize(const M& m, seed s,
                                                                       const Extents&... inputs) {
  (detail::check_extents(In, inputs), ...);
  return model<T, become_t<M, In...>, In...>(become<shape_list{In...}>(m), s,
                                             shape_list{inputs...});
}
template <class T, shape... In, class... A>
requires(!detail::accepts_call<detail::initialize_call<T, In...>, A...>) auto initialize(
    const A&...) -> decltype(detail::refuse_call<detail::initialize_call<T, In...>, A...>());
template <shape... In, class... A>
auto initialize(const A&...)
    -> decltype(detail::refuse_for<detail::misuse::initialize_takes_an_element_type_first, A...>());

/// The type of `initialize<T, In...>(Net, seed)`, for a member of a class. Net is a module with
/// static storage: `model_of<net, float, shape{dynamic, 784}> model_{initialize<float,
/// shape{dynamic, 784}>(net, seed{1})};` (in braces: after `=`, clang ends the initializer at the
/// comma).
template <const auto& Net, model_element T, shape... In>
requires any_module<std::remove_cvref_t<decltype(Net)>>
using model_of = model<T, become_t<std::remove_cvref_t<decltype(Net)>, In...>, In...>;

}  // namespace ikebana
