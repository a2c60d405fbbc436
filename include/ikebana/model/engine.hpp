#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "ikebana/core/dtype.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/model/dense_chains.hpp"
#include "ikebana/model/element.hpp"
#include "ikebana/model/execution.hpp"
#include "ikebana/model/hooked_forward.hpp"
#include "ikebana/model/hooks.hpp"
#include "ikebana/model/layout.hpp"
#include "ikebana/model/memory_plan.hpp"
#include "ikebana/model/parameter_stamp.hpp"
#include "ikebana/model/partial_execution.hpp"
#include "ikebana/module/lazy.hpp"
#include "ikebana/module/lowering.hpp"

namespace ikebana::detail {

/// What is wrong with inputs of the shapes `given` for a module resolved for the shapes `declared`.
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

/// Whether a module has nothing that its type does not say.
template <any_module M>
constexpr bool is_stateless() {
  if constexpr (composite_module<M>)
    return []<class... C>(const boost::hana::tuple<C...>*) {
      return (is_stateless<typename unwrap_named<C>::type>() && ... && true);
    }(static_cast<const decltype(M::children)*>(nullptr));
  else
    return std::is_empty_v<M>;
}

inline bool same(const shape_list& a, const shape_list& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!(a[i] == b[i])) return false;
  return true;
}

