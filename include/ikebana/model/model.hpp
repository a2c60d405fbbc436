#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "ikebana/core/dtype.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/model/execution.hpp"
#include "ikebana/model/layout.hpp"
#include "ikebana/model/memory_plan.hpp"
#include "ikebana/module/lazy.hpp"
#include "ikebana/module/lowering.hpp"
#include "ikebana/module/refusal.hpp"

namespace ikebana {

namespace detail {

/// What is wrong with inputs of the shapes Given for a module resolved for the shapes Declared.
template <any_module M>
constexpr diagnostic check_inputs(const M& m, const shape_list& declared, const shape_list& given) {
  if (given.size() != declared.size())
    return {"the model takes {expected} inputs, got {got}", static_cast<dim_t>(declared.size()),
            static_cast<dim_t>(given.size())};
  shape_list assumed = given;
  bool same_ranks = true;
  for (std::size_t i = 0; i < given.size(); ++i)
    same_ranks = same_ranks && given[i].rank() == declared[i].rank();
  if (same_ranks)
    for (std::size_t i = 0; i < given.size(); ++i)
      for (std::size_t d = 0; d < given[i].rank(); ++d)
        if (assumed[i][d] < 0) assumed[i][d] = declared[i][d];
  // The module is asked first: its sentence names the path.
  const inferred made = infer(m, assumed);
  if (!made.ok()) return made.error;
  for (std::size_t i = 0; i < given.size(); ++i)
    if (!compatible(declared[i], given[i]))
      return {"the model expects an input {input}, got {other}", 0, 0, declared[i], given[i]};
  return {};
}

}  // namespace detail

/// A resolved module with its parameters, gradients, buffers and workspace, for element type T and
/// inputs of the shapes In. Made by `initialize`. Movable, not copyable (`clone()`); addresses of
/// parameters and gradients never change.
///
/// Construction allocates; forward, backward and train_step do so only where an input is larger
/// than any before. Not for concurrent use: replicate it instead.
template <floating T, resolved_module M, shape... In>
class model {
  static constexpr program_sizes sizes = sizes_of<M>(sizeof...(In));
  static constexpr shape_list declared_inputs{In...};

 public:
  using value_type = T;
  using module_type = M;
  static constexpr std::size_t parameter_count = sizes.parameters;

  /// The lowered network for the declared shapes: a constant expression.
  static constexpr program<sizes> lowered() { return lower<sizes>(M{}, declared_inputs); }

  static_assert(lowered().output_count == 1, "ikebana: a model has one output");

  static constexpr shape output_shape = lowered().output();
  using output_view = tensor_view<const T, output_shape>;

  /// Parameters are initialised from (seed, path) alone. `inputs` gives every extent that
  /// parameters depend on. Throws shape_error if they do not fit.
  model(M module, seed s, const shape_list& inputs)
      : module_{std::move(module)}, tables_{new tables}, seed_{s} {
    set_up(inputs);
    for (std::size_t i = 0; i < sizes.parameters; ++i) {
      const parameter_spec& spec = tables_->lowered.parameters[i].spec;
      const random_stream stream{
          s, hash_path(tables_->lowered.path(tables_->lowered.parameters[i]).view())};
      spec.init.template fill<T>(stream, parameters_.data() + tables_->layout.offsets[i],
                                 spec.extents.numel());
    }
    for (std::size_t i = 0; i < sizes.buffers; ++i) fill_buffer(i);
  }

  model(model&&) noexcept = default;
  model& operator=(model&&) noexcept = default;

  /// A second model with the same parameters, buffers and mode.
  model clone() const {
    model copy(module_, seed_, tables_->bound_inputs);
    std::ranges::copy(parameters_.span(), copy.parameters_.data());
    std::ranges::copy(buffers_.span(), copy.buffers_.data());
    copy.training_ = training_;
    copy.step_ = step_;
    copy.stream_ = stream_;
    return copy;
  }

  /// The output for the inputs x: a view of memory of the model, valid until its next call. A shape
  /// that does not fit is a compile error where the compiler knows it, else a shape_error thrown
  /// before anything changed.
  template <tensor_like... X>
  output_view operator()(const X&... x) & {
    constexpr diagnostic wrong =
        detail::check_inputs(M{}, declared_inputs, shape_list{X::static_shape...});
    if constexpr (!wrong.ok())
      static_cast<void>(sizeof(refusal_t<wrong.path, wrong.expected, wrong.got, wrong.message()>));
    else
      run_forward(x...);
    return output();
  }

