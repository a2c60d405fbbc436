// A user-defined module with everything that a leaf can have (a lazy dimension, a parameter,
// buffers, saved memory, randomness) has the same features as built-in modules.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/core/random.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/io/safetensors.hpp"
#include "ikebana/model/gradient_check.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/lazy_model.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/module/lazy.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/optim.hpp"
#include "ikebana/replicate/launch.hpp"
#include "ikebana/replicate/replicate.hpp"
#include "ikebana/train/training_state.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dim_t;
using ike::dynamic;
using ike::shape;

namespace somebody {

/// y = weight * x * (1 + noise * u), with u uniform in [-1, 1) and drawn for each element in
/// training. Counts the calls in training and keeps the largest |x| of each feature.
template <dim_t N = ike::lazy>
struct noisy_scale {
  static constexpr std::string_view kind = "noisy_scale";
  static constexpr bool is_lazy = N == ike::lazy;
  static constexpr bool is_random = true;
  ike::extent<N> features{};
  double noise = 0.125;

  constexpr ike::inferred infer(const shape& in) const {
    if (ike::fits(features.value(), in.back())) return in;
    return ike::diagnostic{"noisy_scale expects features = {expected}, got {got} (input {input})",
                           features.value(), in.back(), in};
  }
  template <shape In>
  constexpr auto become() const {
    return noisy_scale<In.back()>{.noise = noise};
  }
  constexpr void bind(const ike::shape_list& in) { features.bind(in[0].back()); }
  constexpr void bind_state(ike::shape_span own, ike::shape_span) { features.bind(own[0][0]); }
  constexpr std::array<ike::parameter_spec, 1> parameters() const {
    return {ike::parameter_spec{"weight", shape{features.value()}, ike::initializer::uniform(1)}};
  }
  constexpr std::array<ike::buffer_spec, 2> buffers() const {
    return {ike::buffer_spec{.name = "largest", .extents = shape{features.value()}},
            ike::buffer_spec{.name = "calls", .type = ike::dtype::int64, .follows_model = false}};
  }
  constexpr std::array<ike::saved_spec, 1> saved(const ike::shape_list& in) const {
    return {ike::saved_spec{0, in[0]}};
  }

  template <class T>
  void forward(const ike::context<T>& c) const {
    const dim_t n = c.input_shape().back();
    T* factors = c.template saved<T>(0);
    for (dim_t i = 0; i < c.input_shape().numel(); ++i) {
      const T u = ike::signed_unit(c.random().words(static_cast<std::uint32_t>(i))[0]);
      factors[i] = c.training() ? T{1} + static_cast<T>(noise) * u : T{1};
      c.output()[i] = c.parameter(0)[i % n] * c.input()[i] * factors[i];
      if (!c.training()) continue;
      T& largest = c.template buffer<T>(0)[i % n];
      largest = std::max({largest, c.input()[i], -c.input()[i]});
    }
    if (c.training()) ++*c.template buffer<std::int64_t>(1);
  }
  template <class T>
  void backward(const ike::context<T>& c) const {
    const dim_t n = c.input_shape().back();
    const T* factors = c.template saved<T>(0);
    T* dw = c.parameter_gradient(0);
    for (dim_t f = 0; f < n && !c.accumulate(); ++f) dw[f] = 0;
    for (dim_t i = 0; i < c.input_shape().numel(); ++i) {
      dw[i % n] += c.output_gradient()[i] * c.input()[i] * factors[i];
      if (c.input_gradient() != nullptr)
        c.input_gradient()[i] = c.output_gradient()[i] * c.parameter(0)[i % n] * factors[i];
    }
  }
};

}  // namespace somebody

