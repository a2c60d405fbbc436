#include "ikebana/model/requires_grad.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

#include "ikebana/compose/frozen.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/part.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/nn/prelu.hpp"
#include "ikebana/optim/adam.hpp"
#include "ikebana/optim/clip_grad.hpp"
#include "ikebana/optim/lamb.hpp"
#include "ikebana/optim/sgd.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dim_t;
using ike::shape;

namespace {

/// prelu computes the gradient of its parameter whether it is needed or not.
constexpr auto net = ike::sequential(
    "backbone"_m = ike::sequential("fc1"_m = ike::linear<7, 5>{}, "act"_m = ike::prelu<>{},
                                   "fc2"_m = ike::linear<5, 3>{}),
    "tanh"_m = ike::tanh{}, "head"_m = ike::linear<3, 2>{});
constexpr shape in{4, 7}, out{4, 2};

template <class T>
auto make(ike::seed s = ike::seed{1}) {
  return ike::initialize<T, in>(net, s);
}

template <class M>
auto copied(M& m) {
  const auto all = m.parameters();
  return std::vector<typename M::value_type>(all.begin(), all.end());
}

/// A step of each optimizer with the backbone switched off is one of frozen<"backbone">.
template <class T, class F>
void compare(const F& make_optimizer) {
  auto model = make<T>();
  auto fixed = ike::initialize<T, in>(ike::frozen<"backbone">(net), ike::seed{1});
  auto optimizer = make_optimizer(model);
  auto of_fixed = make_optimizer(fixed);
  const auto x = ike::uniform<T, in>(ike::seed{2});
  const auto t = ike::uniform<T, out>(ike::seed{3});
  ike::requires_grad<"backbone">(model, false);
  CHECK(!ike::requires_grad<"backbone.fc1.weight">(model));
  CHECK(ike::requires_grad<"head">(model));
  const auto before = copied(model);
  for (int step = 0; step < 4; ++step) {
    CHECK(model.train_step(x, t, ike::mse_loss{}, optimizer) ==
          doctest::Approx(fixed.train_step(x, t, ike::mse_loss{}, of_fixed)));
    for (dim_t i = 0; i < 6; ++i)
      CHECK(model["head.weight"_s][i] == doctest::Approx(fixed["head.weight"_s][i]));
  }
  for (dim_t i = 0; i < 35; ++i) {
    CHECK(model["backbone.fc1.weight"_s][i] ==
          before[static_cast<std::size_t>(model["backbone.fc1.weight"_s].data() -
                                          model.parameters().data() + i)]);
    CHECK(model.gradient("backbone.fc1.weight"_s)[i] == 0);
  }
  CHECK(model["backbone.act.weight"_s][0] == T(0.25));
  CHECK(model.gradient("backbone.act.weight"_s)[0] == 0);
  CHECK(ike::clip_grad_norm(model, 1e9) == doctest::Approx(ike::clip_grad_norm(fixed, 1e9)));
  // And on again.
  ike::requires_grad<"backbone">(model, true);
  model.train_step(x, t, ike::mse_loss{}, optimizer);
  CHECK(model.gradient("backbone.fc2.weight"_s)[0] != 0);
  CHECK(model["backbone.fc1.weight"_s][0] !=
        before[static_cast<std::size_t>(model["backbone.fc1.weight"_s].data() -
                                        model.parameters().data())]);
  CHECK(model["backbone.act.weight"_s][0] != T(0.25));
}

int gradients_computed = 0;

/// A leaf that can leave out the gradients of its parameters.
struct shifted {
  static constexpr std::string_view kind = "shifted";
  static constexpr bool skips_parameter_gradients = true;

  constexpr ike::inferred infer(const shape& x) const { return x; }
  constexpr std::array<ike::parameter_spec, 1> parameters() const {
    return {{{"shift", shape{1}}}};
  }
  template <class T>
  void forward(const ike::context<T>& c) const {
    for (dim_t i = 0; i < c.input_shape().numel(); ++i)
      c.output()[i] = c.input()[i] + c.parameter(0)[0];
  }
  template <class T>
  void backward(const ike::context<T>& c) const {
    if (c.parameter_gradient(0) != nullptr) {
      ++gradients_computed;
      T sum = c.accumulate() ? c.parameter_gradient(0)[0] : T{0};
      for (dim_t i = 0; i < c.input_shape().numel(); ++i) sum += c.output_gradient()[i];
      c.parameter_gradient(0)[0] = sum;
    }
    if (c.input_gradient() != nullptr)
      for (dim_t i = 0; i < c.input_shape().numel(); ++i)
        c.input_gradient()[i] = c.output_gradient()[i];
  }
};

}  // namespace

TEST_CASE("parts that are switched off train as frozen ones") {
  const auto all = []<class T>(T) {
    compare<T>([](auto& m) { return ike::adamw{m, {.lr = 0.1, .weight_decay = 0.2}}; });
    compare<T>([](auto& m) {
      return ike::sgd{m, {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.2, .max_norm = 0.1}};
    });
    compare<T>([](auto& m) { return ike::lamb{m, {.lr = 0.1, .weight_decay = 0.2}}; });
  };
  all(float{});
  all(double{});
}

TEST_CASE("an optimizer's momentum does not move what is switched off later") {
  auto model = make<double>();
  ike::sgd optimizer{model, {.lr = 0.1, .momentum = 0.9}};
  const auto x = ike::uniform<double, in>(ike::seed{2});
  const auto t = ike::uniform<double, out>(ike::seed{3});
  model.train_step(x, t, ike::mse_loss{}, optimizer);
  ike::requires_grad<>(model, false);
  ike::requires_grad<"*.bias">(model, true);
  const auto before = copied(model);
  model.train_step(x, t, ike::mse_loss{}, optimizer);
  const auto at = [&](const auto& view) {
    return before[static_cast<std::size_t>(view.data() - model.parameters().data())];
  };
  CHECK(model["head.weight"_s][0] == at(model["head.weight"_s]));
  CHECK(model["head.bias"_s][0] != at(model["head.bias"_s]));
  // Of a leaf in part: its bias alone has a gradient.
  CHECK(model.gradient("head.weight"_s)[0] == 0);
  CHECK(model.gradient("head.bias"_s)[0] != 0);
}

TEST_CASE("gradients that nothing needs are not computed") {
  auto model = ike::initialize<float, shape{3}>(
      ike::sequential("a"_m = shifted{}, "b"_m = shifted{}), ike::seed{1});
  const auto x = ike::uniform<float, shape{3}>(ike::seed{2});
  gradients_computed = 0;
  model.loss_backward(x, x, ike::mse_loss{});
  CHECK(gradients_computed == 2);
  ike::requires_grad<"a">(model, false);
  model.loss_backward(x, x, ike::mse_loss{});
  CHECK(gradients_computed == 3);
  CHECK(model.gradient("a.shift"_s)[0] == 0);
  // A part, made now, and a clone.
  auto part = model.part<"a">();
  part.zero_grad();
  auto other = model.clone();
  CHECK(ike::requires_grad<>(other));
  other.loss_backward(x, x, ike::mse_loss{});
  CHECK(gradients_computed == 5);
}
