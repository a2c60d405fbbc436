#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "ikebana/core/error.hpp"
#include "ikebana/model/hooks.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/inputs.hpp"
#include "ikebana/model/lazy_call.hpp"
#include "ikebana/model/lazy_state.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/module/print.hpp"

namespace ikebana {

/// Chooses the element type of a lazy_model before its first call: `lazy_model holder{net, seed{1},
/// element_type<double>{}}`.
template <model_element T>
struct element_type {};

namespace detail {

/// What a lazy_model holds once it is resolved, whatever the inputs' static shapes were.
struct resolved_base {
  const void* tag = nullptr;
  dtype type = dtype::float32;

  virtual ~resolved_base() = default;
  virtual void run(const void* const* data, const shape_list& extents) = 0;
  virtual std::pair<const void*, shape> output_of(std::size_t i) const = 0;
  virtual state_dict state() const = 0;
  virtual void load(const state_dict& dict) = 0;
  virtual void set_training(bool on) = 0;
  virtual std::string printed() const = 0;
};

template <class Model>
inline constexpr char model_tag = 0;

template <class Model, std::size_t Inputs>
struct resolved_holder final : resolved_base, Model {
  using value_type = typename Model::value_type;

  template <class M>
  resolved_holder(M&& m, seed s, const shape_list& extents, std::shared_ptr<hook_set> hooks)
      : Model(std::forward<M>(m), s, extents) {
    tag = &model_tag<Model>;
    type = dtype_of<value_type>;
    Model::share_hooks(std::move(hooks));
  }

  template <class... X>
  static auto arranged(shape_list& shapes, const X&... x) {
    shapes = Model::arguments::shapes(x...);
    return Model::arguments::data(x...);
  }
  void run(const void* const* data, const shape_list& extents) override {
    Model::prepare_for(extents);
    std::array<const void*, Inputs + 1> given{};
    for (std::size_t i = 0; i < Inputs; ++i) given[i] = data[i];
    Model::run_forward(given);
  }
  std::pair<const void*, shape> output_of(std::size_t i) const override {
    const int v = Model::tables_->lowered.outputs[i];
    return {Model::tables_->values[v], Model::tables_->current.values[v]};
  }
  state_dict state() const override { return get_state_dict(static_cast<const Model&>(*this)); }
  void load(const state_dict& dict) override { load_state_dict(static_cast<Model&>(*this), dict); }
  void set_training(bool on) override { Model::train(on); }
  std::string printed() const override { return to_string(Model::module()); }
};

}  // namespace detail

/// A model from a module and inputs like those that it will see, without running anything:
/// `initialize_parameters(net, seed{1}, x, "mask"_arg = m)`. The element type is T, or the inputs'.
/// The batch may be another later. A shape that cannot fit is a compile error; throws shape_error
/// for what only run time knows.
template <class T = void, any_module M, model_input... X>
auto initialize_parameters(const M& m, seed s, const X&... x) {
  using call = detail::lazy_call<M, T, X...>;
  if constexpr (!call::ok)
    detail::complain_of_call<call>();
  else
    return typename detail::lazy_target<call>::model_type(become<call::declared>(m), s,
                                                          call::extents(x...));
}

/// A network that is there before its data: parameters come into being at the first call, for its
/// inputs' element type and shapes (the batch may change afterwards). `lazy_model holder{lazy_mlp,
/// seed{42}}; auto y = holder(x);` Every later call is checked against the first one's dimensions,
/// in the words that the compiler would have used.
///
/// Inputs are those of `model`: several, by their order or name, indices and truth values too. T is
/// the element type if it is chosen (`element_type<double>{}`), else void: the first call's. Hooks
/// may be registered, a state loaded and saved, before the first call as after it.
template <any_module M, class T = void>
class lazy_model : public hook_registration<lazy_model<M, T>, M> {
 public:
  lazy_model(M m, ikebana::seed s) : module_{std::move(m)}, seed_{s}, pending_{module_} {}
  template <std::same_as<T> Chosen>
  lazy_model(M m, ikebana::seed s, element_type<Chosen>) : lazy_model(std::move(m), s) {}

  /// Whether a dimension is still to come, from a first call or a state.
  bool has_uninitialized_params() const { return held_ == nullptr && pending_.has_uninitialized(); }

