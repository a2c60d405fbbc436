#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/conv.hpp"
#include "ikebana/nn/flatten.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/nn/pool.hpp"
#include "ikebana/optim/adam.hpp"
#include "ikebana/optim/sgd.hpp"
#include "test/support/load_recorded.hpp"

// Ten steps of a small CNN with six optimizers, compared with PyTorch's records
// (test/data/README.md, "training").

namespace recorded_training {

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto network = ike::sequential(
    "conv1"_m = ike::lazy_conv2d<4, ike::kernel<3>, ike::padding<1>, ike::bias<false>>{},
    "bn1"_m = ike::lazy_batch_norm2d<>{}, "relu"_m = ike::relu{},
    "pool"_m = ike::max_pool2d<ike::kernel<2>>{}, "conv2"_m = ike::lazy_conv2d<6, ike::kernel<3>>{},
    "relu2"_m = ike::relu{}, "flatten"_m = ike::flatten{}, "fc1"_m = ike::lazy_linear<10>{},
    "tanh"_m = ike::tanh{}, "fc2"_m = ike::lazy_linear<3>{});

template <class T>
const ike::state_dict& recorded() {
  static const ike::state_dict dict =
      load_recorded(std::is_same_v<T, float> ? "training_f32" : "training_f64");
  return dict;
}

/// The entries whose names start with `prefix`, without it.
inline ike::state_dict part(const ike::state_dict& all, std::string_view prefix) {
  ike::state_dict out;
  for (const auto& e : all)
    if (e.name.starts_with(prefix))
      out.add_view(std::string_view{e.name}.substr(prefix.size()), e.type, e.extents,
                   e.bytes.data());
  return out;
}

/// |a - b| <= tolerance max|b| over the tensor, plus a hundredth of the tolerance.
template <class T>
bool close(const T* a, const T* b, std::size_t n, double tolerance) {
  double most = 0, apart = 0;
  for (std::size_t i = 0; i < n; ++i) {
    most = std::max(most, std::abs(static_cast<double>(b[i])));
    const double d = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(d <= apart)) apart = d;
  }
  return apart <= tolerance * (most + 0.01);
}

template <class T>
bool close(const ike::state_dict::entry& a, const ike::state_dict::entry& b, double tolerance) {
  if (!(a.extents == b.extents) || a.type != b.type) return false;
  if (a.type == ike::dtype::int64)
    return std::equal(a.bytes.begin(), a.bytes.end(), b.bytes.begin());
  return close(reinterpret_cast<const T*>(a.bytes.data()),
               reinterpret_cast<const T*>(b.bytes.data()), a.bytes.size() / sizeof(T), tolerance);
}

template <class Model, class Optimizer>
void check_steps(Model& model, Optimizer& optimizer, const std::string& name) {
  using T = typename Model::value_type;
  constexpr double tolerance = std::is_same_v<T, float> ? 1e-5 : 1e-12;
  const ike::state_dict& all = recorded<T>();
  ike::load_state_dict(model, part(all, "initial/"));
  const auto xs = all.at("batches/x").template view<T, ike::shape{10, 8, 1, 8, 8}>();
  const auto targets = all.at("batches/target").template view<std::int64_t, ike::shape{10, 8}>();
  const auto losses = all.at(name + "/losses").template view<T, ike::shape{10}>();
  for (ike::dim_t step = 0; step < 10; ++step) {
    const ike::tensor_view<const T, ike::shape{8, 1, 8, 8}> x(xs.data() + step * 8 * 64);
    const ike::tensor_view<const std::int64_t, ike::shape{8}> target(targets.data() + step * 8);
    const T loss = model.train_step(x, target, ike::cross_entropy{}, optimizer);
    CHECK_MESSAGE(close(&loss, &losses[step], 1, tolerance), "loss of step ", step);
    if (step > 0) continue;
    // A dict of the gradients, with the parameters' paths and shapes.
    const auto& p = model.current_program();
    for (std::size_t i = 0; i < p.all_parameters().size(); ++i) {
      const std::string path{p.path(p.parameters[i]).view()};
      const auto& expected = all.at(name + "/grad." + path);
      REQUIRE(expected.extents == p.parameters[i].spec.extents);
      CHECK_MESSAGE(close(model.gradients().data() + model.layout().offsets[i],
                          reinterpret_cast<const T*>(expected.bytes.data()),
                          expected.bytes.size() / sizeof(T), tolerance),
                    "gradient of ", path);
    }
  }
  const ike::state_view own = ike::get_state_dict(model);
  const ike::state_dict final = part(all, name + "/final.");
  REQUIRE(own.size() == final.size());
  for (const auto& e : own)
    CHECK_MESSAGE(close<T>(e, final.at(e.name), tolerance), "final ", e.name);
}

/// All six optimizers, on a model for inputs of shape In.
template <class T, ike::shape In>
void check_optimizers() {
  const auto check = [](const std::string& name, auto&& with) {
    CAPTURE(name);
    auto model = ike::initialize<T, In>(network, ike::seed{1});
    with(model, name);
  };
  for (const auto& [name, options] :
       {std::pair{"sgd", ike::sgd_options{.lr = 0.1}},
        std::pair{
            "sgd_momentum",
            ike::sgd_options{.lr = 0.05, .momentum = 0.9, .dampening = 0.1, .weight_decay = 0.01}},
        std::pair{"sgd_nesterov", ike::sgd_options{.lr = 0.05, .momentum = 0.9, .nesterov = true}}})
    check(name, [&, how = options](auto& model, const std::string& n) {
      ike::sgd optimizer{model, how};
      check_steps(model, optimizer, n);
    });
  for (const auto& [name, options] :
       {std::pair{"adam", ike::adam_options{.lr = 0.01}},
        std::pair{"adam_amsgrad",
                  ike::adam_options{.lr = 0.01, .weight_decay = 0.01, .amsgrad = true}}})
    check(name, [&, how = options](auto& model, const std::string& n) {
      ike::adam optimizer{model, how};
      check_steps(model, optimizer, n);
    });
  check("adamw", [](auto& model, const std::string& n) {
    ike::adamw optimizer{model, {.lr = 0.01, .weight_decay = 0.01}};
    check_steps(model, optimizer, n);
  });
}

template <class T, ike::shape In>
void check_on_every_instruction_set() {
  const ike::cpu::instruction_set before = ike::cpu::active_instruction_set();
  for (const auto set : ike::cpu::instruction_sets) {
    if (!ike::cpu::supports(set)) continue;
    ike::cpu::set_instruction_set(set);
    CAPTURE(ike::cpu::name(set));
    check_optimizers<T, In>();
  }
  ike::cpu::set_instruction_set(before);
}

}  // namespace recorded_training