namespace {

constexpr auto network(double noise) {
  return ike::sequential("fc"_m = ike::lazy_linear<6>{},
                         "own"_m = somebody::noisy_scale<>{.noise = noise}, ike::tanh{},
                         "out"_m = ike::lazy_linear<1>{});
}
constexpr shape wide{dynamic, 3};
constexpr dim_t rows = 8;

auto made(double noise = 0.125, std::uint64_t seed = 1) {
  return ike::initialize<double, wide>(network(noise), ike::seed{seed});
}

/// One step on the rows [begin, end) of the batch with this number.
template <class Model, class Optimizer>
double step(Model& model, Optimizer& optimizer, std::uint64_t number, dim_t begin = 0,
            dim_t end = rows) {
  const auto x = ike::uniform<double, wide>(ike::seed{number + 7}, rows);
  ike::tensor<double, shape{dynamic, 1}> y(shape{end - begin, 1});
  for (dim_t i = begin; i < end; ++i) y[i - begin] = x(i, 0) * 0.5 - x(i, 2);
  const ike::tensor_view<const double, wide> part(x.data() + 3 * begin, shape{end - begin, 3});
  return model.train_step(part, y, ike::mse_loss{}, optimizer);
}

template <class Model>
std::vector<std::byte> bytes_of_state(const Model& m) {
  std::vector<std::byte> all;
  for (const auto& e : ike::get_state_dict(m))
    all.insert(all.end(), e.bytes.begin(), e.bytes.end());
  return all;
}

/// A file that is removed at the end of the test case.
struct file {
  std::filesystem::path path;
  explicit file(const char* name)
      : path{std::filesystem::temp_directory_path() /
             (std::string("ikebana_own_module_") + name + ".safetensors")} {}
  ~file() { std::filesystem::remove(path); }
};

}  // namespace

TEST_CASE("an own module's gradients are right") {
  // Without noise, because every forward draws new numbers.
  CHECK(ike::gradient_check(network(0), ike::uniform<double, shape{4, 3}>(ike::seed{2})).largest <
        1e-7);
}

TEST_CASE("an own module is trained by every optimizer") {
  const auto check = [](auto make) {
    auto model = made();
    auto optimizer = make(model);
    const double weight = model["own.weight"_s][2];
    const double first = step(model, optimizer, 0);
    double last = first;
    for (std::uint64_t s = 1; s < 60; ++s) last = step(model, optimizer, s % 4);
    CHECK(last < first / 2);
    CHECK(model["own.weight"_s][2] != weight);
    CHECK(model.buffer("own.calls"_s).data()[0] == 60);
    CHECK(model.buffer("own.largest"_s)[0] > 0);
  };
  check([](auto& m) { return ike::sgd{m, {.lr = 0.1, .momentum = 0.5, .max_norm = 10}}; });
  check([](auto& m) { return ike::adam{m, {.lr = 0.05, .amsgrad = true}}; });
  check([](auto& m) { return ike::adamw{m, {.lr = 0.05}}; });
  check([](auto& m) { return ike::adadelta{m, {.eps = 1e-3}}; });
  check([](auto& m) { return ike::adagrad{m, {.lr = 0.3}}; });
  check([](auto& m) { return ike::adamax{m, {.lr = 0.1}}; });
  check([](auto& m) { return ike::asgd{m, {.lr = 0.1}}; });
  check([](auto& m) { return ike::lion{m, {.lr = 0.02}}; });
  check([](auto& m) { return ike::nadam{m, {.lr = 0.05}}; });
  check([](auto& m) { return ike::radam{m, {.lr = 0.05}}; });
  check([](auto& m) { return ike::rmsprop{m, {.lr = 0.02}}; });
  check([](auto& m) { return ike::rprop{m}; });
}

TEST_CASE("an own module goes on from a file with the same bits, randomness included") {
  const file checkpoint("checkpoint");
  auto model = made();
  ike::adam optimizer{model, {.lr = 0.05}};
  for (std::uint64_t s = 0; s < 3; ++s) step(model, optimizer, s);
  ike::save(ike::get_training_state(model, optimizer), checkpoint.path);
  for (std::uint64_t s = 3; s < 6; ++s) step(model, optimizer, s);

  auto resumed = made(0.125, 9);
  ike::adam other{resumed, {.lr = 0.05}};
  ike::load_training_state(resumed, other, ike::load(checkpoint.path));
  CHECK(resumed.buffer("own.calls"_s).data()[0] == 3);
  for (std::uint64_t s = 3; s < 6; ++s) step(resumed, other, s);
  CHECK(bytes_of_state(resumed) == bytes_of_state(model));
}

