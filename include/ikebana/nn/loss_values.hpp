#pragma once

#include "ikebana/core/error.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/module/loss_leaf.hpp"
#include "ikebana/module/loss_reduction.hpp"
#include "ikebana/module/refusal.hpp"

namespace ikebana {

// A loss is a value with
// - `static constexpr diagnostic check(prediction shape, target shape)`, which tells what is wrong
//   with the shapes;
// - if it does not take targets of any type, `template <class T, class U> static constexpr
//   diagnostic check_elements()`, which tells what is wrong with a prediction of T and a target
//   of U;
// - if the shapes depend on the type of the target, `template <class U> static constexpr diagnostic
//   check_shapes(prediction shape, target shape)` instead of `check`, which is that of one type;
// - if it does not take predictions of all modules, `static constexpr diagnostic
//   check_last(std::string_view kind)`, which tells what is wrong with a network that ends with a
//   module of this kind;
// - `void validate(prediction shape, target) const`, which throws if the target's values are
//   invalid;
// - `T operator()(prediction, target) const`, which computes the loss;
// - `T backward(prediction, target, T* gradient) const`, which computes the loss and its gradient
//   with respect to the prediction in one pass; `gradient` may be null.
//
// What is also a leaf of graphs has the members that module/loss_leaf.hpp lists.
//
// Predictions and targets are tensors or views. The last two check everything before they write
// anything, and allocate nothing.

namespace detail {

/// What is wrong with the shapes of a prediction and a target of U.
template <class Loss, class U>
constexpr diagnostic check_shapes(const shape& prediction, const shape& target) {
  if constexpr (requires { Loss::template check_shapes<U>(prediction, target); })
    return Loss::template check_shapes<U>(prediction, target);
  else
    return Loss::check(prediction, target);
}

/// The error of a prediction and a target that is known at compile time, if any.
template <class Loss, class Prediction, class Target>
constexpr diagnostic check_loss_of() {
  // clang 14 substitutes values of a graph before it compares constraints.
  if constexpr (!tensor_like<Prediction> || !tensor_like<Target>) {
    return {"a loss takes tensors"};
  } else {
    const diagnostic wrong = Loss::template check_elements<typename Prediction::value_type,
                                                           typename Target::value_type>();
    return wrong.ok() ? check_shapes<Loss, typename Target::value_type>(Prediction::static_shape,
                                                                        Target::static_shape)
                      : wrong;
  }
}
template <class Loss, class Prediction, class Target>
inline constexpr bool takes_target = accepts<check_loss_of<Loss, Prediction, Target>>;

/// Refuses a loss that gives several values where one is expected. Throws error.
template <class = void>
void check_reduction(reduction r) {
  if (r != reduction::none) return;
  throw_error(error(
      "a loss with reduction::none has a value for each element or row: reduce them in a graph, or "
      "call loss_values"));
}

}  // namespace detail

/// The loss of each element or row, PyTorch's reduction="none": `loss_values(cross_entropy{},
/// logits, labels)`. Throws as the loss does. Allocates.
template <class Loss, tensor_like X, tensor_like Y>
requires(detail::takes_target<Loss, X, Y>) auto loss_values(Loss loss, const X& x,
                                                            const Y& target) {
  using T = typename X::value_type;
  using U = typename Y::value_type;
  loss.reduction = reduction::mean;
  loss.validate(x.extents(), target);
  loss.reduction = reduction::none;
  constexpr shape extents = Loss::template value_shape<U>(X::static_shape, Y::static_shape);
  tensor<T, extents> values(Loss::template value_shape<U>(x.extents(), target.extents()));
  const shape of_x = x.extents(), of_target = target.extents();
  detail::loss_call<T, U> call{of_x, of_target, x.data(), target.data()};
  call.values = values.data();
  loss.run(call);
  return values;
}

}  // namespace ikebana
