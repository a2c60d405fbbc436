#include "ikebana/nn/standard_scaler.hpp"

#include <doctest/doctest.h>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/nn/linear.hpp"
#include "layers.hpp"

using namespace ikebana;
using namespace ikebana::literals;

TEST_CASE("statistics of columns are those of the population") {
  const auto x = tensor_of<float, shape{4, 3}>({1, 5, -1,  //
                                                3, 5, 0,   //
                                                5, 5, 1,   //
                                                7, 5, 0});
  const auto s = column_statistics(x);
  static_assert(decltype(s.mean)::static_shape == shape{3});
  CHECK(s.mean[0] == 4);
  CHECK(s.mean[1] == 5);
  CHECK(s.mean[2] == 0);
  CHECK(s.deviation[0] == doctest::Approx(2.2360679775));
  CHECK(s.deviation[1] == 1);  // all equal
  CHECK(s.deviation[2] == doctest::Approx(0.70710678));
  const auto none = column_statistics(zeros<double, shape{dynamic, 2}>(0));
  CHECK(none.deviation[1] == 1);
  // Far from zero, where a single pass loses all digits.
  const auto far = column_statistics(tensor_of<double, shape{2, 1}>({1e9, 1e9 + 2}));
  CHECK(far.deviation[0] == 1);
}

TEST_CASE("a network standardises its input with numbers that are saved with it") {
  constexpr auto net = sequential("input"_m = lazy_standard_scaler{}, "fc"_m = lazy_linear<2>{});
  auto m = initialize<float, shape{dynamic, 3}>(net, seed{1});
  const auto x = tensor_of<float, shape{2, 3}>({1, 10, 100, 3, 30, 300});
  const auto s = column_statistics(x);
  m.buffer("input.mean"_s) = s.mean;
  m.buffer("input.deviation"_s) = s.deviation;
  const auto plain =
      initialize<float, shape{dynamic, 3}>(sequential("fc"_m = lazy_linear<2>{}), seed{1});
  auto expected = plain.clone();
  const auto y = m(x);
  const auto scaled = tensor_of<float, shape{2, 3}>({-1, -1, -1, 1, 1, 1});
  const auto z = expected(scaled);
  for (dim_t i = 0; i < 4; ++i) CHECK(y[i] == doctest::Approx(z[i]));
  auto other = initialize<float, shape{dynamic, 3}>(net, seed{2});
  load_state_dict(other, get_state_dict(m));
  CHECK(other.buffer("input.deviation"_s)[2] == 100);
}

TEST_CASE("standard_scaler computes what PyTorch recorded") {
  compare_layer("written", "standard_scaler", standard_scaler<5>{});
  CHECK(layers_not_compared("written", "standard_scaler").empty());
}

TEST_CASE("the gradients of a scaler are those of its forward, and it says what it takes") {
  check_gradients(standard_scaler<3>{}, {2, 4, 3});
  check_empty_batch(standard_scaler<3>{}, {0, 3});
  CHECK(sentence_of(standard_scaler<3>{}.infer(shape{2, 4})) ==
        "standard_scaler expects num_features = 3, got 4 (input [2, 4])");
  CHECK(sentence_of(standard_scaler<3>{}.infer(shape{})) ==
        "standard_scaler expects an input of at least 1 dimensions, got 0 (input [])");
  CHECK(described(standard_scaler<3>{}) == "num_features=3");
}