/// The initial values of a buffer of a model of T.
template <class T>
void fill_buffer(const buffer_spec& spec, const random_stream& stream, std::byte* to) {
  const auto fill = [&]<class U>(U) {
    if constexpr (floating<U>)
      spec.init.template fill<U>(stream, reinterpret_cast<U*>(to), spec.extents);
    else
      std::fill_n(reinterpret_cast<U*>(to), spec.extents.numel(), static_cast<U>(spec.init.value));
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

/// The memory of a model and the passes over it, with inputs as plain pointers: what does not
/// depend on the types of a call.
template <class E, any_module M, std::size_t Inputs>
class engine {
 protected:
  using T = element_of<E>;
  using traits = element_traits<E>;
  static constexpr program_sizes sizes = sizes_of<M>(Inputs);
  static constexpr bool has_choices = sizes.choices > 0;
  /// Whether run time may leave a parameter without a gradient.
  static constexpr bool is_partial = has_choices || output_count<M>() > 1;
  static constexpr bool has_layers = find_layers<E, M>().found;
  struct always_whole {};
  struct all_alike {};

  /// All that is as long as the network: on the heap, so that a model on the stack stays small.
  struct tables {
    program<sizes> lowered{};
    program<sizes> current{};
    parameter_layout<sizes> layout{};
    memory_plan<sizes> plan{};
    shape_list declared_inputs{};
    shape_list bound_inputs{};
    shape_list current_inputs{};
    program_table<T*, sizes.parameters> parameters{};
    program_table<T*, sizes.parameters> gradients{};
    program_table<std::byte*, sizes.buffers> buffers{};
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
    bool left_out = false;  ///< By the last forward: what a backward needs.
    bool checked = false;   ///< The leaves' checks passed, for the mode that stands beside it.
    bool checked_training = false;
    std::conditional_t<is_partial, partial_state<T, sizes>, always_whole> partial{};
    std::conditional_t<traits::has_exceptions, program_table<bool, sizes.leaves>, all_alike>
        full_precision{};
    // Layers that run in one call.
    program_table<cpu::dense_layer<T>, has_layers ? sizes.nodes : 0> layers{};
    program_table<cpu::dense_chain<T>, has_layers ? sizes.nodes : 0> chains{};
    aligned_buffer<T> packed_layers;
    bool only_layers = false;  ///< In evaluation, nothing else runs.
    execution<T> run{};
  };

  /// Writes down the network for inputs of these shapes; the first time, it lets the leaves take
  /// over what only run time knows.
  using lowerer = void (*)(program<sizes>&, M&, const shape_list& inputs, bool first);

  static void lower_at_run_time(program<sizes>& to, M& m, const shape_list& inputs, bool first) {
    lower_into(to, m, inputs);
    if (!first) return;
    if (!to.error.ok()) throw shape_error(to.error);
    bind_leaves bind{to.nodes.data(), to.values.data()};
    for_each_leaf(m, bind);
    lower_into(to, m, inputs);
    for (const program_parameter& p : to.all_parameters())
      if (!p.spec.extents.is_static())
        throw shape_error(
            diagnostic{"has shape {input}; the extents of the first input must be given",
                       0,
                       0,
                       p.spec.extents,
                       {},
                       to.path(p)});
  }

  [[gnu::cold]] engine(M m, seed s, const shape_list& declared, const shape_list& inputs,
                       lowerer lower)
      : module_{std::move(m)}, tables_{new tables}, lower_{lower}, seed_{s} {
    set_up(declared, inputs);
    tables& t = *tables_;
    for (std::size_t l = 0; l < sizes.leaves; ++l) {
      const program_leaf& leaf = t.lowered.leaves[l];
      const auto stream = [&](const char* name) {
        return random_stream{s, hash_path(t.lowered.path(leaf, name).view(), s.path)};
      };
      for (std::size_t i = 0; i < leaf.parameter_count; ++i) {
        const std::size_t p = static_cast<std::size_t>(leaf.first_parameter) + i;
        const parameter_spec& spec = t.lowered.parameters[p].spec;
        spec.init.template fill<T>(stream(*spec.drawn_as != '\0' ? spec.drawn_as : spec.name),
                                   t.parameters[p], spec.extents);
      }
      if constexpr (sizes.buffers > 0)
        for (std::size_t i = 0; i < leaf.buffer_count; ++i) {
          const std::size_t b = static_cast<std::size_t>(leaf.first_buffer) + i;
          fill_buffer<T>(t.lowered.buffers[b].spec, stream(t.lowered.buffers[b].spec.name),
                         t.buffers[b]);
        }
    }
    if constexpr (any_leaf_finishes<T, M>) {
      finish_leaves<T> finish{t.lowered.nodes.data(), t.lowered.leaves.data(), t.parameters.data(),
                              t.buffers.data()};
      for_each_leaf(module_, finish);
    }
  }

  /// A second one with the same parameters, buffers and mode.
  [[gnu::cold]] engine(const engine& other)
      : module_{other.module_},
        tables_{new tables},
        lower_{other.lower_},
        seed_{other.seed_},
        step_{other.step_},
        stream_{other.stream_},
        training_{other.training_},
        fuses_{other.fuses_} {
    set_up(other.tables_->declared_inputs, other.tables_->bound_inputs);
    if constexpr (has_choices) {
      tables_->partial.set = other.tables_->partial.set;
      tables_->partial.policies = other.tables_->partial.policies;
    }
    std::ranges::copy(other.parameters_.span(), parameters_.data());
    std::ranges::copy(other.buffers_.span(), buffers_.data());
  }

  engine(engine&&) noexcept = default;
  engine& operator=(engine&&) noexcept = default;
  ~engine() = default;

  [[gnu::cold]] void set_up(const shape_list& declared, const shape_list& inputs) {
    tables& t = *tables_;
    t.declared_inputs = declared;
    t.bound_inputs = inputs;
    lower_(t.lowered, module_, inputs, true);
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
    for (std::size_t i = 0; i < sizes.parameters; ++i) {
      t.parameters[i] = parameters_.data() + t.layout.offsets[i];
      t.gradients[i] = gradients_.data() + t.layout.offsets[i];
    }
    for (std::size_t i = 0; i < sizes.buffers; ++i)
      t.buffers[i] = buffers_.data() + t.layout.buffer_offsets[i];
    if constexpr (is_partial) t.partial.set_up(t.lowered, t.layout);
    if constexpr (traits::has_exceptions)
      for (std::size_t l = 0; l < sizes.leaves; ++l)
        t.full_precision[l] = traits::is_exception(t.lowered.path(t.lowered.leaves[l]).view());
    point_execution();
    bool known = true;
    for (std::size_t i = 0; i < inputs.size(); ++i) known = known && inputs[i].is_static();
    if (known) prepare(inputs);
  }

  /// Makes everything ready for inputs of these shapes, which are known to fit.
  [[gnu::cold]] void prepare(const shape_list& inputs) {
    tables& t = *tables_;
    t.current_inputs = {};  // until the end, so that a failed allocation is made up for
    t.ran_forward = t.checked = false;
    lower_(t.current, module_, inputs, false);
    t.plan = plan_memory<T>(t.current, Inputs, t.input_gradients);
    if (t.plan.bytes > workspace_.size()) workspace_ = aligned_buffer<std::byte>(t.plan.bytes);
    const auto at = [&](dim_t offset) {
      return offset < 0 ? nullptr : reinterpret_cast<T*>(workspace_.data() + offset);
    };
    for (std::size_t v = 0; v < sizes.values; ++v) {
      if (v >= Inputs) t.values[v] = at(t.plan.values[static_cast<std::size_t>(t.plan.root[v])]);
      t.value_gradients[v] =
          at(t.plan.value_gradients[static_cast<std::size_t>(t.plan.gradient_root[v])]);
      t.unwritten[v] = t.value_gradients[v] != nullptr && !t.plan.gradient_written[v];
    }
    for (std::size_t s = 0; s < sizes.saved; ++s)
      t.saved[s] = workspace_.data() + (t.plan.saved[s] < 0 ? 0 : t.plan.saved[s]);
    point_edges();
    if constexpr (has_layers) point_layers();
    t.current_inputs = inputs;
  }

  void point_layers() {
    tables& t = *tables_;
    const auto& calls = t.plan.fusion.evaluation_calls;
    t.only_layers = Inputs == 1 && !has_choices && calls[0].layers > 0;
    for (std::size_t k = 1; k < sizes.nodes; ++k)
      t.only_layers = t.only_layers && (calls[k].forward_is_done || calls[k].layers < 0);
    bool any_rows = false;
    for (std::size_t i = 0; i < t.declared_inputs.size(); ++i)
      any_rows = any_rows || !t.declared_inputs[i].is_static();
    const auto point = [&](T* memory) {
      return point_chains<T>(t.run, calls.data(), static_cast<int>(sizes.nodes), t.layers.data(),
                             t.chains.data(), any_rows, memory);
    };
    const dim_t size = point(nullptr);
    if (size > t.packed_layers.size())
      t.packed_layers = aligned_buffer<T>(size);
    else
      std::ranges::fill(t.packed_layers.span(), T{0});
    point(t.packed_layers.data());
  }

  void point_edges() {
    tables& t = *tables_;
    for (const program_node& node : t.current.all_nodes())
      for (std::size_t i = 0; i < node.input_count; ++i) {
        const auto e = static_cast<std::size_t>(node.first_edge) + i;
        T* whole = t.value_gradients[static_cast<std::size_t>(node.inputs[i])];
        const dim_t scratch = t.plan.edge_scratch[e];
        if constexpr (is_partial)
          t.partial.scratch[e] =
              scratch >= 0 ? reinterpret_cast<T*>(workspace_.data() + scratch) : nullptr;
        t.edge_sums[e] = scratch >= 0 ? whole : nullptr;
        t.edge_gradients[e] = !t.plan.edge_needed[e] ? nullptr
                              : scratch >= 0 ? reinterpret_cast<T*>(workspace_.data() + scratch)
                                             : whole;
      }
  }

  /// Checks the shapes of inputs and makes everything ready for them. Changes no state.
  void prepare_for(const shape_list& given) {
    if (!same(given, tables_->current_inputs)) {
      const diagnostic wrong = check_inputs(module_, tables_->declared_inputs, given);
      if (!wrong.ok()) throw shape_error(wrong);
      prepare(given);
    }
    choose_and_check();
  }
  /// The same for inputs that can have no other shapes than those declared.
  void prepare_for_declared() {
    if (Inputs > 0 && tables_->current_inputs.size() == 0) prepare(tables_->declared_inputs);
    choose_and_check();
  }

  void choose_and_check() {
    [[maybe_unused]] tables& t = *tables_;
    if constexpr (has_choices)
      t.partial.decide(t.current, seed_, training_ ? step_ + 1 : step_, stream_, training_);
    if constexpr (any_leaf_checks<M>) {
      // What was not checked may be chosen now.
      if (t.checked && t.checked_training == training_ && !has_choices) return;
      check_leaves check{t.current.nodes.data(), t.current.values.data(), training_};
      if constexpr (has_choices) check.runs = t.partial.next.runs.data();
      for_each_leaf(module_, check);
      if (!check.error.ok()) {
        check.error.path = t.current.path(t.current.leaves[static_cast<std::size_t>(check.leaf)]);
        throw shape_error(check.error);
      }
      t.checked = true;
      t.checked_training = training_;
    }
  }

  /// What the elements of each input are.
  element_kind input_kind(std::size_t i) const { return tables_->lowered.kinds[i]; }

  /// Runs on inputs of these shapes, which prepare_for has seen.
  void run_forward(const std::array<const void*, Inputs + 1>& data) {
    tables& t = *tables_;
    for (std::size_t i = 0; i < Inputs; ++i)
      t.values[i] = static_cast<T*>(const_cast<void*>(data[i]));
    if constexpr (has_layers)
      if (t.only_layers && !training_ && fuses_ && run_otherwise_ == nullptr) {
        t.left_out = t.plan.fusion.evaluation_leaves_out;
        run_layers_of<E, M>(t.values[0], t.chains[0], stamp_);
        t.ran_forward = true;
        return;
      }
    execution<T>& run = execution_tables(false);
    if constexpr (has_choices) run.partial.runs = t.partial.next.runs.data();
    if constexpr (any_leaf_validates<T, M>) {
      validate_leaves<T> validate{run};
      try {
        for_each_leaf(module_, validate);
      } catch (const error& e) {
        const program_node& node = t.current.nodes[static_cast<std::size_t>(validate.k - 1)];
        const path_text path =
            t.current.path(t.current.leaves[static_cast<std::size_t>(node.leaf)]);
        if (path.empty()) throw;
        throw error(path.c_str() + std::string{": "} + e.what());
      }
    }
    t.ran_forward = false;
    if constexpr (has_choices) t.partial.now = t.partial.next;
    if (training_) run.step = ++step_;
    run_leaves(run);
    t.ran_forward = true;
  }

  void run_leaves(const execution<T>& run) {
    tables_->left_out = false;
    if (run_otherwise_ != nullptr) return run_otherwise_(*this, unfused(run));
    tables_->left_out =
        run.fused != nullptr && !training_ && tables_->plan.fusion.evaluation_leaves_out;
    forward_pass<E, no_boundary, has_choices> pass{run};
    for_each_leaf(module_, pass);
  }

  /// Who looks in between leaves is to find what they would have given.
  static execution<T> unfused(execution<T> run) {
    run.fused = nullptr;
    return run;
  }

  /// Forward with hooks. Instantiated only where one is registered.
  static void run_with_hooks(engine& e, const execution<T>& run) {
    if (!e.hooks_->any_forward()) {
      if (e.boundary_ != nullptr) return run_with_boundary(e, run);
      forward_pass<E, no_boundary, has_choices> pass{run};
      return for_each_leaf(e.module_, pass);
    }
    if (e.boundary_ != nullptr) e.boundary_->begin_forward(run);
    const tables& t = *e.tables_;
    hooked_calls& own = *e.hooked_calls_;
    if (own.calls.empty()) {
      own.calls.resize(count_calls<M>(Inputs));
      const auto scratch = std::make_unique<program<sizes>>();
      lower_into(*scratch, e.module_, t.current_inputs, own.calls.data());
    }
    const std::shared_ptr<hook_set> set = e.hooks_;
    own.bind(*set, t.current.scopes.data(), sizes.nodes);
    [[maybe_unused]] program_table<int, sizes.values> roots = t.plan.root;
    if constexpr (has_choices)
      for (const program_node& node : t.current.all_nodes()) {
        const auto out = static_cast<std::size_t>(node.first_output);
        if (node.choice >= 0 && run.does_run(node))
          roots[out] = roots[static_cast<std::size_t>(
              node.inputs[run.partial.taken[static_cast<std::size_t>(node.choice)]])];
        else if (node.is_view)
          roots[out] = roots[static_cast<std::size_t>(node.inputs[0])];
      }
    const hooked_tables tables{.scopes = t.current.scopes.data(),
                               .kinds = t.current.kinds.data(),
                               .nodes = t.current.nodes.data(),
                               .shapes = t.current.values.data(),
                               .roots = roots.data(),
                               .offsets = t.plan.values.data(),
                               .saved_offsets = t.plan.saved.data(),
                               .saved = t.current.saved.data(),
                               .values = reinterpret_cast<void* const*>(t.values.data()),
                               .inputs = static_cast<int>(Inputs),
                               .element_size = sizeof(T),
                               .type = dtype_of<T>,
                               .training = e.training_,
                               .runs = run.partial.runs};
    hook_runner hooks{tables, own.calls, own.hooks};
    hooked_forward_pass<E, has_choices> pass{run, hooks, own.begins.data(), e.boundary_};
    for_each_leaf(e.module_, pass);
    hooks.run_until(2 * static_cast<int>(own.calls.size()));
    if (e.boundary_ != nullptr) e.boundary_->end_forward(run);
  }

  /// Forward with what happens around every leaf. Instantiated only by who sets it.
  static void run_with_boundary(engine& e, const execution<T>& run) {
    e.boundary_->begin_forward(run);
    forward_pass<E, leaf_boundary<T>*, has_choices> pass{run, 0, e.boundary_};
    for_each_leaf(e.module_, pass);
    e.boundary_->end_forward(run);
  }
  /// Puts it around every leaf from now on, and has the leaves read their parameters and write
  /// their gradients elsewhere.
  void set_boundary(leaf_boundary<T>* boundary, T* const* parameters, T* const* gradients) {
    std::copy_n(parameters, sizes.parameters, tables_->parameters.data());
    std::copy_n(gradients, sizes.parameters, tables_->gradients.data());
    boundary_ = boundary;
    if (run_otherwise_ == nullptr) run_otherwise_ = &run_with_boundary;
  }

  const std::shared_ptr<hook_set>& own_hooks() {
    if (hooks_ == nullptr) hooks_ = std::make_shared<hook_set>();
    return hooks_;
  }
  void share_hooks(std::shared_ptr<hook_set> set) {
    hooks_ = std::move(set);
    own_forward_hooks();
  }
  const std::shared_ptr<hook_set>& own_forward_hooks() {
    if (hooked_calls_ == nullptr) hooked_calls_ = std::make_unique<hooked_calls>();
    run_otherwise_ = &run_with_hooks;
    return own_hooks();
  }

  template <class Completed>
  void run_backward(bool accumulate, Completed&& completed) {
    execution<T>& run = execution_tables(accumulate);
    if constexpr (requires { completed.boundary; }) run.fused = nullptr;
    if (tables_->left_out) {
      execution<T> again = unfused(run);
      again.training = false;
      run_leaves(again);
      tables_->left_out = false;
    }
    if constexpr (is_partial) {
      run_partial_backward(run, completed);
    } else {
      if constexpr (requires { completed.boundary; }) completed.boundary->begin_backward(run);
      backward_pass<E, std::remove_reference_t<Completed>> pass{run, completed,
                                                                static_cast<int>(sizes.nodes)};
      for_each_leaf_reversed(module_, pass);
      if constexpr (requires { completed.boundary; }) completed.boundary->end_backward(run);
    }
  }

  template <class Completed>
  void run_partial_backward(const execution<T>& run, Completed& completed) {
    tables& t = *tables_;
    auto& p = t.partial;
    p.begin_backward(t.current);
    p.presence.begin_backward();
    if constexpr (requires { completed.boundary; }) completed.boundary->begin_backward(run);
    partial_backward_pass<E, Completed> pass{run, completed, static_cast<int>(sizes.nodes)};
    for_each_leaf_reversed(module_, pass);
    if constexpr (requires { completed.boundary; }) completed.boundary->end_backward(run);
    for (std::size_t v = 0; v < Inputs; ++v)
      if (t.value_gradients[v] != nullptr && !p.written[v])
        std::fill_n(t.value_gradients[v], t.current.values[v].numel(), T{0});
  }

  /// Calls f(first, count) for the parameters that run_backward would reach now, in the order in
  /// which it would finish them; they are numbered as in gradient_presence. O(edges).
  template <class F>
  void predict_reached(F&& f) {
    if constexpr (is_partial) {
      tables& t = *tables_;
      auto& p = t.partial;
      p.begin_backward(t.current);
      program_table<bool, sizes.leaves> reached{};
      const execution<T>& run = execution_tables(true);
      for (int k = static_cast<int>(sizes.nodes); k-- > 0;) {
        const program_node& node = run.nodes[k];
        const program_leaf& leaf = run.leaves[node.leaf];
        bool& is_reached = reached[static_cast<std::size_t>(node.leaf)];
        if (run.runs_backward[k] && run.does_run(node) && p.is_written(node)) {
          is_reached = true;
          for (std::size_t i = 0; i < node.input_count; ++i)
            if ((node.choice < 0 || run.partial.taken[node.choice] == static_cast<int>(i)) &&
                run.partial.edge_needed[node.first_edge + static_cast<int>(i)])
              p.written[static_cast<std::size_t>(node.inputs[i])] = true;
        }
        if (is_reached && run.first_call[k] && leaf.parameter_count > 0)
          f(static_cast<std::size_t>(run.partial.places[node.leaf]), leaf.parameter_count);
      }
    }
  }

  /// Says which outputs the next run_backward has gradients of; without it, those of the last one.
  void set_output_written(std::size_t i, [[maybe_unused]] bool written) {
    if constexpr (is_partial) tables_->partial.output_written[i] = written;
  }

  gradient_presence* presence_or_null() const {
    if constexpr (is_partial)
      return &tables_->partial.presence;
    else
      return nullptr;
  }

  /// Where the gradient of output i goes; null where nobody needs it.
  T* output_gradient(std::size_t i) const {
    return tables_->value_gradients[static_cast<std::size_t>(tables_->lowered.outputs[i])];
  }

  void check_output_gradient(std::size_t i, const shape& given) const {
    if (!tables_->ran_forward) throw error("backward needs a forward before it");
    const shape& expected = tables_->current.output(i);
    if (!(given == expected))
      throw shape_error(diagnostic{"the gradient of the output has shape {input}, got {other}", 0,
                                   0, expected, given});
  }

  void check_input_gradient(std::size_t i, const shape& given) const {
    if (!(given == tables_->current.values[i]))
      throw shape_error(diagnostic{"the gradient of an input has shape {input}, got {other}", 0, 0,
                                   tables_->current.values[i], given});
  }

  /// Plans the memory anew, such that backward gives the gradients of the inputs too; the
  /// activations of the last forward are had by running it again.
  void plan_input_gradients() {
    tables& t = *tables_;
    t.input_gradients = true;
    std::array<T*, Inputs + 1> inputs{};
    for (std::size_t i = 0; i < Inputs; ++i) inputs[i] = t.values[i];
    const shape_list shapes = t.current_inputs;
    // What training moves has been moved by the first run.
    aligned_buffer<std::byte> before(buffers_.size());
    std::ranges::copy(buffers_.span(), before.data());
    prepare(shapes);
    for (std::size_t i = 0; i < Inputs; ++i) t.values[i] = inputs[i];
    run_leaves(execution_tables(false));
    std::ranges::copy(before.span(), buffers_.data());
    t.ran_forward = true;
  }

  /// Makes the next run_backward write the gradients of the inputs to this memory, which is the
  /// caller's; null for what is not a number.
  void set_input_gradients(const std::array<T*, Inputs + 1>& to) {
    tables& t = *tables_;
    for (std::size_t v = 0; v < Inputs; ++v) {
      if (to[v] != nullptr && !t.plan.gradient_written[v])
        std::fill_n(to[v], t.current.values[v].numel(), T{0});
      t.value_gradients[v] = to[v];
    }
    point_edges();
  }

  /// Where a pass finds what it needs: filled in once.
  void point_execution() {
    tables& t = *tables_;
    execution<T>& run = t.run;
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
    run.parameters = t.parameters.data();
    run.gradients = t.gradients.data();
    run.completed = t.layout.completed.data();
    run.buffers = t.buffers.data();
    run.saved = t.saved.data();
    run.chains = t.chains.data();
    if constexpr (traits::has_exceptions) run.full_precision = t.full_precision.data();
    if constexpr (is_partial)
      run.partial = {.runs = t.partial.now.runs.data(),
                     .taken = t.partial.now.taken.data(),
                     .written = t.partial.written.data(),
                     .edge_needed = t.plan.edge_needed.data(),
                     .scratch = t.partial.scratch.data(),
                     .presence = &t.partial.presence,
                     .places = t.partial.places.data(),
                     .flat_gradients = gradients_.data()};
  }
  /// The same with what changes from pass to pass; until the next one.
  execution<T>& execution_tables(bool accumulate) {
    tables& t = *tables_;
    execution<T>& run = t.run;
    run.model_seed = seed_;
    run.step = step_;
    run.stream = stream_;
    run.training = training_;
    run.accumulate = accumulate;
    run.stamp = boundary_ == nullptr ? stamp_ : 0;
    run.fused = nullptr;
    if (fuses_)
      run.fused = (training_ ? t.plan.fusion.calls : t.plan.fusion.evaluation_calls).data();
    if constexpr (is_partial) run.partial.runs = t.partial.now.runs.data();
    return run;
  }

  M module_;
  std::unique_ptr<tables> tables_;
  lowerer lower_;
  aligned_buffer<T> parameters_;
  aligned_buffer<T> gradients_;
  aligned_buffer<std::byte> buffers_;
  aligned_buffer<std::byte> workspace_;
  ikebana::seed seed_{};
  std::uint32_t step_ = 0;
  std::uint32_t stream_ = 0;
  bool training_ = true;
  bool fuses_ = true;
  /// Of what the parameters are, for who keeps what it made of them; 0 where somebody may write
  /// them at any time.
  std::uint64_t stamp_ = new_parameter_stamp();
  std::shared_ptr<hook_set> hooks_;
  std::unique_ptr<hooked_calls> hooked_calls_;
  leaf_boundary<T>* boundary_ = nullptr;
  /// How the leaves run where it is not one after the other and nothing else.
  void (*run_otherwise_)(engine&, const execution<T>&) = nullptr;
};

}  // namespace ikebana::detail
