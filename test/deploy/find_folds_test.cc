#include "ikebana/deploy/find_folds.hpp"

#include <doctest/doctest.h>

#include <tuple>

#include "ikebana/compose/frozen.hpp"
#include "ikebana/compose/graph.hpp"
#include "ikebana/compose/methods.hpp"
#include "ikebana/compose/observe.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/deploy/freeze.hpp"
#include "ikebana/io/npz.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/lazy_model.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/model/state_dict.hpp"
#include "ikebana/module/print.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/causal_conv1d.hpp"
#include "ikebana/nn/conv.hpp"
#include "ikebana/nn/dropout.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/standard_scaler.hpp"
#include "ikebana/nn/weight_norm.hpp"
#include "ikebana/ops/constant.hpp"
#include "ikebana/ops/elementwise.hpp"
#include "test/deploy/folded.hpp"
#include "test/support/scratch.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::shape;

namespace {

constexpr shape rows{ike::dynamic, 5};
constexpr shape images{ike::dynamic, 3, 7, 5};
constexpr shape sequences{ike::dynamic, 3, 9};

}  // namespace

TEST_CASE("scalings after weights are part of them") {
  // A number, a parameter for each output, and a norm of what they give.
  CHECK(folded<float, rows>(ike::graph([](auto x) {
          const auto half = "fc"_m(ike::linear<5, 4, ike::bias<false>>{}, x) * 0.5;
          const auto y = half * ike::parameter<"scale", shape{4}>(x, ike::initializer::uniform(1));
          return ike::tanh{}("norm"_m(ike::lazy_batch_norm1d<>{}, 3 - y));
        })) == "linear/2 identity/0 identity/0 identity/0 identity/0 identity/0");
  // No bias is added where nothing is shifted.
  CHECK(folded<double, rows>(ike::graph([](auto x) {
          const auto y = "fc"_m(ike::linear<5, 4, ike::bias<false>>{}, x);
          return -(y / ike::parameter<"scale", shape{1}>(x, ike::initializer::constant(2))) * 3;
        })) == "linear/1 identity/0 identity/0 identity/0 identity/0");
  CHECK(folded<float, rows>(ike::sequential(
            "fc"_m = ike::lazy_linear<3>{}, "scale"_m = ike::lazy_standard_scaler{}, ike::relu{},
            "fc2"_m = ike::lazy_linear<2>{})) == "linear/2 identity/0 linear/2");
  // Rows of vectors, and channels of images, in a residual whose branch is scaled.
  CHECK(folded<double, shape{ike::dynamic, 2, 5}>(ike::graph([](auto x) {
          const auto y = "fc"_m(ike::linear<5, 5>{}, ike::relu{}(x));
          return x + ike::parameter<"gamma", shape{5}>(x, ike::initializer::uniform(1)) * y;
        })) == "identity/0 linear/2 identity/0");
  CHECK(folded<float, images>(ike::graph([](auto x) {
          const auto y = "conv"_m(ike::lazy_conv2d<3, ike::kernel<3>, ike::same_padding>{}, x);
          const auto g = ike::parameter<"gamma", shape{3, 1, 1}>(x, ike::initializer::uniform(1));
          return ike::relu{}(x + (y * g + ike::parameter<"beta", shape{3, 1, 1}>(x)) * 0.25);
        })) == "conv2d/2 identity/0 identity/0 identity/0 identity/0 identity/0");
}

