#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/core/random.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/model/choices.hpp"
#include "ikebana/model/element.hpp"
#include "ikebana/model/engine/engine.hpp"
#include "ikebana/model/hooks.hpp"
#include "ikebana/model/network/frozen_parameters.hpp"
#include "ikebana/model/network/lowerer.hpp"
#include "ikebana/model/network/parameter_stamp.hpp"
#include "ikebana/model/passes/gradient_presence.hpp"
#include "ikebana/model/plan/layout.hpp"
#include "ikebana/model/state/views_by_path.hpp"
#include "ikebana/module/gradient_rows.hpp"
#include "ikebana/module/lowering.hpp"

namespace ikebana::detail {

/// The contents of a model and access to them: its numbers, as arrays and by path, its modes, and
/// its metadata. A base of `model`, which adds the calls.
template <model_element E, resolved_module M, shape... In>
class model_contents {
  using engine = detail::engine<E, M, sizeof...(In)>;
  using T = element_of<E>;

 protected:
  static constexpr program_sizes sizes = engine::sizes;
  static constexpr shape_list declared_inputs{In...};
  /// Whether products read buffers.
  static constexpr bool has_frozen = sizes.frozen > 0;

 public:
  using value_type = T;
  using module_type = M;
  static constexpr std::size_t input_count = sizeof...(In);
  static constexpr std::size_t parameter_count = sizes.parameters;
  static constexpr std::size_t output_count = detail::output_count<M>();

  /// The lowered network for the declared shapes: a constant expression.
  static constexpr const program<sizes>& lowered() { return lowered_of<M, In...>; }
  /// The number of parameters whose gradients are rows.
  static constexpr std::size_t row_parameters = [] {
    std::size_t n = 0;
    for (std::size_t i = 0; i < sizes.parameters; ++i)
      n += lowered_of<M, In...>.parameters[i].spec.rows_in >= 0;
    return n;
  }();

  /// All parameters as one array, in the order in which backward finishes them; the gaps between
  /// them are zero.
  std::span<T> parameters() {
    engine_.stamp = 0;
    return engine_.network.memory.parameters.span();
  }
  std::span<const T> parameters() const { return engine_.network.memory.parameters.span(); }
  /// All gradients, at the offsets of their parameters.
  std::span<T> gradients() { return engine_.network.memory.gradients.span(); }
  std::span<const T> gradients() const { return engine_.network.memory.gradients.span(); }
  /// All buffers, as bytes.
  std::span<std::byte> buffers() {
    if constexpr (has_frozen) engine_.stamp = 0;
    return engine_.network.memory.buffers.span();
  }
  std::span<const std::byte> buffers() const { return engine_.network.memory.buffers.span(); }
  /// The persistent buffers, which are saved with the parameters and equal on all replicas.
  std::span<std::byte> persistent_buffers() {
    return buffers().first(static_cast<std::size_t>(engine_.tables().layout.persistent_bytes));
  }

  /// A handle that expires with the memory of the parameters: when the model is destroyed or
  /// another is assigned to it, but not when it is moved. Allocates on the first call.
  std::weak_ptr<const void> lifetime() {
    std::shared_ptr<const void>& token = engine_.tables().lifetime;
    if (token == nullptr) token = std::make_shared<char>();
    return token;
  }

  /// Must be called after the parameters were changed through a pointer obtained earlier, rather
  /// than through parameters().
  void parameters_changed() {
    if (engine_.stamp != 0) engine_.stamp = new_parameter_stamp();
  }

  /// A parameter by its path: `model["fc1.weight"_s]`, a tensor_view with its static shape.
  template <class Path>
  requires(has_parameter<model_contents, Path>) auto operator[](Path) {
    engine_.stamp = 0;
    return parameter_view<model_contents, Path>(engine_.tables(),
                                                engine_.network.memory.parameters.data());
  }
  template <class Path>
  requires(has_parameter<model_contents, Path>) auto operator[](Path) const {
    return parameter_view<model_contents, Path>(engine_.tables(),
                                                engine_.network.memory.parameters.data());
  }
  template <class Path>
  requires(!has_parameter<model_contents, Path>) auto operator[](Path) const
      -> decltype(refuse_path<Path, parameter_paths<model_contents>>());
  /// The gradient of a parameter by its path.
  template <class Path>
  requires(has_parameter<model_contents, Path>) auto gradient(Path) const {
    return parameter_view<model_contents, Path>(engine_.tables(),
                                                engine_.network.memory.gradients.data());
  }
  template <class Path>
  requires(!has_parameter<model_contents, Path>) auto gradient(Path) const
      -> decltype(refuse_path<Path, parameter_paths<model_contents>>());
  /// A buffer by its path: `model.buffer("bn1.running_mean"_s)`, a tensor_view.
  template <class Path>
  requires(has_buffer<model_contents, Path>) auto buffer(Path) {
    if constexpr (has_frozen) engine_.stamp = 0;
    return buffer_view<model_contents, Path>(engine_.tables(),
                                             engine_.network.memory.buffers.data());
  }
  template <class Path>
  requires(has_buffer<model_contents, Path>) auto buffer(Path) const {
    return buffer_view<model_contents, Path>(engine_.tables(),
                                             engine_.network.memory.buffers.data());
  }
  template <class Path>
  requires(!has_buffer<model_contents, Path>) auto buffer(Path) const
      -> decltype(refuse_path<Path, buffer_paths<model_contents>>());

