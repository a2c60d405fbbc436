// Parts of models, and models with several methods.

#include "ikebana/model/part.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <tuple>
#include <vector>

#include "ikebana/compose/choose.hpp"
#include "ikebana/compose/graph.hpp"
#include "ikebana/compose/loss.hpp"
#include "ikebana/compose/methods.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/hooks.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/dropout.hpp"
#include "ikebana/nn/identity.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/ops/elementwise.hpp"
#include "ikebana/ops/reduction.hpp"
#include "ikebana/optim/adam.hpp"
#include "ikebana/optim/sgd.hpp"
#include "test/support/count_allocations.hpp"

using namespace ikebana;
using namespace ikebana::literals;

namespace {

constexpr auto encoder =
    sequential("fc"_m = lazy_linear<5>{}, ikebana::tanh{}, "norm"_m = lazy_batch_norm1d<>{});
constexpr auto decoder = sequential("fc"_m = lazy_linear<4>{}, sigmoid{});
constexpr auto whole = sequential("encoder"_m = encoder, "decoder"_m = decoder);

constexpr auto autoencoder = methods(
    "encode"_m = graph([](auto x) { return "encoder"_m(encoder, x); }),
    "decode"_m = graph([](auto z) { return "decoder"_m(decoder, z); }),
    "reconstruct"_m = graph([](auto x) { return "decoder"_m(decoder, "encoder"_m(encoder, x)); }));

constexpr shape rows{dynamic, 4}, codes{dynamic, 5}, x_shape{7, 4};

template <class T>
std::vector<T> list(std::span<const T> of) {
  return {of.begin(), of.end()};
}

}  // namespace

TEST_CASE_TEMPLATE("the parts of a network compute and train what the whole does", T, float,
                   double) {
  auto a = initialize<T, rows>(whole, seed{1});
  auto b = initialize<T, rows>(whole, seed{1});
  auto first = b.template part<"encoder">();
  auto last = b.template part<"decoder">();
  sgd of_a{a, {.lr = 0.1, .momentum = 0.9}};
  sgd of_first{first, {.lr = 0.1, .momentum = 0.9}};
  sgd of_last{last, {.lr = 0.1, .momentum = 0.9}};
  const double near = sizeof(T) == 4 ? 1e-5 : 1e-12;
  for (std::uint64_t i = 0; i < 3; ++i) {
    const tensor x = uniform<T, x_shape>(seed{2 + i});
    const auto dy = uniform<T, x_shape>(seed{20 + i});
    auto dx = x, dx_of_parts = x;
    const tensor y{a(x)};
    a.zero_grad();
    a.backward(dy, dx);
    const tensor z{first(x)};
    const auto y_of_parts = last(z);
    for (dim_t k = 0; k < y.size(); ++k)
      CHECK(y_of_parts[k] == doctest::Approx(static_cast<double>(y[k])).epsilon(near));
    tensor<T, shape{7, 5}> dz;
    first.zero_grad();
    last.zero_grad();
    last.backward(dy, dz);
    first.backward(dz, dx_of_parts);
    for (dim_t k = 0; k < dx.size(); ++k)
      CHECK(dx_of_parts[k] == doctest::Approx(static_cast<double>(dx[k])).epsilon(near));
    for (std::size_t k = 0; k < a.gradients().size(); ++k)
      CHECK(b.gradients()[k] ==
            doctest::Approx(static_cast<double>(a.gradients()[k])).epsilon(near));
    of_a.step();
    of_first.step();
    of_last.step();
  }
  for (std::size_t k = 0; k < a.parameters().size(); ++k)
    CHECK(b.parameters()[k] ==
          doctest::Approx(static_cast<double>(a.parameters()[k])).epsilon(near));
  // Running statistics are those of the whole.
  CHECK(std::equal(a.buffers().begin(), a.buffers().end(), b.buffers().begin()) == true);
  // In evaluation, too.
  const auto x = uniform<T, x_shape>(seed{30});
  a.eval();
  b.eval();
  const tensor y{a(x)};
  const auto y_of_parts = last(tensor{first(x)});
  for (dim_t k = 0; k < y.size(); ++k)
    CHECK(y_of_parts[k] == doctest::Approx(static_cast<double>(y[k])).epsilon(near));
}

