#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/gradient_check.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/nn.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/optim/sgd.hpp"

using namespace ikebana;
using namespace ikebana::literals;

namespace {

constexpr auto net = sequential(
    "unflatten"_m = unflatten<unflattened_size<2, 4, dynamic>>{},
    "pad"_m = reflection_pad2d<padding<1, 1, 2, 0>>{}, "conv"_m = lazy_conv2d<8, kernel<3>>{},
    "norm"_m = local_response_norm<3>{.alpha = 0.5}, "prelu"_m = prelu<8>{},
    "shuffle"_m = channel_shuffle<2>{}, "drop"_m = dropout2d{.p = 0},
    "pixels"_m = pixel_shuffle<2>{}, "up"_m = upsample<scale_factor<1.5>, mode<"bilinear">>{},
    "glu"_m = glu<dim<1>>{}, "columns"_m = unfold<kernel<3>, stride<3>>{},
    "shrink"_m = tanhshrink{}, "images"_m = fold<output_size<12, 12>, kernel<3>, stride<3>>{},
    "flatten"_m = flatten<>{}, "fc"_m = lazy_linear<3>{}, "softmin"_m = softmin<>{});

}  // namespace

TEST_CASE("a network of modules that move, pad and resize learns, in batches of any size") {
  auto m = initialize<float, shape{dynamic, 32}>(net, seed{3});
  std::vector<std::string> names;
  for (const auto& e : get_state_dict(m)) names.push_back(e.name);
  CHECK(names == std::vector<std::string>{"conv.weight", "conv.bias", "prelu.weight", "fc.weight",
                                          "fc.bias"});
  sgd optimizer{m, {.lr = 1}};
  const auto few = uniform<float, shape{dynamic, 32}>(seed{4}, 3);
  const auto many = uniform<float, shape{dynamic, 32}>(seed{5}, 7);
  // Each sample is of one of three classes.
  const auto classes = [](dim_t n) {
    tensor<float, shape{dynamic, 3}> t(shape{n, 3});
    for (dim_t i = 0; i < n; ++i) t(i, i % 3) = 1;
    return t;
  };
  const auto few_t = classes(3), many_t = classes(7);
  m.train_step(few, few_t, mse_loss{}, optimizer);
  const float start = m.train_step(many, many_t, mse_loss{}, optimizer);
  float last = start;
  for (int i = 0; i < 300; ++i) {
    m.train_step(few, few_t, mse_loss{}, optimizer);
    last = m.train_step(many, many_t, mse_loss{}, optimizer);
  }
  CHECK(last < start / 2);
}

TEST_CASE("the gradients of that network are those of its forward") {
  const auto result = gradient_check(net, uniform<double, shape{2, 32}>(seed{4}));
  CHECK_MESSAGE(result.largest < 1e-6, result.where);
}
