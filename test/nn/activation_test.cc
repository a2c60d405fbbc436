#include "ikebana/nn/activation.hpp"

#include <doctest/doctest.h>

#include "recorded.hpp"

using namespace ikebana;

TEST_CASE("activations compute what PyTorch recorded") {
  for (const char* suffix : {"", "_1d", "_extremes"}) {
    compare(std::string{"relu"} + suffix, relu{});
    compare(std::string{"tanh"} + suffix, ikebana::tanh{});
    compare(std::string{"sigmoid"} + suffix, sigmoid{});
    compare(std::string{"gelu_none"} + suffix, gelu{});
    compare(std::string{"gelu_tanh"} + suffix, gelu<approximate<"tanh">>{});
  }
  CHECK(not_compared("modules", {"relu", "tanh", "sigmoid", "gelu_"}).empty());
}

TEST_CASE("the gradients of activations are those of their forward") {
  check_gradients(relu{}, {3, 7});
  check_gradients(ikebana::tanh{}, {3, 7});
  check_gradients(sigmoid{}, {3, 7});
  check_gradients(gelu{}, {3, 7});
  check_gradients(gelu<approximate<"tanh">>{}, {3, 7});
}

TEST_CASE("activations take an empty batch and a scalar") {
  check_empty_batch(relu{}, {0, 3});
  check_empty_batch(gelu{}, {0, 3});
  check_gradients(ikebana::tanh{}, shape{});
}

TEST_CASE("activations keep the shape, and of it what backward reads") {
  CHECK(relu{}.infer(shape{dynamic, 3}).output() == shape{dynamic, 3});
  static_assert(relu::keeps == kept::output && ikebana::tanh::keeps == kept::output &&
                sigmoid::keeps == kept::output && gelu<>::keeps == kept::input);
  CHECK(described(gelu{}) == "approximate=none");
  CHECK(described(gelu<approximate<"tanh">>{}) == "approximate=tanh");
}
