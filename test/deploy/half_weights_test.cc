#include "ikebana/deploy/half_weights.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "ikebana/compose/residual.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/deploy/prepare_thread.hpp"
#include "ikebana/deploy/quantize.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/named_parameters.hpp"
#include "ikebana/module/print.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/causal_conv1d.hpp"
#include "ikebana/nn/conv.hpp"
#include "ikebana/nn/gru.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/lstm.hpp"
#include "test/support/count_allocations.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dim_t;
using ike::shape;

namespace {

/// Compares a network of halves, `calls` times, with the model whose weights are rounded to them.
template <class Half, class T, shape In, class Net>
auto halved(const Net& net, int calls = 1) {
  auto model = ike::initialize<T, In>(net, ike::seed{1});
  for (std::size_t i = 0; i < model.parameters().size(); ++i)
    model.parameters()[i] += static_cast<T>(0.01 * static_cast<double>(i % 5));
  const auto whole = ike::freeze(model);
  auto halves = ike::quantize<Half>(model);
  for (auto [name, value] : ike::named_parameters(model)) {
    if (value.extents().rank() < 2) continue;
    for (dim_t i = 0; i < value.size(); ++i)
      value.data()[i] = static_cast<float>(Half(static_cast<float>(value.data()[i])));
  }
  const auto rounded = ike::freeze(model);
  auto lane = halves.lane();
  auto lane_of_whole = whole.lane();
  auto lane_of_rounded = rounded.lane();
  double rounding = 0;
  for (int call = 0; call < calls; ++call)
    for (const dim_t n : {dim_t{3}, dim_t{0}, dim_t{1}}) {
      const auto x = [&] {
        if constexpr (In.is_static())
          return ike::uniform<T, In>(ike::seed{static_cast<std::uint64_t>(call)});
        else
          return ike::uniform<T, In>(ike::seed{9}, n);
      }();
      const auto y = halves(lane, x);
      const auto exact = whole(lane_of_whole, x);
      const auto expected = rounded(lane_of_rounded, x);
      REQUIRE(y.extents() == expected.extents());
      for (dim_t i = 0; i < y.size(); ++i) {
        CHECK(y.data()[i] == doctest::Approx(static_cast<double>(expected.data()[i]))
                                 .scale(1)
                                 .epsilon(std::is_same_v<T, float> ? 3e-6 : 3e-15));
        rounding = std::max(rounding, std::abs(double{y.data()[i]} - double{exact.data()[i]}));
      }
    }
  CHECK(rounding > 0);  // The weights are halves.
  return halves;
}

}  // namespace

TEST_CASE_TEMPLATE("weights of 16 bits are those of the model, rounded", Half, ike::bfloat16,
                   ike::float16) {
  using T = float;
  halved<Half, T, shape{ike::dynamic, 37}>(ike::sequential(
      ike::lazy_linear<53>{}, ike::tanh{}, ike::residual(ike::lazy_linear<53>{}, ike::relu{}),
      ike::lazy_linear<3, ike::bias<false>>{}));
  // Several blocks of outputs, the last of them incomplete.
  halved<Half, T, shape{ike::dynamic, 700}>(
      ike::sequential(ike::residual(ike::lazy_linear<700>{}), ike::lazy_linear<75>{}, ike::relu{}));
  halved<Half, double, shape{ike::dynamic, 9}>(ike::sequential(ike::lazy_linear<5>{}));
  halved<Half, T, shape{ike::dynamic, 3, 9, 7}>(ike::sequential(
      ike::lazy_conv2d<6, ike::kernel<3>, ike::padding<1>, ike::stride<2>>{}, ike::relu{},
      ike::lazy_conv2d<6, ike::kernel<3>, ike::groups<3>, ike::same_padding,
                       ike::padding_mode<"reflect">>{},
      ike::lazy_conv2d<2, ike::kernel<1>, ike::bias<false>>{}));
}

TEST_CASE("streams have weights of 16 bits") {
  halved<ike::bfloat16, float, shape{1, 1, 3}>(
      ike::sequential(ike::lazy_lstm<8, ike::stateful<1>>{}, ike::lazy_linear<2>{}), 4);
  halved<ike::float16, double, shape{5, 2, 3}>(
      ike::sequential(ike::lazy_gru<6, ike::num_layers<2>>{}, ike::lazy_linear<2>{}));
  halved<ike::bfloat16, float, shape{1, 2, 4}>(
      ike::sequential(
          ike::lazy_causal_conv1d<3, ike::kernel<2>, ike::dilation<2>, ike::stateful<1>>{},
          ike::tanh{}),
      4);
}

TEST_CASE("weights of 16 bits take half the memory, and a call allocates nothing") {
  constexpr auto net = ike::sequential("a"_m = ike::lazy_linear<512>{}, ike::relu{},
                                       "b"_m = ike::lazy_linear<512>{});
  auto model = ike::initialize<float, shape{1, 512}>(net, ike::seed{1});
  const auto whole = ike::freeze(model);
  const auto halves = ike::quantize<ike::bfloat16>(model);
  using held = ike::half_weights<ike::linear<512, 512>, ike::bfloat16>;
  // So its product ends in the relu, and a batcher may join requests.
  static_assert(!ike::detail::is_stateful<held>());
  static_assert(
      std::is_same_v<std::remove_cvref_t<decltype(halves.module())>,
                     ike::sequential<ike::named<ike::detail::hana_string_t<"a">, held>, ike::relu,
                                     ike::named<ike::detail::hana_string_t<"b">, held>>>);
  CHECK(whole.weight_bytes() >= 2 * 513 * 512 * 4);
  CHECK(halves.weight_bytes() == 2 * (512 * 512 * 2 + 512 * 4));
  auto lane = halves.lane();
  CHECK(lane.workspace_bytes() <= 128 * 1024 + 2 * 512 * 4 + 256);
  const auto x = ike::ones<float, shape{1, 512}>();
  ike::prepare_thread(halves);
  halves(lane, x);
  const long before = allocation_count.load();
  halves(lane, x);
  CHECK(allocation_count.load() == before);
  CHECK(ike::to_string(halves.module()).find("weights=bfloat16") != std::string::npos);
}

TEST_CASE("a weight that is beyond float16 is refused") {
  auto model = ike::initialize<float, shape{1, 2}>(ike::sequential("fc"_m = ike::lazy_linear<2>{}),
                                                   ike::seed{1});
  model["fc.weight"_s](1, 0) = 65519;
  CHECK_NOTHROW(ike::quantize<ike::float16>(model));
  model["fc.weight"_s](1, 0) = -65520;
  CHECK_NOTHROW(ike::quantize<ike::bfloat16>(model));
  CHECK_THROWS_WITH_AS(ike::quantize<ike::float16>(model),
                       "fc: a weight is beyond the largest float16, 65504: take bfloat16",
                       ike::error);
}