  /// Sets all gradients to zero; if run time may leave parameters without one, all become absent.
  void zero_grad() {
    T* const gradients = engine_.network.memory.gradients.data();
    const auto by_rows = gradient_rows();
    for_each_nonzero(
        by_rows, 0, engine_.network.memory.gradients.size(),
        [&](dim_t begin, dim_t end) { std::fill(gradients + begin, gradients + end, T{0}); });
    for (const ikebana::gradient_rows& r : by_rows)
      row_list<T>(r.list, r.rows, r.width, gradients + r.begin).clear();
    if (gradient_presence* p = presence()) p->clear();
  }

  /// The parameters whose gradients are rows, `sparse<true>` of embedding, in memory order. The
  /// lists are the model's and change with each backward.
  std::array<ikebana::gradient_rows, row_parameters> gradient_rows() const {
    std::array<ikebana::gradient_rows, row_parameters> all{};
    if constexpr (row_parameters > 0) {
      std::size_t n = 0;
      for (std::size_t i = 0; i < sizes.parameters; ++i) {
        const program_parameter& p = lowered().parameters[i];
        if (p.spec.rows_in < 0) continue;
        const auto list = static_cast<std::size_t>(
            lowered().leaves[static_cast<std::size_t>(p.leaf)].first_buffer + p.spec.rows_in);
        all[n++] = {layout().offsets[i], p.spec.extents[0], p.spec.extents[1],
                    reinterpret_cast<std::int32_t*>(engine_.tables().buffers[list])};
      }
      std::sort(all.begin(), all.end(),
                [](const auto& a, const auto& b) { return a.begin < b.begin; });
    }
    return all;
  }

  /// Which parameters have a gradient; null if every backward reaches every parameter.
  gradient_presence* presence() { return engine_.presence_or_null(); }
  const gradient_presence* presence() const { return engine_.presence_or_null(); }

  /// Whether a backward has reached the parameter since zero_grad:
  /// `model.has_gradient("a.weight"_s)`. Always true if neither a `choose` nor one of several
  /// outputs can leave it out.
  template <class Path>
  requires(has_parameter<model_contents, Path>) bool has_gradient(Path) const {
    if constexpr (engine::is_partial)
      return (*presence())[place_of<Path>()];
    else
      return true;
  }
  template <class Path>
  requires(!has_parameter<model_contents, Path>) auto has_gradient(Path) const
      -> decltype(refuse_path<Path, parameter_paths<model_contents>>());
  /// Whether some parameters may lack a gradient.
  static constexpr bool may_lack_gradients = engine::is_partial;

  /// Which parameters are not trained at the moment; its address is that of the model's lifetime.
  /// Allocates on the first call.
  ikebana::frozen_parameters<T>* frozen_parameters() {
    if (frozen_ == nullptr) {
      frozen_ = std::make_unique<ikebana::frozen_parameters<T>>();
      frozen_->are_frozen.resize(sizes.parameters);
    }
    return frozen_.get();
  }
  bool is_frozen(std::size_t parameter) const {
    return frozen_ != nullptr && frozen_->are_frozen[parameter] != 0;
  }
  /// See requires_grad. `skips`: by leaf, whether it can leave out its parameters' gradients.
  void set_frozen(const bool* parameters, const bool* skips, bool on) {
    if (engine_.boundary != nullptr)
      throw_error(error("requires_grad cannot be used with mixed_precision"));
    auto& f = *frozen_parameters();
    auto& t = engine_.tables();
    const auto extents = [&](std::size_t i) {
      return t.lowered.parameters[i].spec.extents.numel();
    };
    dim_t most = f.unused.size();
    for (std::size_t i = 0; i < sizes.parameters; ++i)
      if (parameters[i]) most = std::max(most, extents(i));
    if (on && most > f.unused.size()) f.unused = aligned_buffer<T>(most);
    f.ranges.reserve(sizes.parameters);
    f.ranges.clear();
    for (std::size_t i = 0; i < sizes.parameters; ++i)
      if (parameters[i]) f.are_frozen[i] = on;
    for (std::size_t l = 0; l < sizes.leaves; ++l) {
      const program_leaf& leaf = t.lowered.leaves[l];
      const auto first = static_cast<std::size_t>(leaf.first_parameter),
                 end = first + leaf.parameter_count;
      bool all = skips[l];
      for (std::size_t i = first; i < end; ++i) all = all && f.are_frozen[i] != 0;
      for (std::size_t i = first; i < end; ++i) {
        const dim_t at = layout().offsets[i];
        T* const gradient = engine_.network.memory.gradients.data() + at;
        t.gradients[i] = gradient;
        if (f.are_frozen[i] == 0) continue;
        std::fill_n(gradient, extents(i), T{0});
        t.gradients[i] = all ? nullptr : f.unused.data();
        f.ranges.push_back({at, at + extents(i)});
      }
    }
    std::sort(f.ranges.begin(), f.ranges.end(),
              [](const auto& a, const auto& b) { return a.begin < b.begin; });
  }

