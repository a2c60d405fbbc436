#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "ikebana/compose/choose.hpp"
#include "ikebana/compose/graph.hpp"
#include "ikebana/compose/parallel.hpp"
#include "ikebana/compose/residual.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/hooks.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/lazy_model.hpp"
#include "ikebana/module/arithmetic.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/bilinear.hpp"
#include "ikebana/nn/flatten.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/optim/sgd.hpp"
#include "test/support/count_allocations.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dim_t;
using ike::module_gradients;
using ike::shape;

namespace {

constexpr shape in{2, 3};
using list = std::vector<double>;
using names = std::vector<std::string>;

const auto x = ike::uniform<double, in>(ike::seed{3});
const auto gradient = ike::uniform<double, in>(ike::seed{4});

constexpr auto net = ike::sequential(
    "fc1"_m = ike::linear<3, 4>{},
    "block"_m = ike::sequential("act"_m = ike::tanh{}, "fc2"_m = ike::linear<4, 3>{}),
    "fc3"_m = ike::linear<3, 3>{});

auto make() { return ike::initialize<double, in>(net, ike::seed{1}); }

template <class View>
list values(const View& v) {
  return {v.data(), v.data() + v.size()};
}

/// A hook that records that it ran.
auto noting(names& log, std::string what) {
  return
      [&log, what](const module_gradients& g) { log.push_back(what + " " + std::string{g.path}); };
}

/// The gradients of the parameters, followed by that of the input.
template <class Model>
list gradients(Model& model) {
  auto dx = ike::zeros<double, in>();
  model.zero_grad();
  model(x);
  model.backward(gradient, dx);
  list all{model.gradients().begin(), model.gradients().end()};
  all.insert(all.end(), dx.begin(), dx.end());
  return all;
}

void check_close(const list& a, const list& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(a[i] == doctest::Approx(b[i]).epsilon(1e-12));
}

template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const ike::error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

}  // namespace

TEST_CASE("gradient hooks run in PyTorch's order") {
  auto model = make();
  names log;
  for (const char* path : {"block.fc2", "", "fc3", "block"}) {
    model.register_full_backward_hook(path, noting(log, "after"));
    model.register_full_backward_pre_hook(path, noting(log, "before"));
  }
  gradients(model);
  CHECK(log == names{"before ", "before fc3", "after fc3", "before block", "before block.fc2",
                     "after block.fc2", "after block", "after "});
  log.clear();
  auto first = model.register_full_backward_hook("fc3"_s, noting(log, "first"), true);
  auto last = model.register_full_backward_hook("fc3"_s, noting(log, "last"));
  gradients(model);
  CHECK(names(log.begin() + 2, log.begin() + 5) == names{"first fc3", "after fc3", "last fc3"});
  first.remove();
  last.remove();
  log.clear();
  gradients(model);
  CHECK(log.size() == 8);
}

TEST_CASE("gradient hooks see the gradients of outputs and inputs") {
  auto model = make();
  list out, between, into;
  int seen = 0;
  model.register_full_backward_hook("", [&](const module_gradients& g) {
    ++seen;
    CHECK(g.kind == "sequential");
    CHECK(g.type == ike::dtype::float64);
    CHECK(g.training);
    CHECK(g.input_shape() == in);
    out = values(g.output_gradient<double>());
    into = values(g.input_gradient<double>());
  });
  model.register_full_backward_hook("fc3"_s, [&](const module_gradients& g) {
    ++seen;
    CHECK(values(g.output_gradient<double>()) == values(gradient));
    between = values(g.input_gradient<double>());
    CHECK(message_of([&] { g.writable_output_gradient<double>(); }) ==
          "hook of fc3: the output gradient is replaced before backward, not after it");
  });
  model.register_full_backward_pre_hook("block"_s, [&](const module_gradients& g) {
    ++seen;
    CHECK(values(g.output_gradient<double>()) == between);
    CHECK(message_of([&] { g.input_gradient<double>(); }) ==
          "hook of block: the input gradient is not there before backward");
    CHECK(message_of([&] { g.output_gradient<float>(); }) ==
          "hook of block: the output gradient has elements of another type");
  });
  const auto all = gradients(model);
  CHECK(seen == 3);
  CHECK(out == values(gradient));
  CHECK(into == list(all.end() - 6, all.end()));
  // gradient * W
  const auto w = model["fc3.weight"_s];
  for (dim_t i = 0; i < 2; ++i)
    for (dim_t j = 0; j < 3; ++j) {
      double sum = 0;
      for (dim_t k = 0; k < 3; ++k) sum += gradient[i * 3 + k] * w[k * 3 + j];
      CHECK(between[static_cast<std::size_t>(i * 3 + j)] == doctest::Approx(sum));
    }
}

