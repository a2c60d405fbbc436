#include "ikebana/deploy/quantize.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "ikebana/compose/graph.hpp"
#include "ikebana/compose/residual.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/deploy/prepare_thread.hpp"
#include "ikebana/io/csv.hpp"
#include "ikebana/io/data_loader.hpp"
#include "ikebana/io/dataset.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/module/lowering.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/conv.hpp"
#include "ikebana/nn/flatten.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/nn/pool.hpp"
#include "ikebana/ops/constant.hpp"
#include "ikebana/ops/elementwise.hpp"
#include "ikebana/optim/adam.hpp"
#include "ikebana/replicate/launch.hpp"
#include "ikebana/replicate/replicate.hpp"
#include "ikebana/train/metrics.hpp"
#include "test/support/count_allocations.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dim_t;
using ike::shape;

namespace {

/// Compares a quantised network with its model: errors are small beside the largest output.
template <shape In, class Net>
double error_of(const Net& net) {
  auto model = ike::initialize<float, In>(net, ike::seed{1});
  std::vector<ike::tensor<float, In>> batches;
  for (std::uint64_t i = 0; i < 3; ++i)
    batches.push_back(ike::uniform<float, In>(ike::seed{i}, dim_t{7}));
  for (const auto& x : batches) model(x);
  const auto quantised = ike::quantize<ike::int8>(model, batches);
  auto lane = quantised.lane();
  model.eval();
  double wrong = 0, most = 0;
  for (const dim_t n : {dim_t{0}, dim_t{5}, dim_t{1}}) {
    const auto x = ike::uniform<float, In>(ike::seed{9}, n);
    const auto expected = model(x);
    const auto y = quantised(lane, x);
    REQUIRE(y.extents() == expected.extents());
    for (dim_t i = 0; i < y.size(); ++i) {
      wrong = std::max(wrong, std::abs(double{y.data()[i]} - double{expected.data()[i]}));
      most = std::max(most, std::abs(double{expected.data()[i]}));
    }
  }
  CHECK(wrong > 0);  // It is quantised.
  return wrong / most;
}

}  // namespace

TEST_CASE("a quantised linear module is a sum of integers, scaled") {
  constexpr dim_t in = 37, out = 5, rows = 3;
  auto model = ike::initialize<float, shape{rows, in}>(
      ike::sequential("fc"_m = ike::linear<in, out>{}, ike::relu{}), ike::seed{1});
  std::array<ike::tensor<float, shape{rows, in}>, 1> batches{
      ike::uniform<float, shape{rows, in}>(ike::seed{2})};
  batches[0](0, 0) = -3;
  batches[0](0, 1) = 2;
  const auto quantised = ike::quantize<ike::int8>(model, batches);
  static_assert(std::is_same_v<std::remove_cvref_t<decltype(quantised.module())>,
                               ike::sequential<ike::named<ike::detail::hana_string_t<"fc">,
                                                          ike::quantized<ike::linear<in, out>>>,
                                               ike::relu>>);
  auto lane = quantised.lane();
  // Beyond the range as well.
  auto x = ike::uniform<float, shape{rows, in}>(ike::seed{3});
  x(1, 4) = 100;
  x(2, 0) = -100;
  const auto y = quantised(lane, x);

  const auto range = ike::detail::byte_range::of(-3, 2);
  CHECK(range.zero == 153);
  std::int8_t weights[out * in];
  float scales[out];
  ike::detail::quantize_weights(out, in, model["fc.weight"_s].data(), weights, scales);
  for (dim_t r = 0; r < rows; ++r)
    for (dim_t o = 0; o < out; ++o) {
      std::int32_t sum = 0;
      for (dim_t i = 0; i < in; ++i) {
        const double number = std::floor(double{x(r, i)} / double{range.scale} + 153.5);
        sum += (static_cast<int>(std::clamp(number, 0.0, 255.0)) - 153) * weights[o * in + i];
      }
      volatile float product = static_cast<float>(sum) * (range.scale * scales[o]);
      const float expected = product + model["fc.bias"_s](o);
      CHECK(y(r, o) == (expected > 0 ? expected : 0.0f));
    }
}

