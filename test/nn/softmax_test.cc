#include "ikebana/nn/softmax.hpp"

#include <doctest/doctest.h>

#include "recorded.hpp"

using namespace ikebana;

TEST_CASE("softmax and log_softmax compute what PyTorch recorded") {
  for (const char* suffix : {"_1d", "_2d", "_3d_last", "_4d_last", "_large"}) {
    compare(std::string{"softmax"} + suffix, softmax{});
    compare(std::string{"log_softmax"} + suffix, log_softmax<dim<-1>>{});
  }
  for (const char* suffix : {"_3d_dim1", "_4d_dim1"}) {
    compare(std::string{"softmax"} + suffix, softmax<dim<1>>{});
    compare(std::string{"log_softmax"} + suffix, log_softmax<dim<1>>{});
  }
  CHECK(not_compared("modules", {"softmax_", "log_softmax_"}).empty());
}

TEST_CASE("the gradients of softmax are those of its forward") {
  check_gradients(softmax{}, {3, 7});
  check_gradients(softmax<dim<0>>{}, {3, 2});
  check_gradients(log_softmax<dim<-2>>{}, {2, 3, 5});
}

TEST_CASE("softmax takes an empty batch and a scalar") {
  check_empty_batch(softmax{}, {0, 3});
  check_empty_batch(log_softmax<dim<1>>{}, {0, 3, 2});
  leaf_run<float, softmax<>> run({}, shape{});
  run.forward();
  CHECK(run.output[0] == 1);
}

TEST_CASE("softmax says what is wrong with its input") {
  CHECK(sentence_of(softmax<dim<2>>{}.infer(shape{3, 4})) ==
        "softmax expects a dim within 2 dimensions, got 2 (input [3, 4])");
  CHECK(sentence_of(log_softmax<dim<-3>>{}.infer(shape{3, 4})) ==
        "log_softmax expects a dim within 2 dimensions, got -3 (input [3, 4])");
  CHECK(sentence_of(softmax<dim<-2>>{}.infer(shape{3})) ==
        "softmax expects a dim within 1 dimensions, got -2 (input [3])");
  CHECK(described(softmax{}) == "dim=-1");
}
