#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "ikebana/core/dependent.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/model/hooks.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/inputs.hpp"
#include "ikebana/model/lazy/lazy_call.hpp"
#include "ikebana/model/lazy/lazy_state.hpp"
#include "ikebana/model/network/kept_inputs.hpp"
#include "ikebana/model/network/owned_tables.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/module/print.hpp"

namespace ikebana {

/// Sets the element type of a lazy_model before its first call: `lazy_model holder{net, seed{1},
/// element_type<double>{}}`.
template <model_element T>
struct element_type {};

namespace detail {

/// What a resolved lazy_model holds, whatever the static shapes of the inputs were.
struct resolved_base {
  const void* tag = nullptr;
  dtype type = dtype::float32;

  virtual ~resolved_base() = default;
  virtual void run(const void* const* data, const shape_list& extents) = 0;
  virtual std::pair<const void*, shape> output_of(std::size_t i) const = 0;
  virtual state_view state() const = 0;
  virtual state_differences load(const state_dict& dict, const load_options& options,
                                 std::span<const std::string_view> modules) = 0;
  virtual void set_training(bool on) = 0;
  virtual std::string printed() const = 0;
};

template <class Model>
inline constexpr char model_tag = 0;

template <class Model, std::size_t Inputs>
struct resolved_holder final : resolved_base, Model {
  using value_type = typename Model::value_type;
  using Model::engine_;

  template <class M>
  resolved_holder(M&& m, seed s, const shape_list& extents, std::shared_ptr<hook_set> hooks)
      : Model(std::forward<M>(m), s, extents) {
    tag = &model_tag<Model>;
    type = dtype_of<value_type>;
    engine_.share_hooks(std::move(hooks));
  }

  template <class... X>
  static auto arranged(shape_list& shapes, const X&... x) {
    shapes = Model::arguments::shapes(x...);
    return Model::arguments::data(x...);
  }
  void run(const void* const* data, const shape_list& extents) override {
    engine_.network.prepare_for(extents);
    std::array<const void*, Inputs + 1> given{};
    for (std::size_t i = 0; i < Inputs; ++i) given[i] = data[i];
    engine_.run_forward(given);
  }
  std::pair<const void*, shape> output_of(std::size_t i) const override {
    const auto& t = engine_.tables();
    const int v = t.lowered.outputs[i];
    return {t.values[v], t.current.values[v]};
  }
  state_view state() const override { return get_state_dict(static_cast<const Model&>(*this)); }
  state_differences load(const state_dict& dict, const load_options& options,
                         std::span<const std::string_view> modules) override {
    return load_selected<true>(static_cast<Model&>(*this), dict, options, modules);
  }
  void set_training(bool on) override { Model::train(on); }
  std::string printed() const override { return to_string(Model::module()); }
};

}  // namespace detail

/// Makes a model from a module and sample inputs, without running anything:
/// `initialize_parameters(net, seed{1}, x, "mask"_arg = m)`. The element type is T, or that of the
/// inputs. The batch may change later. A shape that cannot match is a compile error; throws
/// shape_error for what only run time knows. Allocates.
template <class T = void, any_module M, class... X>
requires(detail::accepts<detail::check_lazy_call<M, T, X...>>) auto initialize_parameters(
    const M& m, seed s, const X&... x) {
  using call = detail::lazy_call<M, T, X...>;
  return detail::lazy_model_t<M, T, X...>(become<call::declared>(m), s, call::extents(x...));
}
template <class T = void, any_module M, class... X>
requires(!detail::accepts<detail::check_lazy_call<M, T, X...>>) auto initialize_parameters(
    const M&, seed, const X&...) -> decltype(detail::refuse<detail::check_lazy_call<M, T, X...>>());

/// A network that exists before its data: parameters are created at the first call, for its inputs'
/// element type and shapes (the batch may change afterwards). `lazy_model holder{lazy_mlp,
/// seed{42}}; auto y = holder(x);` Every later call is checked against the dimensions of the first,
/// with the compiler's sentence.
///
/// Inputs are those of `model`: several, by position or name, indices and masks too. T is the
/// element type if it is chosen (`element_type<double>{}`), else void, and the first call decides.
/// Hooks can be registered, and states loaded and saved, before the first call as well as after it.
/// A call of a moved-from lazy_model throws state_error.
template <any_module M, class T = void>
class lazy_model : public hook_registration<lazy_model<M, T>, M> {
  template <class... X>
  static constexpr bool takes = detail::accepts<detail::check_lazy_call<M, T, X...>>;

 public:
  using module_type = M;

