#include "ikebana/deploy/embedded.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "examples/amplifier_weights.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/deploy/freeze.hpp"
#include "ikebana/io/safetensors.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/conv.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/lstm.hpp"
#include "test/support/count_allocations.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::shape;

namespace {

constexpr auto amplifier = ike::sequential("lstm"_m = ike::lazy_lstm<8, ike::stateful<1>>{},
                                           "out"_m = ike::lazy_linear<1>{});
constexpr shape one_sample{1, 1, 1};

// One plane, normalized: (x - 1) / sqrt(4 + eps) * 2 + 5, of a 1x1 convolution by 3 plus 4.
struct plane_weights {
  using value_type = double;
  static constexpr double data[] = {3, 4, 2, 5, 1, 4};
  static constexpr ike::embedded_tensor tensors[] = {
      {"conv.weight", shape{1, 1, 1, 1}, 0}, {"conv.bias", shape{1}, 1},
      {"norm.weight", shape{1}, 2},          {"norm.bias", shape{1}, 3},
      {"norm.running_mean", shape{1}, 4},    {"norm.running_var", shape{1}, 5}};
};
constexpr auto plane = ike::sequential("conv"_m = ike::lazy_conv2d<1, ike::kernel<1>>{},
                                       "norm"_m = ike::batch_norm2d<1>{}, "relu"_m = ike::relu{});

// The same weights with the norm folded into them.
struct folded_plane {
  using value_type = double;
  static constexpr bool is_folded = true;
  inline static double data[2];
  static constexpr ike::embedded_tensor tensors[] = {{"conv.weight", shape{1, 1, 1, 1}, 0},
                                                     {"conv.bias", shape{1}, 1}};
};

struct with_another_tensor {
  using value_type = double;
  static constexpr double data[] = {3, 4, 7};
  static constexpr ike::embedded_tensor tensors[] = {
      {"fc.weight", shape{1, 1}, 0}, {"fc.bias", shape{1}, 1}, {"fc.scale", shape{1}, 2}};
};
struct beyond_the_data {
  using value_type = double;
  static constexpr double data[] = {3, 4};
  static constexpr ike::embedded_tensor tensors[] = {{"fc.weight", shape{1, 1}, 0},
                                                     {"fc.bias", shape{1}, 2}};
};
struct without_bias {
  using value_type = double;
  static constexpr double data[] = {3};
  static constexpr ike::embedded_tensor tensors[] = {{"fc.weight", shape{1, 1}, 0}};
};
constexpr auto fc = ike::sequential("fc"_m = ike::linear<1, 1>{});
template <class Weights>
constexpr ike::diagnostic wrong =
    ike::detail::check_embedded<Weights, std::remove_const_t<decltype(fc)>, shape{2, 1}>();

}  // namespace

TEST_CASE("embedded weights give the results of a model that has loaded their file") {
  auto model = ike::initialize<float, one_sample>(amplifier, ike::seed{1});
  ike::load_state_dict(model, ike::load("examples/data/amplifier.safetensors"));
  const auto loaded = ike::freeze(model);
  const auto embedded = ike::freeze<amplifier_weights, one_sample>(amplifier);
  CHECK(embedded.parameters().data() == amplifier_weights::data);
  CHECK(reinterpret_cast<std::uintptr_t>(amplifier_weights::data) % 64 == 0);

  auto lane = embedded.lane(), other = loaded.lane();
  for (std::uint64_t i = 0; i < 50; ++i) {
    const auto x = ike::uniform<float, one_sample>(ike::seed{i});
    CHECK(embedded(lane, x)(0, 0, 0) ==
          doctest::Approx(loaded(other, x)(0, 0, 0)).scale(1).epsilon(2e-6));
  }
  lane.reset();
  other.reset();
  const auto x = ike::ones<float, one_sample>();
  const long before = allocation_count.load();
  CHECK(embedded(lane, x)(0, 0, 0) ==
        doctest::Approx(loaded(other, x)(0, 0, 0)).scale(1).epsilon(2e-6));
  CHECK(allocation_count.load() == before);
}

TEST_CASE("embedded running statistics are read in place") {
  const auto net = ike::freeze<plane_weights, shape{ike::dynamic, 1, 1, 3}>(plane);
  auto lane = net.lane(shape{2, 1, 1, 3});
  const auto x = ike::tensor_of<double, shape{2, 1, 1, 3}>({-1, 0, 1, 2, 3, -4});
  const auto y = net(lane, x);
  for (std::int64_t n = 0; n < 2; ++n)
    for (std::int64_t i = 0; i < 3; ++i) {
      const double expected = (3 * x(n, 0, 0, i) + 4 - 1) / std::sqrt(4 + 1e-5) * 2 + 5;
      CHECK(y(n, 0, 0, i) == doctest::Approx(expected > 0 ? expected : 0).epsilon(1e-14));
    }
}

TEST_CASE("the state of a frozen network is embedded as it is") {
  constexpr shape in{1, 1, 1, 3};
  auto model = ike::initialize<double, in>(plane, ike::seed{1});
  const auto x = ike::uniform<double, in>(ike::seed{2});
  model(x);
  model.eval();
  const auto frozen = ike::freeze(model);
  const ike::state_view state = frozen.state();
  REQUIRE(state.is_folded());
  for (const ike::embedded_tensor& t : folded_plane::tensors)
    folded_plane::data[t.offset] = *reinterpret_cast<const double*>(state.at(t.name).bytes.data());
  const auto net = ike::freeze<folded_plane, in>(plane);
  static_assert(std::is_same_v<decltype(net), decltype(frozen)>);
  auto lane = net.lane();
  CHECK(net(lane, x)(0, 0, 0, 1) == doctest::Approx(model(x)(0, 0, 0, 1)));
}

TEST_CASE("embedded weights are compared with the network by the compiler") {
  CHECK(wrong<without_bias>.message().view() == "fc.bias: is not among the embedded weights");
  CHECK(wrong<beyond_the_data>.message().view() ==
        "fc.bias: is not within the data of the embedded weights");
  CHECK(wrong<with_another_tensor>.message().view() ==
        "the embedded weights have 3 tensors, the network uses 2 of them");
}
