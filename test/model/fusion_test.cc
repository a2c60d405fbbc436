#include "ikebana/model/plan/fusion.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

#include "ikebana/compose/choose.hpp"
#include "ikebana/compose/graph.hpp"
#include "ikebana/compose/residual.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/hooks.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/module/arithmetic.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/conv.hpp"
#include "ikebana/nn/dropout.hpp"
#include "ikebana/nn/flatten.hpp"
#include "ikebana/nn/layer_norm.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/nn/pool.hpp"
#include "ikebana/nn/rms_norm.hpp"
#include "ikebana/nn/weight_norm.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::shape;
using ike::cpu::activation;

namespace {

constexpr auto mlp = ike::sequential("fc1"_m = ike::lazy_linear<7>{}, "relu"_m = ike::relu{},
                                     "fc2"_m = ike::lazy_linear<5>{}, "tanh"_m = ike::tanh{},
                                     "fc3"_m = ike::lazy_linear<6>{}, "sigmoid"_m = ike::sigmoid{},
                                     "flatten"_m = ike::flatten{}, "fc4"_m = ike::lazy_linear<3>{});
constexpr shape rows{4, 9};

template <shape In, class M>
constexpr auto plan_of(const M& m) {
  constexpr ike::program_sizes n = ike::sizes_of<ike::become_t<M, In>>(1);
  return ike::plan_fusion(ike::lower<n>(ike::become<ike::shape_list{In}>(m), ike::shape_list{In}),
                          1);
}

/// The largest relative difference between the outputs and parameter gradients of a network with
/// and without fusion.
template <class T, shape In, class M>
double difference(const M& m, bool training = true) {
  auto fused = ike::initialize<T, In>(m, ike::seed{5});
  auto plain = fused.clone();
  plain.set_fusion(false);
  CHECK(fused.fuses());
  CHECK_FALSE(plain.fuses());
  fused.train(training);
  plain.train(training);
  const auto x = ike::uniform<T, In>(ike::seed{8});
  double worst = 0, size = 0;
  const auto compare = [&](const auto& a, const auto& b) {
    REQUIRE(a.size() == b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      worst = std::max(worst, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
      size = std::max(size, std::abs(static_cast<double>(b[i])));
    }
  };
  const auto a = fused(x), b = plain(x);
  compare(a.span(), b.span());
  auto dy = ike::uniform<T, std::remove_cvref_t<decltype(fused)>::output_shape>(ike::seed{9});
  auto dx = ike::zeros<T, In>(), dx_plain = ike::zeros<T, In>();
  for (int i = 0; i < 2; ++i) {
    fused(x);
    plain(x);
    fused.backward(dy, dx);
    plain.backward(dy, dx_plain);
    compare(fused.gradients(), plain.gradients());
    compare(dx.span(), dx_plain.span());
  }
  CHECK(size > 0);
  return worst / size;
}

}  // namespace

TEST_CASE(
    "a product takes over the activation after it, and its backward the slope of the one before") {
  constexpr auto plan = plan_of<rows>(mlp);
  static_assert(plan.calls[0].function == activation::relu);
  static_assert(plan.calls[1].forward_is_done && plan.calls[1].backward_is_done);
  static_assert(plan.calls[2].function == activation::tanh);
  static_assert(plan.calls[2].slope == activation::relu);
  static_assert(plan.calls[4].function == activation::sigmoid);
  static_assert(plan.calls[4].slope == activation::tanh);
  static_assert(plan.calls[7].slope == activation::sigmoid, "through a view");
  static_assert(plan.calls[7].function == activation::none);
  CHECK(difference<float, rows>(mlp) < 1e-6);
  CHECK(difference<double, rows>(mlp) < 1e-15);
  CHECK(difference<double, rows>(mlp, false) < 1e-15);
}

TEST_CASE("a product takes over a sum, and the activation after it") {
  constexpr auto net = ike::graph([](auto x) {
    auto h = "fc1"_m(ike::lazy_linear<6>{}, x);
    auto g = "fc2"_m(ike::lazy_linear<6>{}, ike::tanh{}(h));
    auto r = "relu"_m(ike::relu{}, h + g);
    return "fc3"_m(ike::lazy_linear<2>{}, r);
  });
  constexpr auto plan = plan_of<rows>(net);
  // fc1, tanh, fc2, add, relu, fc3
  static_assert(plan.calls[0].function == activation::none, "its output is read twice");
  static_assert(plan.calls[2].adds && plan.calls[2].added == 1 &&
                plan.calls[2].function == activation::relu);
  static_assert(plan.calls[3].forward_is_done && plan.calls[4].forward_is_done);
  static_assert(plan.calls[5].slope == activation::relu);
  CHECK(difference<double, rows>(net) < 1e-15);
  CHECK(difference<float, rows>(net) < 1e-6);
}

TEST_CASE("of two sums a product takes over the first") {
  constexpr auto net = ike::graph([](auto x) {
    auto g = "fc"_m(ike::lazy_linear<9>{}, x);
    return (x + g) + x;
  });
  constexpr auto plan = plan_of<rows>(net);
  static_assert(plan.calls[0].adds && plan.calls[0].added == 0);
  static_assert(plan.calls[1].forward_is_done && !plan.calls[2].forward_is_done);
  CHECK(difference<double, rows>(net) < 1e-15);
}

TEST_CASE("an activation before a sum is not moved behind it") {
  constexpr auto net = ike::residual("fc"_m = ike::lazy_linear<9>{}, "relu"_m = ike::relu{});
  constexpr auto plan = plan_of<rows>(net);
  static_assert(plan.calls[0].function == activation::relu && !plan.calls[0].adds);
  static_assert(!plan.calls[2].forward_is_done);
  CHECK(difference<double, rows>(net) < 1e-15);
}

TEST_CASE("a sum with what comes later is not taken over") {
  constexpr auto net = ike::graph([](auto x) {
    auto a = "fc1"_m(ike::lazy_linear<4>{}, x);
    auto b = "fc2"_m(ike::lazy_linear<4>{}, x);
    return a + b;
  });
  constexpr auto plan = plan_of<rows>(net);
  static_assert(!plan.calls[0].adds);
  static_assert(plan.calls[1].adds && plan.calls[1].added == 1, "fc2 adds what fc1 gave");
  CHECK(difference<double, rows>(net) < 1e-15);
}

TEST_CASE("dropout overwrites what it is given, and the output of a model stays") {
  constexpr auto net =
      ike::sequential("fc1"_m = ike::lazy_linear<8>{}, "drop"_m = ike::dropout{.p = 0.4},
                      "relu"_m = ike::relu{}, "fc2"_m = ike::lazy_linear<8>{}, ike::relu{});
  constexpr auto plan = plan_of<rows>(net);
  static_assert(plan.overwrites[1] == 0 && !plan.calls[1].forward_is_done);
  static_assert(plan.overwrites[2] == 0 && !plan.calls[2].forward_is_done);
  static_assert(plan.calls[3].function == activation::relu);
  CHECK(difference<double, rows>(net) < 1e-15);
  CHECK(difference<double, rows>(net, false) < 1e-15);
}

TEST_CASE("dropout takes over the sum after it") {
  constexpr auto net = ike::graph([](auto x) {
    auto h = "fc1"_m(ike::lazy_linear<700>{}, x);
    auto g = "drop"_m(ike::dropout{.p = 0.4}, "fc2"_m(ike::lazy_linear<700>{}, ike::tanh{}(h)));
    return "fc3"_m(ike::lazy_linear<2>{}, ike::relu{}(g + h));
  });
  constexpr auto plan = plan_of<rows>(net);
  // fc1, tanh, fc2, drop, add, relu, fc3
  static_assert(plan.calls[3].adds && plan.calls[3].added == 1);
  static_assert(plan.calls[4].forward_is_done && !plan.calls[5].forward_is_done);
  static_assert(plan.evaluation_calls[2].adds && plan.evaluation_calls[3].forward_is_done);
  static_assert(plan.evaluation_calls[2].function == activation::relu);
  CHECK(difference<double, rows>(net) < 1e-14);
  CHECK(difference<double, rows>(net, false) < 1e-14);
  CHECK(difference<float, rows>(net) < 1e-5);
}

TEST_CASE(
    "in evaluation a product takes over what its backward would need, which is then made again") {
  constexpr auto net = ike::sequential(
      "fc1"_m = ike::lazy_linear<8>{}, "gelu"_m = ike::gelu{}, "fc2"_m = ike::lazy_linear<5>{},
      "drop"_m = ike::dropout{.p = 0.4}, "relu"_m = ike::relu{}, "fc3"_m = ike::lazy_linear<3>{});
  constexpr auto plan = plan_of<rows>(net);
  static_assert(plan.calls[0].function == activation::none, "gelu's backward reads its input");
  static_assert(plan.evaluation_calls[0].function == activation::gelu);
  static_assert(plan.evaluation_calls[0].gives_other && plan.evaluation_leaves_out);
  static_assert(plan.calls[2].function == activation::none, "what is dropped comes before");
  static_assert(plan.evaluation_calls[2].function == activation::relu);
  static_assert(plan.evaluation_calls[3].forward_is_done);
  CHECK(difference<double, rows>(net) < 1e-15);
  CHECK(difference<double, rows>(net, false) < 1e-15);
  CHECK(difference<float, rows>(net, false) < 1e-6);
}

TEST_CASE("a norm takes over the sum before it") {
  constexpr auto net = ike::graph([](auto x) {
    auto t = "tanh"_m(ike::tanh{}, x);
    auto y = "norm1"_m(ike::lazy_layer_norm<>{}, ike::gelu{}(t) + t);
    return "norm2"_m(ike::lazy_rms_norm<>{}, ike::gelu{}(y) + y);
  });
  constexpr auto plan = plan_of<rows>(net);
  // tanh, gelu, add, norm1, gelu, add, norm2
  static_assert(plan.calls[2].forward_is_done && plan.calls[3].adds && plan.calls[3].added == 1);
  static_assert(plan.calls[5].forward_is_done && plan.calls[6].adds && plan.calls[6].added == 4);
  CHECK(difference<double, rows>(net) < 1e-14);
  CHECK(difference<float, rows>(net) < 1e-5);
  CHECK(difference<double, rows>(net, false) < 1e-14);
}

TEST_CASE("a convolution takes over a sum and the activation after it") {
  constexpr auto net = ike::graph([](auto x) {
    auto h = "conv1"_m(ike::lazy_conv2d<6, ike::kernel<3>, ike::padding<1>>{}, x);
    auto g = "conv2"_m(ike::lazy_conv2d<6, ike::kernel<3>, ike::padding<1>>{}, ike::tanh{}(h));
    auto r = ike::relu{}(g + h);
    return "conv3"_m(ike::lazy_conv2d<6, ike::kernel<3>, ike::groups<6>>{}, r);
  });
  constexpr shape images{3, 2, 9, 7};
  constexpr auto plan = plan_of<images>(net);
  static_assert(plan.calls[2].adds && plan.calls[2].function == activation::relu);
  CHECK(difference<double, images>(net) < 1e-14);
  CHECK(difference<float, images>(net) < 1e-5);
}

TEST_CASE("a batch norm takes over the activation after it") {
  constexpr auto net = ike::sequential(
      "pool"_m = ike::max_pool2d<ike::kernel<2>>{}, "bn1"_m = ike::lazy_batch_norm2d<>{},
      "relu"_m = ike::relu{}, "conv"_m = ike::lazy_conv2d<5, ike::kernel<3>>{},
      "bn2"_m = ike::lazy_batch_norm2d<>{}, "tanh"_m = ike::tanh{}, "out"_m = ike::flatten{});
  constexpr shape images{3, 2, 12, 14};
  constexpr auto plan = plan_of<images>(net);
  // pool, bn1, relu, conv, bn2, tanh, flatten
  static_assert(plan.calls[1].function == activation::relu && plan.calls[2].forward_is_done);
  static_assert(plan.calls[4].function == activation::tanh && plan.calls[5].forward_is_done);
  static_assert(plan.evaluation_calls[1].function == activation::relu);
  static_assert(plan.evaluation_calls[3].function == activation::tanh &&
                plan.evaluation_calls[4].function == activation::none);
  CHECK(difference<double, images>(net) < 1e-13);
  CHECK(difference<double, images>(net, false) < 1e-13);
  CHECK(difference<float, images>(net) < 1e-5);
}

TEST_CASE("in evaluation a convolution takes over a batch norm, a sum and an activation") {
  constexpr auto net = ike::graph([](auto x) {
    auto h = ike::relu{}(
        "bn1"_m(ike::lazy_batch_norm2d<>{}, "conv1"_m(ike::lazy_conv2d<6, ike::kernel<3>>{}, x)));
    auto g = "bn2"_m(
        ike::lazy_batch_norm2d<ike::affine<false>>{},
        "conv2"_m(ike::lazy_conv2d<6, ike::kernel<3>, ike::padding<1>, ike::bias<false>>{}, h));
    auto r = ike::relu{}(g + h);
    return "bn3"_m(ike::lazy_batch_norm2d<>{},
                   "conv3"_m(ike::lazy_conv2d<6, ike::kernel<3>, ike::groups<6>>{}, r));
  });
  constexpr shape images{3, 2, 9, 7};
  constexpr auto plan = plan_of<images>(net);
  // conv1, bn1, relu, conv2, bn2, add, relu, conv3, bn3
  static_assert(!plan.calls[0].normalises && !plan.calls[1].forward_is_done);
  static_assert(plan.evaluation_calls[0].normalises && plan.evaluation_calls[0].norm == 1);
  static_assert(plan.evaluation_calls[0].function == activation::relu);
  static_assert(plan.evaluation_calls[3].normalises && plan.evaluation_calls[3].adds);
  static_assert(plan.evaluation_calls[3].function == activation::relu);
  static_assert(plan.evaluation_calls[7].normalises);
  CHECK(difference<double, images>(net) < 1e-13);
  CHECK(difference<double, images>(net, false) < 1e-13);
  CHECK(difference<float, images>(net, false) < 1e-5);
}

TEST_CASE("across the border of an alternative nothing is taken over") {
  constexpr auto net =
      ike::sequential("fc1"_m = ike::linear<9, 5>{},
                      "choice"_m = ike::choose("a"_m = ike::relu{}, "b"_m = ike::tanh{}),
                      "fc2"_m = ike::linear<5, 3>{});
  auto fused = ike::initialize<double, rows>(net, ike::seed{5});
  auto plain = fused.clone();
  plain.set_fusion(false);
  const auto x = ike::uniform<double, rows>(ike::seed{8});
  const auto dy = ike::uniform<double, shape{4, 3}>(ike::seed{9});
  for (int which : {0, 1, 0}) {
    fused.choose("choice"_s, which);
    plain.choose("choice"_s, which);
    const auto a = fused(x), b = plain(x);
    for (std::size_t i = 0; i < a.span().size(); ++i)
      CHECK(a.span()[i] == doctest::Approx(b.span()[i]).epsilon(1e-14));
    fused.zero_grad();
    plain.zero_grad();
    fused.backward(dy);
    plain.backward(dy);
    for (std::size_t i = 0; i < fused.gradients().size(); ++i)
      CHECK(fused.gradients()[i] == doctest::Approx(plain.gradients()[i]).epsilon(1e-14));
  }
}

TEST_CASE("in evaluation layers that follow each other run in one call") {
  constexpr auto net = ike::sequential(
      "fc1"_m = ike::linear<3, 8>{}, ike::tanh{}, "fc2"_m = ike::linear<8, 20, ike::bias<false>>{},
      ike::dropout{.p = 0.3}, ike::relu{}, "fc3"_m = ike::linear<20, 70>{}, ike::gelu{},
      "fc4"_m = ike::linear<70, 5>{}, ike::sigmoid{}, "fc5"_m = ike::linear<5, 1>{});
  constexpr shape one{1, 3}, three{3, 3}, alone{3};
  constexpr auto plan = plan_of<one>(net);
  static_assert(plan.evaluation_calls[0].layers == 5 && plan.calls[0].layers == 0);
  for (std::size_t k : {2u, 5u, 7u, 9u}) CHECK(plan.evaluation_calls[k].layers == -1);
  CHECK(difference<double, one>(net, false) < 1e-14);
  CHECK(difference<float, one>(net, false) < 1e-5);
  CHECK(difference<double, alone>(net, false) < 1e-14);
  CHECK(difference<double, three>(net, false) < 1e-14);

  constexpr auto branches = ike::graph([](auto x) {
    auto a = "fc1"_m(ike::linear<3, 6>{}, x);
    auto b = "fc3"_m(ike::linear<4, 6>{}, "fc2"_m(ike::linear<6, 4>{}, a));
    auto c = "fc5"_m(ike::linear<4, 2>{}, "fc4"_m(ike::linear<6, 4>{}, ike::tanh{}(b + a)));
    return c;
  });
  constexpr auto parts = plan_of<one>(branches);
  // fc1, fc2, fc3, add, tanh, fc4, fc5
  static_assert(parts.evaluation_calls[0].layers == 2 && parts.evaluation_calls[1].layers == -1);
  static_assert(parts.evaluation_calls[2].layers == 0 && parts.evaluation_calls[2].adds);
  static_assert(parts.evaluation_calls[5].layers == 2 && parts.evaluation_calls[6].layers == -1);
  CHECK(difference<double, one>(branches, false) < 1e-14);

  // A linear whose weight is computed from other parameters does not join.
  constexpr auto normed = ike::sequential("fc1"_m = ike::linear<3, 6>{},
                                          "fc2"_m = ike::weight_norm(ike::linear<6, 4>{}),
                                          ike::tanh{}, "fc3"_m = ike::linear<4, 2>{});
  constexpr auto others = plan_of<one>(normed);
  static_assert(others.evaluation_calls[0].layers == 1 && others.evaluation_calls[1].layers == 0);
  static_assert(others.evaluation_calls[3].layers == 1);
  CHECK(difference<double, one>(normed, false) < 1e-14);
  CHECK(difference<double, three>(branches, false) < 1e-14);
}

namespace {

template <shape In, class M>
void expect_every_change(const M& net) {
  auto model = ike::initialize<float, In>(net, ike::seed{5});
  model.eval();
  const auto x = ike::uniform<float, In>(ike::seed{8});
  const auto expect_right = [&](auto& m) {
    const float y = m(x)[0];
    m.set_fusion(false);
    CHECK(m(x)[0] == doctest::Approx(y).epsilon(1e-5));
    m.set_fusion(true);
    return y;
  };
  float last = expect_right(model);
  const auto expect_another = [&](auto& m) {
    const float y = expect_right(m);
    CHECK(y != last);
    last = y;
  };
  auto other = ike::initialize<float, In>(net, ike::seed{6});
  const auto own = ike::get_state_dict(model).clone();
  other.eval();
  expect_another(other);
  ike::load_state_dict(model, ike::get_state_dict(other));
  expect_right(model);
  ike::load_state_dict(model, own);
  expect_another(model);
  // A copy has its own parameters, and so does a moved-to model.
  auto copy = model.clone();
  expect_right(copy);
  ike::load_state_dict(copy, ike::get_state_dict(other));
  expect_another(copy);
  auto moved = std::move(copy);
  expect_right(moved);
  moved = std::move(model);
  expect_another(moved);
  // From here on, the parameters may be written at any time.
  auto weight = moved["fc1.weight"_s];
  expect_right(moved);
  for (int i = 0; i < 3; ++i) {
    weight[i] += 1;
    expect_another(moved);
  }
  moved.parameters().back() += 1;
  moved["fc2.bias"_s][0] += 1;
  expect_another(moved);
  // Its memory is the last of all.
  moved["fc1.bias"_s][0] += 1;
  expect_another(moved);
  copy = moved.clone();
  expect_right(copy);
  weight[0] += 1;
  expect_another(moved);
}

}  // namespace

TEST_CASE("layers that run in one call see every change of their parameters") {
  constexpr auto net =
      ike::sequential("fc1"_m = ike::linear<2, 4>{}, ike::tanh{}, "fc2"_m = ike::linear<4, 1>{});
  expect_every_change<shape{1, 2}>(net);
  // A model keeps transposed weights for these.
  expect_every_change<shape{16, 34}>(ike::sequential("fc1"_m = ike::linear<34, 47>{}, ike::tanh{},
                                                     "fc2"_m = ike::linear<47, 40>{}));
  // Another shape needs another plan.
  const auto x = ike::uniform<float, shape{1, 2}>(ike::seed{8});
  auto open = ike::initialize<float, shape{ike::dynamic, 2}>(net, ike::seed{5});
  open.eval();
  const auto two = ike::uniform<float, shape{2, 2}>(ike::seed{9});
  const float first = open(x)[0];
  open(two);
  CHECK(open(x)[0] == first);
}

TEST_CASE("layers in one call see changed parameters whatever rows came between") {
  constexpr auto net =
      ike::sequential("fc1"_m = ike::linear<34, 47>{}, ike::tanh{}, "fc2"_m = ike::linear<47, 40>{},
                      "fc3"_m = ike::linear<40, 8>{});
  auto model = ike::initialize<float, shape{ike::dynamic, 34}>(net, ike::seed{5});
  const auto other = ike::initialize<float, shape{ike::dynamic, 34}>(net, ike::seed{6});
  const auto own = ike::get_state_dict(model).clone();
  model.eval();
  const auto expect_right = [&](ike::dim_t count) {
    const auto x = ike::uniform<float, shape{ike::dynamic, 34}>(ike::seed{8}, count);
    const auto fused = model(x);
    const std::vector<float> y(fused.span().begin(), fused.span().end());
    model.set_fusion(false);
    const auto single = model(x);
    model.set_fusion(true);
    for (std::size_t i = 0; i < y.size(); ++i)
      CHECK(single.span()[i] == doctest::Approx(y[i]).epsilon(1e-4));
    return y;
  };
  std::vector<std::vector<float>> first;
  for (const ike::dim_t count : {16, 1, 40, 200, 9}) first.push_back(expect_right(count));
  CHECK(expect_right(16) == first[0]);
  CHECK(expect_right(1) == first[1]);
  ike::load_state_dict(model, ike::get_state_dict(other));
  CHECK(expect_right(40) != first[2]);
  CHECK(expect_right(16) != first[0]);
  CHECK(expect_right(200) != first[3]);
  ike::load_state_dict(model, own);
  CHECK(expect_right(1) == first[1]);
  CHECK(expect_right(16) == first[0]);
  CHECK(expect_right(40) == first[2]);
  // From here on, the parameters may be written at any time.
  auto weight = model["fc1.weight"_s];
  CHECK(expect_right(16) == first[0]);
  weight[0] += 1;
  CHECK(expect_right(40) != first[2]);
  CHECK(expect_right(16) != first[0]);
}

TEST_CASE("a hook sees what a module gives before its activation") {
  auto model = ike::initialize<float, rows>(mlp, ike::seed{5});
  const auto x = ike::uniform<float, rows>(ike::seed{8});
  const auto y = model(x);
  const std::vector<float> without(y.span().begin(), y.span().end());
  bool negative = false;
  const auto handle = model.register_forward_hook("fc1"_s, [&](const ike::module_call& c) {
    const auto out = c.template output<float>();
    for (float v : out) negative = negative || v < 0;
  });
  const auto with = model(x);
  CHECK(negative);
  for (std::size_t i = 0; i < without.size(); ++i)
    CHECK(with.span()[i] == doctest::Approx(without[i]).epsilon(1e-5));
}