TEST_CASE("an own module is saved as lazy, and resolved by a file") {
  const file marks("marks"), weights("weights");
  constexpr auto net = network(0.125);
  ike::lazy_model holder{net, ike::seed{1}, ike::element_type<double>{}};
  ike::save(ike::get_state_dict(holder), marks.path);
  const ike::state_dict saved = ike::load(marks.path);
  CHECK(saved.at("own.weight").uninitialized);
  CHECK(saved.at("own.largest").uninitialized);
  CHECK_FALSE(saved.at("own.calls").uninitialized);

  auto model = made();
  ike::sgd optimizer{model, {.lr = 0.1}};
  step(model, optimizer, 0);
  ike::save(ike::get_state_dict(model), weights.path);
  ike::load_state_dict(holder, saved);
  CHECK(holder.has_uninitialized_params());
  ike::load_state_dict(holder, ike::load(weights.path));
  CHECK_FALSE(holder.has_uninitialized_params());
  CHECK(holder.printed().find("noisy_scale(") != std::string::npos);
  model.eval();
  holder.eval();
  const auto x = ike::uniform<double, shape{2, 3}>(ike::seed{3});
  const auto y = holder(x);
  const auto expected = model(x);
  CHECK(std::equal(y.data(), y.data() + 2, expected.data()));
}

TEST_CASE("an own module's replicas stay one, and step as one model does on the whole batch") {
  auto whole = made(0);
  ike::sgd optimizer{whole, {.lr = 0.1, .momentum = 0.9}};
  for (std::uint64_t s = 0; s < 5; ++s) step(whole, optimizer, s);
  const std::span<const double> expected = whole.parameters();
  ike::launch(ike::threads{2}, [&](ike::process_group auto& group) {
    auto model = ike::replicate<ike::replicate_policy<>>(made(0), group);
    ike::sgd own{model, {.lr = 0.1, .momentum = 0.9}};
    const dim_t half = rows / 2, begin = group.rank() * half;
    for (std::uint64_t s = 0; s < 5; ++s) step(model, own, s, begin, begin + half);
    const std::span<const double> got = model.parameters();
    double most = 0;
    for (std::size_t i = 0; i < got.size(); ++i)
      most = std::max({most, got[i] - expected[i], expected[i] - got[i]});
    CHECK(most < 1e-12);
    CHECK(model.buffer("own.calls"_s).data()[0] == 5);
    // Snapshots and partial states work as for any model.
    const ike::state_dict kept = model.snapshot();
    CHECK(kept.size() == 7);
    CHECK(ike::get_state_dict(model, ike::only<"own">).size() == 3);
    auto other = made(0, 5);
    CHECK(ike::load_state_dict(other, kept, ike::only<"own">).empty());
    CHECK(other["own.weight"_s][1] == model["own.weight"_s][1]);
    CHECK(ike::load_state_dict(model, kept, {.strict = false}).empty());
    std::vector<double> all(2 * got.size());
    group.all_gather(got, std::span<double>{all});
    CHECK(std::equal(got.begin(), got.end(), all.begin()));
    CHECK(
        std::equal(got.begin(), got.end(), all.begin() + static_cast<std::ptrdiff_t>(got.size())));
  });
  // The replicas draw different random numbers, but end with equal states.
  const auto states = ike::launch(ike::threads{2}, [&](ike::process_group auto& group) {
    auto model = ike::replicate<ike::replicate_policy<>>(made(), group);
    ike::sgd own{model, {.lr = 0.1}};
    const auto loss = step(model, own, 0);
    step(model, own, 1);
    return std::pair(loss,
                     std::vector<double>(model.parameters().begin(), model.parameters().end()));
  });
  CHECK(states[0].first != states[1].first);
  CHECK(states[0].second == states[1].second);
}