TEST_CASE("scalings before weights are part of them") {
  CHECK(folded<double, rows>(ike::sequential("input"_m = ike::lazy_standard_scaler{},
                                             ike::lazy_linear<7>{}, ike::relu{}, ike::dropout{},
                                             ike::lazy_standard_scaler{},
                                             ike::lazy_linear<3, ike::bias<false>>{})) ==
        "identity/0 linear/2 identity/0 identity/0 linear/2");
  CHECK(folded<float, rows>(ike::graph([](auto x) {
          const auto mean = ike::parameter<"mean", shape{5}>(x, ike::initializer::uniform(1));
          const auto y = "fc"_m(ike::linear<5, 4>{}, (x / 255 - mean) * 2);
          return "fc2"_m(ike::linear<4, 3, ike::bias<false>>{}, ike::tanh{}(y)*0.5);
        })) == "identity/0 identity/0 identity/0 identity/0 linear/2 identity/0 linear/1");
  // Zeros around an image are scaled, too, but not shifted.
  CHECK(folded<double, images>(ike::graph([](auto x) {
          const auto g = ike::parameter<"g", shape{3, 1, 1}>(x, ike::initializer::uniform(1));
          return "conv"_m(ike::lazy_conv2d<6, ike::kernel<3>, ike::padding<1>, ike::groups<3>>{},
                          ike::tanh{}(x)*g);
        })) == "identity/0 identity/0 conv2d/2");
  CHECK(folded<float, images>(ike::graph([](auto x) {
          return "conv"_m(ike::lazy_conv2d<6, ike::kernel<3>, ike::padding<1>>{}, x - 0.5);
        })) == "conv2d/2");
  CHECK(folded<double, images>(ike::graph([](auto x) {
          const auto m = ike::parameter<"m", shape{3, 1, 1}>(x, ike::initializer::uniform(1));
          return "conv"_m(ike::lazy_conv2d<6, ike::kernel<3>, ike::groups<3>, ike::bias<false>>{},
                          x - m);
        })) == "identity/0 identity/0 conv2d/2");
  CHECK(folded<float, images>(ike::graph([](auto x) {
          return "conv"_m(
              ike::lazy_conv2d<6, ike::kernel<3>, ike::padding<1>, ike::padding_mode<"circular">>{},
              x - 0.5);
        })) == "identity/0 conv2d/2");
  CHECK(folded<double, sequences>(ike::graph([](auto x) {
          const auto y = "a"_m(ike::lazy_causal_conv1d<4, ike::kernel<2>>{}, x * 3);
          return "b"_m(ike::lazy_causal_conv1d<4, ike::kernel<2>>{}, ike::relu{}(y) + 1);
        })) == "identity/0 causal_conv1d/2 causal_conv1d/2");
  // A norm of the input, and computed weights.
  CHECK(folded<float, images>(
            ike::sequential(ike::lazy_batch_norm2d<>{},
                            ike::weight_norm<ike::conv2d<3, 4, ike::kernel<2>>, "weight", 1>{})) ==
        "identity/0 conv2d/2");
  CHECK(folded<double, rows>(ike::frozen<"norm", "p">(ike::graph([](auto x) {
          const auto y = "norm"_m(ike::lazy_batch_norm1d<>{}, x);
          return "fc"_m(ike::linear<5, 4>{}, y * ike::parameter<"p", shape{5}>(x));
        }))) == "identity/0 identity/0 identity/0 linear/2");
}

TEST_CASE("a scaling stays where it is not one of each channel, or has other readers") {
  const auto stays = [](const auto& net) { return folded<double, rows>(net); };
  // Something else reads what is scaled, or the result, or the parameter.
  CHECK(stays(ike::graph([](auto x) {
          const auto y = "fc"_m(ike::linear<5, 5>{}, x);
          return y * 2 + ike::tanh{}(y);
        })) == "linear/2");
  CHECK(stays(ike::graph([](auto x) {
          const auto y = x * 2;
          return "fc"_m(ike::linear<5, 5>{}, y) + y;
        })) == "linear/2");
  CHECK(stays(ike::graph([](auto x) {
          const auto p = ike::parameter<"p", shape{5}>(x);
          return "fc"_m(ike::linear<5, 5>{}, x) * p + p;
        })) == "linear/2 parameter/1");
  // Weights that are used twice.
  CHECK(stays(ike::graph([](auto x) {
          const auto fc = "fc"_m = ike::linear<5, 5>{};
          return fc(ike::tanh{}(fc(x) * 2));
        })) == "linear/2");
  // Each row by a number of its own; an affine map of the reciprocal; no map of numbers.
  CHECK(stays(ike::graph([](auto x) {
          return "fc"_m(ike::linear<5, 5>{}, x) * ike::arange_like<1>(x);
        })) == "linear/2");
  CHECK(stays(ike::graph([](auto x) { return "fc"_m(ike::linear<5, 5>{}, 2 / (x + 3)); })) ==
        "linear/2");
  CHECK(stays(ike::graph([](auto x) {
          return ike::maximum("fc"_m(ike::linear<5, 5>{}, x), 0.25);
        })) == "linear/2");
  CHECK(folded<double, shape{ike::dynamic, 5, 5}>(ike::graph([](auto x) {
          return "fc"_m(ike::linear<5, 5>{}, x) * ike::parameter<"p", shape{5, 1}>(x);
        })) == "linear/2 parameter/1");
  // Numbers that the type of the network does not tell.
  const double number = 3;
  CHECK(stays(ike::graph([number](auto x) { return "fc"_m(ike::linear<5, 5>{}, x) * number; })) ==
        "linear/2");
  CHECK(stays(ike::sequential(ike::linear<5, 5>{},
                              ike::ops::elementwise{ike::cpu::tensor_op::exp, 1})) == "linear/2");
  // A parameter that makes the result larger.
  CHECK(folded<double, shape{ike::dynamic, 1, 5}>(ike::graph([](auto x) {
          return "fc"_m(ike::linear<5, 5>{}, x) * ike::parameter<"p", shape{3, 1}>(x);
        })) == "linear/2 parameter/1");
}

