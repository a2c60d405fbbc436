// A replica of smaller precision as its user sees it: numbers by hand, states, memory.

#include <doctest/doctest.h>

#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

#include "ikebana/core/bfloat16.hpp"
#include "ikebana/core/float16.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/optim/sgd.hpp"
#include "ikebana/replicate/replicate.hpp"
#include "test/replicate/mixed_precision_checks.hpp"
#include "test/support/count_allocations.hpp"

using namespace mixed_precision_checks;

TEST_CASE("A layer by hand") {
  // One number times one weight: 1 + 2^-8 is between the bfloat16 numbers 1 and 1 + 2^-7, a tie.
  ike::single group;
  constexpr shape one{1, 1};
  auto model = ike::replicate<policy<ike::mixed_precision<bfloat16, float>>>(
      ike::initialize<float, one>(ike::linear<1, 1>{}, ike::seed{1}), group);
  model["weight"_s][0] = 1 + 0x1p-8f;  // 1 in bfloat16
  model["bias"_s][0] = 0x1.03p0f;      // 1 + 3 * 2^-8: 1 + 2^-6, the even one
  ike::tensor<float, one> x;
  x[0] = 3 + 0x1p-6f + 0x1p-10f;  // 3 + 2^-6
  CHECK(model(x)[0] == 4.03125f);
  x[0] = 0x1p-7f;
  CHECK(model(x)[0] == 1.0234375f);
  x[0] = 0x1p-9f;
  CHECK(model(x)[0] == 1.015625f);  // rounded to the nearest
  x[0] = 0x1.8p-8f;
  CHECK(model(x)[0] == 1.0234375f);  // up
  ike::tensor<float, one> g;
  g[0] = 1 + 0x1p-8f + 0x1p-12f;  // 1 + 2^-7
  model.backward(g);
  CHECK(model.gradient("bias"_s)[0] == 1 + 0x1p-7f);
  CHECK(model.gradient("weight"_s)[0] == rounded<bfloat16>((1 + 0x1p-7f) * 0x1.8p-8f));
  CHECK(model["weight"_s][0] == 1 + 0x1p-8f);
}

TEST_CASE("States are of the masters, and a loaded one is computed with at once") {
  ike::single group;
  auto model = ike::replicate<policy<ike::mixed_precision<bfloat16>>>(fresh<float>(), group);
  const auto state = ike::get_state_dict(model).clone();
  const auto alone = fresh<float>();
  CHECK(copied(std::as_const(model).parameters()) == copied(alone.parameters()));
  const auto x = x_of<float>(0);
  const auto before = copied(model(x).span());
  ike::sgd optimizer{model, {.lr = 0.5}};
  model.train_step(x, y_of<float>(0), ike::mse_loss{}, optimizer);
  CHECK(copied(model(x).span()) != before);
  ike::load_state_dict(model, state);
  CHECK(copied(model(x).span()) == before);
  model.parameters()[0] += 1;
  CHECK(copied(model(x).span()) != before);
}

TEST_CASE("The kinds of reduction: no cast where nothing changes") {
  using ike::mixed_precision;
  static_assert(std::is_same_v<mixed_precision<>::hook_type, ike::all_reduce_hook>);
  static_assert(
      std::is_same_v<mixed_precision<void, void, bfloat16>::hook_type, ike::all_reduce_hook>);
  static_assert(mixed_precision<bfloat16, bfloat16>::hook_type::stages == 1);
  static_assert(mixed_precision<bfloat16>::hook_type::stages == 1);
  static_assert(mixed_precision<bfloat16, float, void, void,
                                ike::mixed_precision_at<"fc2", float>>::hook_type::stages == 1);
  static_assert(mixed_precision<bfloat16, void, void, void,
                                ike::mixed_precision_at<"fc2", float>>::hook_type::stages == 2);
  // C6 clamp_reduce_dtype: a reduce type that equals that of the gradients is dropped.
  constexpr auto same = mixed_precision<bfloat16, bfloat16>::of<float>("fc1");
  constexpr auto none = mixed_precision<bfloat16>::of<float>("fc1");
  static_assert(same.reduce == none.reduce && same.reduce == ike::number_format::bfloat16);
  static_assert(mixed_precision<bfloat16, float>::of<float>("fc1").reduce ==
                ike::number_format::full);
  static_assert(mixed_precision<bfloat16, float>::of<double>("fc1").reduce ==
                ike::number_format::float32);
}

TEST_CASE("Overrides: the deepest counts, and says its own reduce type where the model says none") {
  using ike::number_format;
  using mixed = ike::mixed_precision<
      bfloat16, void, void, void, ike::mixed_precision_at<"a.b", float16>,
      ike::mixed_precision_at<"a", float, void, void, ike::cast_inputs<false>>>;
  constexpr auto at = [](std::string_view path) { return mixed::of<float>(path); };
  static_assert(at("c").param == number_format::bfloat16 && at("c").casts_inputs);
  static_assert(at("a").param == number_format::full && !at("a").casts_inputs);
  static_assert(at("ab").param == number_format::bfloat16);
  static_assert(at("a.b.c").param == number_format::float16 && at("a.b.c").casts_inputs);
  static_assert(at("a.b").reduce == number_format::float16 &&
                at("a").reduce == number_format::full);
}

TEST_CASE("Steps allocate nothing once an input of that size was seen") {
  ike::single group;
  using mixed = ike::mixed_precision<bfloat16, float16, bfloat16, void,
                                     ike::mixed_precision_at<"fc2", float>>;
  auto model = ike::replicate<policy<mixed>>(fresh<float>(), group);
  ike::sgd optimizer{model, {.lr = 0.1}};
  const auto x = x_of<float>(0);
  const auto y = y_of<float>(0);
  model.train_step(x, y, ike::mse_loss{}, optimizer);
  const long before = allocation_count;
  for (int i = 0; i < 3; ++i) model.train_step(x, y, ike::mse_loss{}, optimizer);
  CHECK(allocation_count == before);
}

TEST_CASE("A replica that was moved computes as before") {
  ike::single group;
  using mixed = ike::mixed_precision<bfloat16, float, float16>;
  auto model = ike::replicate<policy<mixed>>(fresh<float>(), group);
  const auto x = x_of<float>(0);
  const auto before = copied(model(x).span());
  auto moved = std::move(model);
  CHECK(copied(moved.output().span()) == before);
  CHECK(copied(moved(x).span()) == before);
}
