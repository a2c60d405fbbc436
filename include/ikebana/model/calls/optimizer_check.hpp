#pragma once

#include <string>

#include "ikebana/core/error.hpp"

namespace ikebana::detail {

[[noreturn, gnu::cold, gnu::noinline]] inline void refuse_optimizer(const char* call) {
  throw_error(state_error(std::string(call) + ": the optimizer was made for another model"));
}

/// Throws state_error if the optimizer has `updates` and was made for another model.
template <class Model, class Optimizer>
void check_optimizer(const Model& model, const Optimizer& optimizer,
                     const char* call = "train_step") {
  if constexpr (requires { optimizer.updates(model); })
    if (!optimizer.updates(model)) [[unlikely]]
      refuse_optimizer(call);
}

}  // namespace ikebana::detail