TEST_CASE("a gradient that nobody needs is not there") {
  auto model = make();
  bool ran = false;
  model.register_full_backward_hook("fc1"_s, [&](const module_gradients& g) {
    ran = true;
    CHECK(g.input_gradient<double>().empty());
    CHECK(g.output_gradient<double>().size() == 8);
  });
  ike::sgd optimizer{model, {.lr = 0.1}};
  model.train_step(x, gradient, ike::mse_loss{}, optimizer);
  CHECK(ran);

  auto parameterless =
      ike::initialize<double, in>(ike::sequential("act"_m = ike::tanh{}), ike::seed{1});
  ran = false;
  parameterless.register_full_backward_hook("act"_s, [&](const module_gradients&) { ran = true; });
  parameterless(x);
  parameterless.backward(gradient);
  CHECK_FALSE(ran);
  gradients(parameterless);
  CHECK(ran);
}

TEST_CASE("the gradient of an input is that of its call, whoever else reads the input") {
  constexpr auto two = ike::graph([](auto z) {
    auto h = "act"_m(ike::tanh{}, z);
    return "a"_m(ike::linear<3, 3>{}, h) + "b"_m(ike::linear<3, 3>{}, h);
  });
  constexpr auto whole = ike::residual("two"_m = two, "out"_m = ike::linear<3, 3>{});
  auto model = ike::initialize<double, in>(whole, ike::seed{1});
  const auto expected = gradients(model);
  list of_two, of_a, of_b, of_act;
  const auto keep = [](list& to) {
    return [&to](const module_gradients& g) { to = values(g.input_gradient<double>()); };
  };
  model.register_full_backward_hook("two"_s, keep(of_two));
  model.register_full_backward_hook("two.a"_s, keep(of_a));
  model.register_full_backward_hook("two.b"_s, keep(of_b));
  list reaching_act;
  model.register_full_backward_pre_hook("two.act"_s, [&](const module_gradients& g) {
    reaching_act = values(g.output_gradient<double>());
  });
  check_close(gradients(model), expected);
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK(reaching_act[i] == doctest::Approx(of_a[i] + of_b[i]));
    CHECK(of_two[i] + gradient[static_cast<dim_t>(i)] ==
          doctest::Approx(expected[expected.size() - 6 + i]));
  }
}

TEST_CASE("a call that is given one value twice has the whole gradient for both inputs") {
  constexpr auto squared = ike::graph([](auto z) {
    auto h = "fc"_m(ike::linear<3, 3>{}, z);
    return "both"_m(ike::bilinear<3, 3, 3>{}, h, h);
  });
  auto model = ike::initialize<double, in>(squared, ike::seed{1});
  const auto expected = gradients(model);
  list first, second, reaching_fc;
  model.register_full_backward_hook("both"_s, [&](const module_gradients& g) {
    first = values(g.input_gradient<double>(0));
    second = values(g.input_gradient<double>(1));
  });
  model.register_full_backward_pre_hook("fc"_s, [&](const module_gradients& g) {
    reaching_fc = values(g.output_gradient<double>());
  });
  check_close(gradients(model), expected);
  check_close(first, reaching_fc);
  check_close(second, reaching_fc);
}