TEST_CASE("scalings are folded in networks with observed values, and stay in those of methods") {
  const auto x = ike::uniform<double, shape{2, 5}>(ike::seed{2});
  const auto net = ike::observe<"fc">(
      ike::graph([](auto v) { return ike::tanh{}("fc"_m(ike::linear<5, 4>{}, v * 2)); }));
  auto model = ike::initialize<double, shape{2, 5}>(net, ike::seed{1});
  model.eval();
  const auto frozen = ike::freeze(model);
  CHECK(kinds(frozen.module()) == "identity/0 linear/2");
  auto lane = frozen.lane();
  const auto [y, seen] = model(x);
  const auto outputs = frozen(lane, x);
  for (ike::dim_t i = 0; i < y.size(); ++i) {
    CHECK(std::get<0>(outputs).data()[i] == doctest::Approx(y.data()[i]));
    CHECK(std::get<1>(outputs).data()[i] == doctest::Approx(seen.data()[i]));
  }

  constexpr auto coder = ike::methods(
      "encode"_m = ike::graph([](auto v) { return "fc"_m(ike::linear<5, 4>{}, v * 2); }),
      "decode"_m = ike::graph([](auto v) { return "out"_m(ike::linear<4, 5>{}, v); }));
  auto both = ike::initialize<double, shape{2, 5}, shape{2, 4}>(coder, ike::seed{1});
  both.eval();
  const auto all = ike::freeze(both);
  CHECK(kinds(all.module()) == "linear/2 linear/2");
}

TEST_CASE("a frozen network shows what is folded") {
  const auto model = ike::initialize<float, shape{1, 5}>(
      ike::graph([](auto x) {
        return "fc"_m(ike::linear<5, 4>{}, x * 2) * ike::parameter<"scale", shape{4}>(x);
      }),
      ike::seed{1});
  const auto frozen = ike::freeze(model);
  CHECK(to_string(frozen.module()) ==
        "graph(\n"
        "  (0): identity()\n"
        "  (fc): linear(in_features=5, out_features=4, bias=true)\n"
        "  (scale): identity()\n"
        "  (3): identity()\n"
        ")");
  CHECK(frozen.state().size() == 2);
  CHECK(frozen.parameters().size() < model.parameters().size());
}

TEST_CASE("no model loads a state into which its scalings are folded") {
  constexpr auto net = ike::graph([](auto x) { return "fc"_m(ike::linear<5, 4>{}, x * 2); });
  auto model = ike::initialize<float, shape{1, 5}>(net, ike::seed{1});
  const auto frozen = ike::freeze(model);
  ike::state_dict state = frozen.state().clone();
  CHECK(state.is_folded());
  const float first = model.parameters()[0];
  CHECK_THROWS_WITH_AS(
      ike::load_state_dict(model, state),
      "norms, scalings or computed weights are folded into this state of a frozen network: a "
      "model loads the state of a model, or, if it is without them, this one after "
      "state.set_folded(false)",
      ike::state_error);
  CHECK_THROWS_AS(ike::load_state_dict(model, state, {.strict = false}), ike::state_error);
  ike::lazy_model holder{net, ike::seed{1}};
  CHECK_THROWS_AS(ike::load_state_dict(holder, state), ike::state_error);
  CHECK(model.parameters()[0] == first);
  const scratch_directory scratch;
  const auto path = scratch.path() / "state.npz";
  ike::save_npz(state, path);
  const ike::state_dict read = ike::load_npz(path);
  CHECK(read.is_folded());
  CHECK(read.size() == state.size());
  CHECK_THROWS_AS(ike::load_state_dict(model, read), ike::state_error);

  // A network without the scaling.
  auto plain = ike::initialize<float, shape{1, 5}>(ike::sequential("fc"_m = ike::linear<5, 4>{}),
                                                   ike::seed{2});
  state.set_folded(false);
  ike::save_npz(state, path);
  ike::load_state_dict(plain, ike::load_npz(path));
  CHECK(plain.parameters()[0] == 2 * first);

  // Nothing is folded here; weights are computed there.
  CHECK(!ike::freeze(plain).state().is_folded());
  const auto computed = [](const auto& m) {
    return ike::freeze(
               ike::initialize<float, shape{1, 5}>(ike::sequential("fc"_m = m), ike::seed{1}))
        .state()
        .is_folded();
  };
  CHECK(computed(ike::weight_norm<ike::linear<5, 4>>{}));
  CHECK(!computed(ike::linear<5, 4>{}));
}
