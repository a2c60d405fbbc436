#pragma once

#include <concepts>
#include <cstddef>
#include <utility>

#include "ikebana/core/random.hpp"
#include "ikebana/model/model.hpp"
#include "ikebana/module/lazy.hpp"
#include "ikebana/module/refusal.hpp"

namespace ikebana {

namespace detail {

/// The first parameter of M whose shape only run time knows.
template <any_module M, shape... In>
constexpr diagnostic unknown_parameter() {
  constexpr auto p = lower<sizes_of<M>(sizeof...(In))>(M{}, shape_list{In...});
  for (const program_parameter& parameter : p.all_parameters())
    if (!parameter.spec.extents.is_static())
      return {"has shape {input}: give initialize the extents of the first input",
              0,
              0,
              parameter.spec.extents,
              {},
              p.path(parameter)};
  return {};
}

}  // namespace detail

/// A model from a module, for element type T and inputs of the shapes In: `initialize<float,
/// shape{dynamic, 784}>(mlp, seed{1})`. Dimensions left out are inferred, every shape is checked by
/// the compiler, parameters come into being with PyTorch's initial distributions. The weights
/// depend on seed and path alone: they are the same bits whether dimensions were written out or
/// inferred. Throws nothing but std::bad_alloc.
template <model_element T, shape... In, any_module M>
auto initialize(const M& m, seed s) {
  constexpr inferred made = infer(M{}, shape_list{In...});
  if constexpr (!made.ok()) {
    constexpr diagnostic wrong = made.error;
    static_cast<void>(sizeof(refusal_t<wrong.path, wrong.expected, wrong.got, wrong.message()>));
  } else {
    using resolved = become_t<M, In...>;
    constexpr diagnostic unknown = detail::unknown_parameter<resolved, In...>();
    if constexpr (!unknown.ok())
      static_cast<void>(
          sizeof(refusal_t<unknown.path, unknown.expected, unknown.got, unknown.message()>));
    else
      return model<T, resolved, In...>(become<shape_list{In...}>(m), s, shape_list{In...});
  }
}

/// The same where parameters depend on extents that only run time knows (the columns of a file):
/// `inputs` are the extents of a first input, which every later input is checked against; the batch
/// may differ. Throws shape_error if they do not fit the declared shapes or the module.
template <model_element T, shape... In, any_module M, std::same_as<shape>... Extents>
requires(sizeof...(Extents) == sizeof...(In) &&
         sizeof...(In) > 0) auto initialize(const M& m, seed s, const Extents&... inputs) {
  constexpr inferred made = infer(M{}, shape_list{In...});
  if constexpr (!made.ok()) {
    constexpr diagnostic wrong = made.error;
    static_cast<void>(sizeof(refusal_t<wrong.path, wrong.expected, wrong.got, wrong.message()>));
  } else {
    (detail::check_extents(In, inputs), ...);
    return model<T, become_t<M, In...>, In...>(become<shape_list{In...}>(m), s,
                                               shape_list{inputs...});
  }
}

}  // namespace ikebana
