#include "ikebana/nn/max_unpool.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <string>

#include "ikebana/compose/graph.hpp"
#include "ikebana/model/gradient_check.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/pool.hpp"
#include "leaf_run.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dim_t;
using ike::shape;

namespace {

/// Maxima and indices are those of a plain max_pool and of what they point at.
template <shape In, std::size_t Spatial, class... Options>
void compare() {
  leaf_run<double, ike::max_pool<Spatial, Options...>> plain({}, In);
  leaf_run<double, ike::max_pool<Spatial, Options..., ike::return_indices<true>>> both({}, In);
  fill_random(plain.input.data(), In.numel(), 3);
  fill_random(both.input.data(), In.numel(), 3);
  for (const bool training : {true, false}) {
    plain.forward(training);
    both.forward(training);
    const dim_t area = In.numel(In.rank() - Spatial, In.rank()),
                windows = both.out.numel(In.rank() - Spatial, In.rank());
    for (dim_t i = 0; i < both.out.numel(); ++i) {
      CHECK(both.output[i] == plain.output[i]);
      const auto place = static_cast<dim_t>(both.outputs[1][i]);
      REQUIRE(place >= 0);
      REQUIRE(place < area);
      CHECK(both.input[i / windows * area + place] == both.output[i]);
    }
  }
  plain.forward();
  both.forward();
  fill_random(plain.output_gradient.data(), plain.out.numel(), 4);
  fill_random(both.output_gradient.data(), plain.out.numel(), 4);
  plain.backward(false);
  both.backward(false);
  for (dim_t i = 0; i < In.numel(); ++i)
    CHECK(both.input_gradient[i] == doctest::Approx(plain.input_gradient[i]));
}

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const ike::error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

}  // namespace

TEST_CASE("max_pool returns the indices of its maxima, in training and evaluation") {
  compare<shape{2, 3, 11}, 1, ike::kernel<3>, ike::stride<2>, ike::padding<1>>();
  compare<shape{2, 9, 7}, 2, ike::kernel<3, 2>, ike::dilation<2, 1>>();
  compare<shape{1, 2, 8, 8}, 2, ike::kernel<2>>();
  compare<shape{1, 2, 5, 6, 4}, 3, ike::kernel<2>, ike::ceil_mode<true>>();
  compare<shape{0, 2, 6, 4}, 2, ike::kernel<2>>();
}

TEST_CASE_TEMPLATE("max_unpool puts maxima back, as in PyTorch's example", T, float, double) {
  constexpr shape in{1, 1, 4, 4};
  constexpr auto net = ike::graph([](auto x) {
    const auto [y, at] = "pool"_m(ike::max_pool2d<ike::kernel<2>, ike::return_indices<true>>{}, x);
    return "unpool"_m(ike::max_unpool2d<ike::kernel<2>>{}, y, at);
  });
  auto model = ike::initialize<T, in>(net, ike::seed{1});
  ike::tensor<T, in> x;
  for (dim_t i = 0; i < 16; ++i) x[i] = static_cast<T>(i + 1);
  const auto y = model(x);
  for (dim_t i = 0; i < 16; ++i)
    CHECK(y[i] == static_cast<T>(i == 5 || i == 7 || i == 13 || i == 15 ? i + 1 : 0));
  constexpr auto sized = ike::max_unpool2d<ike::kernel<2>, ike::output_size<5, 5>>{};
  CHECK(sized.infer({shape{1, 1, 2, 2}, shape{1, 1, 2, 2}}).output() == shape{1, 1, 5, 5});
  constexpr auto strided = ike::max_unpool1d<ike::kernel<3>, ike::stride<2>, ike::padding<1>>{};
  CHECK(strided.infer({shape{2, 6}, shape{2, 6}}).output() == shape{2, 11});
}

TEST_CASE("gradients of pooling and unpooling agree with differences") {
  constexpr auto net = ike::graph([](auto x) {
    const auto [y, at] = "pool"_m(ike::max_pool1d<ike::kernel<3>, ike::return_indices<true>>{}, x);
    return "unpool"_m(ike::max_unpool1d<ike::kernel<3>>{}, y * y, at);
  });
  const auto x = ike::uniform<double, shape{2, 3, 9}>(ike::seed{2});
  CHECK(ike::gradient_check(net, x).largest < 1e-6);
}

TEST_CASE("what max_unpool expects is said in one sentence") {
  const auto says = [](const ike::shape_list& in) {
    return sentence_of(ike::max_unpool2d<ike::kernel<2>>{}.infer(in));
  };
  CHECK(says({shape{1, 1, 2, 2}, shape{1, 1, 2, 3}}) ==
        "max_unpool2d expects indices in the shape of the values, needs an extent of 2, got 3 "
        "(input [1, 1, 2, 3])");
  CHECK(says({shape{2, 2}, shape{2, 2}}) ==
        "max_unpool2d expects an input of 3 (unbatched) or 4 dimensions, got 2 (input [2, 2])");
  leaf_run<float, ike::max_unpool1d<ike::kernel<2>>> run({}, {shape{1, 2}, shape{1, 2}});
  run.inputs[1][0] = 4;
  run.inputs[1][1] = 0;
  CHECK(error_of([&] { run.forward(); }) ==
        "max_unpool1d expects indices from 0 to 3, got 4.000000");
}
