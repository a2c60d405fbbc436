#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <utility>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/deploy/frozen_weights.hpp"
#include "ikebana/deploy/lane_steps.hpp"
#include "ikebana/model/network/input_check.hpp"
#include "ikebana/model/network/lowerer.hpp"
#include "ikebana/model/passes/forward_pass.hpp"
#include "ikebana/model/passes/leaf_visits.hpp"
#include "ikebana/model/plan/memory_plan.hpp"

namespace ikebana::detail {

/// The tables, buffers and workspace of one lane, in one piece of memory that it owns or that the
/// caller gave.
template <class E, any_module M, shape... In>
class lane_memory {
 public:
  static constexpr std::size_t input_count = sizeof...(In);
  using T = element_of<E>;
  using tables = network_tables<E, M, input_count>;
  using weights = frozen_weights<E, M, input_count>;
  static constexpr program_sizes sizes = tables::sizes;

  lane_memory(std::shared_ptr<const weights> from, std::span<std::byte> given)
      : weights_{std::move(from)}, module_{weights_->module}, given_{given} {
    void* at = given.data();
    std::size_t room = given.size();
    if (given.data() == nullptr) {
      tables_ = {new tables, {}};
    } else {
      if (std::align(alignof(tables), sizeof(tables), at, room) == nullptr) refuse_room();
      tables_ = {new (at) tables, {false}};
      given_ = {static_cast<std::byte*>(at) + sizeof(tables), room - sizeof(tables)};
    }
    set_up();
  }
  lane_memory(const lane_memory&) = delete;
  lane_memory& operator=(const lane_memory&) = delete;

  /// The bytes of the caller's memory that a lane prepared like this one takes.
  std::size_t bytes_needed() const {
    return sizeof(tables) + alignof(tables) +
           static_cast<std::size_t>(weights_->buffers.size() - weights_->persistent_bytes +
                                    workspace_bytes()) +
           2 * storage_alignment;
  }
  [[noreturn, gnu::cold]] static void refuse_room() {
    throw_error(
        error("the memory given for a lane is too small: lane_bytes() tells what it takes"));
  }

  bool is_of(const std::shared_ptr<const weights>& from) const { return weights_ == from; }
  const tables& state() const { return *tables_; }
  dim_t workspace_bytes() const { return tables_->memory.bytes; }

  /// Prepares for inputs of these shapes, which are known to match. Allocates only if they need
  /// more memory than any before; throws error if that was given by the caller.
  [[gnu::cold]] void prepare(const shape_list& inputs) {
    tables& t = *tables_;
    const shape_list last = std::exchange(t.current_inputs, {});
    constexpr auto lower = lowerer_of<sizes, M, In...>();
    lower(t.current_program, module_, inputs, false);
    diagnostic wrong = t.current_program.error;
    if (wrong.ok()) wrong = check();
    if (!wrong.ok()) [[unlikely]] {
      if (last.size() > 0) lower(t.current_program, module_, last, false);
      t.current_inputs = last;
      throw_error(shape_error(wrong));
    }
    if (!plan(weights_->fuses && !is_watched_)) plan(false);
    if (t.run.fused != nullptr) compute_constants();
    collect(t.run);
    t.current_inputs = inputs;
  }

  void prepare_for(const shape_list& given) {
    if (same(given, tables_->current_inputs)) return;
    if (constexpr shape_list declared{In...}; !all_compatible(declared, given))
      throw_error(shape_error(check_inputs(module_, declared, given)));
    prepare(given);
  }

  using pointers = std::array<const void*, input_count + 1>;

  void run(const pointers& data) {
    tables& t = *tables_;
    point_inputs(data);
    if constexpr (tables::has_layers)
      if (t.only_layers && t.run.fused != nullptr)
        return run_layers_of<E, M>(t.value_table[0], t.chain_table[0], t.run.stamp);
    if constexpr (any_leaf_validates<T, M>) {
      validate_leaves<T> validate{t.run};
      errors_at([&] { for_each_leaf(module_, validate); },
                [&] {
                  const program_node& node = t.current.nodes[validate.k - 1];
                  return t.current.path(t.current.leaves[node.leaf]);
                });
    }
    run_steps();
  }