TEST_CASE("scalings are part of the weights that are quantised") {
  const auto net = ike::graph([](auto x) {
    const auto y = "a"_m(ike::linear<37, 16>{}, (x - 0.25) * 3);
    return "b"_m(ike::linear<16, 5>{}, ike::relu{}(y)) *
           ike::parameter<"scale", shape{5}>(x, ike::initializer::uniform(1));
  });
  CHECK(error_of<shape{ike::dynamic, 37}>(net) < 0.02);
  auto model = ike::initialize<float, shape{ike::dynamic, 37}>(net, ike::seed{1});
  const std::array batches{ike::uniform<float, shape{7, 37}>(ike::seed{2})};
  const auto leaves = ike::outline(ike::quantize<ike::int8>(model, batches).module()).leaves;
  std::size_t identities = 0;
  for (const auto& leaf : leaves) identities += leaf.kind == "identity" ? 1 : 0;
  CHECK(identities + 3 == leaves.size());  // And a relu.
}

TEST_CASE("weights and ranges of any numbers have their bytes") {
  using ike::detail::byte_range;
  CHECK(byte_range::of(0, 0).scale == 1.0f);
  CHECK(byte_range::of(2, 4).zero == 0);
  CHECK(byte_range::of(2, 4).scale == doctest::Approx(4.0f / 255));
  CHECK(byte_range::of(-4, -2).zero == 255);
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const float x[] = {-1,       0,        0.49f, 0.51f, 300, std::numeric_limits<float>::quiet_NaN(),
                     infinity, -infinity};
  std::uint8_t bytes[8];
  ike::detail::to_bytes(8, {1, 0}, x, bytes);
  const std::uint8_t expected[] = {0, 0, 0, 1, 255, 0, 255, 0};
  CHECK(std::memcmp(bytes, expected, 8) == 0);
  const float w[] = {0, 0, -2, 1};
  std::int8_t numbers[4];
  float scales[2];
  ike::detail::quantize_weights(2, 2, w, numbers, scales);
  CHECK(scales[0] == 1.0f);
  CHECK(numbers[2] == -127);
  CHECK(numbers[3] == 64);
}

TEST_CASE("quantised networks give a model's numbers to the width of a byte") {
  CHECK(error_of<shape{ike::dynamic, 20}>(
            ike::sequential(ike::lazy_linear<33>{}, ike::lazy_batch_norm1d<>{}, ike::tanh{},
                            ike::lazy_linear<3, ike::bias<false>>{})) < 0.02);
  CHECK(error_of<shape{ike::dynamic, 3, 9, 7}>(ike::sequential(
            ike::lazy_conv2d<6, ike::kernel<3>, ike::padding<1>, ike::stride<2>>{},
            ike::lazy_batch_norm2d<>{}, ike::relu{},
            ike::residual(ike::lazy_conv2d<6, ike::kernel<3, 2>, ike::groups<3>,
                                           ike::dilation<2, 1>, ike::same_padding>{},
                          ike::gelu{}),
            ike::lazy_conv2d<2, ike::kernel<1>, ike::bias<false>>{})) < 0.02);
  CHECK(error_of<shape{ike::dynamic, 2, 40}>(
            ike::lazy_conv1d<3, ike::kernel<5>, ike::padding<2>>{}) < 0.02);
  CHECK(error_of<shape{ike::dynamic, 2, 40}>(
            ike::lazy_conv1d<3, ike::kernel<4>, ike::dilation<3>, ike::same_padding>{}) < 0.02);
  CHECK(error_of<shape{ike::dynamic, 2, 3, 5, 4}>(
            ike::lazy_conv3d<3, ike::kernel<2>, ike::padding<1>>{}) < 0.02);
  // Many positions: several blocks.
  CHECK(error_of<shape{ike::dynamic, 1, 40, 30}>(
            ike::lazy_conv2d<2, ike::kernel<3>, ike::padding<1>>{}) < 0.02);
}

