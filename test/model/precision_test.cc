#include "ikebana/model/precision.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/lazy_model.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/model/workspace.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/optim/adam.hpp"
#include "ikebana/optim/sgd.hpp"
#include "ikebana/replicate/launch.hpp"
#include "ikebana/replicate/mixed_precision.hpp"
#include "ikebana/replicate/replicate.hpp"
#include "precision_runs.hpp"
#include "test/cpu/extensions.hpp"
#include "test/support/count_allocations.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::bf16;
using ike::dim_t;
using ike::dynamic;
using ike::precision;
using ike::shape;
using precision_test::largest_difference;
using precision_test::results;
using precision_test::rounded;
using precision_test::run;
using precision_test::same_bits;

namespace {

/// Integers, of which those above 256 are not all representable in bfloat16.
void fill_whole(std::span<float> to, std::uint32_t a, std::uint32_t b) {
  for (std::size_t i = 0; i < to.size(); ++i)
    to[i] = static_cast<float>((static_cast<std::uint32_t>(i) * a + b) % 1201) - 600;
}

/// The i-th sum of products of m x k and n x k numbers, in double.
struct by_hand {
  const float *a, *b;
  dim_t a_row, a_step, b_row, b_step, depth;
  double operator()(dim_t i, dim_t j, double* size = nullptr) const {
    double sum = 0;
    for (dim_t p = 0; p < depth; ++p) {
      const double each = static_cast<double>(rounded(a[i * a_row + p * a_step])) *
                          static_cast<double>(rounded(b[j * b_row + p * b_step]));
      sum += each;
      if (size != nullptr) *size += std::fabs(each);
    }
    return sum;
  }
};

constexpr auto mlp = ike::sequential("fc1"_m = ike::lazy_linear<64>{}, "relu1"_m = ike::relu{},
                                     "fc2"_m = ike::lazy_linear<48>{}, "tanh"_m = ike::tanh{},
                                     "head"_m = ike::lazy_linear<3>{});

/// Three arms of a spiral.
struct spiral {
  static constexpr dim_t size = 240;
  ike::tensor<float, shape{size, 2}> x;
  ike::tensor<std::int64_t, shape{size}> arm;
  spiral() {
    for (dim_t i = 0; i < size; ++i) {
      const double r = static_cast<double>(i / 3) / (size / 3),
                   turn = 2.1 * static_cast<double>(i % 3);
      x(i, 0) = static_cast<float>(r * std::cos(5 * r + turn));
      x(i, 1) = static_cast<float>(r * std::sin(5 * r + turn));
      arm[i] = i % 3;
    }
  }
  template <class Model>
  double share_right(Model& model) const {
    const auto y = model(x);
    dim_t right = 0;
    for (dim_t i = 0; i < size; ++i) {
      dim_t best = 0;
      for (dim_t c = 1; c < 3; ++c)
        if (y(i, c) > y(i, best)) best = c;
      right += best == arm[i];
    }
    return static_cast<double>(right) / size;
  }
};

using model_of_floats = decltype(ike::initialize<float, shape{4, 8}>(mlp, ike::seed{1}));
using model_of_precision =
    decltype(ike::initialize<precision<bf16>, shape{4, 8}>(mlp, ike::seed{1}));
static_assert(std::is_same_v<model_of_precision::value_type, float>);
static_assert(std::is_same_v<model_of_precision::output_view, model_of_floats::output_view>);
static_assert(sizeof(model_of_precision) == sizeof(model_of_floats));

}  // namespace

TEST_CASE("a linear module's products are those of rounded numbers, exact for whole ones") {
  constexpr dim_t rows = 5, in = 7, out = 9;
  const auto net = ike::sequential("fc"_m = ike::linear<in, out>{});
  auto model = ike::initialize<precision<bf16>, shape{rows, in}>(net, ike::seed{1});
  ike::tensor<float, shape{rows, in}> x, dx;
  ike::tensor<float, shape{rows, out}> dy;
  fill_whole({x.data(), rows * in}, 37, 5);
  fill_whole({dy.data(), rows * out}, 91, 11);
  auto w = model["fc.weight"_s];
  auto b = model["fc.bias"_s];
  fill_whole({w.data(), out * in}, 53, 2);
  fill_whole({b.data(), out}, 29, 300);
  cpu_test::for_each_extension(rows * in * out, [&] {
    const auto y = model(x);
    for (int times = 1; times <= 2; ++times) {
      if (times == 1) model.zero_grad();
      model.backward(dy, dx);
      const auto dw = model.gradient("fc.weight"_s);
      const auto db = model.gradient("fc.bias"_s);
      bool right = true;
      for (dim_t o = 0; o < out; ++o) {
        double sum = 0;
        for (dim_t r = 0; r < rows; ++r) {
          sum += static_cast<double>(dy(r, o));
          const by_hand each{x.data(), w.data(), in, 1, in, 1, in};
          right = right && static_cast<double>(y(r, o)) == each(r, o) + static_cast<double>(b[o]);
        }
        right = right && static_cast<double>(db[o]) == times * sum;
        for (dim_t i = 0; i < in; ++i) {
          const by_hand each{dy.data(), x.data(), 1, out, 1, in, rows};
          right = right && static_cast<double>(dw(o, i)) == times * each(o, i);
        }
      }
      for (dim_t r = 0; r < rows; ++r)
        for (dim_t i = 0; i < in; ++i) {
          const by_hand each{dy.data(), w.data(), out, 1, 1, in, out};
          right = right && static_cast<double>(dx(r, i)) == each(r, i);
        }
      CHECK(right);
    }
  });
}