  /// A view of a temporary's memory would dangle.
  template <tensor_like... X>
  output_view operator()(const X&... x) && = delete;

  /// The same as operator().
  template <tensor_like... X>
  output_view forward(const X&... x) & {
    constexpr diagnostic wrong =
        detail::check_inputs(M{}, declared_inputs, shape_list{X::static_shape...});
    if constexpr (!wrong.ok())
      static_cast<void>(sizeof(refusal_t<wrong.path, wrong.expected, wrong.got, wrong.message()>));
    else
      run_forward(x...);
    return output();
  }

  /// What the last forward gave.
  output_view output() const {
    const auto v = static_cast<std::size_t>(tables_->lowered.outputs[0]);
    return output_view(tables_->values[v], tables_->current.values[v]);
  }

  /// Adds the gradients of the parameters for the last forward, given the gradient of its output.
  /// The last forward's inputs must still be there.
  template <tensor_like G>
  void backward(const G& output_gradient) {
    set_output_gradient(output_gradient);
    run_backward(true, detail::nobody_listens{});
  }

  /// The same, and writes the gradients of the inputs to `input_gradients`. Their memory is planned
  /// on the first use.
  template <tensor_like G, tensor_like... X>
  requires(sizeof...(X) == sizeof...(In)) void backward(const G& output_gradient,
                                                        X&&... input_gradients) {
    begin_input_gradients(output_gradient, input_gradients...);
    run_backward(true, detail::nobody_listens{});
    end_input_gradients();
  }

  /// What is wrong with an input and a target of these static shapes, for a loss.
  template <class X, class Y, class Loss>
  static constexpr diagnostic check_step(const Loss& loss) {
    const diagnostic wrong =
        detail::check_inputs(M{}, declared_inputs, shape_list{X::static_shape});
    return wrong.ok() ? loss.check(output_shape, Y::static_shape) : wrong;
  }

  /// One step of training: forward, loss, gradients of this step alone, optimizer. Returns the
  /// loss. Allocates nothing once an input of this size was seen.
  template <tensor_like X, tensor_like Y, class Loss, class Optimizer>
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
  template <tensor_like X, tensor_like Y, class Loss>
  T loss_backward(const X& x, const Y& target, const Loss& loss) {
    constexpr diagnostic wrong = check_step<X, Y>(Loss{});
    if constexpr (!wrong.ok())
      static_cast<void>(sizeof(refusal_t<wrong.path, wrong.expected, wrong.got, wrong.message()>));
    else
      return run_loss(x, target, loss, true, detail::nobody_listens{});
  }

  /// Sets all gradients to zero.
  void zero_grad() { std::ranges::fill(gradients_.span(), T{0}); }

  /// Training mode (the mode after initialize): dropout drops, batch norm takes the batch's
  /// statistics.
  void train(bool on = true) { training_ = on; }
  /// Evaluation mode.
  void eval() { training_ = false; }
  bool is_training() const { return training_; }

  /// All parameters as one array, in the order in which backward finishes them; the gaps between
  /// them are zero.
  std::span<T> parameters() { return parameters_.span(); }
  std::span<const T> parameters() const { return parameters_.span(); }
  /// All gradients, at the places of their parameters.
  std::span<T> gradients() { return gradients_.span(); }
  std::span<const T> gradients() const { return gradients_.span(); }
  /// All buffers, as bytes.
  std::span<std::byte> buffers() { return buffers_.span(); }
  std::span<const std::byte> buffers() const { return buffers_.span(); }

  const M& module() const { return module_; }
  /// The lowered network with every extent that is known by now.
  const program<sizes>& current_program() const { return tables_->lowered; }
  /// The shapes of the last inputs; as declared before any.
  const shape_list& current_inputs() const {
    return tables_->current_inputs.size() == 0 ? declared_inputs : tables_->current_inputs;
  }
  const parameter_layout<sizes>& layout() const { return tables_->layout; }
  /// How many bytes of workspace the model holds: for the largest input so far.
  dim_t workspace_bytes() const { return workspace_.size(); }

  /// Of the randomness drawn in training: replicas draw from different streams.
  void set_random_stream(std::uint32_t stream) { stream_ = stream; }
  ikebana::seed seed() const { return seed_; }

  /// A parameter by its path: `model["fc1.weight"_s]`, a tensor_view with its static shape.
  template <class Path>
  auto operator[](Path) {
    return parameter<Path, T>(parameters_.data());
  }
  template <class Path>
  auto operator[](Path) const {
    return parameter<Path, const T>(parameters_.data());
  }
  /// The gradient of a parameter by its path.
  template <class Path>
  auto gradient(Path) const {
    return parameter<Path, const T>(gradients_.data());
  }

