#include "ikebana/model/jvp.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <tuple>

#include "ikebana/compose/choose.hpp"
#include "ikebana/compose/graph.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/conv.hpp"
#include "ikebana/nn/dropout.hpp"
#include "ikebana/nn/embedding.hpp"
#include "ikebana/nn/flatten.hpp"
#include "ikebana/nn/gru.hpp"
#include "ikebana/nn/layer_norm.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/pool.hpp"
#include "ikebana/nn/softmax.hpp"
#include "ikebana/ops.hpp"

using namespace ikebana;
using namespace ikebana::literals;

namespace {

/// x^2, whose backward uses up what forward saved.
struct square_once {
  static constexpr std::string_view kind = "square_once";
  static constexpr kept keeps = kept::nothing;
  constexpr inferred infer(const shape& x) const { return x; }
  constexpr std::array<saved_spec, 1> saved(const shape_list& in) const { return {{{0, in[0]}}}; }
  template <class T>
  void forward(const context<T>& c) const {
    for (dim_t i = 0; i < c.input_shape().numel(); ++i) {
      c.template saved<T>(0)[i] = c.input()[i];
      c.output()[i] = c.input()[i] * c.input()[i];
    }
  }
  template <class T>
  void backward(const context<T>& c) const {
    for (dim_t i = 0; i < c.input_shape().numel(); ++i) {
      c.input_gradient()[i] = 2 * c.template saved<T>(0)[i] * c.output_gradient()[i];
      c.template saved<T>(0)[i] = 0;
    }
  }
};

/// The largest difference of J v from a central difference. `step` counts the forwards.
template <class Model, class X, class V>
double deviation(Model& m, const X& x, const V& v) {
  m.set_random_step(0);
  const auto [y, dy] = jvp(m, x, v);
  const double h = 1e-6;
  X above = x, below = x;
  for (dim_t i = 0; i < x.size(); ++i) {
    above[i] += h * v[i];
    below[i] -= h * v[i];
  }
  m.set_random_step(0);
  const tensor high{m(above)};
  m.set_random_step(0);
  const auto low = m(below);
  double largest = 0;
  for (dim_t i = 0; i < dy.size(); ++i)
    largest = std::max(largest, std::abs(dy[i] - (high[i] - low[i]) / (2 * h)));
  return largest;
}

template <shape In, class Net>
double deviation_of(const Net& net) {
  auto m = initialize<double, In>(net, seed{1});
  return deviation(m, uniform<double, In>(seed{2}), uniform<double, In>(seed{3}));
}

}  // namespace

TEST_CASE("J v of formulas is that of differences") {
  CHECK(deviation_of<shape{3, 4}>(graph([](auto x) {
          const auto s = mean<1>(x, keepdim);
          const auto d = x - s;
          const auto n = d * rsqrt(mean<1>(square(d), keepdim) + 1e-5);
          return matmul_nt(exp(n), n * "w"_m(lazy_linear<4>{}, x)) / (2 + square(s)) -
                 logsumexp<1>(x, keepdim) * parameter<"scale", shape{3, 1}>(x);
        })) < 1e-6);
  CHECK(deviation_of<shape{2, 3, 4}>(graph([](auto x) {
          const auto a = softmax<dim<-1>>{}(matmul(x, transpose<-2, -1>(x)) / 2);
          return matmul(a, x) + unsqueeze<1>(select<1>(x, 0));
        })) < 1e-6);
  CHECK(deviation_of<shape{5}>(graph([](auto x) {
          return where(x > 0, log(x + 2), clamp(x, -0.5, 0.5)) + sign(x) + roll<0>(flip<0>(x), 2);
        })) < 1e-6);
  // Parts that the model reads where they are.
  CHECK(deviation_of<shape{3, 8}>(graph([](auto x) {
          const auto [a, b] = chunk<2, -1>(x);
          return matmul_nt(b * a, exp(a)) - permute<1, 0>(slice<1>(x, 1, 4));
        })) < 1e-6);
}

