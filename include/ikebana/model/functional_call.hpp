#pragma once

#include <string>

#include "ikebana/core/error.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/model/state_dict.hpp"
#include "ikebana/module/refusal.hpp"

namespace ikebana {

/// The outputs of a model for the inputs x with other values of some parameters and buffers, by
/// name, as PyTorch's functional_call: what `replaced` does not have is the model's own. Afterwards
/// parameters and buffers are what they were before, those that the call changed (running
/// statistics) included, also if the call throws. Returns what `model(x...)` returns: a view of the
/// model's memory, valid until its next call. There is no backward of it.
///
/// Throws state_error for a name that the model does not have, or another shape, before anything
/// has changed. O(elements of the state) and the call; allocates a copy of the state.
template <initialized_model Model, class... X>
auto functional_call(Model& model, const state_dict& replaced, const X&... x) {
  const state_dict own = get_state_dict(model).clone();
  for (const auto& e : replaced) {
    const auto* to = own.find(e.name);
    if (to == nullptr) throw_error(state_error("functional_call: the model has no " + e.name));
    if (!(to->extents == e.extents))
      throw_error(state_error("functional_call: " + e.name + " has another shape in the model"));
  }
  struct restored {
    Model& model;
    const state_dict& own;
    ~restored() { load_state_dict(model, own); }
  } const at_end{model, own};
  load_state_dict(model, replaced, {.strict = false});
  return model(x...);
}

namespace detail::misuse {
IKEBANA_MISUSE(functional_call_takes_a_model,
               "functional_call takes an initialized model, a state_dict and the inputs: "
               "functional_call(model, state, x)");
}  // namespace detail::misuse

template <class Model, class... X>
requires(!initialized_model<Model>) auto functional_call(const Model&, const X&...)
    -> decltype(detail::refuse_for<detail::misuse::functional_call_takes_a_model, Model>());

}  // namespace ikebana