TEST_CASE("gradient hooks on every module change nothing") {
  constexpr auto tangled = ike::graph([](auto z) {
    constexpr auto shared = ike::sequential("fc"_m = ike::linear<3, 3>{}, "act"_m = ike::relu{});
    auto h = "shared"_m(shared, z);
    auto flat = "flat"_m(ike::flatten<>{}, h);
    auto k = "shared"_m(shared, flat);
    return "res"_m(ike::residual("s"_m = ike::sigmoid{}, "t"_m = ike::tanh{}), k) + h * flat + z;
  });
  auto model = ike::initialize<double, in>(tangled, ike::seed{1});
  const auto expected = gradients(model);
  int runs = 0;
  const auto count = [&](const auto&) { ++runs; };
  for (const char* path :
       {"", "shared", "shared.fc", "shared.act", "flat", "res", "res.s", "res.t", "res.add"}) {
    model.register_full_backward_hook(path, count);
    model.register_full_backward_pre_hook(path, count);
    model.register_forward_hook(path, count);
  }
  check_close(gradients(model), expected);
  // Shared modules run twice.
  CHECK(runs == 3 * 12);
}

TEST_CASE("gradients are changed before they are used") {
  auto model = make(), plain = make();
  const list dx = gradients(plain), dx_of_plain(dx.end() - 6, dx.end());
  const auto check = [&](double of_fc3, double of_others) {
    const auto all = gradients(model);
    const auto is_times = [](const auto& got, const auto& from, double factor) {
      for (dim_t i = 0; i < got.size(); ++i) CHECK(got[i] == factor * from[i]);
    };
    is_times(model.gradient("fc3.weight"_s), plain.gradient("fc3.weight"_s), of_fc3);
    is_times(model.gradient("fc3.bias"_s), plain.gradient("fc3.bias"_s), of_fc3);
    is_times(model.gradient("block.fc2.weight"_s), plain.gradient("block.fc2.weight"_s), of_others);
    is_times(model.gradient("fc1.weight"_s), plain.gradient("fc1.weight"_s), of_others);
    for (std::size_t i = 0; i < 6; ++i)
      CHECK(all[all.size() - 6 + i] == of_others * dx_of_plain[i]);
  };
  // Gradient reversal.
  auto handle = model.register_full_backward_hook("fc3"_s, [](const module_gradients& g) {
    for (double& v : g.writable_input_gradient<double>()) v = -v;
  });
  check(1, -1);
  handle.remove();
  model.register_full_backward_pre_hook("fc3"_s, [](const module_gradients& g) {
    for (double& v : g.writable_output_gradient<double>()) v *= 2;
  });
  check(2, 2);
}

TEST_CASE("a module that runs twice has its gradient hooks run twice, the last call first") {
  constexpr auto twice = ike::graph([](auto z) {
    auto h = "fc"_m(ike::linear<3, 3>{}, z);
    return "fc"_m(ike::linear<3, 3>{}, h);
  });
  auto model = ike::initialize<double, in>(twice, ike::seed{1});
  std::vector<list> out;
  model.register_full_backward_hook("fc"_s, [&](const module_gradients& g) {
    out.push_back(values(g.output_gradient<double>()));
  });
  gradients(model);
  REQUIRE(out.size() == 2);
  CHECK(out[0] == values(gradient));
  CHECK(out[1] != out[0]);
}