 protected:
  /// All that is as long as the network: on the heap, so that a model on the stack stays small.
  struct tables {
    program<sizes> lowered{};
    program<sizes> current{};
    parameter_layout<sizes> layout{};
    memory_plan<sizes> plan{};
    shape_list bound_inputs{};
    shape_list current_inputs{};
    program_table<T*, sizes.values> values{};
    program_table<T*, sizes.values> value_gradients{};
    program_table<T*, sizes.edges> edge_gradients{};
    program_table<T*, sizes.edges> edge_sums{};
    program_table<bool, sizes.nodes> first_call{};
    program_table<bool, sizes.nodes> last_call{};
    program_table<bool, sizes.values> unwritten{};
    program_table<std::byte*, sizes.saved> saved{};
    bool input_gradients = false;
    bool ran_forward = false;
  };

  template <class Path>
  static constexpr std::size_t index_of() {
    constexpr program<sizes> p = lowered();
    for (std::size_t i = 0; i < sizes.parameters; ++i)
      if (p.path(p.parameters[i]).view() == std::string_view{Path::c_str()}) return i;
    return sizes.parameters;
  }

  template <class Path, class U>
  auto parameter(U* base) const {
    constexpr std::size_t i = index_of<Path>();
    static_assert(i < sizes.parameters, "ikebana: the model has no parameter of this path");
    if constexpr (i < sizes.parameters) {
      constexpr shape s = lowered().parameters[i].spec.extents;
      return tensor_view<U, s>(base + tables_->layout.offsets[i],
                               tables_->lowered.parameters[i].spec.extents);
    }
  }

  void set_up(const shape_list& inputs) {
    tables& t = *tables_;
    t.bound_inputs = inputs;
    lower_into(t.lowered, module_, inputs);
    if (!t.lowered.error.ok()) throw shape_error(t.lowered.error);
    detail::bind_leaves bind{t.lowered.nodes.data(), t.lowered.values.data()};
    detail::for_each_leaf(module_, bind);
    lower_into(t.lowered, module_, inputs);
    for (const program_parameter& p : t.lowered.all_parameters())
      if (!p.spec.extents.is_static())
        throw shape_error(
            diagnostic{"has shape {input}; the extents of the first input must be given",
                       0,
                       0,
                       p.spec.extents,
                       {},
                       t.lowered.path(p)});
    t.layout = lay_out<T>(t.lowered);
    program_table<bool, sizes.leaves> seen{};
    for (std::size_t k = 0; k < sizes.nodes; ++k) {
      bool& s = seen[static_cast<std::size_t>(t.lowered.nodes[k].leaf)];
      t.first_call[k] = !s;
      s = true;
    }
    seen = {};
    for (std::size_t k = sizes.nodes; k-- > 0;) {
      bool& s = seen[static_cast<std::size_t>(t.lowered.nodes[k].leaf)];
      t.last_call[k] = !s;
      s = true;
    }
    parameters_ = aligned_buffer<T>(t.layout.parameter_elements);
    gradients_ = aligned_buffer<T>(t.layout.parameter_elements);
    buffers_ = aligned_buffer<std::byte>(t.layout.buffer_bytes);
    bool known = true;
    for (std::size_t i = 0; i < inputs.size(); ++i) known = known && inputs[i].is_static();
    if (known) prepare(inputs);
  }

  void fill_buffer(std::size_t i) {
    const buffer_spec& spec = tables_->lowered.buffers[i].spec;
    std::byte* to = buffers_.data() + tables_->layout.buffer_offsets[i];
    const auto fill = [&]<class U>(U) {
      std::fill_n(reinterpret_cast<U*>(to), spec.extents.numel(), static_cast<U>(spec.value));
    };
    switch (spec.follows_model ? dtype_of<T> : spec.type) {
      case dtype::float32:
        return fill(float{});
      case dtype::float64:
        return fill(double{});
      case dtype::int64:
        return fill(std::int64_t{});
      case dtype::int32:
        return fill(std::int32_t{});
      case dtype::uint8:
        return fill(std::uint8_t{});
    }
  }

