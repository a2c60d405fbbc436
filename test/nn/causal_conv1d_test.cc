#include "ikebana/nn/causal_conv1d.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <string>

#include "ikebana/compose/residual.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/deploy/freeze.hpp"
#include "ikebana/model/gradient_check.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/model/state_dict.hpp"
#include "ikebana/model/summary.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/padding.hpp"
#include "layers.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dim_t;
using ike::shape;

namespace {

template <shape In, class T, class... Options>
void compare_with_padded() {
  using causal = ike::lazy_causal_conv1d<4, Options...>;
  constexpr dim_t reach = causal::reach;
  auto one = ike::initialize<T, In>(ike::sequential("conv"_m = causal{}), ike::seed{1});
  auto two =
      ike::initialize<T, In>(ike::sequential("pad"_m = ike::zero_pad1d<ike::padding<reach, 0>>{},
                                             "conv"_m = ike::lazy_conv1d<4, Options...>{}),
                             ike::seed{1});
  auto x = ike::uniform<T, In>(ike::seed{3});
  const auto y = one(x), z = two(x);
  REQUIRE(y.extents() == z.extents());
  for (dim_t i = 0; i < y.size(); ++i)
    CHECK(y.data()[i] == doctest::Approx(z.data()[i]).epsilon(1e-5));
  const auto dy = ike::uniform<T, decltype(one)::output_shape>(ike::seed{4});
  ike::tensor<T, In> dx{}, dz{};
  one.backward(dy, dx);
  two.backward(dy, dz);
  for (dim_t i = 0; i < dx.size(); ++i)
    CHECK(dx.data()[i] == doctest::Approx(dz.data()[i]).epsilon(1e-5));
  for (std::size_t i = 0; i < one.gradients().size(); ++i)
    CHECK(one.gradients()[i] == doctest::Approx(two.gradients()[i]).epsilon(1e-4));
}

/// A residual network of dilated convolutions, as in WaveNet.
template <class... State>
constexpr auto dilated = ike::sequential(
    "in"_m = ike::lazy_causal_conv1d<6, ike::kernel<2>, State...>{}, ike::tanh{},
    "a"_m = ike::residual(ike::lazy_causal_conv1d<6, ike::kernel<3>, ike::dilation<2>, State...>{},
                          ike::relu{}),
    "b"_m = ike::residual(
        ike::lazy_causal_conv1d<6, ike::kernel<3>, ike::dilation<4>, ike::groups<3>, State...>{},
        ike::tanh{}),
    "out"_m = ike::lazy_causal_conv1d<1, ike::kernel<1>, State...>{});

}  // namespace

TEST_CASE_TEMPLATE("a causal convolution is one of an input with zeros in front", T, float,
                   double) {
  compare_with_padded<shape{2, 3, 9}, T, ike::kernel<3>>();
  compare_with_padded<shape{2, 4, 17}, T, ike::kernel<2>, ike::dilation<5>, ike::groups<2>>();
  compare_with_padded<shape{3, 8}, T, ike::kernel<4>, ike::stride<3>, ike::bias<false>>();
  compare_with_padded<shape{1, 1, 1}, T, ike::kernel<7>>();
  compare_with_padded<shape{0, 2, 5}, T, ike::kernel<3>>();
  compare_with_padded<shape{2, 3, 40}, T, ike::kernel<1>>();
}

TEST_CASE("causal_conv1d computes what PyTorch recorded") {
  using ike::kernel;
  compare_layer("written", "causal_conv1d", ike::causal_conv1d<3, 4, kernel<3>>{});
  compare_layer("written", "causal_conv1d_groups",
                ike::causal_conv1d<4, 6, kernel<2>, ike::dilation<5>, ike::groups<2>>{});
  compare_layer("written", "causal_conv1d_stride",
                ike::causal_conv1d<3, 2, kernel<4>, ike::stride<3>, ike::bias<false>>{});
  compare_layer("written", "causal_conv1d_long_kernel", ike::causal_conv1d<1, 1, kernel<7>>{});
  CHECK(layers_not_compared("written", "causal_conv1d").empty());
}

TEST_CASE("its gradients agree with differences") {
  const auto x = ike::uniform<double, shape{2, 2, 7}>(ike::seed{2});
  CHECK(ike::gradient_check(dilated<>, x).largest < 1e-6);
}