TEST_CASE("and within the rounding of sums for others, of any size and batch") {
  constexpr dim_t in = 531, out = 67;
  const auto net = ike::sequential("fc"_m = ike::linear<in, out>{}, "tanh"_m = ike::tanh{});
  auto model = ike::initialize<precision<bf16>, shape{dynamic, in}>(net, ike::seed{2});
  const auto w = model["fc.weight"_s];
  const auto b = model["fc.bias"_s];
  cpu_test::for_each_extension(20 * in * out, [&] {
    for (const dim_t rows : {1, 0, 19}) {
      const auto x = ike::uniform<float, shape{dynamic, in}>(ike::seed{6}, rows);
      const auto y = model(x);
      double most = 0;
      for (dim_t r = 0; r < rows; ++r)
        for (dim_t o = 0; o < out; ++o) {
          double size = 0;
          const double sum = by_hand{x.data(), w.data(), in, 1, in, 1, in}(r, o, &size) +
                             static_cast<double>(b[o]);
          most = std::fmax(most, std::fabs(static_cast<double>(y(r, o)) - std::tanh(sum)) /
                                     (size + 1) / ((in + 2) * 0x1p-24));
        }
      CHECK(most <= 1);
    }
  });
}

TEST_CASE("modules can be left out by their paths") {
  const auto x = ike::uniform<float, shape{6, 20}>(ike::seed{4});
  const auto net = ike::sequential("body"_m = mlp, "headless"_m = ike::lazy_linear<5>{},
                                   "head"_m = ike::lazy_linear<5>{});
  auto exact = ike::initialize<float, shape{6, 20}>(net, ike::seed{3});
  const results of_floats = run(exact, x);
  auto none = ike::initialize<
      precision<bf16, ike::full_precision_at<"body", "head">, ike::full_precision_at<"headless">>,
      shape{6, 20}>(net, ike::seed{3});
  const results same = run(none, x);
  CHECK(same_bits(same.output, of_floats.output));
  CHECK(same_bits(same.gradients, of_floats.gradients));

  auto but_one =
      ike::initialize<precision<bf16, ike::full_precision_at<"body", "head">>, shape{6, 20}>(
          net, ike::seed{3});
  CHECK_FALSE(same_bits(run(but_one, x).output, of_floats.output));

  auto all = ike::initialize<precision<bf16>, shape{6, 20}>(net, ike::seed{3});
  auto some =
      ike::initialize<precision<bf16, ike::full_precision_at<"body.fc2", "head">>, shape{6, 20}>(
          net, ike::seed{3});
  const results of_all = run(all, x), of_some = run(some, x);
  CHECK_FALSE(same_bits(of_some.output, of_floats.output));
  CHECK_FALSE(same_bits(of_some.output, of_all.output));
  // Excluded modules keep digits that rounding would lose.
  auto w = some["head.weight"_s];
  w(0, 0) += 0x1p-12f;
  CHECK_FALSE(same_bits(run(some, x).output, of_some.output));
}

TEST_CASE("a network trains to the accuracy of floats") {
  const spiral data;
  auto exact = ike::initialize<float, shape{spiral::size, 2}>(mlp, ike::seed{7});
  auto model = ike::initialize<precision<bf16>, shape{spiral::size, 2}>(mlp, ike::seed{7});
  ike::adam of_exact{exact, {.lr = 0.01}}, of_model{model, {.lr = 0.01}};
  float exact_loss = 0, loss = 0;
  for (int i = 0; i < 200; ++i) {
    exact_loss = exact.train_step(data.x, data.arm, ike::cross_entropy{}, of_exact);
    loss = model.train_step(data.x, data.arm, ike::cross_entropy{}, of_model);
  }
  CHECK(exact_loss < 0.05f);
  CHECK(loss < exact_loss + 0.02f);
  CHECK(loss != exact_loss);
  CHECK(data.share_right(exact) >= 0.99);
  CHECK(data.share_right(model) >= 0.99);
}