  lazy_model(M m, ikebana::seed s) : module_{std::move(m)}, seed_{s}, pending_{module_} {}
  template <std::same_as<T> Chosen>
  lazy_model(M m, ikebana::seed s, element_type<Chosen>) : lazy_model(std::move(m), s) {}

  /// Whether a dimension is still unknown.
  bool has_uninitialized_params() const { return held_ == nullptr && pending_.has_uninitialized(); }

  /// The outputs for the inputs x, as of `model::operator()`. The first call resolves the network
  /// and allocates; a shape that cannot match is a compile error. Throws shape_error if the inputs
  /// do not match the first call's or the loaded state.
  template <class... X>
      auto operator()(const X&... x) & requires(takes<X...>) {
    using call = detail::lazy_call<M, T, X...>;
    using wanted = typename detail::lazy_target<call>::model_type;
    using holder = typename detail::lazy_target<call>::holder;
    resolve<call>(x...);
    if (held_->tag == &detail::model_tag<wanted>)
      return static_cast<wanted&>(static_cast<holder&>(*held_))(x...);
    // The extents are equal, but others of them are static.
    shape_list extents;
    const auto data = holder::arranged(extents, x...);
    held_->run(data.data(), extents);
    return output<wanted>(std::make_index_sequence<wanted::output_count>{});
  }
  template <class... X>
  requires(!takes<X...>) auto operator()(
      const X&...) & -> decltype(detail::refuse<detail::check_lazy_call<M, T, X...>>());

  /// The same with temporary tensors, whose memory is kept as `model` does.
  template <class... X>
  requires(detail::keeps_temporary<X...>&& takes<std::remove_cvref_t<X>...>) auto operator()(
      X&&... x) & {
    const auto y = operator()(std::as_const(x)...);
    kept_inputs_.keep(std::forward<X>(x)...);
    return y;
  }
  template <class... X>
  requires(detail::has_const_temporary<X...>) auto operator()(
      X&&...) & -> decltype(detail::refuse_for<detail::misuse::call_with_a_const_temporary,
                                               X...>());

  /// Resolves the network for such inputs unless it is resolved, without running anything, and
  /// returns the contained model: for an optimizer, train_step, paths. Throws shape_error as a call
  /// does, and if the network was resolved for inputs with other static extents.
  template <class... X>
      auto& initialize_parameters(const X&... x) & requires(takes<X...>) {
    using call = detail::lazy_call<M, T, X...>;
    using wanted = typename detail::lazy_target<call>::model_type;
    resolve<call>(x...);
    if (held_->tag != &detail::model_tag<wanted>)
      throw_error(
          shape_error(diagnostic{"the model was resolved for inputs with other extents static; "
                                 "got an input {input}",
                                 0, 0, call::extents(x...)[0]}));
    return static_cast<wanted&>(static_cast<typename detail::lazy_target<call>::holder&>(*held_));
  }

  template <class... X>
  requires(!takes<X...>) auto initialize_parameters(
      const X&...) & -> decltype(detail::refuse<detail::check_lazy_call<M, T, X...>>());

  /// An alias of initialize_parameters.
  template <class... X>
      auto& model_of(const X&... x) & requires(takes<X...>) {
    return initialize_parameters(x...);
  }
  template <class... X>
  requires(!takes<X...>) auto model_of(
      const X&...) & -> decltype(detail::refuse<detail::check_lazy_call<M, T, X...>>());

  /// Sets training mode (the initial mode), before or after the first call.
  void train(bool on = true) {
    training_ = on;
    if (held_ != nullptr) held_->set_training(on);
  }
  void eval() { train(false); }
  bool is_training() const { return training_; }

  ikebana::seed seed() const { return seed_; }

  /// The module as far as it is resolved, in PyTorch's print format. Allocates.
  std::string printed() const {
    if (held_ != nullptr) return held_->printed();
    return pending_.is_loaded() ? to_string(pending_.module(), "lazy") : to_string(module_);
  }

  /// See get_state_dict and load_state_dict.
  state_view state() const {
    check_present();
    if (held_ != nullptr) return held_->state();
    state_view dict = pending_.get(seed_);
    hooks_->run(hook_point::saving, static_cast<state_dict&>(dict));
    return dict;
  }
  /// A copy of the current state, as of `model`. Allocates.
  state_dict snapshot() const { return state().clone(); }
  /// See load_state_dict. Before the holder is resolved, throws error for a part of a state (not
  /// strict, or some modules).
  state_differences load(const state_dict& dict, const load_options& options = {},
                         std::span<const std::string_view> modules = {}) {
    check_present();
    if (held_ != nullptr) return held_->load(dict, options, modules);
    if (!options.strict || !modules.empty())
      throw_error(
          error("load_state_dict: a lazy_model takes a part of a state once it is resolved: "
                "holder.initialize_parameters(x)"));
    detail::load_with_hooks(hooks_.get(), dict,
                            [this](const state_dict& given) { pending_.load(module_, given); });
    return {};
  }