  /// Makes everything ready for inputs of these shapes, which are known to fit.
  void prepare(const shape_list& inputs) {
    tables& t = *tables_;
    t.current_inputs = {};  // until the end, so that a failed allocation is made up for
    t.ran_forward = false;
    lower_into(t.current, module_, inputs);
    t.plan = plan_memory<T>(t.current, sizeof...(In), t.input_gradients);
    if (t.plan.bytes > workspace_.size()) workspace_ = aligned_buffer<std::byte>(t.plan.bytes);
    const auto at = [&](dim_t offset) {
      return offset < 0 ? nullptr : reinterpret_cast<T*>(workspace_.data() + offset);
    };
    for (std::size_t v = 0; v < sizes.values; ++v) {
      if (v >= sizeof...(In))
        t.values[v] = at(t.plan.values[static_cast<std::size_t>(t.plan.root[v])]);
      t.value_gradients[v] =
          at(t.plan.value_gradients[static_cast<std::size_t>(t.plan.gradient_root[v])]);
      t.unwritten[v] = t.value_gradients[v] != nullptr && !t.plan.gradient_written[v];
    }
    for (std::size_t s = 0; s < sizes.saved; ++s)
      t.saved[s] = workspace_.data() + (t.plan.saved[s] < 0 ? 0 : t.plan.saved[s]);
    point_edges();
    t.current_inputs = inputs;
  }

  void point_edges() {
    tables& t = *tables_;
    for (const program_node& node : t.current.all_nodes())
      for (std::size_t i = 0; i < node.input_count; ++i) {
        const auto e = static_cast<std::size_t>(node.first_edge) + i;
        T* whole = t.value_gradients[static_cast<std::size_t>(node.inputs[i])];
        const dim_t scratch = t.plan.edge_scratch[e];
        t.edge_sums[e] = scratch >= 0 ? whole : nullptr;
        t.edge_gradients[e] = !t.plan.edge_needed[e] ? nullptr
                              : scratch >= 0 ? reinterpret_cast<T*>(workspace_.data() + scratch)
                                             : whole;
      }
  }

  /// Makes the next run_backward write the gradients of the inputs too. The first time, this needs
  /// another plan of the memory; the activations of the last forward are had by running it again.
  template <class G, class... X>
  void begin_input_gradients(const G& output_gradient, X&... input_gradients) {
    tables& t = *tables_;
    check_output_gradient(output_gradient);
    std::size_t v = 0;
    const auto check = [&](const auto& gradient) {
      if (!(gradient.extents() == t.current.values[v]))
        throw shape_error(diagnostic{"the gradient of an input has shape {input}, got {other}", 0,
                                     0, t.current.values[v], gradient.extents()});
      ++v;
    };
    (check(input_gradients), ...);
    if (t.input_gradients) {
      set_output_gradient(output_gradient);
    } else {
      // The gradient given may be in the memory that is planned anew.
      const tensor<T, G::static_shape> kept{
          tensor_view<const T, G::static_shape>(output_gradient.data(), output_gradient.extents())};
      plan_input_gradients();
      set_output_gradient(kept);
    }
    v = 0;
    const auto set = [&](auto& gradient) {
      if (!t.plan.gradient_written[v])
        std::fill_n(gradient.data(), gradient.extents().numel(), T{0});
      t.value_gradients[v++] = gradient.data();
    };
    (set(input_gradients), ...);
    // An output that is an input.
    const auto out = static_cast<std::size_t>(t.lowered.outputs[0]);
    if (out < sizeof...(In)) set_output_gradient(output_gradient);
    point_edges();
  }

  /// The caller's memory is the caller's again.
  void end_input_gradients() {
    for (std::size_t v = 0; v < sizeof...(In); ++v) tables_->value_gradients[v] = nullptr;
    point_edges();
  }

  void plan_input_gradients() {
    tables& t = *tables_;
    t.input_gradients = true;
    std::array<T*, sizeof...(In)> inputs{};
    for (std::size_t i = 0; i < sizeof...(In); ++i) inputs[i] = t.values[i];
    const shape_list shapes = t.current_inputs;
    // What training moves has been moved by the first run.
    aligned_buffer<std::byte> before(buffers_.size());
    std::ranges::copy(buffers_.span(), before.data());
    prepare(shapes);
    for (std::size_t i = 0; i < sizeof...(In); ++i) t.values[i] = inputs[i];
    const detail::execution<T> run = execution_tables(false);
    detail::forward_pass<T> pass{run};
    detail::for_each_leaf(module_, pass);
    std::ranges::copy(before.span(), buffers_.data());
    t.ran_forward = true;
  }