TEST_CASE("J v of networks is that of differences, with the random numbers of the forward") {
  constexpr auto images = sequential("conv"_m = lazy_conv2d<3, kernel<3>, padding<1>>{},
                                     "norm"_m = lazy_batch_norm2d<>{}, ikebana::relu{},
                                     max_pool2d<kernel<2>>{}, flatten{}, "drop"_m = dropout{0.5},
                                     "fc"_m = lazy_linear<3>{}, log_softmax<dim<1>>{});
  CHECK(deviation_of<shape{2, 1, 4, 4}>(images) < 1e-5);
  CHECK(deviation_of<shape{3, 2, 4}>(
            sequential("gru"_m = lazy_gru<3>{}, "fc"_m = lazy_linear<2>{})) < 1e-6);
  CHECK(deviation_of<shape{3, 4}>(sequential("norm"_m = lazy_layer_norm<>{}, gelu{})) < 1e-6);
  CHECK(deviation_of<shape{3, 4}>(sequential(square_once{}, ikebana::tanh{})) < 1e-6);
  auto chosen = initialize<double, shape{3, 4}>(
      sequential("way"_m = choose("a"_m = ikebana::tanh{}, "b"_m = lazy_linear<4>{})), seed{1});
  const auto x = uniform<double, shape{3, 4}>(seed{2}), v = uniform<double, shape{3, 4}>(seed{3});
  for (const int way : {0, 1}) {
    chosen.choose("way"_s, static_cast<std::size_t>(way));
    CHECK(deviation(chosen, x, v) < 1e-6);
  }
}

TEST_CASE("J v of several inputs and outputs, and beside indices") {
  constexpr auto net = graph([](auto a, auto b, auto index) {
    const auto e = "table"_m(embedding<5, 3>{}, index);
    return std::tuple(a * b + e, sum<1>(a), e);
  });
  auto m = initialize<double, shape{2, 3}, shape{3}, shape{2}>(net, seed{1});
  const auto a = uniform<double, shape{2, 3}>(seed{2}), va = uniform<double, shape{2, 3}>(seed{3});
  const auto b = uniform<double, shape{3}>(seed{4}), vb = uniform<double, shape{3}>(seed{5});
  tensor<std::int64_t, shape{2}> index;
  index[0] = 4;
  index[1] = 1;
  const auto [y, dy] = jvp(m, inputs(a, b, index), inputs(va, vb));
  const auto& [of_product, of_sum, of_table] = dy;
  for (dim_t i = 0; i < 6; ++i) {
    CHECK(of_product[i] == doctest::Approx(va[i] * b[i % 3] + a[i] * vb[i % 3]).epsilon(1e-12));
    CHECK(of_table[i] == 0);
  }
  CHECK(of_sum[1] == doctest::Approx(va[3] + va[4] + va[5]).epsilon(1e-12));
  CHECK(std::get<0>(y)[0] == std::get<0>(m.output())[0]);
  CHECK_THROWS_WITH_AS(jvp(m, inputs(a, b, index), inputs(vb, vb)),
                       "jvp takes a direction of the shape of its input, [2, 3], got [3]",
                       shape_error);
  const char* const number = "jvp takes a direction for each input that is numbers, and no other";
  CHECK_THROWS_WITH_AS(jvp(m, inputs(a, b, index), inputs(va)), number, shape_error);
  CHECK_THROWS_WITH_AS(jvp(m, inputs(a, b, index), inputs(va, vb, vb)), number, shape_error);
}

TEST_CASE("a wrong direction is refused before running statistics change") {
  auto m = initialize<float, shape{dynamic, 3}>(batch_norm1d<3>{}, seed{1});
  const auto x = uniform<float, shape{4, 3}>(seed{2});
  const tensor<float, shape{dynamic, 3}> v(shape{5, 3});
  CHECK_THROWS_AS(jvp(m, x, v), shape_error);
  for (const auto& e : get_state_dict(m))
    if (e.name == "running_mean") CHECK(reinterpret_cast<const float*>(e.bytes.data())[0] == 0);
}