TEST_CASE("states are those of floats, and go from one to the other") {
  auto model = ike::initialize<precision<bf16>, shape{4, 8}>(mlp, ike::seed{1});
  model.parameters()[0] = 1.00390625f + 0x1p-20f;  // Not representable in bfloat16.
  auto exact = ike::initialize<float, shape{4, 8}>(mlp, ike::seed{2});
  const auto state = ike::get_state_dict(model);
  CHECK(state.at("fc1.weight").type == ike::dtype::float32);
  ike::load_state_dict(exact, state);
  CHECK(same_bits(exact.parameters(), model.parameters()));
  auto third = ike::initialize<precision<bf16>, shape{4, 8}>(mlp, ike::seed{3});
  ike::load_state_dict(third, ike::get_state_dict(exact));
  CHECK(same_bits(third.parameters(), model.parameters()));
  const auto x = ike::uniform<float, shape{4, 8}>(ike::seed{4});
  const results first = run(model, x);
  CHECK(same_bits(run(third, x).output, first.output));
  auto copy = model.clone();
  CHECK(same_bits(run(copy, x).gradients, first.gradients));
}

TEST_CASE("a lazy model takes it as its element type") {
  ike::lazy_model holder{mlp, ike::seed{1}, ike::element_type<precision<bf16>>{}};
  auto model = ike::initialize<precision<bf16>, shape{dynamic, 8}>(mlp, ike::seed{1});
  const auto x = ike::uniform<float, shape{4, 8}>(ike::seed{4});
  const auto y = holder(x);
  const auto expected = model(x);
  for (dim_t i = 0; i < y.size(); ++i) CHECK(y[i] == expected[i]);
  static_assert(std::is_same_v<std::remove_cvref_t<decltype(holder.model_of(x))>, decltype(model)>);
  CHECK(ike::get_state_dict(holder).at("fc1.weight").type == ike::dtype::float32);
}

TEST_CASE("replicas compute in it, with mixed_precision too") {
  const auto x = ike::uniform<float, shape{6, 8}>(ike::seed{4});
  ike::tensor<std::int64_t, shape{6}> t;
  for (dim_t i = 0; i < 6; ++i) t[i] = i % 3;
  auto alone = ike::initialize<precision<bf16>, shape{6, 8}>(mlp, ike::seed{1});
  ike::sgd of_alone{alone, {.lr = 0.1}};
  for (int i = 0; i < 3; ++i) alone.train_step(x, t, ike::cross_entropy{}, of_alone);
  // Ranks with the same data have the average that each has alone.
  const auto trained = [&]<class Policy>(std::type_identity<Policy>) {
    return ike::launch(ike::threads{2}, [&](ike::process_group auto& group) {
      auto model = ike::replicate<Policy>(
          ike::initialize<precision<bf16>, shape{6, 8}>(mlp, ike::seed{1}), group);
      ike::sgd sgd{model, {.lr = 0.1}};
      for (int i = 0; i < 3; ++i) model.train_step(x, t, ike::cross_entropy{}, sgd);
      return std::vector<float>(model.parameters().begin(), model.parameters().end());
    });
  };
  const std::vector<float> expected(alone.parameters().begin(), alone.parameters().end());
  for (const auto& each : trained(std::type_identity<ike::replicate_policy<>>{}))
    CHECK(same_bits(each, expected));
  using mixed = ike::replicate_policy<ike::mixed_precision<ike::bfloat16, float>>;
  for (const auto& each : trained(std::type_identity<mixed>{}))
    CHECK(largest_difference(each, expected) < 0.01);
}

TEST_CASE("a step takes no memory that one of floats does not") {
  auto exact = ike::initialize<float, shape{8, 300}>(mlp, ike::seed{1});
  auto model = ike::initialize<precision<bf16>, shape{8, 300}>(mlp, ike::seed{1});
  CHECK(model.workspace_bytes() == exact.workspace_bytes());
  CHECK(ike::workspace_bytes<decltype(model)> == exact.workspace_bytes());
  const auto x = ike::uniform<float, shape{8, 300}>(ike::seed{4});
  ike::tensor<std::int64_t, shape{8}> t;
  ike::sgd sgd{model, {.lr = 0.1}};
  model.train_step(x, t, ike::cross_entropy{}, sgd);
  const long before = allocation_count.load();
  for (int i = 0; i < 20; ++i) model.train_step(x, t, ike::cross_entropy{}, sgd);
  CHECK(allocation_count.load() == before);
}
