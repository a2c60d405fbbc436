#include "ikebana/nn/parametrized.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <string>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/deploy/freeze.hpp"
#include "ikebana/deploy/remove_parametrizations.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/conv.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/optim/sgd.hpp"
#include "layers.hpp"
#include "test/support/count_allocations.hpp"

using namespace ikebana;
using namespace ikebana::literals;

namespace {

/// The upper triangle of a square matrix, mirrored.
struct symmetric {
  template <class T>
  void forward(const shape& s, const T* original, T* weight) const {
    for (dim_t i = 0; i < s[0]; ++i)
      for (dim_t j = 0; j < s[1]; ++j)
        weight[i * s[1] + j] = i <= j ? original[i * s[1] + j] : original[j * s[1] + i];
  }
  template <class T>
  void backward(const shape& s, const T*, const T*, const T* dweight, T* doriginal) const {
    for (dim_t i = 0; i < s[0]; ++i)
      for (dim_t j = 0; j < s[1]; ++j) {
        T& d = doriginal[i * s[1] + j];
        d = i > j ? T{0} : dweight[i * s[1] + j];
        if (i < j) d += dweight[j * s[1] + i];
      }
  }
};

/// exp(scale original), which is positive.
struct positive {
  double scale = 1;

  template <class T>
  void forward(const shape& s, const T* original, T* weight) const {
    for (dim_t i = 0; i < s.numel(); ++i) weight[i] = std::exp(static_cast<T>(scale) * original[i]);
  }
  template <class T>
  void backward(const shape& s, const T*, const T* weight, const T* dweight, T* doriginal) const {
    for (dim_t i = 0; i < s.numel(); ++i)
      doriginal[i] = static_cast<T>(scale) * weight[i] * dweight[i];
  }
  template <class T>
  void right_inverse(const shape& s, T* weight) const {
    for (dim_t i = 0; i < s.numel(); ++i)
      weight[i] = std::log(std::abs(weight[i])) / static_cast<T>(scale);
  }
};

}  // namespace

TEST_CASE("parametrized computes what PyTorch recorded") {
  compare_layer("written", "parametrized", parametrized(linear<4, 4>{}, symmetric{}));
  compare_layer("written", "parametrized_positive",
                parametrized(conv2d<2, 3, kernel<2>>{}, positive{.scale = 0.5}));
  compare_layer("written", "parametrized_bias", parametrized<linear<3, 2>, positive, "bias">{});
  CHECK(layers_not_compared("written", "parametrized").empty());
}

TEST_CASE("the gradients of parametrized are those of its forward") {
  check_gradients(parametrized(linear<3, 3>{}, symmetric{}), {2, 3});
  check_gradients(parametrized(conv2d<1, 2, kernel<2, 3>>{}, positive{}), {1, 1, 4, 4});
  check_empty_batch(parametrized(linear<3, 3>{}, symmetric{}), {0, 3});
  check_empty_batch(parametrized(linear<0, 0>{}, symmetric{}), {2, 0});
}

TEST_CASE("a parametrization begins with its right inverse of the initial values") {
  leaf_run<double, parametrized<linear<3, 2>, positive>> run({}, {1, 3});
  leaf_run<double, linear<3, 2>> plain({}, {1, 3});
  run.initialize(seed{3});
  plain.initialize(seed{3});
  REQUIRE(std::string(run.parameter_specs[1].name) == "parametrizations.weight.original");
  for (dim_t i = 0; i < 6; ++i)
    CHECK(std::exp(run.parameter(1)[i]) == doctest::Approx(std::abs(plain.parameter(0)[i])));
  CHECK(described(parametrized<linear<3, 2>, positive, "bias">{}) ==
        "in_features=3, out_features=2, bias=true, parametrized=bias");
}

TEST_CASE("a parametrized module trains without allocating, and is removed or frozen as others") {
  constexpr auto net =
      sequential("a"_m = parametrized(linear<4, 4>{}, symmetric{}), ikebana::tanh{},
                 "b"_m = parametrized<linear<4, 2>, positive, "weight">{linear<4, 2>{}, {0.5}});
  auto model = initialize<float, shape{3, 4}>(net, seed{1});
  const auto x = uniform<float, shape{3, 4}>(seed{2});
  const auto t = zeros<float, shape{3, 2}>();
  sgd optimizer{model, {.lr = 0.1, .momentum = 0.9}};
  const float first = model.train_step(x, t, mse_loss{}, optimizer);
  const long before = allocation_count_here;
  float last = first;
  for (int i = 0; i < 20; ++i) last = model.train_step(x, t, mse_loss{}, optimizer);
  CHECK(allocation_count_here == before);
  CHECK(last < first);
  model.eval();
  const auto y = model(x);
  auto plain = remove_parametrizations(model);
  const auto z = plain(x);
  for (dim_t i = 0; i < y.size(); ++i) CHECK(z[i] == doctest::Approx(y[i]));
  CHECK(plain["a.weight"_s](0, 3) == plain["a.weight"_s](3, 0));
  for (const float w : plain["b.weight"_s]) CHECK(w > 0);
  const auto frozen = freeze(model);
  auto lane = frozen.lane();
  const auto f = frozen(lane, x);
  for (dim_t i = 0; i < y.size(); ++i) CHECK(f.data()[i] == doctest::Approx(y[i]));
}