TEST_CASE("what cannot be quantised stays, and without a batch nothing is") {
  constexpr auto net = ike::sequential(
      "a"_m = ike::conv2d<1, 2, ike::kernel<3>, ike::padding<1>, ike::padding_mode<"reflect">>{},
      "b"_m = ike::conv2d<2, 2, ike::kernel<1>>{});
  CHECK(error_of<shape{ike::dynamic, 1, 5, 5}>(net) < 0.02);
  auto model = ike::initialize<float, shape{1, 1, 5, 5}>(net, ike::seed{1});
  std::vector<ike::tensor<float, shape{1, 1, 5, 5}>> batches;
  CHECK_THROWS_AS(ike::quantize<ike::int8>(model, batches), ike::error);
}

TEST_CASE("batches without a sample, and numbers that are not finite, are no calibration") {
  constexpr shape rows{ike::dynamic, 2};
  auto model = ike::initialize<float, rows>(
      ike::sequential("a"_m = ike::linear<2, 3>{}, ike::relu{}, "b"_m = ike::linear<3, 1>{}),
      ike::seed{1});
  const auto says = [&](const ike::tensor<float, rows>& x) -> std::string {
    try {
      ike::quantize<ike::int8>(model, std::span(&x, 1));
    } catch (const ike::error& e) {
      return e.what();
    }
    return {};
  };
  auto x = ike::uniform<float, rows>(ike::seed{2}, dim_t{4});
  CHECK(says(x).empty());
  CHECK(says(ike::tensor<float, rows>(shape{0, 2})) ==
        "quantize needs a batch of inputs, which tells the ranges of numbers");
  x(2, 1) = std::numeric_limits<float>::quiet_NaN();
  CHECK(says(x) == "a: the batches give it numbers that are not finite");
  x(2, 1) = std::numeric_limits<float>::infinity();
  CHECK(says(x) == "a: the batches give it numbers that are not finite");
  x(2, 1) = 0;
  model.parameters()[static_cast<std::size_t>(model.layout().offsets[2])] =
      -std::numeric_limits<float>::infinity();
  CHECK(says(x) == "b: a weight is not finite, which no byte is");
}

TEST_CASE("a replica is frozen and quantised as its model is") {
  constexpr auto net = ike::sequential("fc"_m = ike::lazy_linear<3>{}, ike::relu{});
  using images = ike::tensor<float, shape{4, 7}>;
  const std::array batches{ike::uniform<float, shape{4, 7}>(ike::seed{5})};
  ike::launch(ike::threads{2}, [&](ike::process_group auto& group) {
    auto alone = ike::initialize<float, shape{ike::dynamic, 7}>(net, ike::seed{1});
    auto replica =
        ike::replicate(ike::initialize<float, shape{ike::dynamic, 7}>(net, ike::seed{1}), group);
    const auto same = [&](const auto& a, const auto& b) {
      auto lane_a = a.lane(shape{4, 7}), lane_b = b.lane(shape{4, 7});
      const images& x = batches[0];
      const auto y = a(lane_a, x), z = b(lane_b, x);
      return std::equal(y.begin(), y.end(), z.begin());
    };
    CHECK(same(ike::freeze(replica), ike::freeze(alone)));
    CHECK(
        same(ike::quantize<ike::int8>(replica, batches), ike::quantize<ike::int8>(alone, batches)));
    std::ostringstream printed;
    printed << ike::freeze(replica);
    CHECK(printed.str().find("(fc): linear(in_features=7, out_features=3") != std::string::npos);
  });
}

