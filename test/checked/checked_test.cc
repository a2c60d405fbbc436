#include <doctest/doctest.h>

#include <atomic>
#include <string>
#include <thread>
#include <utility>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/strided_view.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/optim/sgd.hpp"

#ifndef IKEBANA_CHECKED
#error "this test is compiled with IKEBANA_CHECKED"
#endif

namespace ike = ikebana;
using namespace ike::literals;
using ike::dynamic;
using ike::shape;

namespace {

template <class Error, class F>
std::string refusal(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

}  // namespace

TEST_CASE("an index out of bounds is an error") {
  ike::tensor<float, shape{2, 3}> fixed;
  const ike::tensor<float, shape{dynamic, 3}> rows(shape{2, 3});
  const auto check = [](const auto& x) {
    CHECK(x(1, 2) == 0);
    CHECK(x[5] == 0);
    CHECK(refusal<ike::error>([&] { x(1, 3); }) ==
          "index 3 of a tensor of shape [2, 3] is not in [0, 3)");
    CHECK(refusal<ike::error>([&] { x(2, 0); }) ==
          "index 2 of a tensor of shape [2, 3] is not in [0, 2)");
    CHECK(refusal<ike::error>([&] { x(0, -7); }) ==
          "index -7 of a tensor of shape [2, 3] is not in [0, 3)");
    CHECK(refusal<ike::error>([&] { x[6]; }) ==
          "index 6 of a tensor of shape [2, 3] is not in [0, 6)");
    CHECK_THROWS_AS(x[-1], ike::error);
  };
  check(fixed);
  check(fixed.view());
  check(rows);
  check(rows.view());
  CHECK_THROWS_AS(fixed(1, 3) = 1, ike::error);
  CHECK_THROWS_AS(ike::transposed(fixed)(3, 1), ike::error);
  CHECK_THROWS_AS(ike::transposed(fixed)(0, -1), ike::error);
  CHECK_THROWS_AS(fixed[6] = 1, ike::error);
  const auto moved = std::move(fixed);
  CHECK_THROWS_AS(fixed[0], ike::error);
}

TEST_CASE("calls of one model by two threads at once are refused, one after another are not") {
  constexpr shape in{dynamic, 3};
  auto m = ike::initialize<float, in>(
      ike::sequential("fc1"_m = ike::lazy_linear<4>{}, "relu"_m = ike::relu{},
                      "fc2"_m = ike::lazy_linear<2>{}),
      ike::seed{1});
  const auto x = ike::uniform<float, in>(ike::seed{2}, 5);
  const auto t = ike::uniform<float, shape{dynamic, 2}>(ike::seed{3}, 5);
  ike::sgd optimizer{m, {.lr = 0.1}};
  m(x);
  const std::string said =
      "the model is called by two threads at once: give each thread its own clone()";
  std::atomic<bool> is_inside = false, may_leave = false;
  bool waits = true;
  m.register_forward_hook("relu"_s, [&](const ike::module_call&) {
    if (!waits) return;
    is_inside = true;
    while (!may_leave) std::this_thread::yield();
  });
  std::thread other([&] { m(x); });
  while (!is_inside) std::this_thread::yield();
  const auto dy = ike::uniform<float, shape{dynamic, 2}>(ike::seed{3}, 5);
  CHECK(refusal<ike::state_error>([&] { m(x); }) == said);
  CHECK(refusal<ike::state_error>([&] { m(ike::uniform<float, in>(ike::seed{2}, 6)); }) == said);
  CHECK(refusal<ike::state_error>([&] { m.train_step(x, t, ike::mse_loss{}, optimizer); }) == said);
  CHECK(refusal<ike::state_error>([&] { m.loss_backward(x, t, ike::mse_loss{}); }) == said);
  may_leave = true;
  other.join();
  waits = false;
  m(x);
  m.train_step(x, t, ike::mse_loss{}, optimizer);
  std::thread([&] { m(x); }).join();
}

TEST_CASE("a call that threw has ended") {
  auto m = ike::initialize<float, shape{dynamic, 3}>(ike::sequential("fc"_m = ike::linear<3, 2>{}),
                                                     ike::seed{1});
  const ike::tensor<float, shape{dynamic, dynamic}> wrong(shape{5, 4});
  CHECK_THROWS_AS(m(wrong), ike::shape_error);
  std::thread([&] { m(ike::uniform<float, shape{5, 3}>(ike::seed{2})); }).join();
}
