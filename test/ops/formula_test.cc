#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <tuple>

#include "ikebana/compose/graph.hpp"
#include "ikebana/core/compare.hpp"
#include "ikebana/model/gradient_check.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/ops.hpp"
#include "test/nn/layers.hpp"
#include "test/support/count_allocations.hpp"

using namespace ikebana;
using namespace ikebana::literals;

namespace {

/// Runs a graph as PyTorch ran the case: values, and gradients of all inputs.
template <shape... In, class Net>
void compare_formula(const std::string& name, const Net& net) {
  compares("layers_ops", "formula_" + name);
  const auto run = [&]<class T>(T) {
    const auto& dict = recorded<T>("layers_ops");
    const auto at = [&](const std::string& tensor) -> const state_dict::entry& {
      return dict.at("formula_" + name + "/" + tensor);
    };
    auto model = initialize<T, In...>(net, seed{1});
    std::tuple<tensor<T, In>...> x, dx;
    int i = 0;
    std::apply(
        [&](auto&... each) { (copy_bytes(each.data(), at("x" + std::to_string(i++))), ...); }, x);
    const auto y = std::apply([&](const auto&... each) { return model(each...); }, x);
    REQUIRE(y.extents() == at("y0").extents);
    check_close<T>(y.data(), at("y0"), name + " y");
    tensor<T, std::remove_cvref_t<decltype(y)>::static_shape> dy;
    copy_bytes(dy.data(), at("gy0"));
    std::apply([&](auto&... each) { model.backward(dy, each...); }, dx);
    i = 0;
    const auto check = [&](const auto& d) {
      check_close<T>(d.data(), at("gx" + std::to_string(i)), name + " gx" + std::to_string(i));
      ++i;
    };
    std::apply([&](const auto&... each) { (check(each), ...); }, dx);
  };
  run(float{});
  run(double{});
}

template <shape... In>
double deviation(const auto& net) {
  int k = 1;
  return gradient_check(net,
                        std::tuple{uniform<double, In>(seed{static_cast<std::uint64_t>(++k)})...})
      .largest;
}

}  // namespace

TEST_CASE("formulas compute what PyTorch recorded") {
  compare_formula<shape{3, 5}>(
      "numbers", graph([](auto x) { return 3 - 2 * x / 5 + 1 / (x + 7) - (x * 3 + 0.5); }));
  compare_formula<shape{3, 5}, shape{5}>(
      "where", graph([](auto x, auto y) { return where(x > 0.25, y, -1.5 * x); }));
  compare_formula<shape{3, 7, 2}>("normalize", graph([](auto x) { return normalize(x); }));
  compare_formula<shape{3, 7}, shape{3, 7}>(
      "cosine", graph([](auto a, auto b) { return cosine_similarity<-1>(a, b); }));
  compare_formula<shape{5, 7}, shape{5, 7}>(
      "distance", graph([](auto a, auto b) { return pairwise_distance(a, b); }));
  CHECK(layers_not_compared("ops", "formula_").empty());
}

TEST_CASE("every operation can be written in a formula, and its gradients are exact") {
  CHECK(deviation<shape{4, 3}, shape{3}>(graph([](auto x, auto y) {
          const auto a = exp(x) + log(square(y) + 2) + sqrt(abs(x) + 1) + rsqrt(exp(y));
          const auto b = reciprocal(x + 3) * erf(y) - pow(x + 2, 3) + pow(x + 2, y);
          const auto c = maximum(x, y) / minimum(x - 4, -1) + clamp(x, -0.5, 0.5);
          return a + b * c + where(x <= y, 2, x) * (x >= y) + (x == y) + (x != 0) * sign(y) +
                 (1 < x);
        })) < 1e-7);
  CHECK(deviation<shape{2, 3, 4}>(graph([](auto x) {
          const auto a = sum<0>(x) + mean<0, 1>(x) + var<0>(x, correction<0>);
          const auto b = max<-1>(x, keepdim) - min<-1>(x, keepdim) + logsumexp<2>(x, keepdim) +
                         norm<1>(x, 3.0, keepdim) + norm<1>(x, keepdim);
          return a + sum(b) * cumsum<1>(x) + argmax<2>(x, keepdim) + argmin<0>(x) + argmax(x);
        })) < 1e-7);
  CHECK(deviation<shape{2, 3, 4}, shape{2, 4, 3}>(graph([](auto x, auto y) {
          const auto a = matmul(x, y) + einsum<"bij,bkj->bik">(x, transpose<1, 2>(y));
          const auto b = matmul_nt(x, permute<0, 2, 1>(y)) + matmul_tn(y, transpose<1, 2>(x));
          const auto [c, d] = chunk<2, 2>(x);
          const auto e = stack<1>(slice<2>(x, 1, 4, 2), narrow<2>(x, 0, 2), c, flip<2>(d));
          const auto f = select<1>(e, -1) + squeeze<1>(unsqueeze<1>(roll<1>(c, 1)));
          const auto g = sum<1>(reshape<2, -1>(pad<1, 2>(expand<4, -1, -1, -1>(unsqueeze<0>(f)))));
          return sum<2>(a + b, keepdim) * unsqueeze<1, 2>(g);
        })) < 1e-7);
  CHECK(deviation<shape{3, 4}, shape{3, 4}>(graph([](auto x, auto y) {
          return normalize(x) * unsqueeze<1>(cosine_similarity<-1>(x, y) + pairwise_distance(x, y));
        })) < 1e-7);
}

