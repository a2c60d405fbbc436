#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "ikebana/core/random.hpp"
#include "ikebana/model/model.hpp"
#include "ikebana/module/lazy.hpp"
#include "ikebana/module/refusal.hpp"

namespace ikebana {

namespace detail {

/// The first parameter of M whose shape is known only at run time.
template <any_module M, shape... In>
constexpr diagnostic unknown_parameter() {
  constexpr auto p = lower<sizes_of<M>(sizeof...(In))>(M{}, shape_list{In...});
  constexpr bool batch_alone = ((In.rank() > 1 && In.with(0, 1).is_static()) && ...);
  for (const program_parameter& parameter : p.all_parameters())
    if (!parameter.spec.extents.is_static())
      return {batch_alone ? "has shape {input}: the batch, dimension 0 of the input, has become "
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
  constexpr inferred made = infer(M{}, shape_list{In...});
  if constexpr (!made.ok()) {
    return made.error;
  } else {
    using resolved = become_t<M, In...>;
    if constexpr (All)
      if (const diagnostic wrong = unknown_parameter<resolved, In...>(); !wrong.ok()) return wrong;
    if constexpr (element_traits<E>::has_exceptions)
      return element_traits<E>::check(
          lower<sizes_of<resolved>(sizeof...(In))>(resolved{}, shape_list{In...}));
    return {};
  }
}

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
template <model_element T, shape... In, any_module M>
requires(!detail::accepts<detail::check_initialize<T, M, true, In...>>) auto initialize(const M&,
                                                                                        seed)
    -> decltype(detail::refuse<detail::check_initialize<T, M, true, In...>>());

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
template <model_element T, shape... In, any_module M, std::same_as<shape>... Extents>
requires(sizeof...(Extents) == sizeof...(In) && sizeof...(In) > 0 &&
         !detail::accepts<
             detail::check_initialize<T, M, false, In...>>) auto initialize(const M&, seed,
                                                                            const Extents&...)
    -> decltype(detail::refuse<detail::check_initialize<T, M, false, In...>>());

/// The type of `initialize<T, In...>(Net, seed)`, for a member of a class. Net is a module with
/// static storage: `model_of<net, float, shape{dynamic, 784}> model_{initialize<float,
/// shape{dynamic, 784}>(net, seed{1})};` (in braces: after `=`, clang ends the initializer at the
/// comma).
template <const auto& Net, model_element T, shape... In>
requires any_module<std::remove_cvref_t<decltype(Net)>>
using model_of = model<T, become_t<std::remove_cvref_t<decltype(Net)>, In...>, In...>;

}  // namespace ikebana