TEST_CASE_TEMPLATE("blocks of any length give the results of the whole sequence", T, float,
                   double) {
  constexpr dim_t length = 40;
  auto whole = ike::initialize<T, shape{1, 2, length}>(dilated<>, ike::seed{1});
  whole.eval();
  const auto x = ike::uniform<T, shape{1, 2, length}>(ike::seed{5});
  const auto expected = whole(x);
  constexpr shape block{1, 2, ike::dynamic};
  auto streaming = ike::initialize<T, block>(dilated<ike::stateful<1>>, ike::seed{2});
  ike::load_state_dict(streaming, ike::get_state_dict(whole));
  const auto frozen = ike::freeze(streaming);
  auto lane = frozen.lane(shape{1, 2, 16});
  for (const dim_t size : {dim_t{1}, dim_t{3}, dim_t{16}, dim_t{2}}) {
    lane.reset();
    for (dim_t first = 0; first < length; first += size) {
      const dim_t n = first + size < length ? size : length - first;
      ike::tensor<T, block> part(shape{1, 2, n});
      for (dim_t c = 0; c < 2; ++c)
        for (dim_t i = 0; i < n; ++i) part(0, c, i) = x(0, c, first + i);
      const auto y = frozen(lane, part);
      for (dim_t i = 0; i < n; ++i)
        CHECK(y(0, 0, i) ==
              doctest::Approx(expected(0, 0, first + i)).epsilon(sizeof(T) == 4 ? 1e-5 : 1e-12));
    }
  }
}

TEST_CASE("convolutions with strides give the results of the whole sequence in whole strides") {
  constexpr dim_t length = 48;
  const auto net = []<class... State>(State...) {
    return ike::sequential(
        "a"_m = ike::causal_conv1d<2, 5, ike::kernel<4>, ike::stride<2>, State...>{}, ike::tanh{},
        "b"_m =
            ike::causal_conv1d<5, 3, ike::kernel<2>, ike::stride<3>, ike::dilation<4>, State...>{});
  };
  constexpr shape block{2, 2, ike::dynamic};
  auto whole = ike::initialize<double, shape{2, 2, length}>(net(), ike::seed{1});
  auto streaming = ike::initialize<double, block>(net(ike::stateful<2>{}), ike::seed{2});
  ike::load_state_dict(streaming, ike::get_state_dict(whole));
  const auto x = ike::uniform<double, shape{2, 2, length}>(ike::seed{5});
  const auto expected = whole(x);
  const auto frozen = ike::freeze(streaming);
  auto lane = frozen.lane(shape{2, 2, 18});
  for (const dim_t size : {dim_t{6}, dim_t{18}, dim_t{12}}) {
    lane.reset();
    for (dim_t first = 0; first < length; first += size) {
      const dim_t n = std::min(size, length - first);
      ike::tensor<double, block> part(shape{2, 2, n});
      for (dim_t r = 0; r < 4; ++r)
        for (dim_t i = 0; i < n; ++i) part(r / 2, r % 2, i) = x(r / 2, r % 2, first + i);
      const auto y = frozen(lane, part);
      REQUIRE(y.extents() == shape{2, 3, n / 6});
      for (dim_t r = 0; r < 6; ++r)
        for (dim_t i = 0; i < n / 6; ++i)
          CHECK(y(r / 3, r % 3, i) ==
                doctest::Approx(expected(r / 3, r % 3, first / 6 + i)).epsilon(1e-12));
    }
  }
  CHECK_THROWS_WITH_AS(frozen(lane, ike::tensor<double, block>(shape{2, 2, 8})),
                       "b: causal_conv1d that is stateful expects a length divisible by stride = "
                       "3, got 4 (input [2, 5, 4])",
                       ike::shape_error);
}

TEST_CASE("single steps of a batch, between blocks, give the results of the whole sequence") {
  constexpr dim_t length = 23;
  const auto net = []<class... State>(State...) {
    return ike::sequential(
        "a"_m = ike::causal_conv1d<3, 17, ike::kernel<4>, ike::dilation<2>, State...>{},
        ike::tanh{}, "b"_m = ike::causal_conv1d<17, 5, ike::kernel<3>, State...>{});
  };
  auto whole = ike::initialize<float, shape{2, 3, length}>(net(), ike::seed{1});
  const auto x = ike::uniform<float, shape{2, 3, length}>(ike::seed{5});
  const auto expected = whole(x);
  auto streaming =
      ike::initialize<float, shape{2, 3, ike::dynamic}>(net(ike::stateful<2>{}), ike::seed{2});
  ike::load_state_dict(streaming, ike::get_state_dict(whole));
  const auto frozen = ike::freeze(streaming);
  auto lane = frozen.lane(shape{2, 3, 8});
  dim_t first = 0;
  for (const dim_t n : {1, 5, 1, 1, 2, 1, 8, 1, 1, 1, 1}) {
    ike::tensor<float, shape{2, 3, ike::dynamic}> part(shape{2, 3, n});
    for (dim_t b = 0; b < 2; ++b)
      for (dim_t c = 0; c < 3; ++c)
        for (dim_t i = 0; i < n; ++i) part(b, c, i) = x(b, c, first + i);
    const auto y = frozen(lane, part);
    for (dim_t b = 0; b < 2; ++b)
      for (dim_t c = 0; c < 5; ++c)
        for (dim_t i = 0; i < n; ++i)
          CHECK(y(b, c, i) == doctest::Approx(expected(b, c, first + i)).epsilon(1e-5));
    first += n;
  }
  CHECK(first == length);
}

