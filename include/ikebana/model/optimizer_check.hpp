#pragma once

#include "ikebana/core/error.hpp"

namespace ikebana::detail {

/// Throws state_error if the optimizer has `updates` and was made for another model.
template <class Model, class Optimizer>
void check_optimizer(const Model& model, const Optimizer& optimizer) {
  if constexpr (requires { optimizer.updates(model); })
    if (!optimizer.updates(model)) [[unlikely]]
      throw state_error("train_step: the optimizer was made for another model");
}

}  // namespace ikebana::detail