TEST_CASE("methods share modules by name, and one optimizer trains what they reach") {
  auto m = initialize<float, rows, codes, rows>(autoencoder, seed{1});
  static_assert(decltype(m)::parameter_count == 6);
  const auto state = get_state_dict(m);
  CHECK(state.contains("encoder.fc.weight"));
  CHECK(state.contains("encoder.norm.running_mean"));
  CHECK(state.contains("decoder.fc.bias"));
  // The weights depend on seed and path alone.
  auto same = initialize<float, rows>(whole, seed{1});
  CHECK(std::ranges::equal(same["encoder.fc.weight"_s], m["encoder.fc.weight"_s]));

  auto encode = m.part<"encode">();
  auto decode = m.part<"decode">();
  auto reconstruct = m.part<"reconstruct">();
  const auto x = uniform<float, x_shape>(seed{2});
  adam optimizer{m, {.lr = 0.01f}};
  const auto train = [&] {
    const float loss = reconstruct.train_step(x, x, mse_loss{}, optimizer);
    const tensor decoder_before{m["decoder.fc.weight"_s]};
    const tensor encoder_before{m["encoder.fc.weight"_s]};
    encode.train_step(x, zeros<float, shape{7, 5}>(), mse_loss{}, optimizer);
    // Adam would move parameters whose gradients are zero.
    CHECK(std::ranges::equal(decoder_before, m["decoder.fc.weight"_s]));
    CHECK_FALSE(std::ranges::equal(encoder_before, m["encoder.fc.weight"_s]));
    CHECK(m.has_gradient("encoder.fc.bias"_s));
    CHECK_FALSE(m.has_gradient("decoder.fc.bias"_s));
    return loss;
  };
  const float first = train();
  const long before = allocation_count_here;
  for (int i = 0; i < 3; ++i) reconstruct.train_step(x, x, mse_loss{}, optimizer);
  const long after = allocation_count_here;
  CHECK(after == before);
  CHECK(train() < first);

  // The passes of methods do not disturb each other.
  m.zero_grad();
  const tensor z{encode(x)};
  const auto y = decode(z);
  reconstruct(x);
  const tensor expected{reconstruct.output()};
  for (dim_t i = 0; i < y.size(); ++i) CHECK(y[i] == doctest::Approx(expected[i]).epsilon(1e-5));
  const auto dy = uniform<float, x_shape>(seed{3});
  tensor<float, shape{7, 5}> dz;
  decode.backward(dy, dz);
  encode.backward(dz);
  const auto by_two = list<float>(m.gradients());
  m.zero_grad();
  reconstruct.backward(dy);
  for (std::size_t i = 0; i < by_two.size(); ++i)
    CHECK(m.gradients()[i] == doctest::Approx(by_two[i]).epsilon(1e-4));
  // Gradients of shared modules add up.
  reconstruct(x);
  reconstruct.backward(dy);
  for (std::size_t i = 0; i < by_two.size(); ++i)
    CHECK(m.gradients()[i] == doctest::Approx(2 * by_two[i]).epsilon(1e-4));

  // All methods at once.
  const auto [codes_of_x, decoded, both] = m(x, z, x);
  CHECK(codes_of_x.extents() == shape{7, 5});
  CHECK(decoded.extents() == both.extents());
}

TEST_CASE("a part refuses the optimizer of a whole whose other gradients it would not clear") {
  auto m = initialize<float, rows>(whole, seed{1});
  auto part = m.part<"encoder.fc">();
  sgd of_whole{m, {.lr = 0.1f, .weight_decay = 0.1f}};
  const auto x = uniform<float, x_shape>(seed{2});
  const auto t = zeros<float, shape{7, 5}>();
  const auto before = list<float>(m.parameters());
  CHECK_THROWS_AS(part.train_step(x, t, mse_loss{}, of_whole), state_error);
  CHECK(before == list<float>(m.parameters()));
  sgd of_part{part, {.lr = 0.1f, .weight_decay = 0.1f}};
  part.train_step(x, t, mse_loss{}, of_part);
  const tensor trained{m["encoder.fc.weight"_s]};
  CHECK_FALSE(before == list<float>(m.parameters()));
  // No other parameter moved.
  std::size_t moved = 0;
  const auto now = list<float>(m.parameters());
  for (std::size_t i = 0; i < now.size(); ++i) moved += now[i] != before[i] ? 1 : 0;
  CHECK(moved <= 25);
  // The whole does not take the optimizer of a part.
  CHECK_THROWS_AS(m.train_step(x, x, mse_loss{}, of_part), state_error);
  // A function as the loss.
  part.loss_backward(x, t, [](auto y, auto target) { return 2 * mean(square(y - target)); });
  const tensor<float, shape{dynamic, dynamic}> narrow(shape{2, 3});
  CHECK_THROWS_AS(part(narrow), shape_error);
}