TEST_CASE("where branches are chosen, hooks run in those that ran") {
  constexpr auto branching =
      ike::sequential("in"_m = ike::linear<3, 3>{},
                      "path"_m = ike::choose("a"_m = ike::sequential("fc"_m = ike::linear<3, 3>{}),
                                             "b"_m = ike::residual("fc"_m = ike::linear<3, 3>{})),
                      "out"_m = ike::linear<3, 3>{});
  auto model = ike::initialize<double, in>(branching, ike::seed{1});
  for (const char* taken : {"a", "b"}) {
    model.choose("path"_s, std::string_view{taken} == "a" ? 0 : 1);
    const auto expected = gradients(model);
    names log;
    std::vector<ike::hook_handle> handles;
    for (const char* path : {"path", "path.a", "path.a.fc", "path.b", "path.b.fc"}) {
      handles.push_back(model.register_full_backward_pre_hook(path, noting(log, "before")));
      handles.push_back(model.register_full_backward_hook(path, noting(log, "after")));
    }
    check_close(gradients(model), expected);
    const std::string arm = std::string{"path."} + taken;
    CHECK(log == names{"before path", "before " + arm, "before " + arm + ".fc",
                       "after " + arm + ".fc", "after " + arm, "after path"});
    for (auto& h : handles) h.remove();
  }
}

TEST_CASE("an output without a gradient has none for hooks either") {
  constexpr auto heads = ike::graph([](auto z) {
    auto h = "fc"_m(ike::linear<3, 3>{}, z);
    return std::tuple{"a"_m(ike::linear<3, 3>{}, h), "b"_m(ike::linear<3, 3>{}, h)};
  });
  auto model = ike::initialize<double, in>(heads, ike::seed{1});
  names log;
  model.register_full_backward_hook("a"_s, noting(log, "after"));
  model.register_full_backward_hook("b"_s, noting(log, "after"));
  model.register_full_backward_pre_hook("", [&](const module_gradients& g) {
    CHECK(g.output_gradient<double>(0).empty());
    CHECK(g.output_gradient<double>(1).size() == 6);
  });
  list into;
  model.register_full_backward_hook(
      "fc"_s, [&](const module_gradients& g) { into = values(g.output_gradient<double>()); });
  model(x);
  model.backward(std::tuple{ike::no_gradient, gradient});
  CHECK(log == names{"after b"});
  CHECK(into.size() == 6);
}

TEST_CASE("after a gradient hook that threw, the next step is as any other") {
  auto model = ike::initialize<double, in>(
      ike::residual("a"_m = ike::sequential("fc"_m = ike::linear<3, 3>{}, "act"_m = ike::tanh{})),
      ike::seed{1});
  const auto expected = gradients(model);
  model.register_full_backward_hook("a"_s, [](const module_gradients&) {});
  model.register_forward_pre_hook("a"_s, [](const ike::module_call& c) {
    c.writable_input<double>();  // the same
  });
  auto handle = model.register_full_backward_hook(
      "a.act"_s, [](const module_gradients&) { throw ike::error("on purpose"); });
  CHECK_THROWS_WITH_AS(gradients(model), "on purpose", ike::error);
  handle.remove();
  // The forward is still valid, with the hooks that were registered when it began.
  check_close(gradients(model), expected);
}

TEST_CASE("gradient hooks of a lazy model are there before it is resolved") {
  ike::lazy_model holder{ike::sequential("fc"_m = ike::lazy_linear<3>{}), ike::seed{1}};
  names log;
  holder.register_full_backward_hook("fc"_s, noting(log, "after"));
  auto& model = holder.initialize_parameters(x);
  model(x);
  model.backward(gradient);
  CHECK(log == names{"after fc"});
}

TEST_CASE("steps with gradient hooks allocate nothing once they have run") {
  auto model = make();
  model.register_full_backward_hook("block"_s, [](const module_gradients&) {});
  model.register_full_backward_pre_hook("fc1"_s, [](const module_gradients&) {});
  ike::sgd optimizer{model, {.lr = 0.1}};
  const auto step = [&] { model.train_step(x, gradient, ike::mse_loss{}, optimizer); };
  step();
  const long before = allocation_count_here;
  step();
  CHECK(allocation_count_here == before);
}
