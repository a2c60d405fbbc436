#pragma once

#include <utility>

#include "ikebana/core/language.hpp"

namespace ikebana::detail {

/// The members of a model that a replica exposes unchanged: a base of `replicated` and
/// `invariant_replicated`. All others are hidden, since they would act on one rank only.
template <class Model>
class replica_of : protected Model {
 public:
  using Model::operator[];
  using Model::buffer;
  using Model::buffers;
  using Model::check_call;
  using Model::choose;
  using Model::chosen;
  using Model::current_inputs;
  using Model::current_program;
  using Model::eval;
  using Model::frozen_parameters;
  using Model::fuses;
  using Model::gradient;
  using Model::gradient_rows;
  using Model::gradients;
  using Model::has_gradient;
  using Model::is_frozen;
  using Model::is_training;
  using Model::layout;
  using Model::lifetime;
  using Model::lowered;
  using Model::may_lack_gradients;
  using Model::module;
  using Model::output;
  using Model::output_shape;
  using Model::parameter_count;
  using Model::parameters;
  using Model::persistent_buffers;
  using Model::presence;
  using Model::random_step;
  using Model::register_forward_hook;
  using Model::register_forward_pre_hook;
  using Model::register_full_backward_hook;
  using Model::register_full_backward_pre_hook;
  using Model::register_load_state_dict_post_hook;
  using Model::register_load_state_dict_pre_hook;
  using Model::register_state_dict_hook;
  using Model::registered_hooks;
  using Model::row_parameters;
  using Model::seed;
  using Model::set_choice;
  using Model::set_frozen;
  using Model::set_fusion;
  using Model::set_random_step;
  using Model::set_seed;
  using Model::snapshot;
  using Model::train;
  using Model::workspace_bytes;
  using Model::zero_grad;
  using typename Model::module_type;
  using typename Model::output_view;
  using typename Model::value_type;
  using model_type = Model;

 protected:
  using Model::engine_;

  explicit replica_of(Model made) : Model{std::move(made)} {}
  replica_of(replica_of&&) noexcept = default;
};

}  // namespace ikebana::detail