TEST_CASE("a part with random numbers and a choice follows the modes of the whole") {
  constexpr auto net = sequential(
      "body"_m = sequential("drop"_m = dropout{0.5}, "fc"_m = lazy_linear<4>{},
                            "way"_m = choose("plain"_m = identity{}, "bent"_m = ikebana::tanh{})),
      "head"_m = lazy_linear<2>{});
  auto m = initialize<double, rows>(net, seed{1});
  auto body = m.part<"body">();
  const auto x = uniform<double, x_shape>(seed{2});
  const tensor first{body(x)};
  const tensor second{body(x)};
  CHECK_FALSE(std::ranges::equal(first, second));
  body.set_random_step(0);
  CHECK(std::ranges::equal(first, body(x)));
  CHECK(body.random_step() == 1);
  m.eval();
  m.choose("body.way"_s, "plain"_s);
  const tensor plain{body(x)};
  m.choose("body.way"_s, "bent"_s);
  const auto bent = body(x);
  for (dim_t i = 0; i < plain.size(); ++i)
    CHECK(bent[i] == doctest::Approx(std::tanh(plain[i])).epsilon(1e-12));
  // Backward draws what forward drew, whatever ran in between.
  m.train();
  tensor<double, x_shape> dx;
  const auto dy = uniform<double, shape{7, 4}>(seed{3});
  const tensor drawn{body(x)};
  m(x);
  body.backward(dy, dx);
  m.choose("body.way"_s, "plain"_s);
  body.set_random_step(body.random_step() - 1);
  const auto again = body(x);
  for (dim_t i = 0; i < again.size(); ++i)
    CHECK(drawn[i] == doctest::Approx(std::tanh(again[i])).epsilon(1e-12));
}

TEST_CASE(
    "a method of several outputs adds to the gradients of another, and leaves out what none "
    "reaches") {
  constexpr auto net =
      methods("one"_m = graph([](auto x) { return "body"_m(lazy_linear<3>{}, x); }),
              "two"_m = graph([](auto x) {
                const auto h = "body"_m(lazy_linear<3>{}, x);
                return std::tuple("a"_m(lazy_linear<2>{}, h), "b"_m(lazy_linear<2>{}, h));
              }));
  auto m = initialize<double, rows, rows>(net, seed{1});
  auto one = m.part<"one">();
  auto two = m.part<"two">();
  const auto x = uniform<double, x_shape>(seed{2});
  const auto dh = uniform<double, shape{7, 3}>(seed{3});
  const auto da = uniform<double, shape{7, 2}>(seed{4});
  const auto by_a = [](auto a, auto) { return mean(square(a)); };
  const auto gradients_of = [&](bool first, bool second) {
    m.zero_grad();
    if (first) {
      one(x);
      one.backward(dh);
    }
    if (second) {
      two(x);
      two.backward(std::tuple(da, da));
    }
    return list<double>(m.gradients());
  };
  const auto of_both = gradients_of(true, true), of_one = gradients_of(true, false),
             of_two = gradients_of(false, true);
  for (std::size_t i = 0; i < of_both.size(); ++i)
    CHECK(of_both[i] == doctest::Approx(of_one[i] + of_two[i]).epsilon(1e-12));
  m.zero_grad();
  two.loss_backward(x, da, [by_a](auto a, auto b, auto) { return by_a(a, b); });
  CHECK(m.has_gradient("body.weight"_s));
  CHECK(m.has_gradient("a.weight"_s));
  // b is an input of the loss, so its gradient is zero instead of absent.
  CHECK(m.has_gradient("b.weight"_s));
}

TEST_CASE("hooks of the model do not run in its parts") {
  auto m = initialize<double, rows>(whole, seed{1});
  int calls = 0;
  m.register_forward_hook("encoder"_s, [&](const module_call&) { ++calls; });
  m.part<"encoder">()(uniform<double, x_shape>(seed{2}));
  CHECK(calls == 0);
  m(uniform<double, x_shape>(seed{2}));
  CHECK(calls == 1);
}
