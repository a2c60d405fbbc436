#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/cpu/optim.hpp"
#include "ikebana/module/refusal.hpp"
#include "ikebana/optim/optimizer_base.hpp"

namespace ikebana {

/// Options of sgd: those of PyTorch with its defaults, and clipping by norm.
struct sgd_options {
  double lr = std::numeric_limits<double>::quiet_NaN();  ///< Required.
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool maximize = false;
  double max_norm = std::numeric_limits<double>::infinity();  ///< Clips by norm, see sgd.
  bool error_if_nonfinite = false;  ///< Throws error if the norm of the gradients is not finite.
};

namespace detail::misuse {

IKEBANA_MISUSE(
    sgd_needs_an_initialized_model,
    "sgd needs an initialized model, not const: initialize<T, shape>(module, seed) gives one");
IKEBANA_MISUSE(sgd_needs_a_model_that_outlives_it,
               "sgd needs a model that outlives it: not a temporary, nor parameters()");
IKEBANA_MISUSE(
    sgd_takes_a_model_and_its_options_in_braces,
    "sgd takes a model and its options in braces, sgd{model, {.lr = 0.1, .momentum = 0.9}}, which "
    "are lr, momentum, dampening, weight_decay, nesterov, maximize, max_norm, error_if_nonfinite");
IKEBANA_MISUSE(sgd_needs_a_learning_rate, "sgd needs a learning rate: sgd{model, {.lr = 0.1}}");

}  // namespace detail::misuse

/// Stochastic gradient descent with momentum (Sutskever et al., On the importance of initialization
/// and momentum in deep learning, 2013), as in PyTorch 1.13. `sgd optimizer{model, {.lr = 0.1,
/// .momentum = 0.9}};` The model must outlive it. Options may be changed between steps.
///
/// With max_norm, a step scales the gradients of all parameters so that their 2-norm is at most
/// max_norm, as clip_grad_norm does, but in the same pass and without changing the stored
/// gradients. With error_if_nonfinite it throws error if the norm is not finite, before anything
/// has changed.
template <class T>
class sgd : public detail::optimizer_base<sgd<T>, T, sgd_options> {
  using base = detail::optimizer_base<sgd, T, sgd_options>;
  friend base;
  friend detail::optimizer_runs<sgd>;

 public:
  /// Allocates the momentum buffer if momentum is not 0. Throws error for invalid options.
  template <optimizable Model, detail::option_group... Groups>
  sgd(Model& model, const sgd_options& options, const Groups&... groups) : base{options} {
    this->take(model, groups...);
  }

  /// The optimizer's state: `momentum_buffer`, in use from the first step with momentum on, and
  /// `step`, which counts those steps.
  std::array<optimizer_state, 2> state() {
    return {optimizer_state::of("step", target_.steps()),
            optimizer_state::of("momentum_buffer", momentum_buffer_.span(), has_momentum_)};
  }

 private:
  static constexpr const char* name = "sgd";
  using base::options_;
  using base::scale_;
  using base::target_;

  static void check_option_set(const sgd_options& o) {
    if (o.lr != o.lr) throw_error(error("sgd: needs a learning rate: sgd{model, {.lr = 0.1}}"));
    detail::check_option(o.momentum >= 0, name, "momentum value", o.momentum);
    detail::check_option(o.weight_decay >= 0, name, "weight_decay value", o.weight_decay);
    if (o.nesterov && (o.momentum <= 0 || o.dampening != 0))
      throw_error(error("sgd: Nesterov momentum requires a momentum and zero dampening"));
  }

  bool has_momentum() const {
    return options_.any([](const sgd_options& o) { return o.momentum != 0; });
  }

  bool keeps_zeros(std::size_t set) const {
    const sgd_options o = options_[set];
    return o.momentum == 0 && o.weight_decay == 0;
  }

  void begin_update() {
    make_memory();
    if (has_momentum()) target_.count_step();
  }

  void make_memory() {
    if (has_momentum_ || !has_momentum()) return;
    momentum_buffer_ = aligned_buffer<T>(target_.elements());
    has_momentum_ = true;
  }

  void update(dim_t n, T* parameters, const T* gradients, dim_t at, std::int64_t step,
              std::size_t set) {
    const sgd_options o = options_[set];
    cpu::sgd_step<T>(
        n, parameters, gradients, o.momentum != 0 ? momentum_buffer_.data() + at : nullptr,
        static_cast<T>(o.lr), static_cast<T>(o.momentum), static_cast<T>(o.dampening),
        static_cast<T>(o.weight_decay), o.nesterov, step == 1, o.maximize, static_cast<T>(scale_));
  }

  aligned_buffer<T> momentum_buffer_;
  bool has_momentum_ = false;
};

// Refusals at compile time, selected by the deduction guides.
template <class Misuse>
requires(!floating<Misuse>) class sgd<Misuse>;
template <class Model>
sgd(Model&) -> sgd<detail::misuse::sgd_needs_a_learning_rate<detail::later<Model>>>;
template <class Model, detail::option_group... Groups>
sgd(Model&, const sgd_options&, const Groups&...)
    -> sgd<detail::number_or<Model, detail::misuse::sgd_needs_an_initialized_model, Groups...>>;
template <class Model, detail::option_group... Groups>
sgd(const Model&&, const sgd_options&, const Groups&...)
    -> sgd<detail::misuse::sgd_needs_a_model_that_outlives_it<detail::later<Model>>>;
template <bool Lazy = false>
sgd(...) -> sgd<detail::misuse::sgd_takes_a_model_and_its_options_in_braces<Lazy>>;

namespace detail {
IKEBANA_CPU_CLASS(optimizer_runs, sgd)
}

}  // namespace ikebana