TEST_CASE("quantised, a network that knows digits knows as many") {
  const auto table = ike::read_csv<float>("examples/data/digits.csv");
  auto pixels = ike::columns<shape{1, 8, 8}>(table);
  for (float& pixel : pixels) pixel /= 16;
  const ike::tensor_dataset digits(std::move(pixels), ike::labels(table, 64));
  const auto [train, test] = ike::random_split(digits, 1200, ike::seed{1});
  constexpr auto net =
      ike::sequential(ike::lazy_conv2d<16, ike::kernel<3>, ike::padding<1>, ike::bias<false>>{},
                      ike::lazy_batch_norm2d<>{}, ike::relu{}, ike::max_pool2d<ike::kernel<2>>{},
                      ike::lazy_conv2d<24, ike::kernel<3>>{}, ike::relu{}, ike::flatten{},
                      ike::lazy_linear<32>{}, ike::relu{}, ike::lazy_linear<10>{});
  auto model = ike::initialize<float, shape{ike::dynamic, 1, 8, 8}>(net, ike::seed{1});
  ike::adam optimizer{model, {.lr = 3e-3}};
  ike::data_loader batches(train, {.batch = 32, .shuffle = ike::seed{1}});
  for (int epoch = 0; epoch < 12; ++epoch)
    for (auto [x, t] : batches) model.train_step(x, t, ike::cross_entropy{}, optimizer);
  const auto quantised = ike::quantize<ike::int8>(model, ike::data_loader(train, {.batch = 100}));
  auto lane = quantised.lane();
  const auto of_bfloat16 = ike::quantize<ike::bfloat16>(model);
  const auto of_float16 = ike::quantize<ike::float16>(model);
  auto lane_of_bfloat16 = of_bfloat16.lane();
  auto lane_of_float16 = of_float16.lane();
  model.eval();
  ike::confusion_matrix by_model{10}, by_bytes{10}, by_bfloat16{10}, by_float16{10};
  for (auto [x, t] : ike::data_loader(test, {.batch = 100})) {
    by_model.add(model(x), t);
    by_bytes.add(quantised(lane, x), t);
    by_bfloat16.add(of_bfloat16(lane_of_bfloat16, x), t);
    by_float16.add(of_float16(lane_of_float16, x), t);
  }
  MESSAGE("correct of ", by_model.total(), ": ", by_model.correct(), ", quantised ",
          by_bytes.correct(), ", bfloat16 ", by_bfloat16.correct(), ", float16 ",
          by_float16.correct(), "; bytes ", ike::freeze(model).weight_bytes(), ", ",
          quantised.weight_bytes(), ", ", of_bfloat16.weight_bytes());
  CHECK(by_model.accuracy() > 0.96);
  CHECK(std::abs(by_bytes.accuracy() - by_model.accuracy()) <= 0.003);
  CHECK(std::abs(by_bfloat16.accuracy() - by_model.accuracy()) <= 0.003);
  CHECK(std::abs(by_float16.accuracy() - by_model.accuracy()) <= 0.003);
  CHECK(2 * of_bfloat16.weight_bytes() < ike::freeze(model).weight_bytes() + 1024);
}

TEST_CASE("a call of a quantised network allocates nothing") {
  auto model = ike::initialize<float, shape{2, 3, 8, 8}>(
      ike::sequential(ike::lazy_conv2d<4, ike::kernel<3>>{}, ike::relu{}, ike::lazy_linear<5>{}),
      ike::seed{1});
  const std::array batches{ike::uniform<float, shape{2, 3, 8, 8}>(ike::seed{2})};
  const auto quantised = ike::quantize<ike::int8>(model, batches);
  auto lane = quantised.lane(), other = quantised.lane();
  // Another thread, which has no scratch yet.
  long allocated = -1;
  bool equal = false;
  std::thread([&] {
    ike::prepare_thread(quantised);
    const long before = allocation_count_here;
    const auto y = quantised(lane, batches[0]), z = quantised(other, batches[0]);
    allocated = allocation_count_here - before;
    equal =
        std::memcmp(y.data(), z.data(), static_cast<std::size_t>(y.size()) * sizeof(float)) == 0;
  }).join();
  CHECK(allocated == 0);
  CHECK(equal);
}
