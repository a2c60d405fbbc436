#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/core/random.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/model/backward_pass.hpp"
#include "ikebana/model/call_arguments.hpp"
#include "ikebana/model/choices.hpp"
#include "ikebana/model/element.hpp"
#include "ikebana/model/hooks.hpp"
#include "ikebana/model/input_check.hpp"
#include "ikebana/model/inputs.hpp"
#include "ikebana/model/model_contents.hpp"
#include "ikebana/module/lazy.hpp"
#include "ikebana/module/lowering.hpp"
#include "ikebana/module/refusal.hpp"

namespace ikebana {

/// A resolved module with its parameters, gradients, buffers and workspace, for element type E and
/// inputs of the shapes In. Made by `initialize`. Movable, not copyable (`clone()`); addresses of
/// parameters and gradients never change.
///
/// E is float, double or a `precision`, whose numbers are floats: T in what follows. Inputs are
/// tensors, in their order or by name (`"mask"_arg = m`): of T, or of std::int64_t and
/// bool where a module takes indices or truth values. Outputs are views of the model's memory: one,
/// or a std::tuple of them.
///
/// Construction allocates; forward, backward and train_step do so only where an input is larger
/// than any before. Not for concurrent use: replicate it instead.
template <model_element E, resolved_module M, shape... In>
class model : public detail::model_contents<E, M, In...>,
              public hook_registration<model<E, M, In...>, M>,
              public choice_selection<model<E, M, In...>, M> {
  using contents = detail::model_contents<E, M, In...>;
  using T = element_of<E>;
  using contents::declared_inputs;

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
  /// What a call gives: a view, or a std::tuple of views where the module has several outputs.
  using output_view =
      std::conditional_t<output_count == 1, tensor_view<const T, output_shape>,
                         decltype(tuple_of_outputs(std::make_index_sequence<output_count>{}))>;

  /// Parameters are initialised from (seed, path) alone. `inputs` gives every extent that
  /// parameters depend on. Throws shape_error if they do not fit.
  model(M m, ikebana::seed s, const shape_list& inputs) : contents(std::move(m), s, inputs) {}

  model(model&&) noexcept = default;
  model& operator=(model&&) noexcept = default;

  /// A second model with the same parameters, buffers and mode.
  model clone() const { return model(*this); }

  /// What is wrong with a call with arguments of these types; a constant expression.
  template <model_input... A>
  static constexpr diagnostic check_call() {
    constexpr auto order = detail::order_inputs<input_count, M, A...>();
    if (!order.error.ok()) return order.error;
    const shape_list given{shape{}, detail::argument_tensor<A>::type::static_shape...};
    shape_list arranged;
    for (std::size_t i = 0; i < input_count; ++i) arranged.push_back(given[order.of[i] + 1]);
    return detail::check_inputs(M{}, declared_inputs, arranged);
  }

  /// The output for the inputs x: memory of the model, valid until its next call. Backward reads
  /// the inputs where they were: they must live until then. A shape that does not fit is a compile
  /// error where the compiler knows it, else a shape_error thrown before anything changed.
  template <model_input... X>
  output_view operator()(const X&... x) & {
    constexpr diagnostic wrong = check_call<X...>();
    if constexpr (!wrong.ok())
      static_cast<void>(sizeof(refusal_t<wrong.path, wrong.expected, wrong.got, wrong.message()>));
    else
      call(x...);
    return output();
  }

  /// A view of a temporary's memory would dangle.
  template <model_input... X>
  output_view operator()(const X&... x) && = delete;

  /// The same as operator().
  template <model_input... X>
  output_view forward(const X&... x) & {
    constexpr diagnostic wrong = check_call<X...>();
    if constexpr (!wrong.ok())
      static_cast<void>(sizeof(refusal_t<wrong.path, wrong.expected, wrong.got, wrong.message()>));
    else
      call(x...);
    return output();
  }

  /// What the last forward gave.
  output_view output() const {
    if constexpr (output_count == 1)
      return output<0>();
    else
      return all_outputs(std::make_index_sequence<output_count>{});
  }
  /// Output I of the last forward.
  template <std::size_t I>
  tensor_view<const T, shape_of_output<I>> output() const {
    const auto v = tables_->lowered.outputs[I];
    if constexpr (shape_of_output<I>.is_static())
      return tensor_view<const T, shape_of_output<I>>(tables_->values[v]);
    else
      return tensor_view<const T, shape_of_output<I>>(tables_->values[v],
                                                      tables_->current.values[v]);
  }

  /// Adds the gradients of the parameters for the last forward, given the gradient of its output,
  /// or a std::tuple of those of all outputs. The last forward's inputs must still be there.
  template <class G>
  void backward(const G& output_gradient) {
    contents::set_output_gradients(output_gradient);
    contents::run_backward(true, detail::nobody_listens{});
  }

  /// The same, and writes the gradients of the inputs, of those that are numbers, to
  /// `input_gradients`. Their memory is planned on the first use.
  template <class G, tensor_like... X>
  requires(sizeof...(X) > 0) void backward(const G& output_gradient, X&&... input_gradients) {
    begin_input_gradients(output_gradient, input_gradients...);
    contents::run_backward(true, detail::nobody_listens{});
    contents::end_input_gradients();
  }

  /// What is wrong with a step of training with an input (or `inputs(...)`) and a target of these
  /// types.
  template <class X, class Y, class Loss>
  static constexpr diagnostic check_step(const Loss& loss) {
    if constexpr (detail::is_input_pack<X>) {
      return check_pack<Y>(std::type_identity<X>{}, loss);
    } else {
      const diagnostic wrong = check_call<X>();
      return wrong.ok() ? loss.check(output_shape, Y::static_shape) : wrong;
    }
  }

  /// One step of training: forward, loss, gradients of this step alone, optimizer. x is a tensor or
  /// `inputs(...)`. Returns the loss. Allocates nothing once inputs of this size were seen.
  template <class X, tensor_like Y, class Loss, class Optimizer>
  T train_step(const X& x, const Y& target, const Loss& loss, Optimizer& optimizer) {
    constexpr diagnostic wrong = check_step<X, Y>(Loss{});
    if constexpr (!wrong.ok()) {
      static_cast<void>(sizeof(refusal_t<wrong.path, wrong.expected, wrong.got, wrong.message()>));
    } else {
      const T value = run_loss(x, target, loss, false, detail::nobody_listens{});
      optimizer.step();
      return value;
    }
  }

  /// Forward, loss and backward; adds to the gradients, so that several batches accumulate. Returns
  /// the loss.
  template <class X, tensor_like Y, class Loss>
  T loss_backward(const X& x, const Y& target, const Loss& loss) {
    constexpr diagnostic wrong = check_step<X, Y>(Loss{});
    if constexpr (!wrong.ok())
      static_cast<void>(sizeof(refusal_t<wrong.path, wrong.expected, wrong.got, wrong.message()>));
    else
      return run_loss(x, target, loss, true, detail::nobody_listens{});
  }

 protected:
  using contents::tables_;

  model(const model&) = default;

  template <std::size_t... I>
  output_view all_outputs(std::index_sequence<I...>) const {
    return output_view(output<I>()...);
  }

  using arguments = detail::call_arguments<model>;

  /// Forward with arguments whose shapes the compiler has checked.
  template <class... X>
  void call(const X&... x) {
    contents::run_forward(prepared(x...));
  }

  /// The arguments as the inputs that they are, for which everything is ready.
  template <class... X>
  typename arguments::pointers prepared(const X&... x) {
    if constexpr (takes_one_shape<X...>) {
      contents::prepare_for_declared();
      return arguments::data(x...);
    } else {
      contents::prepare_for(arguments::shapes(x...));
      return arguments::data(x...);
    }
  }

  /// Whether the compiler knows all shapes, which there is then nothing to check of.
  template <class... X>
  static constexpr bool takes_one_shape =
      (In.is_static() && ... && true) &&
      (detail::argument_tensor<X>::type::static_shape.is_static() && ... && true);

  template <class Y, class... A, class Loss>
  static constexpr diagnostic check_pack(std::type_identity<input_pack<A...>>, const Loss& loss) {
    const diagnostic wrong = check_call<A...>();
    return wrong.ok() ? loss.check(output_shape, Y::static_shape) : wrong;
  }

  /// Makes the next run_backward write the gradients of the inputs too.
  template <class G, class... X>
  void begin_input_gradients(const G& output_gradient, X&... input_gradients) {
    constexpr std::size_t numbers = [] {
      constexpr auto kinds = lowered().kinds;
      std::size_t n = 0;
      for (std::size_t i = 0; i < input_count; ++i) n += kinds[i] == element_kind::real;
      return n;
    }();
    static_assert(sizeof...(X) == numbers,
                  "ikebana: backward takes a gradient for each input of numbers");
    const shape extents[] = {input_gradients.extents()...};
    T* const data[] = {input_gradients.data()...};
    contents::set_gradients(contents::gradient_list::of(output_gradient), extents, data);
  }

  /// Forward, loss and backward. `completed(n)` is called while backward runs, whenever the first n
  /// elements of gradients() are final.
  template <class X, class Y, class Loss, class Completed>
  T run_loss(const X& x, const Y& target, const Loss& loss, bool accumulate,
             Completed&& completed) {
    static_assert(output_count == 1,
                  "ikebana: a loss is of one output: choose it in a graph, or call backward");
    const auto data = [&] {
      if constexpr (detail::is_input_pack<X>)
        return std::apply([&](const auto&... each) { return prepared(each...); }, x.items);
      else
        return prepared(x);
    }();
    loss.validate(tables_->current.output(), target);
    contents::run_forward(data);
    const tensor_view<const typename Y::value_type, Y::static_shape> wanted(target.data(),
                                                                            target.extents());
    contents::set_output_written(0, true);
    const T value = loss.backward(output(), wanted, tables_->output_gradient(0));
    contents::run_backward(accumulate, completed);
    return value;
  }
};

}  // namespace ikebana