  const std::shared_ptr<hook_set>& hooks() {
    check_present();
    return hooks_;
  }
  const std::shared_ptr<hook_set>& forward_hooks() { return hooks(); }

 private:
  void check_present() const {
    if (hooks_ == nullptr) detail::refuse_moved_from();
  }

  /// Changes nothing if it throws.
  template <class Call, class... X>
  void resolve(const X&... x) {
    using wanted = typename detail::lazy_target<Call>::model_type;
    check_present();
    if (held_ != nullptr) {
      if (held_->type != dtype_of<element_of<typename Call::element>>)
        throw_error(error("the model was resolved for " + std::string{name(held_->type)} +
                          ", got inputs of " +
                          std::string{name(dtype_of<element_of<typename Call::element>>)}));
      return;
    }
    const shape_list extents = Call::extents(x...);
    const inferred made = infer(pending_.module(), extents);
    if (!made.ok()) throw_error(shape_error(made.error));
    auto resolved = std::make_unique<typename detail::lazy_target<Call>::holder>(
        become<Call::declared>(module_), seed_, extents, hooks_);
    if (pending_.is_loaded()) {
      state_view own = detail::views_of_state(static_cast<const wanted&>(*resolved));
      detail::leave_out_newer(static_cast<const wanted&>(*resolved), own, pending_.loaded());
      detail::state_complaint wrong;
      wrong.compare(own, pending_.loaded(), false);
      wrong.throw_if_any();
      detail::copy_state(static_cast<wanted&>(*resolved), pending_.loaded());
    }
    resolved->set_training(training_);
    held_ = std::move(resolved);
  }

  template <class Model, std::size_t... I>
  auto output(std::index_sequence<I...>) const {
    using view = typename Model::output_view;
    const auto one = [this](std::size_t i) { return held_->output_of(i); };
    const auto as = []<class View>(std::type_identity<View>, std::pair<const void*, shape> o) {
      return View(static_cast<const typename View::value_type*>(o.first), o.second);
    };
    if constexpr (sizeof...(I) == 1)
      return as(std::type_identity<view>{}, one(0));
    else
      return view(as(std::type_identity<std::tuple_element_t<I, view>>{}, one(I))...);
  }

  M module_;
  ikebana::seed seed_;
  detail::pending_state<M, T> pending_;
  std::shared_ptr<hook_set> hooks_ = std::make_shared<hook_set>();
  std::unique_ptr<detail::dependent<detail::resolved_base, M>> held_;
  detail::kept_inputs kept_inputs_;
  bool training_ = true;
};

template <any_module M>
lazy_model(M, seed) -> lazy_model<M>;
template <any_module M, model_element T>
lazy_model(M, seed, element_type<T>) -> lazy_model<M, T>;

/// The state of a lazy_model. Before its first call, lazy parts are marked uninitialized, with
/// `lazy` for unknown extents; the rest has its initial values, or those that were loaded. After
/// the first call, the model's state. Allocates.
template <any_module M, class T>
state_view get_state_dict(const lazy_model<M, T>& m) {
  return m.state();
}

/// Loads a state into a lazy_model. Before its first call it supplies the dimensions: the shapes of
/// the weights resolve the network, and later calls are checked against them. A state may be
/// uninitialized where the network is lazy; that part stays lazy. One state_error lists every other
/// mismatch, and nothing has changed.
template <any_module M, class T>
void load_state_dict(lazy_model<M, T>& m, const state_dict& dict) {
  m.load(dict);
}

/// A part of a state, as of a `model`. Throws error before the first call.
template <any_module M, class T>
state_differences load_state_dict(lazy_model<M, T>& m, const state_dict& dict,
                                  const load_options& options) {
  return m.load(dict, options);
}
template <any_module M, class T, detail::literal Path, detail::literal... Paths>
requires(detail::has_modules<M, detail::only_modules<Path, Paths...>>) state_differences
    load_state_dict(lazy_model<M, T>& m, const state_dict& dict,
                    detail::only_modules<Path, Paths...> modules,
                    const load_options& options = {}) {
  return m.load(dict, options, modules.paths);
}
template <any_module M, class T, detail::literal Path, detail::literal... Paths>
requires(!detail::has_modules<M, detail::only_modules<Path, Paths...>>) auto load_state_dict(
    lazy_model<M, T>&, const state_dict&, detail::only_modules<Path, Paths...>,
    const load_options& = {})
    -> decltype(detail::refuse_modules<M, detail::only_modules<Path, Paths...>>());

}  // namespace ikebana