  /// Runs all leaves one by one, unfused, and tells `watch` of each.
  [[gnu::cold]] void run_watched(const pointers& data, leaf_boundary<T>& watch) {
    tables& t = *tables_;
    if (!std::exchange(is_watched_, true)) prepare(shape_list{t.current_inputs});
    point_inputs(data);
    const fused_call* const fused = std::exchange(t.run.fused, nullptr);
    forward_pass<E, leaf_boundary<T>*, tables::has_choices> pass{t.run, 0, &watch};
    for_each_leaf(module_, pass);
    t.run.fused = fused;
  }

  /// Makes what layers that run in one call need of their weights, for all lanes.
  [[gnu::cold]] void pack_layers(weights& from) requires(tables::has_layers) {
    tables& t = *tables_;
    from.packed_layers = aligned_buffer<T>(t.point_layers_to(nullptr));
    t.point_layers_to(from.packed_layers.data());
    for (std::size_t k = 0; k < sizes.nodes; ++k) {
      cpu::dense_chain<T>& chain = t.chain_table[k];
      if (chain.count == 0) continue;
      const aligned_buffer<T> x(chain.layers->rows * chain.layers->in);
      run_layers_of<E, M>(x.data(), chain, from.stamp);
    }
    for (std::size_t k = 0; k < sizes.nodes; ++k)
      from.transposed_stamps[k] = t.layer_table[k].turned_stamp;
  }

  /// Gives the state of every stateful module its initial value. Does not allocate.
  void reset() {
    for (std::size_t b = 0; b < sizes.buffers; ++b) {
      const buffer_spec& spec = weights_->lowered.buffers[b].spec;
      if (spec.persistent || spec.is_cache) continue;
      std::memcpy(tables_->buffers[b], weights_->buffer_table[b],
                  static_cast<std::size_t>(bytes_of(spec)));
    }
  }

 private:
  /// Returns whether the views of the plan, if it has any, can be read.
  [[gnu::cold]] bool plan(bool has_views) {
    tables& t = *tables_;
    t.has_views = has_views;
    plan_memory_into<T>(t.memory, t.planning, t.current_program, input_count,
                        pass_purpose::inference, has_views);
    t.place(workspace(t.memory.bytes));
    if constexpr (tables::has_layers)
      if (weights_->fuses) share_layers();
    if constexpr (tables::has_loops)
      return t.build_loops();
    else
      return true;
  }

  /// Runs the nodes that depend on parameters and shapes alone, which calls then leave out.
  [[gnu::cold]] void compute_constants() {
    tables& t = *tables_;
    // Those of training, which a lane does not read.
    auto& calls = t.memory.fusion.calls;
    bool has_any = false;
    for (std::size_t k = 0; k < sizes.nodes; ++k) {
      const auto v = static_cast<std::size_t>(t.current_program.nodes[k].first_output);
      calls[k] = {};
      calls[k].forward_is_done = !t.planning.uses[v].is_constant;
      has_any = has_any || t.planning.uses[v].is_constant;
    }
    if (!has_any) return;
    execution<T> run = t.run;
    run.fused = calls.data();
    collect(run);
    run_steps();
  }

  [[gnu::cold]] void collect(const execution<T>& run) {
    program_table<bool, sizes.values> moves{};
    std::fill_n(moves.data(), input_count, true);
    collect_steps<E> steps{{run, steps_.data(), moves.data()}};
    for_each_leaf(module_, steps);
    end_ = steps.to.next;
  }

  void run_steps() {
    for (lane_step<T>* s = steps_.data(); s != end_; ++s) {
      if (s->changes) s->given = s->of->forward_context_of(s->of->nodes[s->node]);
      s->run(*s);
    }
  }

  void point_inputs(const pointers& data) {
    for (std::size_t i = 0; i < input_count; ++i)
      tables_->value_table[i] = static_cast<T*>(const_cast<void*>(data[i]));
  }

  /// Ends tables of its own, or in the caller's memory.
  struct ends {
    bool owns = true;
    void operator()(tables* t) const {
      if (owns)
        delete t;
      else
        t->~tables();
    }
  };
  bool owns_memory() const { return tables_.get_deleter().owns; }

  static dim_t bytes_of(const buffer_spec& spec) {
    return spec.extents.numel() *
           static_cast<dim_t>(spec.follows_model ? sizeof(T) : size_of(spec.type));
  }

