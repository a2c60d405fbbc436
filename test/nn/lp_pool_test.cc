#include "ikebana/nn/lp_pool.hpp"

#include <doctest/doctest.h>

#include <string>

#include "ikebana/compose/graph.hpp"
#include "ikebana/model/gradient_check.hpp"
#include "ikebana/model/initialize.hpp"
#include "layers.hpp"

using namespace ikebana;

TEST_CASE("LP pooling computes what PyTorch recorded") {
  compare_layer("lp_pool", "lp_pool1d", lp_pool1d<kernel<3>>{});
  compare_layer("lp_pool", "lp_pool1d_one", lp_pool1d<kernel<2>, stride<1>>{.norm_type = 1});
  compare_layer("lp_pool", "lp_pool2d", lp_pool2d<kernel<3>, stride<2>>{});
  compare_layer("lp_pool", "lp_pool2d_ceil_mode",
                lp_pool2d<kernel<2, 3>, stride<3, 2>, ceil_mode<true>>{.norm_type = 3});
  compare_layer("lp_pool", "lp_pool2d_fraction", lp_pool2d<kernel<2>>{.norm_type = 1.5});
  compare_layer("lp_pool", "lp_pool3d", lp_pool3d<kernel<2>, ceil_mode<true>>{});
  CHECK(layers_not_compared("lp_pool").empty());
}

TEST_CASE("the gradients of LP pooling are exact, and 0 where the norm is") {
  constexpr auto net = graph([](auto x) {
    return lp_pool2d<kernel<2>, stride<1>>{}(lp_pool2d<kernel<2>>{.norm_type = 4}(x));
  });
  CHECK(gradient_check(net, uniform<double, shape{2, 1, 6, 7}>(seed{1})).largest < 1e-7);
  auto model = initialize<float, shape{dynamic, 1, 4}>(lp_pool1d<kernel<2>>{}, seed{1});
  tensor<float, shape{dynamic, 1, 4}> x(shape{1, 1, 4}), dx(shape{1, 1, 4});
  x[2] = 3;
  x[3] = -4;
  const auto y = model(x);
  CHECK(y[0] == 0);
  CHECK(y[1] == 5);
  model.backward(ones<float, shape{dynamic, 1, 2}>(1), dx);
  CHECK(dx[0] == 0);
  CHECK(dx[1] == 0);
  CHECK(dx[2] == doctest::Approx(0.6));
  CHECK(dx[3] == doctest::Approx(-0.8));
  const tensor<float, shape{dynamic, 1, 4}> none(shape{0, 1, 4});
  CHECK(model(none).extents() == shape{0, 1, 2});
}

TEST_CASE("LP pooling says what is wrong with its input") {
  constexpr inferred wrong = lp_pool2d<kernel<3>>{}.infer(shape{2, 1, 2, 5});
  CHECK(std::string(wrong.error.message().c_str())
            .starts_with("lp_pool2d expects a padded input of at least 3"));
  CHECK_FALSE(lp_pool1d<kernel<3>>{}.infer(shape{5}).ok());
}
