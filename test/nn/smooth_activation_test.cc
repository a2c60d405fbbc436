#include "ikebana/nn/smooth_activation.hpp"

#include "ikebana/nn/hard_activation.hpp"
#include "layers.hpp"

using namespace ikebana;

namespace {
template <class M>
void compare_all(const std::string& name, const M& m) {
  for (const char* suffix : {"", "_wide", "_bends"}) compare_layer("activation", name + suffix, m);
}
}  // namespace

TEST_CASE("activations compute what PyTorch recorded, in tails and where they bend") {
  compare_all("silu", silu{});
  compare_all("leaky_relu", leaky_relu{});
  compare_all("leaky_relu_slope", leaky_relu{.negative_slope = 0.25});
  compare_all("elu", elu{});
  compare_all("elu_alpha", elu{.alpha = 0.7});
  compare_all("celu_alpha", celu{.alpha = 0.5});
  compare_all("selu", selu{});
  compare_all("softplus", softplus{});
  compare_all("softplus_options", softplus{.beta = 2.5, .threshold = 10});
  compare_all("log_sigmoid", log_sigmoid{});
  compare_all("hardtanh", hardtanh{});
  compare_all("hardtanh_options", hardtanh{.min_val = -0.5, .max_val = 1.5});
  compare_all("relu6", relu6{});
  compare_all("hard_sigmoid", hard_sigmoid{});
  compare_all("hardswish", hardswish{});
  compare_all("mish", mish{});
  compare_all("softsign", softsign{});
  compare_all("threshold", threshold{.threshold = 0.1, .value = 20});
  compare_all("hardshrink", hardshrink{});
  compare_all("hardshrink_lambd", hardshrink{.lambd = 1});
  compare_all("softshrink", softshrink{});
  compare_all("softshrink_lambd", softshrink{.lambd = 1});
  compare_all("tanhshrink", tanhshrink{});
  CHECK(layers_not_compared("activation").empty());
}

TEST_CASE("the gradients of smooth activations are those of their forward") {
  check_gradients(silu{}, {3, 7});
  check_gradients(softplus{.beta = 1.5}, {3, 7});
  check_gradients(mish{}, {3, 7});
  check_gradients(celu{.alpha = 0.5}, {3, 7});
  check_gradients(log_sigmoid{}, shape{});
}

TEST_CASE("activations with parameters describe them, and take an empty batch") {
  CHECK(described(leaky_relu{}) == "negative_slope=0.01");
  CHECK(described(softplus{}) == "beta=1, threshold=20");
  CHECK(described(hardtanh{.min_val = -2}) == "min_val=-2, max_val=1");
  CHECK(described(threshold{.threshold = 0.5, .value = 3}) == "threshold=0.5, value=3");
  CHECK(described(hardshrink{}) == "lambd=0.5");
  CHECK(described(softshrink{.lambd = 2}) == "lambd=2");
  check_empty_batch(silu{}, {0, 3});
  check_empty_batch(mish{}, {0, 3});
}