  [[gnu::cold]] void set_up() {
    tables& t = *tables_;
    const weights& from = *weights_;
    t.declared_inputs = shape_list{In...};
    t.lowered_program = from.lowered;
    const dim_t own = from.buffers.size() - from.persistent_bytes;
    std::byte* const state = take_buffers(own);
    if (own > 0)
      std::memcpy(state, from.buffers.data() + from.persistent_bytes,
                  static_cast<std::size_t>(own));
    // In evaluation, leaves only read their parameters and persistent buffers.
    for (std::size_t i = 0; i < sizes.parameters; ++i)
      t.parameters[i] = const_cast<T*>(from.parameter_table[i]);
    for (std::size_t b = 0; b < sizes.buffers; ++b)
      t.buffers[b] =
          from.lowered.buffers[b].spec.persistent
              ? const_cast<std::byte*>(from.buffer_table[b])
              : state + (from.buffer_table[b] - from.buffers.data() - from.persistent_bytes);
    t.point_execution();
    if constexpr (tables::traits::has_exceptions) t.find_exceptions();
    if constexpr (tables::is_partial)
      t.run.partial = {.runs = t.partial.now.runs.data(), .taken = t.partial.now.taken.data()};
    if constexpr (tables::has_choices) {
      t.partial.set = from.choices;
      t.partial.decide(t.lowered_program, from.seed, 0, 0, false);
      t.partial.now = t.partial.next;
    }
    t.run.model_seed = from.seed;
    t.run.training = false;
    t.run.value_gradients = nullptr;
    t.run.stamp = from.stamp;
    if (from.fuses) t.run.fused = t.memory.fusion.evaluation_calls.data();
  }

  diagnostic check() {
    if constexpr (any_leaf_checks<M>) {
      tables& t = *tables_;
      check_leaves check{t.current.nodes, t.current.values, false};
      if constexpr (tables::has_choices) check.runs = t.partial.now.runs.data();
      for_each_leaf(module_, check);
      if (!check.error.ok()) check.error.path = t.current.path(t.current.leaves[check.leaf]);
      return check.error;
    } else {
      return {};
    }
  }

  static std::byte* aligned(std::byte* p) {
    const auto over = reinterpret_cast<std::uintptr_t>(p) % storage_alignment;
    return over == 0 ? p : p + (storage_alignment - over);
  }

  [[gnu::cold]] std::byte* take_buffers(dim_t bytes) {
    if (owns_memory()) return (own_buffers_ = aligned_buffer<std::byte>(bytes)).data();
    std::byte* const at = aligned(given_.data());
    const auto used =
        static_cast<std::size_t>(at - given_.data()) + static_cast<std::size_t>(bytes);
    if (used > given_.size()) refuse_room();
    given_ = given_.subspan(used);
    return at;
  }

  [[gnu::cold]] std::byte* workspace(dim_t bytes) {
    if (owns_memory()) {
      if (bytes > own_workspace_.size()) own_workspace_ = aligned_buffer<std::byte>(bytes);
      return own_workspace_.data();
    }
    std::byte* const at = aligned(given_.data());
    if (static_cast<std::size_t>(at - given_.data()) + static_cast<std::size_t>(bytes) >
        given_.size())
      refuse_room();
    return at;
  }

  /// Lets layers that run in one call read what was made of their weights when the model was
  /// frozen: it has the version of the weights, so that no call makes it anew.
  [[gnu::cold]] void share_layers() {
    tables& t = *tables_;
    t.point_layers_to(const_cast<T*>(weights_->packed_layers.data()));
    for (std::size_t k = 0; k < sizes.nodes; ++k) {
      t.layer_table[k].turned_stamp = weights_->transposed_stamps[k];
      t.chain_table[k].stamp = weights_->stamp;
    }
  }

  std::shared_ptr<const weights> weights_;
  M module_;
  std::span<std::byte> given_;
  std::unique_ptr<tables, ends> tables_;
  aligned_buffer<std::byte> own_buffers_, own_workspace_;
  program_table<lane_step<T>, sizes.nodes> steps_;
  lane_step<T>* end_ = nullptr;
  bool is_watched_ = false;  ///< Leaves run one by one, so that values are not strided.
};

}  // namespace ikebana::detail