  detail::execution<T> execution_tables(bool accumulate) {
    tables& t = *tables_;
    detail::execution<T> run;
    run.nodes = t.current.nodes.data();
    run.leaves = t.current.leaves.data();
    run.shapes = t.current.values.data();
    run.values = t.values.data();
    run.value_gradients = t.value_gradients.data();
    run.edge_gradients = t.edge_gradients.data();
    run.edge_sums = t.edge_sums.data();
    run.runs_backward = t.plan.runs_backward.data();
    run.first_call = t.first_call.data();
    run.last_call = t.last_call.data();
    run.unwritten = t.unwritten.data();
    run.parameters = parameters_.data();
    run.gradients = gradients_.data();
    run.parameter_offsets = t.layout.offsets.data();
    run.completed = t.layout.completed.data();
    run.buffers = buffers_.data();
    run.buffer_offsets = t.layout.buffer_offsets.data();
    run.saved = t.saved.data();
    run.model_seed = seed_;
    run.step = step_;
    run.stream = stream_;
    run.training = training_;
    run.accumulate = accumulate;
    return run;
  }

  /// Checks the inputs and makes everything ready for their shapes. Changes no state.
  template <tensor_like... X>
  void prepare_for(const X&... x) {
    static_assert((std::is_same_v<typename X::value_type, T> && ...),
                  "ikebana: the elements of the input are not of the model's type; initialize<T, "
                  "shape> chooses it");
    const shape_list given{x.extents()...};
    if (same(given, tables_->current_inputs)) return;
    const diagnostic wrong = detail::check_inputs(module_, declared_inputs, given);
    if (!wrong.ok()) throw shape_error(wrong);
    prepare(given);
  }

  template <tensor_like... X>
  void run_forward(const X&... x) {
    prepare_for(x...);
    tables& t = *tables_;
    t.ran_forward = false;
    std::size_t v = 0;
    ((t.values[v++] = const_cast<T*>(x.data())), ...);
    if (training_) ++step_;
    const detail::execution<T> run = execution_tables(false);
    detail::forward_pass<T> pass{run};
    detail::for_each_leaf(module_, pass);
    t.ran_forward = true;
  }

  static bool same(const shape_list& a, const shape_list& b) {
    if (a.size() != b.size()) return false;
    for (std::size_t i = 0; i < sizeof...(In); ++i)
      if (!(a[i] == b[i])) return false;
    return true;
  }

  template <class G>
  void check_output_gradient(const G& g) const {
    static_assert(std::is_same_v<typename G::value_type, T>,
                  "ikebana: the gradient is not of the model's type");
    if (!tables_->ran_forward) throw error("backward needs a forward before it");
    const shape& expected = tables_->current.output();
    if (!(g.extents() == expected))
      throw shape_error(diagnostic{"the gradient of the output has shape {input}, got {other}", 0,
                                   0, expected, g.extents()});
  }

  template <class G>
  void set_output_gradient(const G& g) {
    check_output_gradient(g);
    T* to = tables_->value_gradients[static_cast<std::size_t>(tables_->lowered.outputs[0])];
    if (to != nullptr) std::copy_n(g.data(), g.extents().numel(), to);
  }

  /// Forward, loss and backward. `completed(n)` is called while backward runs, whenever the first n
  /// elements of gradients() are final.
  template <class X, class Y, class Loss, class Completed>
  T run_loss(const X& x, const Y& target, const Loss& loss, bool accumulate,
             Completed&& completed) {
    prepare_for(x);
    loss.validate(tables_->current.output(), target);
    run_forward(x);
    const auto v = static_cast<std::size_t>(tables_->lowered.outputs[0]);
    const tensor_view<const typename Y::value_type, Y::static_shape> wanted(target.data(),
                                                                            target.extents());
    const T value = loss.backward(output(), wanted, tables_->value_gradients[v]);
    run_backward(accumulate, completed);
    return value;
  }

  template <class Completed>
  void run_backward(bool accumulate, Completed&& completed) {
    const detail::execution<T> run = execution_tables(accumulate);
    detail::backward_pass<T, std::remove_reference_t<Completed>> pass{
        run, completed, static_cast<int>(sizes.nodes)};
    detail::for_each_leaf_reversed(module_, pass);
  }

  M module_;
  std::unique_ptr<tables> tables_;
  aligned_buffer<T> parameters_;
  aligned_buffer<T> gradients_;
  aligned_buffer<std::byte> buffers_;
  aligned_buffer<std::byte> workspace_;
  ikebana::seed seed_{};
  std::uint32_t step_ = 0;
  std::uint32_t stream_ = 0;
  bool training_ = true;
};

}  // namespace ikebana
