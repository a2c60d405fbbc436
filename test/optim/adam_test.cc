#include "ikebana/optim/adam.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "flat_model.hpp"
#include "test/support/count_allocations.hpp"

using namespace ikebana;

namespace {

/// torch/optim/adam.py and adamw.py, element by element.
template <class Options>
struct reference {
  Options o;
  std::vector<double> p, m{}, v{}, most{};
  int steps = 0;

  void step(const std::vector<double>& gradients) {
    constexpr bool decoupled = std::is_same_v<Options, adamw_options>;
    for (auto* x : {&m, &v, &most}) x->resize(p.size());
    ++steps;
    const double correction1 = 1 - std::pow(o.betas.first, steps),
                 correction2 = 1 - std::pow(o.betas.second, steps);
    for (std::size_t i = 0; i < p.size(); ++i) {
      double d = o.maximize ? -gradients[i] : gradients[i];
      if (decoupled)
        p[i] *= 1 - o.lr * o.weight_decay;
      else
        d += o.weight_decay * p[i];
      m[i] = o.betas.first * m[i] + (1 - o.betas.first) * d;
      v[i] = o.betas.second * v[i] + (1 - o.betas.second) * d * d;
      most[i] = std::max(most[i], v[i]);
      const double second = o.amsgrad ? most[i] : v[i];
      p[i] -= o.lr / correction1 * m[i] / (std::sqrt(second) / std::sqrt(correction2) + o.eps);
    }
  }
};

std::vector<double> in_double(auto x) { return std::vector<double>(x.begin(), x.end()); }

template <class Optimizer, class T, class Options>
void check_against_reference(flat_model<T>& model, const Options& o, double tolerance) {
  Optimizer optimizer{model, o};
  reference<Options> expected{o, in_double(model.parameters())};
  for (std::uint32_t step = 0; step < 10; ++step) {
    model.draw_gradients(step);
    optimizer.step();
    expected.step(in_double(model.gradients()));
  }
  for (std::size_t i = 0; i < expected.p.size(); ++i)
    CHECK(std::abs(static_cast<double>(model.parameters()[i]) - expected.p[i]) <= tolerance);
}

template <template <class> class Optimizer, class Options>
void check_options(const Options& o) {
  flat_model<float> single;
  check_against_reference<Optimizer<float>>(single, o, 1e-5);
  flat_model<double> twice;
  check_against_reference<Optimizer<double>>(twice, o, 1e-12);
}

}  // namespace

TEST_CASE("adam and adamw step as PyTorch's formulas say") {
  check_options<adam>(adam_options{});
  check_options<adam>(adam_options{.lr = 0.01, .weight_decay = 0.01, .amsgrad = true});
  check_options<adam>(adam_options{.lr = 0.01, .betas = {0.5, 0.9}, .eps = 1e-3, .maximize = true});
  check_options<adamw>(adamw_options{});
  check_options<adamw>(adamw_options{.lr = 0.01, .weight_decay = 0.1, .amsgrad = true});
}

TEST_CASE("the defaults are PyTorch's") {
  flat_model<float> model;
  adam a{model};
  static_assert(std::is_same_v<decltype(a), adam<float>>);
  CHECK(a.options().lr == 1e-3);
  CHECK(a.options().betas.second == 0.999);
  CHECK(a.options().weight_decay == 0);
  adamw w{model, {.lr = 0.5f}};
  CHECK(w.options().lr == 0.5);
  CHECK(w.options().weight_decay == 1e-2);
}

TEST_CASE("adam's step allocates nothing") {
  flat_model<float> model;
  adam optimizer{model, {.amsgrad = true}};
  const long before = allocation_count_here;
  for (int i = 0; i < 10; ++i) optimizer.step();
  CHECK(allocation_count_here == before);
}

TEST_CASE("an adam that takes over another's state goes on as it would have") {
  flat_model<double> model, copy;
  const adam_options o{.lr = 0.1, .amsgrad = true};
  adam optimizer{model, o};
  for (std::uint32_t step = 0; step < 3; ++step) {
    model.draw_gradients(step);
    optimizer.step();
  }
  adam other{copy, o};
  copy_state(other, optimizer);
  std::memcpy(copy.values.data(), model.values.data(), model.values.span().size_bytes());
  for (flat_model<double>* m : {&model, &copy}) m->draw_gradients(3);
  optimizer.step();
  other.step();
  CHECK(std::memcmp(copy.values.data(), model.values.data(), model.values.span().size_bytes()) ==
        0);
  const auto state = other.state();
  CHECK(state[0].name == "step");
  CHECK(*reinterpret_cast<const std::int64_t*>(state[0].bytes.data()) == 4);
  CHECK(state[1].name == "exp_avg");
  CHECK(state[2].name == "exp_avg_sq");
  CHECK(state[3].name == "max_exp_avg_sq");
  CHECK(state[3].type == dtype::float64);
}

TEST_CASE("gaps of zero stay zero") {
  flat_model<float> model;
  model.values[5] = 0;
  adamw optimizer{model};
  for (std::uint32_t step = 0; step < 3; ++step) {
    model.draw_gradients(step);
    model.slopes[5] = 0;
    optimizer.step();
  }
  CHECK(model.values[5] == 0);
}

TEST_CASE("adam refuses options that make no sense, in PyTorch's words, and changes nothing") {
  flat_model<float> model;
  CHECK_THROWS_WITH_AS((adam{model, {.lr = -1}}), "adam: Invalid learning rate: -1", error);
  CHECK_THROWS_WITH_AS((adam{model, {.betas = {1, 0.999}}}),
                       "adam: Invalid beta parameter at index 0: 1", error);
  CHECK_THROWS_WITH_AS((adamw{model, {.betas = {0.9, -0.5}}}),
                       "adamw: Invalid beta parameter at index 1: -0.5", error);
  CHECK_THROWS_WITH_AS((adamw{model, {.eps = -1}}), "adamw: Invalid epsilon value: -1", error);
  CHECK_THROWS_WITH_AS((adam{model, {.weight_decay = -1}}), "adam: Invalid weight_decay value: -1",
                       error);
  adam optimizer{model};
  const float before = model.values[0];
  model.slopes[0] = 1;
  optimizer.options().lr = std::nan("");
  CHECK_THROWS_AS(optimizer.step(), error);
  CHECK(model.values[0] == before);
  static_assert(!std::is_constructible_v<adam<float>, flat_model<float>>);
}