  /// The outputs for the inputs x, as of `model::operator()`. The first call resolves the network
  /// and allocates; a shape that cannot fit is a compile error. Throws shape_error where inputs do
  /// not fit the first call's, or the state that was loaded.
  template <model_input... X>
  auto operator()(const X&... x) & {
    using call = detail::lazy_call<M, T, X...>;
    if constexpr (!call::ok) {
      detail::complain_of_call<call>();
    } else {
      using wanted = typename detail::lazy_target<call>::model_type;
      using holder = typename detail::lazy_target<call>::holder;
      resolve<call>(x...);
      if (held_->tag == &detail::model_tag<wanted>)
        return static_cast<wanted&>(static_cast<holder&>(*held_))(x...);
      // The numbers are the same, but others of them are static.
      shape_list extents;
      const auto data = holder::arranged(extents, x...);
      held_->run(data.data(), extents);
      return output<wanted>(std::make_index_sequence<wanted::output_count>{});
    }
  }

  /// Resolves the network for such inputs, if it is not, without running anything, and gives the
  /// model within: for an optimizer, train_step, paths. Throws shape_error as a call does, and
  /// where the network was resolved for inputs with other extents static.
  template <model_input... X>
  decltype(auto) initialize_parameters(const X&... x) & {
    using call = detail::lazy_call<M, T, X...>;
    if constexpr (!call::ok) {
      detail::complain_of_call<call>();
    } else {
      using wanted = typename detail::lazy_target<call>::model_type;
      resolve<call>(x...);
      if (held_->tag != &detail::model_tag<wanted>)
        throw shape_error(
            diagnostic{"the model was resolved for inputs with other extents static; "
                       "got an input {input}",
                       0, 0, call::extents(x...)[0]});
      return static_cast<wanted&>(static_cast<typename detail::lazy_target<call>::holder&>(*held_));
    }
  }

  /// The same.
  template <model_input... X>
  decltype(auto) model_of(const X&... x) & {
    return initialize_parameters(x...);
  }

  /// Training mode (the mode at first), before the first call or after it.
  void train(bool on = true) {
    training_ = on;
    if (held_ != nullptr) held_->set_training(on);
  }
  void eval() { train(false); }
  bool is_training() const { return training_; }

  ikebana::seed seed() const { return seed_; }

  /// The module as it is known by now, as PyTorch prints it. Allocates.
  std::string printed() const {
    if (held_ != nullptr) return held_->printed();
    return pending_.is_loaded() ? to_string(pending_.module()) : to_string(module_);
  }

  /// As get_state_dict and load_state_dict say.
  state_dict state() const {
    if (held_ != nullptr) return held_->state();
    state_dict dict = pending_.get(seed_);
    hooks_->run(hook_point::saving, dict);
    return dict;
  }
  void load(const state_dict& dict) {
    if (held_ != nullptr) return held_->load(dict);
    detail::load_with_hooks(hooks_.get(), dict,
                            [this](const state_dict& given) { pending_.load(module_, given); });
  }

  const std::shared_ptr<hook_set>& hooks() { return hooks_; }
  const std::shared_ptr<hook_set>& forward_hooks() { return hooks_; }

 private:
  /// Nothing has changed if it throws.
  template <class Call, class... X>
  void resolve(const X&... x) {
    using wanted = typename detail::lazy_target<Call>::model_type;
    if (held_ != nullptr) {
      if (held_->type != dtype_of<element_of<typename Call::element>>)
        throw error("the model was resolved for " + std::string{name(held_->type)} +
                    ", got inputs of " +
                    std::string{name(dtype_of<element_of<typename Call::element>>)});
      return;
    }
    const shape_list extents = Call::extents(x...);
    const inferred made = infer(pending_.module(), extents);
    if (!made.ok()) throw shape_error(made.error);
    auto resolved = std::make_unique<typename detail::lazy_target<Call>::holder>(
        become<Call::declared>(module_), seed_, extents, hooks_);
    if (pending_.is_loaded()) {
      detail::state_complaint wrong;
      detail::compare_state(wrong, detail::views_of_state(static_cast<const wanted&>(*resolved)),
                            pending_.loaded(), false);
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
  std::unique_ptr<detail::resolved_base> held_;
  bool training_ = true;
};

template <any_module M>
lazy_model(M, seed) -> lazy_model<M>;
template <any_module M, model_element T>
lazy_model(M, seed, element_type<T>) -> lazy_model<M, T>;

/// The state of a lazy_model. Before its first call: what is lazy is marked uninitialized, with the
/// extents that are not known `lazy`; the rest has its initial values; or what was loaded. After
/// it: the model's.
template <any_module M, class T>
state_dict get_state_dict(const lazy_model<M, T>& m) {
  return m.state();
}

/// Loads a state into a lazy_model. Before its first call it brings the dimensions: the network is
/// resolved by the shapes of the weights, and later calls are checked against them. A state may be
/// uninitialized where the network is lazy; then this stays lazy. Everything else that differs is
/// named in one state_error, and nothing has changed.
template <any_module M, class T>
void load_state_dict(lazy_model<M, T>& m, const state_dict& dict) {
  m.load(dict);
}

}  // namespace ikebana
