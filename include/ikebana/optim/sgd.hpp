#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/cpu/optim.hpp"
#include "ikebana/optim/optimizer.hpp"

namespace ikebana {

struct sgd_options {
  double lr = std::numeric_limits<double>::quiet_NaN();  ///< Required.
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool maximize = false;
};

/// Stochastic gradient descent with momentum (Sutskever et al., On the importance of initialization
/// and momentum in deep learning, 2013), as PyTorch 1.13 computes it. `sgd optimizer{model, {.lr =
/// 0.1, .momentum = 0.9}};` The model must outlive it. Options may be changed between steps.
template <class T>
class sgd {
 public:
  /// Allocates the momentum buffer if momentum is not 0. Throws error for options that make no
  /// sense.
  template <class Model>
  sgd(Model& model, const sgd_options& options) : options_{options} {
    static_assert(
        optimizable<Model>,
        "ikebana: sgd needs an initialized model: initialize<T, shape>(module, seed) gives one");
    if constexpr (optimizable<Model>) {
      check();
      parameters_ = model.parameters();
      gradients_ = model.gradients();
      make_momentum_buffer();
    }
  }

  template <class Model>
  explicit sgd(Model&) {
    static_assert(sizeof(Model) == 0,
                  "ikebana: sgd needs a learning rate: sgd{model, {.lr = 0.1}}");
  }

  /// A temporary model would be gone before the first step.
  template <class Model>
  sgd(const Model&&, const sgd_options&) = delete;

  sgd_options& options() { return options_; }
  const sgd_options& options() const { return options_; }

  /// Updates all parameters by their gradients, in one pass. Allocates only if momentum was 0 in
  /// all steps before and is not any more. Throws error for options that make no sense, before
  /// anything has changed.
  void step() {
    check();
    make_momentum_buffer();
    const bool with_momentum = options_.momentum != 0;
    cpu::sgd_step<T>(static_cast<dim_t>(parameters_.size()), parameters_.data(), gradients_.data(),
                     with_momentum ? momentum_buffer_.data() : nullptr, static_cast<T>(options_.lr),
                     static_cast<T>(options_.momentum), static_cast<T>(options_.dampening),
                     static_cast<T>(options_.weight_decay), options_.nesterov, momentum_steps_ == 0,
                     options_.maximize);
    if (with_momentum) ++momentum_steps_;
  }

  /// What it remembers; arrays without memory are not in use. `step` counts the steps with
  /// momentum.
  std::array<optimizer_state, 2> state() {
    return {optimizer_state::of("step", std::span{&momentum_steps_, 1}),
            optimizer_state::of("momentum_buffer", momentum_buffer_.span())};
  }

 private:
  void check() const {
    const sgd_options& o = options_;
    if (o.lr != o.lr) throw error("sgd: needs a learning rate: sgd{model, {.lr = 0.1}}");
    detail::check_option(o.lr >= 0, "sgd", "learning rate", o.lr);
    detail::check_option(o.momentum >= 0, "sgd", "momentum value", o.momentum);
    detail::check_option(o.weight_decay >= 0, "sgd", "weight_decay value", o.weight_decay);
    if (o.nesterov && (o.momentum <= 0 || o.dampening != 0))
      throw error("sgd: Nesterov momentum requires a momentum and zero dampening");
  }

  void make_momentum_buffer() {
    if (options_.momentum != 0 && momentum_buffer_.empty())
      momentum_buffer_ = aligned_buffer<T>(static_cast<dim_t>(parameters_.size()));
  }

  sgd_options options_;
  std::span<T> parameters_;
  std::span<const T> gradients_;
  aligned_buffer<T> momentum_buffer_;
  std::int64_t momentum_steps_ = 0;
};

template <class Model>
sgd(Model&, const sgd_options&) -> sgd<typename detail::element_of<Model>::type>;
template <class Model>
sgd(Model&) -> sgd<typename detail::element_of<Model>::type>;
template <class Model>
sgd(const Model&&, const sgd_options&) -> sgd<typename detail::element_of<Model>::type>;

}  // namespace ikebana