TEST_CASE("single steps of many taps give the results of the whole sequence") {
  constexpr dim_t length = 90;
  const auto net = []<class... State>(State...) {
    return ike::causal_conv1d<2, 3, ike::kernel<37>, ike::dilation<2>, State...>{};
  };
  auto whole = ike::initialize<double, shape{1, 2, length}>(net(), ike::seed{1});
  const auto x = ike::uniform<double, shape{1, 2, length}>(ike::seed{5});
  const auto expected = whole(x);
  auto streaming = ike::initialize<double, shape{1, 2, 1}>(net(ike::stateful<1>{}), ike::seed{2});
  ike::load_state_dict(streaming, ike::get_state_dict(whole));
  const auto frozen = ike::freeze(streaming);
  auto lane = frozen.lane();
  for (dim_t i = 0; i < length; ++i) {
    ike::tensor<double, shape{1, 2, 1}> one;
    for (dim_t c = 0; c < 2; ++c) one(0, c, 0) = x(0, c, i);
    const auto y = frozen(lane, one);
    for (dim_t c = 0; c < 3; ++c)
      CHECK(y(0, c, 0) == doctest::Approx(expected(0, c, i)).epsilon(1e-12));
  }
}

TEST_CASE("backward of a single step in evaluation reads what forward left in the state") {
  constexpr auto net = ike::sequential(
      "conv"_m = ike::causal_conv1d<3, 4, ike::kernel<3>, ike::dilation<2>, ike::stateful<1>>{});
  constexpr shape in{1, 3, 1};
  auto one = ike::initialize<double, in>(net, ike::seed{1});
  auto two = one.clone();
  one.eval();
  const auto dy = ike::uniform<double, shape{1, 4, 1}>(ike::seed{9});
  for (unsigned t = 0; t < 5; ++t) {
    const auto x = ike::uniform<double, in>(ike::seed{t});
    ike::tensor<double, in> dx{}, dz{};
    one(x), two(x);
    one.backward(dy, dx);
    two.backward(dy, dz);
    for (dim_t i = 0; i < dx.size(); ++i) CHECK(dx[i] == doctest::Approx(dz[i]));
    for (std::size_t i = 0; i < one.gradients().size(); ++i)
      CHECK(one.gradients()[i] == doctest::Approx(two.gradients()[i]));
  }
}

TEST_CASE("a summary tells the algorithm of a causal convolution") {
  auto model = ike::initialize<float, shape{2, 3, 40}>(
      ike::sequential(ike::causal_conv1d<3, 4, ike::kernel<3>>{}), ike::seed{1});
  CHECK(ike::summarize(model).rows[0].algorithm.empty());
  model(ike::uniform<float, shape{2, 3, 40}>(ike::seed{2}));
  CHECK(!ike::summarize(model).rows[0].algorithm.empty());
}

TEST_CASE("what a causal convolution expects is said in one sentence") {
  using ike::causal_conv1d;
  const auto says = [](const auto& m, const shape& in) { return sentence_of(m.infer(in)); };
  CHECK(says(causal_conv1d<3, 4, ike::kernel<2>>{}, shape{1, 2, 5}) ==
        "causal_conv1d expects in_channels = 3, got 2 (input [1, 2, 5])");
  CHECK(says(causal_conv1d<3, 4, ike::kernel<2>>{}, shape{1, 3, 0}) ==
        "causal_conv1d expects a sequence of at least 1 step, got 0 (input [1, 3, 0])");
  CHECK(says(causal_conv1d<3, 4, ike::kernel<2>, ike::stateful<2>>{}, shape{1, 3, 4}) ==
        "causal_conv1d keeps the states of a batch of 2, got 1 (input [1, 3, 4])");
}
