#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ikebana/compose/choose.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/passes/gradient_presence.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/optim/adam.hpp"
#include "ikebana/optim/clip_grad.hpp"
#include "ikebana/optim/optimizer_state_dict.hpp"
#include "ikebana/optim/sgd.hpp"
#include "test/optim/flat_model.hpp"

namespace ike = ikebana;
using namespace ike::literals;

namespace {

/// Five parameters, one of them without elements, of which each step has some.
template <class T>
struct absent_model : flat_model<T> {
  ike::gradient_presence present;
  static constexpr ike::dim_t ends[] = {8, 19, 19, 30, 37};

  absent_model() {
    ike::dim_t begin = 0;
    for (const ike::dim_t end : ends) {
      present.add({begin, end});
      begin = end;
    }
  }
  ike::gradient_presence* presence() { return &present; }

  static bool has(std::uint32_t step, std::size_t parameter) {
    return (step * 2654435761u >> (parameter + 3)) % 3 != 0;
  }
  void draw(std::uint32_t step) {
    this->draw_gradients(step);
    for (std::size_t p = 0; p < present.size(); ++p) {
      present.set(p, has(step, p));
      if (!has(step, p))
        for (ike::dim_t i = present.range(p).begin; i < present.range(p).end; ++i)
          this->slopes.data()[i] = 0;
    }
  }
};

/// A single parameter with its own optimizer: PyTorch's behaviour, parameter by parameter.
template <class T, class Optimizer, class Options>
struct alone {
  flat_model<T> model;
  Optimizer optimizer;
  alone(ike::dim_t n, const Options& options) : model{n}, optimizer{model, options} {}
};

template <class T, class Optimizer, class Options>
void compare(const Options& options) {
  absent_model<T> m;
  Optimizer optimizer{m, options};
  std::vector<std::unique_ptr<alone<T, Optimizer, Options>>> each;
  for (std::size_t p = 0; p < m.present.size(); ++p) {
    const auto r = m.present.range(p);
    each.push_back(std::make_unique<alone<T, Optimizer, Options>>(r.size(), options));
    std::copy_n(m.values.data() + r.begin, r.size(), each[p]->model.values.data());
  }
  for (std::uint32_t step = 1; step < 20; ++step) {
    m.draw(step);
    optimizer.step();
    for (std::size_t p = 0; p < m.present.size(); ++p) {
      const auto r = m.present.range(p);
      if (m.has(step, p)) {
        std::copy_n(m.slopes.data() + r.begin, r.size(), each[p]->model.slopes.data());
        each[p]->optimizer.step();
      }
      for (ike::dim_t i = 0; i < r.size(); ++i)
        CHECK(m.values.data()[r.begin + i] == doctest::Approx(each[p]->model.values.data()[i])
                                                  .epsilon(sizeof(T) == 4 ? 1e-6 : 1e-14));
    }
  }
}

}  // namespace

TEST_CASE_TEMPLATE("a parameter without a gradient is left alone, and its moments with it", T,
                   float, double) {
  compare<T, ike::sgd<T>>(ike::sgd_options{.lr = 0.1, .weight_decay = 0.1});
  compare<T, ike::sgd<T>>(
      ike::sgd_options{.lr = 0.1, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.1});
  compare<T, ike::sgd<T>>(ike::sgd_options{.lr = 0.1, .momentum = 0.9, .nesterov = true});
  compare<T, ike::adam<T>>(ike::adam_options{.lr = 0.01, .weight_decay = 0.1});
  compare<T, ike::adamw<T>>(ike::adamw_options{.lr = 0.01, .weight_decay = 0.1, .amsgrad = true});
}

TEST_CASE("the steps of a parameter are those in which it had a gradient") {
  absent_model<double> m;
  ike::adam optimizer{m};
  std::int64_t expected[5] = {};
  for (std::uint32_t step = 1; step < 9; ++step) {
    m.draw(step);
    optimizer.step();
    for (std::size_t p = 0; p < 5; ++p) expected[p] += m.has(step, p);
  }
  const ike::optimizer_state s = optimizer.state()[0];
  REQUIRE(s.bytes.size() == sizeof expected);
  for (std::size_t p = 0; p < 5; ++p)
    CHECK(reinterpret_cast<const std::int64_t*>(s.bytes.data())[p] == expected[p]);
}

TEST_CASE("the norm of gradients is that of those that are there") {
  absent_model<double> m;
  m.draw(3);
  double sum = 0;
  for (std::size_t p = 0; p < m.present.size(); ++p)
    if (m.present[p])
      for (ike::dim_t i = m.present.range(p).begin; i < m.present.range(p).end; ++i)
        sum += m.slopes.data()[i] * m.slopes.data()[i];
  CHECK(ike::clip_grad_norm(m, 0.5) == doctest::Approx(std::sqrt(sum)));
}

TEST_CASE("a state dict has the steps of each parameter") {
  constexpr auto net = ike::sequential(
      "in"_m = ike::lazy_linear<4>{},
      "path"_m = ike::choose("a"_m = ike::lazy_linear<4>{}, "b"_m = ike::lazy_linear<4>{}));
  auto m = ike::initialize<double, ike::shape{3, 4}>(net, ike::seed{1});
  ike::adam optimizer{m};
  const auto x = ike::uniform<double, ike::shape{3, 4}>(ike::seed{2});
  for (int step = 0; step < 5; ++step) {
    m.choose("path"_s, step == 2 ? 1 : 0);
    m.train_step(x, x, ike::mse_loss{}, optimizer);
  }
  const ike::state_dict dict = ike::get_optimizer_state_dict(m, optimizer);
  const auto steps = [&](const char* name) {
    return *reinterpret_cast<const std::int64_t*>(dict.at(name).bytes.data());
  };
  CHECK(steps("state.in.weight.step") == 5);
  CHECK(steps("state.path.a.bias.step") == 4);
  CHECK(steps("state.path.b.weight.step") == 1);
  auto again = m.clone();
  ike::adam other{again};
  ike::set_optimizer_state_dict(again, other, dict);
  for (int alternative : {0, 1}) {
    m.choose("path"_s, alternative);
    again.choose("path"_s, alternative);
    m.train_step(x, x, ike::mse_loss{}, optimizer);
    again.train_step(x, x, ike::mse_loss{}, other);
  }
  CHECK(std::ranges::equal(m.parameters(), again.parameters()));
}
