#pragma once

#include <boost/hana/at.hpp>
#include <boost/hana/tuple.hpp>
#include <cstddef>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/model/passes/output_gradients.hpp"
#include "ikebana/module/element_mismatch.hpp"
#include "ikebana/module/graph_loss.hpp"
#include "ikebana/module/lower_module.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/named.hpp"
#include "ikebana/module/refusal.hpp"

// What is wrong with the arguments of train_step, loss_backward and backward.

namespace ikebana::detail {

namespace misuse {

IKEBANA_MISUSE(
    train_step_takes_an_input_a_target_a_loss_and_an_optimizer,
    "train_step takes an input, a target, a loss and an optimizer: train_step(x, target, "
    "cross_entropy{}, optimizer); several inputs are inputs(x, y)");
IKEBANA_MISUSE(train_step_needs_a_loss_before_the_optimizer,
               "train_step needs a loss before the optimizer: train_step(x, target, "
               "cross_entropy{}, optimizer)");
IKEBANA_MISUSE(train_step_needs_a_target_before_the_loss,
               "train_step needs a target before the loss: train_step(x, target, "
               "cross_entropy{}, optimizer)");
IKEBANA_MISUSE(train_step_needs_an_optimizer_after_the_loss,
               "train_step needs an optimizer after the loss: train_step(x, target, "
               "cross_entropy{}, optimizer); loss_backward takes none");
IKEBANA_MISUSE(train_step_takes_the_loss_before_the_optimizer,
               "train_step takes the loss before the optimizer: train_step(x, target, "
               "cross_entropy{}, optimizer)");
IKEBANA_MISUSE(train_step_needs_an_optimizer_that_is_not_const,
               "train_step needs an optimizer that is not const: its step changes its state");
IKEBANA_MISUSE(
    train_step_needs_an_optimizer_with_a_name_not_a_temporary,
    "train_step needs an optimizer with a name, not a temporary: its state is used by the "
    "next step; adam optimizer{model};");
IKEBANA_MISUSE(train_step_takes_a_loss_such_as_cross_entropy,
               "train_step takes a loss as its third argument, such as cross_entropy{} or "
               "mse_loss{}, got what has no check(shape, shape)");
IKEBANA_MISUSE(loss_backward_takes_an_input_a_target_and_a_loss,
               "loss_backward takes an input, a target and a loss: loss_backward(x, target, "
               "cross_entropy{}); several inputs are inputs(x, y)");
IKEBANA_MISUSE(backward_takes_the_gradient_of_the_output,
               "backward takes the gradient of the output, backward(g), and tensors for those of "
               "the inputs, backward(g, dx); loss_backward and train_step take a loss");
IKEBANA_MISUSE(training_of_a_const_model,
               "a model that is const cannot be trained: backward writes its gradients");

}  // namespace misuse

template <class Loss>
concept has_loss_check = loss_value<Loss> || loss_function<Loss>;
template <class Optimizer>
concept has_step = requires(Optimizer& optimizer) {
  optimizer.step();
};

/// The result of a refused call for a function that does not compile as a loss: the compiler has
/// said why.
struct loss_with_a_mistake {};

/// The error if an optimizer updates numbers of another type than T.
template <class T, class Optimizer>
constexpr diagnostic check_optimizer_type() {
  if constexpr (requires { typename Optimizer::value_type; })
    if constexpr (!std::is_same_v<typename Optimizer::value_type, T>)
      return {element_mismatch<"train_step expects an optimizer of a model of ", T,
                               typename Optimizer::value_type>.c_str()};
  return {};
}

template <class Self, class X, class Y, class Loss, class Optimizer>
constexpr auto find_step_refusal_of_four() {
  using loss = std::remove_cvref_t<Loss>;
  using optimizer = std::remove_cvref_t<Optimizer>;
  using T = typename Self::value_type;
  if constexpr (tensor_like<loss> && !tensor_like<std::remove_cvref_t<Y>>)
    return because<misuse::train_step_needs_a_target_before_the_loss>{};
  else if constexpr (has_step<loss> && has_loss_check<optimizer>)
    return because<misuse::train_step_takes_the_loss_before_the_optimizer>{};
  else if constexpr (!has_loss_check<loss>)
    return because<misuse::train_step_takes_a_loss_such_as_cross_entropy>{};
  else if constexpr (!has_step<optimizer>)
    return because<misuse::train_step_needs_an_optimizer_after_the_loss>{};
  else if constexpr (!std::is_lvalue_reference_v<Optimizer>)
    return because<misuse::train_step_needs_an_optimizer_with_a_name_not_a_temporary>{};
  else if constexpr (std::is_const_v<std::remove_reference_t<Optimizer>>)
    return because<misuse::train_step_needs_an_optimizer_that_is_not_const>{};
  else if constexpr (!accepts<check_optimizer_type<T, optimizer>>)
    return find_refusal<check_optimizer_type<T, optimizer>>();
  else if constexpr (std::is_void_v<loss_type<loss>>)
    return std::type_identity<loss_with_a_mistake>{};
  else
    return Self::template find_step_refusal<std::remove_cvref_t<X>, std::remove_cvref_t<Y>,
                                            loss_type<loss>>();
}

/// The refusal of `train_step(A...)` of a model or replica, whose find_step_refusal<X, Y, Loss>
/// tells that of an input, a target and a loss.
template <class Self, class... A>
constexpr auto find_train_step_refusal() {
  if constexpr (sizeof...(A) == 4) {
    return find_step_refusal_of_four<Self, A...>();
  } else if constexpr (sizeof...(A) == 3) {
    using last = std::remove_cvref_t<std::tuple_element_t<2, std::tuple<A...>>>;
    if constexpr (has_loss_check<last>)
      return because<misuse::train_step_needs_an_optimizer_after_the_loss>{};
    else if constexpr (has_step<last> &&
                       has_loss_check<
                           std::remove_cvref_t<std::tuple_element_t<1, std::tuple<A...>>>>)
      return because<misuse::train_step_needs_a_target_before_the_loss>{};
    else if constexpr (has_step<last>)
      return because<misuse::train_step_needs_a_loss_before_the_optimizer>{};
    else
      return because<misuse::train_step_takes_an_input_a_target_a_loss_and_an_optimizer>{};
  } else {
    return because<misuse::train_step_takes_an_input_a_target_a_loss_and_an_optimizer>{};
  }
}

template <class Self, class X, class Y, class Loss>
constexpr auto find_loss_backward_refusal_of_three() {
  if constexpr (!has_loss_check<std::remove_cvref_t<Loss>>)
    return because<misuse::loss_backward_takes_an_input_a_target_and_a_loss>{};
  else if constexpr (std::is_void_v<loss_type<std::remove_cvref_t<Loss>>>)
    return std::type_identity<loss_with_a_mistake>{};
  else
    return Self::template find_step_refusal<std::remove_cvref_t<X>, std::remove_cvref_t<Y>,
                                            loss_type<std::remove_cvref_t<Loss>>>();
}

/// The same of `loss_backward(A...)`.
template <class Self, class... A>
constexpr auto find_loss_backward_refusal() {
  if constexpr (sizeof...(A) == 3)
    return find_loss_backward_refusal_of_three<Self, A...>();
  else
    return because<misuse::loss_backward_takes_an_input_a_target_and_a_loss>{};
}

/// The same of `backward(A...)`.
template <class Self, class... A>
constexpr auto find_backward_refusal() {
  if constexpr (sizeof...(A) == 0)
    return because<misuse::backward_takes_the_gradient_of_the_output>{};
  else
    return find_refusal<Self::template check_backward<std::remove_reference_t<A>...>>();
}

// These do not depend on Self's members until they are called with it complete.
template <class Self, class... A>
inline constexpr bool accepts_train_step =
    std::is_same_v<decltype(find_train_step_refusal<Self, A...>()), accepted>;
template <class Self, class... A>
inline constexpr bool accepts_loss_backward =
    std::is_same_v<decltype(find_loss_backward_refusal<Self, A...>()), accepted>;
template <class Self, class... A>
inline constexpr bool accepts_backward =
    std::is_same_v<decltype(find_backward_refusal<Self, A...>()), accepted>;

template <class Self, class... A>
auto refuse_train_step() -> decltype(declared(find_train_step_refusal<Self, A...>()));
template <class Self, class... A>
auto refuse_loss_backward() -> decltype(declared(find_loss_backward_refusal<Self, A...>()));
template <class Self, class... A>
auto refuse_backward() -> decltype(declared(find_backward_refusal<Self, A...>()));

/// The error of the gradient G of an output of this shape in a model of T.
template <class T, shape Output, class G>
constexpr diagnostic check_output_gradient() {
  if constexpr (std::is_same_v<G, no_gradient_t>)
    return {};
  else if constexpr (!tensor_like<G>)
    return {"backward expects a tensor of the shape {input} of the output", 0, 0, Output};
  else if constexpr (!std::is_same_v<std::remove_const_t<typename G::value_type>, T>)
    return {element_mismatch<"backward expects a gradient of ", T, typename G::value_type>.c_str()};
  else if (!compatible(Output, G::static_shape))
    return {"backward expects a gradient of the shape of the output, {input}, got {other}", 0, 0,
            Output, G::static_shape};
  else
    return {};
}

/// The error of the tensor X for the gradient of an input of this shape.
template <class T, class X>
constexpr diagnostic check_input_gradient(const shape& input) {
  if constexpr (!tensor_like<X>)
    return {"backward expects a tensor of the shape {input} of the input to write to", 0, 0, input};
  else if constexpr (!std::is_same_v<std::remove_const_t<typename X::value_type>, T>)
    return {
        element_mismatch<"backward expects tensors to write to of ", T, typename X::value_type>.c_str()};
  else if constexpr (!requires(X & x, T * *to) { *to = x.data(); })
    return {"backward expects tensors to write to that are not const"};
  else if (!compatible(input, X::static_shape))
    return {
        "backward expects a tensor of the shape of the input, {input}, to write to, got {other}", 0,
        0, input, X::static_shape};
  else
    return {};
}

/// The step whose output is M's first; -1 if that is an input.
template <composite_module M, class... C>
constexpr int step_of_output(const boost::hana::tuple<C...>*) {
  constexpr const auto& w = wiring_of<M>;
  const std::size_t outputs[]{output_count<typename unwrap_named<C>::type>()..., 0};
  int values = w.inputs;
  if (w.outputs[0] < values) return -1;
  for (std::size_t s = 0; s < w.size(); ++s) {
    values += static_cast<int>(outputs[w.steps[s].child]);
    if (w.outputs[0] < values) return static_cast<int>(s);
  }
  return -1;
}

/// The error of Loss for the leaf whose output is that of M, the module at this path, if any: some
/// compute what the loss computes.
template <class Loss, class M>
constexpr diagnostic check_last_module(path_text path) {
  if constexpr (!composite_module<M>) {
    diagnostic wrong = Loss::check_last(M::kind);
    wrong.path = path;
    return wrong;
  } else {
    constexpr int step = step_of_output<M>(static_cast<const decltype(M::children)*>(nullptr));
    if constexpr (step < 0) {
      return {};
    } else {
      constexpr const auto& last = wiring_of<M>.steps[step];
      using C =
          std::remove_cvref_t<decltype(boost::hana::at_c<static_cast<std::size_t>(last.child)>(
              std::declval<const M&>().children))>;
      if (!path.empty()) path.append(".");
      path.append(name_text<C>(last.number()).view());
      return check_last_module<Loss, typename unwrap_named<C>::type>(path);
    }
  }
}

}  // namespace ikebana::detail
