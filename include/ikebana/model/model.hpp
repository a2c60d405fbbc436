#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/core/random.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/model/calls/call_arguments.hpp"
#include "ikebana/model/calls/loss_memory.hpp"
#include "ikebana/model/calls/optimizer_check.hpp"
#include "ikebana/model/calls/training_refusals.hpp"
#include "ikebana/model/choices.hpp"
#include "ikebana/model/element.hpp"
#include "ikebana/model/engine/gradient_exchange.hpp"
#include "ikebana/model/hooks.hpp"
#include "ikebana/model/inputs.hpp"
#include "ikebana/model/model_contents.hpp"
#include "ikebana/model/network/exclusive_use.hpp"
#include "ikebana/model/network/input_check.hpp"
#include "ikebana/model/passes/backward_pass.hpp"
#include "ikebana/module/graph_loss.hpp"
#include "ikebana/module/lazy.hpp"
#include "ikebana/module/lowering.hpp"
#include "ikebana/module/refusal.hpp"

namespace ikebana {

namespace detail::misuse {

IKEBANA_MISUSE(call_of_a_const_model,
               "a model that is const cannot be called: forward writes its memory");
IKEBANA_MISUSE(copy_of_a_model,
               "a model is not copied: clone() makes a second one, std::move passes this one on, "
               "and a function takes it as auto&");
IKEBANA_MISUSE(call_of_a_temporary_model,
               "a temporary model cannot be called: the output is a view of its memory; give the "
               "model a name");

}  // namespace detail::misuse

namespace detail {

template <class T, class Graph, std::size_t Outputs, shape... In>
class loss_network;

/// Makes a part of a model; defined in model/part.hpp.
template <literal Path, class Model>
struct part_maker;
struct part_access;

/// Its name appears in the compiler's message about a copy.
struct a_model_is_not_copied_but_cloned_by_clone {};

/// The error if a loss cannot take a prediction of T with the shape Prediction and a target Y.
template <class Loss, class T, shape Prediction, class Y>
constexpr diagnostic check_loss() {
  if constexpr (!tensor_like<Y>) {
    return {
        "the target is not a tensor: as_tensor<shape{..}>(v) is a view of a std::vector or array"};
  } else {
    if constexpr (requires { Loss::template check_elements<T, typename Y::value_type>(); })
      if (const diagnostic wrong = Loss::template check_elements<T, typename Y::value_type>();
          !wrong.ok())
        return wrong;
    using U = typename Y::value_type;
    if constexpr (requires { Loss::template check_shapes<U>(Prediction, Y::static_shape); })
      return Loss::template check_shapes<U>(Prediction, Y::static_shape);
    else
      return Loss{}.check(Prediction, Y::static_shape);
  }
}

}  // namespace detail

/// A resolved module with its parameters, gradients, buffers and workspace, for element type E and
/// inputs of the shapes In. Created by `initialize`. Movable, not copyable (see `clone()`);
/// addresses of parameters and gradients never change. A call of a moved-from model throws
/// state_error.
///
/// E is float, double or a `precision`, whose numbers are floats; T is the number type. Inputs are
/// tensors of T, or of std::int64_t and bool if a module takes indices or masks, by position or by
/// name (`"mask"_arg = m`). Outputs are views of the model's memory: one, or a std::tuple of them.
///
/// Construction allocates; forward, backward and train_step do so only if an input is larger than
/// any before. A model must not be used by two threads at once, since its calls share a workspace:
/// `clone()` it, or replicate it. If IKEBANA_CHECKED is defined, a call throws state_error while
/// another thread is in a call of the same model.
template <model_element E, resolved_module M, shape... In>
class model : public detail::model_contents<E, M, In...>,
              public hook_registration<model<E, M, In...>, M>,
              public choice_selection<model<E, M, In...>, M> {
  using contents = detail::model_contents<E, M, In...>;
  using T = element_of<E>;
  using contents::declared_inputs;

 protected:
  using contents::engine_;

 public:
  using contents::input_count;
  using contents::lowered;
  using contents::output_count;
  /// The shape of the first output.
  static constexpr shape output_shape = lowered().output();

 private:
  template <std::size_t I>
  static constexpr shape shape_of_output = lowered().output(I);

  template <std::size_t... I>
  static auto tuple_of_outputs(std::index_sequence<I...>)
      -> std::tuple<tensor_view<const T, shape_of_output<I>>...>;

 public:
  /// The result of a call: a view, or a std::tuple of views if the module has several outputs.
  using output_view =
      std::conditional_t<output_count == 1, tensor_view<const T, output_shape>,
                         decltype(tuple_of_outputs(std::make_index_sequence<output_count>{}))>;

  /// The error of a call with arguments of these types, if any; a constant expression.
  template <class... A>
  static constexpr diagnostic check_call() {
    if constexpr (!(model_input<A> && ... && true)) {
      return detail::refuse_what_is_no_tensor<A...>();
    } else {
      constexpr auto order = detail::order_inputs<input_count, M, A...>();
      if constexpr (!order.error.ok()) {
        return order.error;
      } else {
        const diagnostic wrong =
            detail::check_elements<T, input_count, A...>(order, lowered().kinds);
        if (!wrong.ok()) return wrong;
        const shape given[]{shape{}, detail::argument_tensor<A>::type::static_shape...};
        shape_list arranged;
        for (std::size_t i = 0; i < input_count; ++i) arranged.push_back(given[order.of[i] + 1]);
        return detail::check_inputs(M{}, declared_inputs, arranged);
      }
    }
  }

  /// The same for one input, or for `inputs(...)`.
  template <class X>
  static constexpr diagnostic check_input(std::type_identity<X>) {
    return check_call<X>();
  }
  template <class... A>
  static constexpr diagnostic check_input(std::type_identity<input_pack<A...>>) {
    return check_call<A...>();
  }

  /// The error of a training step with an input (or `inputs(...)`), a target and a loss of these
  /// types, if any; a constant expression.
  template <class X, class Y, class Loss>
  static constexpr diagnostic check_step() {
    diagnostic wrong = check_input(std::type_identity<X>{});
    if (!wrong.ok()) return wrong;
    if constexpr (detail::is_graph_loss<Loss>)
      return check_graph_loss<typename Loss::graph_type>(std::type_identity<Y>{},
                                                         std::make_index_sequence<output_count>{});
    else
      return check_loss_of_one_output<Y, Loss>();
  }

 private:
  template <class Y, class Loss>
  static constexpr diagnostic check_loss_of_one_output() {
    if (output_count != 1)
      return {
          "a loss takes one output, the network has {got}: choose one in a graph, or call backward",
          1, static_cast<dim_t>(output_count)};
    diagnostic wrong = detail::check_loss<Loss, T, output_shape, Y>();
    if constexpr (requires { Loss::check_last(std::string_view{}); })
      if (wrong.ok()) wrong = detail::check_last_module<Loss, M>({});
    return wrong;
  }

  template <class Graph, class... Y, std::size_t... I>
  static constexpr diagnostic check_graph_loss(std::type_identity<input_pack<Y...>>,
                                               std::index_sequence<I...>) {
    const diagnostic wrong = graph_loss<Graph>::check(shape_of_output<I>..., Y::static_shape...);
    if (!wrong.ok()) return wrong;
    return loss_network_of<Graph, Y...>::template check_call<
        tensor_view<const T, shape_of_output<I>>..., Y...>();
  }
  template <class Graph, class Y, std::size_t... I>
  static constexpr diagnostic check_graph_loss(std::type_identity<Y>,
                                               std::index_sequence<I...> outputs) {
    if constexpr (!tensor_like<Y>)
      return detail::check_loss<graph_loss<Graph>, T, output_shape, Y>();
    else
      return check_graph_loss<Graph>(std::type_identity<input_pack<Y>>{}, outputs);
  }

  template <class Graph, class... Y, std::size_t... I>
  static auto loss_network_type(std::index_sequence<I...>)
      -> detail::loss_network<T, Graph, output_count, shape_of_output<I>..., Y::static_shape...>;
  template <class Graph, class... Y>
  using loss_network_of =
      decltype(loss_network_type<Graph, Y...>(std::make_index_sequence<output_count>{}));

 public:
  /// The error of `backward(G, X...)`, if any; a constant expression.
  template <class G, class... X>
  static constexpr diagnostic check_backward() {
    const diagnostic wrong = check_output_gradients(std::type_identity<std::remove_const_t<G>>{});
    if (!wrong.ok()) return wrong;
    if constexpr (sizeof...(X) > 0) {
      constexpr auto kinds = lowered().kinds;
      using find = diagnostic (*)(const shape&);
      constexpr find checks[] = {&detail::check_input_gradient<T, X>...};
      std::size_t given = 0;
      for (std::size_t i = 0; i < input_count; ++i) {
        if (kinds[i] != element_kind::real) continue;
        if (given < sizeof...(X))
          if (const diagnostic of_input = checks[given](declared_inputs[i]); !of_input.ok())
            return of_input;
        ++given;
      }
      if (given != sizeof...(X))
        return {
            "backward takes a gradient of the output and a tensor for that of each input of "
            "numbers, "
            "{expected} here, got {got}",
            static_cast<dim_t>(given), static_cast<dim_t>(sizeof...(X))};
    }
    return {};
  }

  template <class... X>
  static constexpr bool takes = detail::accepts<check_call<X...>>;
  /// The same as a refusal.
  template <class X, class Y, class Loss>
  static constexpr auto find_step_refusal() {
    return detail::find_refusal<check_step<X, Y, Loss>>();
  }

  /// Parameters are initialised from (seed, path) alone. `inputs` contains every extent that
  /// parameters depend on. Throws shape_error if they do not match.
  model(const M& m, ikebana::seed s, const shape_list& inputs) : contents(m, s, inputs) {}

  model(model&&) noexcept = default;
  model& operator=(model&&) noexcept = default;

  /// A second model with the same parameters, buffers and mode. Allocates.
  model clone() const { return model(*this, copied_by_clone{}); }
  /// A copy would be a second set of weights that the optimizer of the first does not know.
  model(const model&, detail::a_model_is_not_copied_but_cloned_by_clone = {}) = delete;
  model& operator=(const model&) = delete;
  /// The same in one sentence, if the other is not const.
  template <std::same_as<model> Self>
  model(Self&, detail::misuse::copy_of_a_model<detail::later<Self>> =
                   detail::refuse_as<detail::misuse::copy_of_a_model<detail::later<Self>>>());
  template <std::same_as<model> Self>
  detail::misuse::copy_of_a_model<detail::later<Self>> operator=(Self&);

  /// An owning copy of the current parameters and buffers (a state_dict), for example of the best
  /// model so far, to be loaded by load_state_dict later. Needs <ikebana/model/state.hpp>.
  /// Allocates.
  auto snapshot() const { return get_state_dict(*this).clone(); }

  /// The module at a path, or a method (compose/methods.hpp), with calls and training of its own:
  /// `model.part<"encoder">()`, a `model_part`. It refers to this model, which must not be moved or
  /// destroyed while it is used. The first call for a path allocates. Needs
  /// <ikebana/model/part.hpp>.
  template <detail::literal Path>
      auto part() & requires(detail::part_maker<Path, model>::exists) {
    return detail::part_maker<Path, model>::make(*this);
  }
  template <detail::literal Path>
  requires(!detail::part_maker<Path, model>::
               exists) auto part() & -> decltype(detail::part_maker<Path, model>::refuse());

  /// The output for the inputs x: memory of the model, valid until its next call. Backward reads
  /// the inputs in place, so they must live until then; temporary tensors are kept (not what a view
  /// shows), and refused if they are const. A shape mismatch is a compile error if the compiler
  /// knows it, else a shape_error thrown before anything has changed.
  template <class... X>
      output_view operator()(const X&... x) & requires(takes<X...>) {
    call(x...);
    return output();
  }

  /// The same with temporary tensors: the model keeps their memory, for backward, until its next
  /// call with temporaries.
  template <class... X>
  requires(detail::keeps_temporary<X...>&& takes<std::remove_cvref_t<X>...>) output_view operator()(
      X&&... x) & {
    const output_view y = operator()(std::as_const(x)...);
    engine_.tables().kept_inputs.keep(std::forward<X>(x)...);
    return y;
  }

  template <class... X>
  requires(!takes<X...>) auto operator()(
      const X&...) & -> decltype(detail::refuse<check_call<X...>>());
  template <class... X>
  auto operator()(const X&...)
      const& -> decltype(detail::refuse_for<detail::misuse::call_of_a_const_model, X...>());
  /// A view of a temporary's memory would dangle.
  template <class... X>
  auto operator()(const X&...) && -> decltype(detail::refuse_for<
                                              detail::misuse::call_of_a_temporary_model, X...>());

  template <class... X>
  requires(detail::has_const_temporary<X...>) auto operator()(
      X&&...) & -> decltype(detail::refuse_for<detail::misuse::call_with_a_const_temporary,
                                               X...>());

  /// The same as operator().
  template <class... X>
      output_view forward(const X&... x) & requires(takes<X...>) {
    call(x...);
    return output();
  }
  template <class... X>
  requires(!takes<X...>) auto forward(
      const X&...) & -> decltype(detail::refuse<check_call<X...>>());
  template <class... X>
  requires(detail::has_const_temporary<X...>) auto forward(
      X&&...) & -> decltype(detail::refuse_for<detail::misuse::call_with_a_const_temporary,
                                               X...>());
  template <class... X>
  auto forward(const X&...)
      const& -> decltype(detail::refuse_for<detail::misuse::call_of_a_const_model, X...>());
  template <class... X>
  auto forward(const X&...) && -> decltype(detail::refuse_for<
                                           detail::misuse::call_of_a_temporary_model, X...>());

  template <class... X>
  requires(detail::keeps_temporary<X...>&& takes<std::remove_cvref_t<X>...>) output_view
      forward(X&&... x)
  &{
    const output_view y = forward(std::as_const(x)...);
    engine_.tables().kept_inputs.keep(std::forward<X>(x)...);
    return y;
  }

  /// The output of the last forward.
  output_view output() const {
    if constexpr (output_count == 1)
      return output<0>();
    else
      return all_outputs(std::make_index_sequence<output_count>{});
  }
  /// Output I of the last forward.
  template <std::size_t I>
  tensor_view<const T, shape_of_output<I>> output() const {
    const auto v = engine_.tables().lowered.outputs[I];
    if constexpr (shape_of_output<I>.is_static())
      return tensor_view<const T, shape_of_output<I>>(engine_.tables().values[v]);
    else
      return tensor_view<const T, shape_of_output<I>>(engine_.tables().values[v],
                                                      engine_.tables().current.values[v]);
  }

  /// Adds the gradients of the parameters for the last forward, given the gradient of its output,
  /// or a std::tuple of the gradients of all outputs. The inputs of the last forward must still
  /// exist. Throws shape_error if a gradient does not match its output, and error without a
  /// forward: that of train_step or loss_backward does not count, for its inputs may be gone.
  template <class G>
  requires(detail::accepts_backward<model, G>) void backward(const G& output_gradient) {
    begin_gradients(output_gradient);
    engine_.run_backward(true, detail::no_listener{});
  }

  /// The same, and writes the gradients of those inputs that are numbers to `input_gradients`,
  /// which may not share memory with the inputs. Their memory is planned on first use, which
  /// allocates.
  template <class G, tensor_like... X>
  requires(sizeof...(X) > 0 &&
           detail::accepts_backward<model, G, X...>) void backward(const G& output_gradient,
                                                                   X&&... input_gradients) {
    begin_gradients(output_gradient, input_gradients...);
    const detail::input_gradients_scope scope{engine_};
    engine_.run_backward(true, detail::no_listener{});
  }
  template <class... A>
  requires(!detail::accepts_backward<model, A...>) auto backward(A&&...)
      -> decltype(detail::refuse_backward<model, A...>());
  template <class... A>
  auto backward(const A&...) const
      -> decltype(detail::refuse_for<detail::misuse::training_of_a_const_model, A...>());

  /// One training step: forward, loss, gradients of this step only, optimizer. x is a tensor or
  /// `inputs(...)`. Returns the loss. Throws state_error, before anything has changed, if the
  /// optimizer was created for another model. Allocates nothing once inputs of this size have been
  /// seen.
  template <class X, class Y, class Loss, class Optimizer>
  requires(detail::accepts_train_step<model, X, Y, Loss, Optimizer&>) T
      train_step(const X& x, const Y& target, const Loss& loss, Optimizer& optimizer) {
    detail::check_optimizer(*this, optimizer);
    const T value = run_loss(x, target, detail::as_loss(loss), false, detail::no_listener{});
    optimizer.step();
    return value;
  }
  template <class... A>
  requires(!detail::accepts_train_step<model, A...>) auto train_step(A&&...)
      -> decltype(detail::refuse_train_step<model, A...>());
  template <class... A>
  auto train_step(const A&...) const
      -> decltype(detail::refuse_for<detail::misuse::training_of_a_const_model, A...>());

  /// Forward, loss and backward. Adds to the gradients, so that several batches accumulate. Returns
  /// the loss.
  template <class X, class Y, class Loss>
  requires(detail::accepts_loss_backward<model, X, Y, Loss>) T
      loss_backward(const X& x, const Y& target, const Loss& loss) {
    return run_loss(x, target, detail::as_loss(loss), true, detail::no_listener{});
  }
  template <class... A>
  requires(!detail::accepts_loss_backward<model, A...>) auto loss_backward(A&&...)
      -> decltype(detail::refuse_loss_backward<model, A...>());
  template <class... A>
  auto loss_backward(const A&...) const
      -> decltype(detail::refuse_for<detail::misuse::training_of_a_const_model, A...>());

 protected:
  template <class G>
  static constexpr diagnostic check_output_gradients(std::type_identity<G>) {
    return check_output_gradients(std::type_identity<std::tuple<G>>{});
  }
  template <class... G>
  static constexpr diagnostic check_output_gradients(std::type_identity<std::tuple<G...>>) {
    if constexpr (sizeof...(G) != output_count)
      return {
          "backward takes a gradient for each output, {expected} here, got {got}; those of several "
          "outputs are a std::tuple",
          static_cast<dim_t>(output_count), static_cast<dim_t>(sizeof...(G))};
    else
      return [&]<std::size_t... I>(std::index_sequence<I...>) {
        diagnostic wrong;
        static_cast<void>(
            ((wrong = detail::check_output_gradient<T, shape_of_output<I>, G>()).ok() && ...));
        return wrong;
      }
    (std::index_sequence_for<G...>{});
  }

  struct copied_by_clone {};
  model(const model& other, copied_by_clone) : contents(other) {}

  template <std::size_t... I>
  output_view all_outputs(std::index_sequence<I...>) const {
    return output_view(output<I>()...);
  }

  using arguments = detail::call_arguments<model>;

  /// Forward with arguments whose shapes the compiler has checked.
  template <class... X>
  void call(const X&... x) {
    const detail::exclusive_use guard(engine_.tables().user);
    engine_.run_forward(prepared(x...));
  }

  /// Prepares a call and returns its arguments in the order of the inputs.
  template <class... X>
  typename arguments::pointers prepared(const X&... x) {
    if constexpr (takes_one_shape<X...>) {
      engine_.network.prepare_for_declared();
      return arguments::data(x...);
    } else {
      engine_.network.prepare_for(arguments::shapes(x...));
      return arguments::data(x...);
    }
  }

  /// Whether the compiler knows all shapes, so that there is nothing to check at run time.
  template <class... X>
  static constexpr bool takes_one_shape =
      (In.is_static() && ... && true) &&
      (detail::argument_tensor<X>::type::static_shape.is_static() && ... && true);

  /// Sets the gradients that the next run_backward begins with, and where it writes those of the
  /// inputs, if anywhere.
  template <class G, class... X>
  void begin_gradients(const G& output_gradient, X&... input_gradients) {
    const auto given = detail::output_gradients<T, output_count>::of(output_gradient);
    if constexpr (sizeof...(X) == 0) {
      detail::set_output_gradients(engine_, given);
    } else {
      const shape extents[] = {input_gradients.extents()...};
      T* const data[] = {input_gradients.data()...};
      detail::begin_input_gradients(engine_, given, extents, data);
    }
  }

  /// Forward, loss and backward. `completed(n)` is called during backward, whenever the first n
  /// elements of gradients() are final.
  template <class X, class Y, class Loss, class Completed>
  T run_loss(const X& x, const Y& target, const Loss& loss, bool accumulate,
             Completed&& completed) {
    const detail::exclusive_use guard(engine_.tables().user);
    const auto data = [&] {
      if constexpr (detail::is_input_pack<X>)
        return std::apply([&](const auto&... each) { return prepared(each...); }, x.items);
      else
        return prepared(x);
    }();
    if constexpr (detail::is_graph_loss<Loss>) {
      if constexpr (detail::is_input_pack<Y>)
        return std::apply(
            [&](const auto&... t) {
              return run_graph_loss(data, loss, accumulate, completed,
                                    std::make_index_sequence<output_count>{}, t...);
            },
            target.items);
      else
        return run_graph_loss(data, loss, accumulate, completed,
                              std::make_index_sequence<output_count>{}, target);
    } else {
      return run_loss_of_one_output(data, target, loss, accumulate, completed);
    }
  }

 private:
  template <class Y, class Loss, class Completed>
  T run_loss_of_one_output(const typename arguments::pointers& data, const Y& target,
                           const Loss& loss, bool accumulate, Completed& completed) {
    loss.validate(engine_.tables().current.output(), target);
    engine_.run_forward(data);
    engine_.tables().of_loss = true;
    const tensor_view<const typename Y::value_type, Y::static_shape> wanted(target.data(),
                                                                            target.extents());
    engine_.complete_forward();
    engine_.set_output_written(0, true);
    const T value = loss.backward(output(), wanted, engine_.tables().output_gradient(0));
    engine_.run_backward(accumulate, completed);
    return value;
  }

  /// The same with a loss that is a graph: its network reads the outputs and writes their gradients
  /// where they are.
  template <class Loss, class Completed, std::size_t... I, class... Y>
  T run_graph_loss(const typename arguments::pointers& data, const Loss& loss, bool accumulate,
                   Completed& completed, std::index_sequence<I...>, const Y&... target) {
    const auto& graph = loss.graph_of_loss();
    auto& own = detail::loss_network_in<
        loss_network_of<typename Loss::graph_type, std::remove_const_t<Y>...>>(losses_, graph);
    own.prepare_for(graph, shape_list{engine_.tables().current.output(I)..., target.extents()...},
                    engine_.network.seed, engine_.network.step);
    engine_.run_forward(data);
    engine_.tables().of_loss = true;
    const T value = own.value(output<I>()..., target...);
    engine_.complete_forward();
    (engine_.set_output_written(I, true), ...);
    own.gradients({engine_.tables().output_gradient(I)...});
    engine_.run_backward(accumulate, completed);
    return value;
  }
  friend struct detail::part_access;
  /// One for each type of graph loss, and each part, seen.
  std::unique_ptr<detail::loss_memory> losses_;
};

}  // namespace ikebana
