#include "ikebana/optim/sgd.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "flat_model.hpp"
#include "test/support/count_allocations.hpp"

using namespace ikebana;

namespace {

/// torch/optim/sgd.py, element by element.
struct reference {
  sgd_options o;
  std::vector<double> p, buffer{};
  bool first = true;

  void step(const std::vector<double>& gradients) {
    buffer.resize(p.size());
    for (std::size_t i = 0; i < p.size(); ++i) {
      double d = o.maximize ? -gradients[i] : gradients[i];
      d += o.weight_decay * p[i];
      if (o.momentum != 0) {
        buffer[i] = first ? d : o.momentum * buffer[i] + (1 - o.dampening) * d;
        d = o.nesterov ? d + o.momentum * buffer[i] : buffer[i];
      }
      p[i] -= o.lr * d;
    }
    first = false;
  }
};

template <class T>
void check_against_reference(const sgd_options& o, double tolerance) {
  flat_model<T> model;
  sgd optimizer{model, o};
  const auto in_double = [](std::span<T> x) { return std::vector<double>(x.begin(), x.end()); };
  reference expected{o, in_double(model.parameters())};
  for (std::uint32_t step = 0; step < 10; ++step) {
    model.draw_gradients(step);
    optimizer.step();
    expected.step(in_double(model.gradients()));
  }
  for (std::size_t i = 0; i < expected.p.size(); ++i)
    CHECK(std::abs(static_cast<double>(model.parameters()[i]) - expected.p[i]) <= tolerance);
}

}  // namespace

TEST_CASE("sgd steps as PyTorch's formula says") {
  const sgd_options all[] = {
      {.lr = 0.1},
      {.lr = 0.1, .weight_decay = 0.01},
      {.lr = 0.05, .momentum = 0.9},
      {.lr = 0.05, .momentum = 0.9, .dampening = 0.1, .weight_decay = 0.01},
      {.lr = 0.05, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true},
      {.lr = 0.05, .momentum = 0.9, .maximize = true},
  };
  for (const sgd_options& o : all) {
    check_against_reference<float>(o, 1e-5);
    check_against_reference<double>(o, 1e-12);
  }
}

TEST_CASE("sgd's step allocates nothing") {
  flat_model<float> model;
  sgd optimizer{model, {.lr = 0.1f, .momentum = 0.9}};
  optimizer.step();
  const long before = allocation_count_here;
  for (int i = 0; i < 10; ++i) optimizer.step();
  CHECK(allocation_count_here == before);
}

TEST_CASE("sgd's options may change between steps") {
  flat_model<double> model(1);
  model.values[0] = 0;
  model.slopes[0] = 1;
  sgd optimizer{model, {.lr = 0.5}};
  optimizer.step();
  CHECK(model.values[0] == -0.5);
  optimizer.options().lr = 0.25;
  optimizer.step();
  CHECK(model.values[0] == -0.75);
  optimizer.options().momentum = 0.5;  // The buffer starts as the gradient, as in PyTorch.
  optimizer.step();
  CHECK(model.values[0] == -1);
  optimizer.options().lr = -1;
  CHECK_THROWS_AS(optimizer.step(), error);
  CHECK(model.values[0] == -1);
}

TEST_CASE("an sgd that takes over another's state goes on as it would have") {
  flat_model<float> model, copy;
  const sgd_options o{.lr = 0.1, .momentum = 0.9, .dampening = 0.5};
  sgd optimizer{model, o};
  for (std::uint32_t step = 0; step < 3; ++step) {
    model.draw_gradients(step);
    optimizer.step();
  }
  sgd other{copy, o};
  CHECK(other.state()[1].name == "momentum_buffer");
  CHECK(other.state()[1].type == dtype::float32);
  copy_state(other, optimizer);
  std::memcpy(copy.values.data(), model.values.data(), model.values.span().size_bytes());
  for (flat_model<float>* m : {&model, &copy}) m->draw_gradients(3);
  optimizer.step();
  other.step();
  CHECK(std::memcmp(copy.values.data(), model.values.data(), model.values.span().size_bytes()) ==
        0);
}

TEST_CASE("sgd refuses options that make no sense, in PyTorch's words") {
  flat_model<float> model;
  CHECK_THROWS_WITH_AS((sgd{model, {.lr = -0.1}}), "sgd: Invalid learning rate: -0.1", error);
  CHECK_THROWS_WITH_AS((sgd{model, {.momentum = 0.9}}),
                       "sgd: needs a learning rate: sgd{model, {.lr = 0.1}}", error);
  CHECK_THROWS_WITH_AS((sgd{model, {.lr = 0.1, .momentum = -1}}), "sgd: Invalid momentum value: -1",
                       error);
  CHECK_THROWS_WITH_AS((sgd{model, {.lr = 0.1, .weight_decay = -1}}),
                       "sgd: Invalid weight_decay value: -1", error);
  CHECK_THROWS_WITH_AS((sgd{model, {.lr = 0.1, .nesterov = true}}),
                       "sgd: Nesterov momentum requires a momentum and zero dampening", error);
  CHECK_THROWS_AS((sgd{model, {.lr = 0.1, .momentum = 0.9, .dampening = 0.1, .nesterov = true}}),
                  error);
}

TEST_CASE("sgd of no parameters") {
  flat_model<float> model(0);
  sgd optimizer{model, {.lr = 0.1, .momentum = 0.9}};
  optimizer.step();
  static_assert(!std::is_constructible_v<sgd<float>, flat_model<float>, sgd_options>);
}