TEST_CASE("indices and masks are inputs of a formula") {
  constexpr auto taken = graph([](auto x, auto i, auto rows, auto m) {
    const auto g = gather<1>(x, i) + sum<1>(index_select<1>(x, rows), keepdim);
    return scatter_add<1>(masked_fill(x, m, 0.5), i, g * x) + sum(one_hot<3>(rows) * 2);
  });
  const auto x = uniform<double, shape{2, 3}>(seed{3});
  tensor<std::int64_t, shape{2, 3}> i;
  tensor<std::int64_t, shape{4}> rows;
  tensor<bool, shape{3}> m;
  const std::int64_t at[] = {2, 0, 2, 1, 1, 0}, of_rows[] = {0, 2, 2, 1};
  std::copy(std::begin(at), std::end(at), i.begin());
  std::copy(std::begin(of_rows), std::end(of_rows), rows.begin());
  m[0] = false, m[1] = true, m[2] = false;
  CHECK(gradient_check(taken, std::tuple{x, i, rows, m}).largest < 1e-7);
}

TEST_CASE("formulas take batches of any size") {
  constexpr auto net = graph([](auto x) {
    const auto h = (x - mean<0>(x)) * rsqrt(var<0>(x, correction<0>) + 0.1);
    return matmul(h, transpose<0, 1>(h)) + sum<1>(x, keepdim) + reshape<1, -1>(mean<1>(x));
  });
  auto model = initialize<float, shape{dynamic, 3}>(net, seed{1});
  for (const dim_t n : {4, 1, 7, 0}) {
    tensor<float, shape{dynamic, 3}> x(shape{n, 3});
    for (dim_t k = 0; k < x.size(); ++k) x[k] = static_cast<float>(k % 5);
    const auto y = model(x);
    CHECK(y.extents() == shape{n, n});
    tensor<float, shape{dynamic, dynamic}> dy(shape{n, n});
    for (float& d : dy) d = 1;
    model.backward(dy);
  }
}

TEST_CASE("a sum that broadcasts is not fused into the product before it") {
  constexpr auto net =
      graph([](auto x, auto row) { return relu{}("fc"_m(linear<3, 4>{}, x) + row); });
  CHECK(deviation<shape{5, 3}, shape{4}>(net) < 1e-7);
  CHECK(deviation<shape{5, 3}, shape{5, 1}>(net) < 1e-7);
  CHECK(deviation<shape{1, 3}, shape{5, 4}>(net) < 1e-7);
}

TEST_CASE("stop_gradient, constants, positions and parameters of a formula") {
  constexpr auto net = graph([](auto x) {
    const auto scale = parameter<"scale", shape{3}>(x, initializer::constant(2));
    const auto causal = unsqueeze<1>(arange_like<0>(x)) >= arange_like<0>(x);
    return matmul(causal * full_like(causal, 3), stop_gradient(x) * x * scale);
  });
  auto model = initialize<double, shape{2, 3}>(net, seed{1});
  const auto x = uniform<double, shape{2, 3}>(seed{2});
  const auto y = model(x);
  CHECK(y[0] == doctest::Approx(6 * x[0] * x[0]));
  CHECK(y[3] == doctest::Approx(6 * (x[0] * x[0] + x[3] * x[3])));
  const auto dy = ones<double, shape{2, 3}>();
  tensor<double, shape{2, 3}> dx;
  model.zero_grad();
  model.backward(dy, dx);
  CHECK(dx[0] == doctest::Approx(12 * x[0]));
  CHECK(dx[3] == doctest::Approx(6 * x[3]));
  CHECK(model.gradients()[0] == doctest::Approx(6 * x[0] * x[0] + 3 * x[3] * x[3]));
}

