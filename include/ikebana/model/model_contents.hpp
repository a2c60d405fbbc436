#pragma once

#include <algorithm>
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
#include "ikebana/model/gradient_exchange.hpp"
#include "ikebana/model/gradient_presence.hpp"
#include "ikebana/model/hooks.hpp"
#include "ikebana/model/layout.hpp"
#include "ikebana/model/lowerer.hpp"
#include "ikebana/model/parameter_stamp.hpp"
#include "ikebana/model/views_by_path.hpp"
#include "ikebana/module/lowering.hpp"

namespace ikebana::detail {

/// The contents of a model and access to them: its numbers, as arrays and by path, its modes, and
/// its metadata. A base of `model`, which adds the calls.
template <model_element E, resolved_module M, shape... In>
class model_contents : protected gradient_exchange<E, M, sizeof...(In)> {
  using engine = detail::engine<E, M, sizeof...(In)>;
  using exchange = gradient_exchange<E, M, sizeof...(In)>;
  using T = element_of<E>;

 protected:
  using engine::sizes;
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

  /// All parameters as one array, in the order in which backward finishes them; the gaps between
  /// them are zero.
  std::span<T> parameters() {
    stamp_ = 0;
    return parameters_.span();
  }
  std::span<const T> parameters() const { return parameters_.span(); }
  /// All gradients, at the offsets of their parameters.
  std::span<T> gradients() { return gradients_.span(); }
  std::span<const T> gradients() const { return gradients_.span(); }
  /// All buffers, as bytes.
  std::span<std::byte> buffers() {
    if constexpr (has_frozen) stamp_ = 0;
    return buffers_.span();
  }
  std::span<const std::byte> buffers() const { return buffers_.span(); }
  /// The persistent buffers, which are saved with the parameters and equal on all replicas.
  std::span<std::byte> persistent_buffers() {
    return buffers().first(static_cast<std::size_t>(tables_->layout.persistent_bytes));
  }

  /// A handle that expires with the memory of the parameters: when the model is destroyed or
  /// another is assigned to it, but not when it is moved. Allocates on the first call.
  std::weak_ptr<const void> lifetime() {
    std::shared_ptr<const void>& token = tables_->lifetime;
    if (token == nullptr) token = std::make_shared<char>();
    return token;
  }

  /// Must be called after the parameters were changed through a pointer obtained earlier, rather
  /// than through parameters().
  void parameters_changed() {
    if (stamp_ != 0) stamp_ = new_parameter_stamp();
  }

  /// A parameter by its path: `model["fc1.weight"_s]`, a tensor_view with its static shape.
  template <class Path>
  requires(has_parameter<model_contents, Path>) auto operator[](Path) {
    stamp_ = 0;
    return parameter_view<model_contents, Path>(*tables_, parameters_.data());
  }
  template <class Path>
  requires(has_parameter<model_contents, Path>) auto operator[](Path) const {
    return parameter_view<model_contents, Path>(*tables_, parameters_.data());
  }
  template <class Path>
  requires(!has_parameter<model_contents, Path>) auto operator[](Path) const
      -> decltype(refuse_path<Path, parameter_paths<model_contents>>());
  /// The gradient of a parameter by its path.
  template <class Path>
  requires(has_parameter<model_contents, Path>) auto gradient(Path) const {
    return parameter_view<model_contents, Path>(*tables_, gradients_.data());
  }
  template <class Path>
  requires(!has_parameter<model_contents, Path>) auto gradient(Path) const
      -> decltype(refuse_path<Path, parameter_paths<model_contents>>());
  /// A buffer by its path: `model.buffer("bn1.running_mean"_s)`, a tensor_view.
  template <class Path>
  requires(has_buffer<model_contents, Path>) auto buffer(Path) {
    if constexpr (has_frozen) stamp_ = 0;
    return buffer_view<model_contents, Path>(*tables_, buffers_.data());
  }
  template <class Path>
  requires(has_buffer<model_contents, Path>) auto buffer(Path) const {
    return buffer_view<model_contents, Path>(*tables_, buffers_.data());
  }
  template <class Path>
  requires(!has_buffer<model_contents, Path>) auto buffer(Path) const
      -> decltype(refuse_path<Path, buffer_paths<model_contents>>());

