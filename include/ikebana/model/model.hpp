#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

#include "ikebana/core/dtype.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/model/call_arguments.hpp"
#include "ikebana/model/choices.hpp"
#include "ikebana/model/engine.hpp"
#include "ikebana/model/hooks.hpp"
#include "ikebana/model/inputs.hpp"
#include "ikebana/model/output_gradients.hpp"
#include "ikebana/model/views_by_path.hpp"
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
class model : protected detail::engine<E, M, sizeof...(In)>,
              public hook_registration<model<E, M, In...>, M>,
              public choice_selection<model<E, M, In...>, M> {
  using engine = detail::engine<E, M, sizeof...(In)>;
  using T = element_of<E>;
  using engine::sizes;
  static constexpr shape_list declared_inputs{In...};

 public:
  using value_type = T;
  using module_type = M;
  static constexpr std::size_t input_count = sizeof...(In);
  static constexpr std::size_t parameter_count = sizes.parameters;

  /// The lowered network for the declared shapes: a constant expression.
  static constexpr program<sizes> lowered() { return lower<sizes>(M{}, declared_inputs); }

  static constexpr std::size_t output_count = detail::output_count<M>();
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
  model(M m, ikebana::seed s, const shape_list& inputs)
      : engine(std::move(m), s, declared_inputs, inputs, lowerer()) {
    if constexpr (engine::traits::has_exceptions) {
      constexpr diagnostic wrong = engine::traits::check(lowered());
      if constexpr (!wrong.ok())
        static_cast<void>(
            sizeof(refusal_t<wrong.path, wrong.expected, wrong.got, wrong.message()>));
    }
  }

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
    set_output_gradients(output_gradient);
    engine::run_backward(true, detail::nobody_listens{});
  }

  /// The same, and writes the gradients of the inputs, of those that are numbers, to
  /// `input_gradients`. Their memory is planned on the first use.
  template <class G, tensor_like... X>
  requires(sizeof...(X) > 0) void backward(const G& output_gradient, X&&... input_gradients) {
    begin_input_gradients(output_gradient, input_gradients...);
    engine::run_backward(true, detail::nobody_listens{});
    end_input_gradients();
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

  /// Sets all gradients to zero; where run time may leave a parameter without one, all are absent.
  void zero_grad() {
    std::ranges::fill(gradients_.span(), T{0});
    if (gradient_presence* p = presence()) p->clear();
  }

  /// Which parameters have a gradient; null where every backward reaches every parameter.
  gradient_presence* presence() { return engine::presence_or_null(); }
  const gradient_presence* presence() const { return engine::presence_or_null(); }

  /// Whether a backward reached the parameter since zero_grad: `model.has_gradient("a.weight"_s)`.
  /// Always, where neither a `choose` nor one of several outputs can leave it out.
  template <class Path>
  bool has_gradient(Path) const {
    if constexpr (engine::is_partial)
      return (*presence())[place_of<Path>()];
    else
      return detail::parameter_index<model, Path>() < sizes.parameters;
  }
  /// Whether some may lack one.
  static constexpr bool may_lack_gradients = engine::is_partial;

  /// Training mode (the mode after initialize): dropout drops, batch norm takes the batch's
  /// statistics.
  void train(bool on = true) { training_ = on; }
  /// Evaluation mode.
  void eval() { training_ = false; }
  bool is_training() const { return training_; }

  /// Whether modules may be run in one with others (the mode after initialize): an activation with
  /// the product before it, and so on (model/fusion.hpp). What comes out is the same within
  /// rounding. Where a hook may look in between, each runs on its own in any case.
  void set_fusion(bool on) { fuses_ = on; }
  bool fuses() const { return fuses_; }

  /// All parameters as one array, in the order in which backward finishes them; the gaps between
  /// them are zero.
  std::span<T> parameters() {
    stamp_ = 0;
    return parameters_.span();
  }
  std::span<const T> parameters() const { return parameters_.span(); }
  /// All gradients, at the places of their parameters.
  std::span<T> gradients() { return gradients_.span(); }
  std::span<const T> gradients() const { return gradients_.span(); }
  /// All buffers, as bytes.
  std::span<std::byte> buffers() { return buffers_.span(); }
  std::span<const std::byte> buffers() const { return buffers_.span(); }
  /// Those that are saved with the parameters, and the same on all replicas.
  std::span<std::byte> persistent_buffers() {
    return buffers().first(static_cast<std::size_t>(tables_->layout.persistent_bytes));
  }

  /// Says that the parameters were changed in another way than by what parameters() gave.
  void parameters_changed() {
    if (stamp_ != 0) stamp_ = detail::new_parameter_stamp();
  }

  const M& module() const { return module_; }
  /// The lowered network with every extent that is known by now.
  const program<sizes>& current_program() const { return tables_->lowered_program; }
  /// The shapes of the last inputs; as declared before any.
  const shape_list& current_inputs() const {
    return tables_->current_inputs.size() == 0 ? declared_inputs : tables_->current_inputs;
  }
  const parameter_layout<sizes>& layout() const { return tables_->layout; }
  /// How many bytes of workspace the model holds: for the largest input so far.
  dim_t workspace_bytes() const { return workspace_.size(); }

  /// Of the randomness drawn in training: replicas draw from different streams.
  void set_random_stream(std::uint32_t stream) { stream_ = stream; }
  /// How many forwards in training there were: what randomness is counted by. Set it to resume.
  std::uint32_t random_step() const { return step_; }
  void set_random_step(std::uint32_t step) { step_ = step; }
  ikebana::seed seed() const { return seed_; }
  /// Of what is drawn from now on; parameters stay.
  void set_seed(ikebana::seed s) { seed_ = s; }

  // What choice_selection asks for.
  void set_choice(std::size_t c, int alternative) {
    if constexpr (engine::has_choices) {
      tables_->partial.set[c] = alternative;
      tables_->partial.policies[c] = nullptr;
      if (!tables_->ran_forward) tables_->partial.now.taken[c] = alternative;
    }
  }
  void set_choice(std::size_t c, std::shared_ptr<detail::choice_policy> policy) {
    if constexpr (engine::has_choices) tables_->partial.policies[c] = std::move(policy);
  }
  int choice(std::size_t c) const {
    if constexpr (engine::has_choices)
      return tables_->partial.now.taken[c];
    else
      return -1;
  }

  /// What hook_registration adds to, made when it is first asked for; and what there is, or null.
  const std::shared_ptr<hook_set>& hooks() { return engine::own_hooks(); }
  const std::shared_ptr<hook_set>& forward_hooks() { return engine::own_forward_hooks(); }
  const hook_set* registered_hooks() const { return engine::hooks_.get(); }

  /// A parameter by its path: `model["fc1.weight"_s]`, a tensor_view with its static shape.
  template <class Path>
  auto operator[](Path) {
    stamp_ = 0;
    return detail::parameter_view<model, Path>(*tables_, parameters_.data());
  }
  template <class Path>
  auto operator[](Path) const {
    return detail::parameter_view<model, Path>(*tables_, parameters_.data());
  }
  /// The gradient of a parameter by its path.
  template <class Path>
  auto gradient(Path) const {
    return detail::parameter_view<model, Path>(*tables_, gradients_.data());
  }
  /// A buffer by its path: `model.buffer("bn1.running_mean"_s)`, a tensor_view.
  template <class Path>
  auto buffer(Path) {
    return detail::buffer_view<model, Path>(*tables_, buffers_.data());
  }
  template <class Path>
  auto buffer(Path) const {
    return detail::buffer_view<model, Path>(*tables_, buffers_.data());
  }

 protected:
  using engine::buffers_;
  using engine::fuses_;
  using engine::gradients_;
  using engine::module_;
  using engine::parameters_;
  using engine::seed_;
  using engine::stamp_;
  using engine::step_;
  using engine::stream_;
  using engine::tables_;
  using engine::training_;
  using engine::workspace_;

  model(const model&) = default;

  /// The number of a parameter in gradient_presence.
  template <class Path>
  std::size_t place_of() const {
    constexpr std::size_t i = detail::parameter_index<model, Path>();
    static_assert(i < sizes.parameters, "ikebana: the model has no parameter of this path");
    if constexpr (engine::is_partial && i < sizes.parameters) {
      constexpr auto leaf = static_cast<std::size_t>(lowered().parameters[i].leaf);
      constexpr int nth = static_cast<int>(i) - lowered().leaves[leaf].first_parameter;
      return static_cast<std::size_t>(tables_->partial.places[leaf] + nth);
    } else {
      return i;
    }
  }

  /// Where the compiler knows the lowered network, what makes it is no part of the program.
  static constexpr typename engine::lowerer lowerer() {
    if constexpr (detail::is_stateless<M>() && (In.is_static() && ... && true))
      return [](program<sizes>& to, M&, const shape_list&, bool) {
        static constexpr program<sizes> known = lowered();
        // An assignment would be a store for each number.
        std::memcpy(static_cast<void*>(&to), &known, sizeof to);
      };
    else
      return &detail::lower_at_run_time<sizes, M>;
  }

  template <std::size_t... I>
  output_view all_outputs(std::index_sequence<I...>) const {
    return output_view(output<I>()...);
  }

  using arguments = detail::call_arguments<model>;

  /// Forward with arguments whose shapes the compiler has checked.
  template <class... X>
  void call(const X&... x) {
    engine::run_forward(prepared(x...));
  }

  /// The arguments as the inputs that they are, for which everything is ready.
  template <class... X>
  typename arguments::pointers prepared(const X&... x) {
    if constexpr (takes_one_shape<X...>) {
      engine::prepare_for_declared();
      return arguments::data(x...);
    } else {
      engine::prepare_for(arguments::shapes(x...));
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

  using gradient_list = detail::output_gradients<T, output_count>;

  void check_gradients(const gradient_list& given) const {
    for (std::size_t i = 0; i < output_count; ++i)
      tables_->check_output_gradient(i,
                                     given.given[i] ? given.shapes[i] : tables_->current.output(i));
  }

  void copy_gradients(const gradient_list& given) {
    for (std::size_t i = 0; i < output_count; ++i) {
      engine::set_output_written(i, given.given[i]);
      if (T* to = tables_->output_gradient(i); to != nullptr && given.given[i])
        std::copy_n(given.data[i], given.shapes[i].numel(), to);
    }
  }

  template <class G>
  void set_output_gradients(const G& g) {
    const gradient_list given = gradient_list::of(g);
    check_gradients(given);
    copy_gradients(given);
  }

  /// Makes the next run_backward write the gradients of the inputs too.
  template <class G, class... X>
  void begin_input_gradients(const G& output_gradient, X&... input_gradients) {
    constexpr auto kinds = lowered().kinds;
    constexpr std::size_t numbers = [&] {
      std::size_t n = 0;
      for (std::size_t i = 0; i < input_count; ++i) n += kinds[i] == element_kind::real;
      return n;
    }();
    static_assert(sizeof...(X) == numbers,
                  "ikebana: backward takes a gradient for each input of numbers");
    gradient_list given = gradient_list::of(output_gradient);
    check_gradients(given);
    const shape extents[] = {input_gradients.extents()...};
    T* const data[] = {input_gradients.data()...};
    std::array<T*, input_count + 1> to{};
    for (std::size_t v = 0, i = 0; v < input_count; ++v) {
      if (kinds[v] != element_kind::real) continue;
      tables_->check_input_gradient(v, extents[i]);
      to[v] = data[i++];
    }
    std::array<aligned_buffer<T>, output_count> kept;
    if (!tables_->input_gradients) {
      // The gradients given may be in memory that is planned anew.
      for (std::size_t i = 0; i < output_count; ++i) {
        if (!given.given[i]) continue;
        const dim_t n = given.shapes[i].numel();
        kept[i] = aligned_buffer<T>(n);
        std::copy_n(given.data[i], n, kept[i].data());
        given.data[i] = kept[i].data();
      }
      engine::plan_input_gradients();
    }
    copy_gradients(given);
    tables_->set_input_gradients(to.data(), workspace_.data());
    // An output that is an input.
    for (std::size_t i = 0; i < output_count; ++i)
      if (tables_->lowered.outputs[i] < static_cast<int>(input_count) && given.given[i])
        std::copy_n(given.data[i], given.shapes[i].numel(), tables_->output_gradient(i));
  }

  /// The caller's memory is the caller's again.
  void end_input_gradients() {
    const std::array<T*, input_count + 1> none{};
    tables_->set_input_gradients(none.data(), workspace_.data());
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
    engine::run_forward(data);
    const tensor_view<const typename Y::value_type, Y::static_shape> wanted(target.data(),
                                                                            target.extents());
    engine::set_output_written(0, true);
    const T value = loss.backward(output(), wanted, tables_->output_gradient(0));
    engine::run_backward(accumulate, completed);
    return value;
  }
};

}  // namespace ikebana