TEST_CASE("random values depend on seed, path and step") {
  constexpr auto net = graph([](auto x) {
    return std::tuple{"a"_m(normal_like{}, x), "b"_m(normal_like{}, x), "c"_m(uniform_like{}, x),
                      "d"_m(bernoulli{}, x)};
  });
  auto model = initialize<float, shape{20000}>(net, seed{1});
  auto other = initialize<float, shape{20000}>(net, seed{1});
  const auto p = full<float, shape{20000}>(0.25f);
  const auto [a, b, c, d] = model(p);
  const auto mean_of = [](const auto& x) {
    double total = 0;
    for (float v : x) total += static_cast<double>(v);
    return total / 20000;
  };
  CHECK(std::abs(mean_of(a)) < 0.03);
  CHECK(std::abs(mean_of(c) - 0.5) < 0.01);
  CHECK(std::abs(mean_of(d) - 0.25) < 0.01);
  for (float v : c) REQUIRE((v >= 0 && v < 1));
  for (float v : d) REQUIRE((v == 0 || v == 1));
  CHECK(a[0] != b[0]);
  const auto [a2, b2, c2, d2] = other(p);
  CHECK(std::memcmp(a.data(), a2.data(), 20000 * sizeof(float)) == 0);
  const auto dy = ones<float, shape{20000}>();
  tensor<float, shape{20000}> dx;
  model.backward(std::tuple{dy, dy, dy, dy}, dx);
  for (float v : dx) REQUIRE(v == 0);
}

TEST_CASE("a step of a formula allocates nothing") {
  constexpr auto net = graph([](auto x) {
    const auto h = "fc"_m(linear<3, 4>{}, x - mean<1>(x, keepdim));
    const auto z = h + "noise"_m(normal_like{}, h) * parameter<"scale", shape{4}>(h);
    const auto [a, b] = chunk<2, 1>(logsumexp<1>(matmul_nt(z, z), keepdim) * z);
    return einsum<"nf,ng->ng">(a, b) + sum(cumsum<0>(transpose<0, 1>(b)));
  });
  auto model = initialize<float, shape{dynamic, 3}>(net, seed{1});
  const auto x = uniform<float, shape{5, 3}>(seed{2});
  const auto dy = ones<float, shape{5, 2}>();
  tensor<float, shape{5, 3}> dx;
  model(x);
  model.backward(dy, dx);
  const long before = allocation_count_here;
  model(x);
  model.zero_grad();
  model.backward(dy, dx);
  CHECK(allocation_count_here == before);
}

TEST_CASE("products read a transposed operand in place") {
  constexpr auto attend = [](auto q, auto k) { return matmul(q, transpose<-2, -1>(k)); };
  constexpr auto by_name = [](auto q, auto k) { return matmul_nt(q, k); };
  constexpr auto twice = [](auto q, auto k) {
    const auto t = transpose<-1, -2>(k);
    return matmul_tn(transpose<-1, -2>(q), t) + mean(t);
  };
  constexpr shape of_q{2, 3, 4}, of_k{2, 5, 4};
  using one = decltype(initialize<double, of_q, of_k>(graph(attend), seed{1}));
  using other = decltype(initialize<double, of_q, of_k>(graph(by_name), seed{1}));
  static_assert(one::lowered().sizes.nodes == 1 && other::lowered().sizes.nodes == 1);
  const std::tuple x{uniform<double, of_q>(seed{1}), uniform<double, of_k>(seed{2})};
  auto a = initialize<double, of_q, of_k>(graph(attend), seed{1});
  auto b = initialize<double, of_q, of_k>(graph(by_name), seed{1});
  CHECK(std::ranges::equal(a(std::get<0>(x), std::get<1>(x)), b(std::get<0>(x), std::get<1>(x))));
  CHECK(gradient_check(graph(attend), x).largest < 1e-7);
  // What else reads the transposed value finds it.
  CHECK(gradient_check(graph(twice), x).largest < 1e-7);
  auto c = initialize<double, of_q, of_k>(graph(twice), seed{1});
  double total = 0;
  for (const double v : std::get<1>(x)) total += v / static_cast<double>(std::get<1>(x).size());
  const auto sum = c(std::get<0>(x), std::get<1>(x));
  const auto product = b(std::get<0>(x), std::get<1>(x));
  for (dim_t i = 0; i < sum.size(); ++i)
    CHECK(sum[i] == doctest::Approx(product[i] + total).epsilon(1e-12));
}
