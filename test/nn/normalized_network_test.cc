#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/conv.hpp"
#include "ikebana/nn/flatten.hpp"
#include "ikebana/nn/group_norm.hpp"
#include "ikebana/nn/instance_norm.hpp"
#include "ikebana/nn/layer_norm.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/nn/rms_norm.hpp"
#include "ikebana/nn/spectral_norm.hpp"
#include "ikebana/nn/weight_norm.hpp"
#include "ikebana/optim/sgd.hpp"

using namespace ikebana;
using namespace ikebana::literals;

namespace {

constexpr shape image{dynamic, 2, 5, 5};
constexpr auto net =
    sequential("conv1"_m = weight_norm(conv2d<2, 4, kernel<3>>{}), "gn"_m = lazy_group_norm<2>{},
               "in"_m = lazy_instance_norm2d<affine<true>>{}, "flatten"_m = flatten<>{},
               "ln"_m = lazy_layer_norm<>{}, "fc"_m = spectral_norm(linear<36, 5>{}),
               "rms"_m = lazy_rms_norm<>{}, "bn"_m = lazy_batch_norm1d<>{});

}  // namespace

TEST_CASE("a network of every norm has PyTorch's names and learns") {
  auto m = initialize<float, image>(net, seed{3});
  std::vector<std::string> names;
  for (const auto& e : get_state_dict(m)) names.push_back(e.name);
  CHECK(names == std::vector<std::string>{
                     "conv1.bias", "conv1.weight_g", "conv1.weight_v", "gn.weight", "gn.bias",
                     "in.weight", "in.bias", "ln.weight", "ln.bias", "fc.bias", "fc.weight_orig",
                     "fc.weight_u", "fc.weight_v", "rms.weight", "bn.weight", "bn.bias",
                     "bn.running_mean", "bn.running_var", "bn.num_batches_tracked"});
  const auto x = uniform<float, shape{6, 2, 5, 5}>(seed{4});
  const auto t = uniform<float, shape{6, 5}>(seed{5});
  sgd optimizer{m, {.lr = 0.05f}};
  const float first = m.train_step(x, t, mse_loss{}, optimizer);
  float last = first;
  for (int i = 0; i < 20; ++i) last = m.train_step(x, t, mse_loss{}, optimizer);
  CHECK(last < first / 2);
}

TEST_CASE("the weight under weight_norm starts as that of the module alone") {
  auto wrapped = initialize<float, image>(net, seed{3});
  auto plain = initialize<float, image>(sequential("conv1"_m = conv2d<2, 4, kernel<3>>{}), seed{3});
  const auto a = get_state_dict(wrapped), b = get_state_dict(plain);
  const auto &v = a.at("conv1.weight_v"), &weight = b.at("conv1.weight");
  REQUIRE(v.bytes.size() == weight.bytes.size());
  CHECK(std::memcmp(v.bytes.data(), weight.bytes.data(), v.bytes.size()) == 0);
}

TEST_CASE("a batch of one is refused in training before anything has changed") {
  auto m = initialize<float, image>(net, seed{3});
  const auto one = uniform<float, shape{1, 2, 5, 5}>(seed{4});
  const auto before = get_state_dict(m).clone();
  std::string said;
  try {
    m(one);
  } catch (const shape_error& e) {
    said = e.what();
  }
  CHECK(said ==
        "bn: batch_norm1d expects more than 1 value per channel when training, got 1 "
        "(input [1, 5])");
  for (const auto& e : get_state_dict(m))
    CHECK_MESSAGE(std::memcmp(e.bytes.data(), before.at(e.name).bytes.data(), e.bytes.size()) == 0,
                  e.name);
  m.eval();
  CHECK_NOTHROW(m(one));
}