  /// Training mode (the initial mode): dropout is active, batch norm uses the batch's statistics.
  void train(bool on = true) { engine_.network.training = on; }
  /// Evaluation mode.
  void eval() { engine_.network.training = false; }
  bool is_training() const { return engine_.network.training; }

  /// Whether modules may be fused (the initial mode): an activation into the product before it, and
  /// so on (model/plan/fusion.hpp). Results agree within rounding. With a forward hook, each module
  /// runs by itself in any case.
  void set_fusion(bool on) { engine_.network.fuses = on; }
  bool fuses() const { return engine_.network.fuses; }

  const M& module() const { return engine_.network.module; }
  /// What each call of a module keeps in its `plan_bytes`, by program_node::first_plan.
  std::span<const std::byte> plans() const { return engine_.tables().plan_table; }
  /// The lowered network with every extent known so far.
  const program<sizes>& current_program() const { return engine_.tables().lowered_program; }
  /// The shapes of the last inputs; before any, the declared ones.
  const shape_list& current_inputs() const {
    return engine_.tables().current_inputs.size() == 0 ? declared_inputs
                                                       : engine_.tables().current_inputs;
  }
  const parameter_layout<sizes>& layout() const { return engine_.tables().layout; }
  /// The bytes of the workspace: for the largest input so far.
  dim_t workspace_bytes() const { return engine_.network.memory.workspace.size(); }

  /// The stream of random numbers drawn in training: replicas use different streams.
  void set_random_stream(std::uint32_t stream) { engine_.network.stream = stream; }
  /// The number of forwards in training, which random numbers depend on. Set it to resume.
  std::uint64_t random_step() const { return engine_.network.step; }
  void set_random_step(std::uint64_t step) { engine_.network.step = step; }
  ikebana::seed seed() const { return engine_.network.seed; }
  /// Affects random numbers drawn from now on; parameters do not change.
  void set_seed(ikebana::seed s) { engine_.network.seed = s; }

  // Required by choice_selection.
  void set_choice(std::size_t c, int alternative) {
    if constexpr (engine::has_choices) {
      engine_.tables().partial.set[c] = alternative;
      engine_.tables().partial.policies[c] = nullptr;
      if (!engine_.tables().ran_forward) engine_.tables().partial.now.taken[c] = alternative;
    }
  }
  void set_choice(std::size_t c, std::shared_ptr<choice_policy> policy) {
    if constexpr (engine::has_choices) engine_.tables().partial.policies[c] = std::move(policy);
  }
  /// The alternative that is set; -1 if a function chooses.
  int set_choice(std::size_t c) const {
    if constexpr (engine::has_choices)
      return engine_.tables().partial.policies[c] == nullptr ? engine_.tables().partial.set[c] : -1;
    else
      return -1;
  }
  int choice(std::size_t c) const {
    if constexpr (engine::has_choices)
      return engine_.tables().partial.now.taken[c];
    else
      return -1;
  }

  /// The hooks for hook_registration, created when first asked for; and the existing ones, or null.
  const std::shared_ptr<hook_set>& hooks() { return engine_.own_hooks(); }
  const std::shared_ptr<hook_set>& forward_hooks() { return engine_.own_forward_hooks(); }
  const hook_set* registered_hooks() const { return engine_.hooks.get(); }

 protected:
  model_contents(const M& m, ikebana::seed s, const shape_list& inputs)
      : engine_(m, s, declared_inputs, inputs, lowerer_of<sizes, M, In...>()) {}
  // A copy trains all its parameters: optimizers do not know it.
  model_contents(const model_contents& other) : engine_(other.engine_) {}
  model_contents(model_contents&&) noexcept = default;
  model_contents& operator=(model_contents&&) noexcept = default;
  ~model_contents() = default;

  engine engine_;
  std::unique_ptr<ikebana::frozen_parameters<T>> frozen_;

  /// The index of a parameter in gradient_presence.
  template <class Path>
  std::size_t place_of() const {
    constexpr std::size_t i = parameter_index<model_contents, Path>();
    static_assert(i < sizes.parameters, "ikebana: the model has no parameter of this path");
    if constexpr (engine::is_partial && i < sizes.parameters) {
      constexpr auto leaf = static_cast<std::size_t>(lowered().parameters[i].leaf);
      constexpr int nth = static_cast<int>(i) - lowered().leaves[leaf].first_parameter;
      return static_cast<std::size_t>(engine_.tables().partial.places[leaf] + nth);
    } else {
      return i;
    }
  }
};

}  // namespace ikebana::detail