  /// Sets all gradients to zero; if run time may leave parameters without one, all become absent.
  void zero_grad() {
    std::fill_n(gradients_.data(), gradients_.size(), T{0});
    if (gradient_presence* p = presence()) p->clear();
  }

  /// Which parameters have a gradient; null if every backward reaches every parameter.
  gradient_presence* presence() { return engine::presence_or_null(); }
  const gradient_presence* presence() const { return engine::presence_or_null(); }

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

  /// Training mode (the initial mode): dropout is active, batch norm uses the batch's statistics.
  void train(bool on = true) { training_ = on; }
  /// Evaluation mode.
  void eval() { training_ = false; }
  bool is_training() const { return training_; }

  /// Whether modules may be fused (the initial mode): an activation into the product before it, and
  /// so on (model/fusion.hpp). Results agree within rounding. With a forward hook, each module runs
  /// by itself in any case.
  void set_fusion(bool on) { fuses_ = on; }
  bool fuses() const { return fuses_; }

  const M& module() const { return module_; }
  /// The lowered network with every extent known so far.
  const program<sizes>& current_program() const { return tables_->lowered_program; }
  /// The shapes of the last inputs; before any, the declared ones.
  const shape_list& current_inputs() const {
    return tables_->current_inputs.size() == 0 ? declared_inputs : tables_->current_inputs;
  }
  const parameter_layout<sizes>& layout() const { return tables_->layout; }
  /// The bytes of the workspace: for the largest input so far.
  dim_t workspace_bytes() const { return workspace_.size(); }

  /// The stream of random numbers drawn in training: replicas use different streams.
  void set_random_stream(std::uint32_t stream) { stream_ = stream; }
  /// The number of forwards in training, which random numbers depend on. Set it to resume.
  std::uint64_t random_step() const { return step_; }
  void set_random_step(std::uint64_t step) { step_ = step; }
  ikebana::seed seed() const { return seed_; }
  /// Affects random numbers drawn from now on; parameters do not change.
  void set_seed(ikebana::seed s) { seed_ = s; }

  // Required by choice_selection.
  void set_choice(std::size_t c, int alternative) {
    if constexpr (engine::has_choices) {
      tables_->partial.set[c] = alternative;
      tables_->partial.policies[c] = nullptr;
      if (!tables_->ran_forward) tables_->partial.now.taken[c] = alternative;
    }
  }
  void set_choice(std::size_t c, std::shared_ptr<choice_policy> policy) {
    if constexpr (engine::has_choices) tables_->partial.policies[c] = std::move(policy);
  }
  /// The alternative that is set; -1 if a function chooses.
  int set_choice(std::size_t c) const {
    if constexpr (engine::has_choices)
      return tables_->partial.policies[c] == nullptr ? tables_->partial.set[c] : -1;
    else
      return -1;
  }
  int choice(std::size_t c) const {
    if constexpr (engine::has_choices)
      return tables_->partial.now.taken[c];
    else
      return -1;
  }

  /// The hooks for hook_registration, created when first asked for; and the existing ones, or null.
  const std::shared_ptr<hook_set>& hooks() { return engine::own_hooks(); }
  const std::shared_ptr<hook_set>& forward_hooks() { return engine::own_forward_hooks(); }
  const hook_set* registered_hooks() const { return engine::hooks_.get(); }

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

  model_contents(const M& m, ikebana::seed s, const shape_list& inputs)
      : exchange(m, s, declared_inputs, inputs, lowerer_of<sizes, M, In...>()) {}
  model_contents(const model_contents&) = default;
  model_contents(model_contents&&) noexcept = default;
  model_contents& operator=(model_contents&&) noexcept = default;
  ~model_contents() = default;

  /// The index of a parameter in gradient_presence.
  template <class Path>
  std::size_t place_of() const {
    constexpr std::size_t i = parameter_index<model_contents, Path>();
    static_assert(i < sizes.parameters, "ikebana: the model has no parameter of this path");
    if constexpr (engine::is_partial && i < sizes.parameters) {
      constexpr auto leaf = static_cast<std::size_t>(lowered().parameters[i].leaf);
      constexpr int nth = static_cast<int>(i) - lowered().leaves[leaf].first_parameter;
      return static_cast<std::size_t>(tables_->partial.places[leaf] + nth);
    } else {
      return i;
    }
  }
};

}  // namespace ikebana::detail
