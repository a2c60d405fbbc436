// Hooks that write the inputs and outputs of modules: PyTorch's test_lazy_pre_forward_hook and
// test_lazy_forward_hook, and further uses of such hooks.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ikebana/compose/graph.hpp"
#include "ikebana/compose/residual.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/hooks.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/lazy_model.hpp"
#include "ikebana/module/arithmetic.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/embedding.hpp"
#include "ikebana/nn/flatten.hpp"
#include "ikebana/nn/identity.hpp"
#include "ikebana/nn/linear.hpp"
#include "test/support/count_allocations.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dim_t;
using ike::dynamic;
using ike::module_call;
using ike::shape;

namespace {

const auto x = ike::uniform<double, shape{2, 3}>(ike::seed{3});
const auto gradient = ike::uniform<double, shape{2, 3}>(ike::seed{4});

template <class View>
std::vector<double> values(const View& v) {
  return {v.data(), v.data() + v.size()};
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

constexpr auto plus_one = [](const module_call& c) {
  for (float& v : c.writable_input<float>()) v += 1;
};
constexpr auto doubled = [](const module_call& c) {
  for (double& v : c.writable_input<double>()) v *= 2;
};

/// The gradients of the parameters and of the input for the output gradient `gradient`.
template <class Model, class X>
std::vector<double> gradients(Model& model, const X& in) {
  auto dx = ike::zeros<double, shape{2, 3}>();
  model.zero_grad();
  model(in);
  model.backward(gradient, dx);
  std::vector<double> all{model.gradients().begin(), model.gradients().end()};
  all.insert(all.end(), dx.begin(), dx.end());
  return all;
}

}  // namespace

TEST_CASE("lazy_pre_forward_hook: a hook replaces the input of its module") {
  ike::lazy_model holder{ike::identity{}, ike::seed{1}};
  holder.register_forward_pre_hook("", plus_one);
  const auto zeros = ike::zeros<float, shape{2, 2}>();
  const auto y = holder(zeros);
  for (dim_t i = 0; i < 4; ++i) {
    CHECK(y[i] == 1);
    CHECK(zeros[i] == 0);
  }
}

TEST_CASE("lazy_forward_hook: a hook replaces the output of a module that gives its input on") {
  ike::lazy_model holder{ike::identity{}, ike::seed{1}};
  auto handle = holder.register_forward_hook("", [](const module_call& c) {
    for (float& v : c.writable_output<float>()) v += 1;
  });
  const auto zeros = ike::zeros<float, shape{2, 2}>();
  for (int call = 0; call < 2; ++call) {
    const auto y = holder(zeros);
    for (dim_t i = 0; i < 4; ++i) {
      CHECK(y[i] == 1);
      CHECK(zeros[i] == 0);
    }
  }
  handle.remove();
  CHECK(holder(zeros).data() == zeros.data());
}

TEST_CASE("an input is replaced for its module alone, in forward and in backward") {
  constexpr auto net = ike::residual("fc"_m = ike::linear<3, 3>{});
  constexpr shape in{2, 3};
  auto model = ike::initialize<double, in>(net, ike::seed{1});
  auto alone = ike::initialize<double, in>(ike::linear<3, 3>{}, ike::seed{1}.at("fc"));
  ike::tensor<double, in> twice{x};
  for (double& v : twice) v *= 2;
  auto expected = values(alone(twice));
  for (std::size_t i = 0; i < 6; ++i) expected[i] += x[static_cast<dim_t>(i)];
  auto expected_gradients = gradients(alone, twice);
  for (std::size_t i = 0; i < 6; ++i)
    expected_gradients[expected_gradients.size() - 6 + i] += gradient[static_cast<dim_t>(i)];

  auto handle = model.register_forward_pre_hook("fc"_s, doubled);
  CHECK(values(model(x)) == expected);
  CHECK(gradients(model, x) == expected_gradients);
  model.eval();
  CHECK(values(model(x)) == expected);
  handle.remove();
  model.train();
  CHECK(values(model(x)) != expected);
}

TEST_CASE("hooks one in another replace what the outer one left") {
  constexpr auto net =
      ike::sequential("a"_m = ike::tanh{},
                      "block"_m = ike::sequential("b"_m = ike::linear<3, 3>{}, "c"_m = ike::tanh{}),
                      "d"_m = ike::relu{});
  auto model = ike::initialize<double, shape{2, 3}>(net, ike::seed{1});
  std::vector<double> before, within, after;
  model.register_forward_pre_hook("block"_s, doubled);
  model.register_forward_pre_hook("block.b"_s, [&](const module_call& c) {
    before = values(c.input<double>());
    doubled(c);
    doubled(c);
    within = values(c.input<double>());
  });
  model.register_forward_hook("block.b"_s, [&](const module_call& c) {
    CHECK_MESSAGE(values(c.input<double>()) == within, "hooks after it see what it was given");
  });
  model.register_forward_hook("block"_s,
                              [&](const module_call& c) { after = values(c.input<double>()); });
  model(x);
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK(within[i] == 4 * before[i]);
    CHECK(after[i] == before[i]);
  }
}

TEST_CASE("what an element-wise module would overwrite is replaced") {
  constexpr auto net = ike::sequential("fc"_m = ike::linear<3, 3>{}, "act"_m = ike::tanh{},
                                       "out"_m = ike::linear<3, 3>{});
  constexpr auto scaled = ike::graph([](auto in) {
    auto h = "fc"_m(ike::linear<3, 3>{}, in);
    return "out"_m(ike::linear<3, 3>{}, "act"_m(ike::tanh{}, h + h));
  });
  auto model = ike::initialize<double, shape{2, 3}>(net, ike::seed{1});
  auto reference = ike::initialize<double, shape{2, 3}>(scaled, ike::seed{1});
  model.register_forward_pre_hook("act"_s, doubled);
  CHECK(values(model(x)) == values(reference(x)));
  // The gradient does not contain the hook's factor.
  reference(x);
  reference.backward(gradient);
  model.backward(gradient);
  CHECK(values(model.gradient("out.weight"_s)) == values(reference.gradient("out.weight"_s)));
  for (dim_t i = 0; i < 9; ++i)
    CHECK(model.gradient("fc.weight"_s)[i] * 2 ==
          doctest::Approx(reference.gradient("fc.weight"_s)[i]));
}

TEST_CASE("a view's output is written without what it shows") {
  constexpr auto net = ike::graph([](auto in) {
    auto h = ike::tanh{}(in);
    return "flat"_m(ike::flatten<>{}, h) + h;
  });
  auto model = ike::initialize<double, shape{2, 3}>(net, ike::seed{1});
  const auto before = values(model(x));
  model.register_forward_hook("flat"_s, [](const module_call& c) {
    for (double& v : c.writable_output<double>()) v = 0;
  });
  const auto y = values(model(x));
  for (std::size_t i = 0; i < 6; ++i) CHECK(2 * y[i] == before[i]);
}

TEST_CASE("the first backward with gradients of inputs finds what hooks wrote, and runs none") {
  // "a" kept nothing, so it runs again.
  constexpr auto net =
      ike::sequential("a"_m = ike::tanh{}, "flat"_m = ike::flatten<>{}, "b"_m = ike::tanh{},
                      "fc"_m = ike::linear<3, 3>{}, "act"_m = ike::tanh{});
  auto model = ike::initialize<double, shape{2, 3}>(net, ike::seed{1});
  int runs = 0;
  const auto halved = [&](const module_call& c) {
    ++runs;
    for (double& v : c.writable_output<double>()) v /= 2;
  };
  for (const char* path : {"a", "flat", "fc", "act", ""}) model.register_forward_hook(path, halved);
  for (const char* path : {"", "flat", "b", "fc"}) model.register_forward_pre_hook(path, doubled);
  const auto first = gradients(model, x);
  const auto y = values(model.output());
  CHECK(runs == 5);
  CHECK(gradients(model, x) == first);
  CHECK(values(model.output()) == y);
  CHECK(runs == 10);
}

TEST_CASE("inputs have the names by which the model is called") {
  constexpr auto net = ike::graph<"source", "bias">(
      [](auto s, auto b) { return "fc"_m(ike::linear<3, 3>{}, s) + b; });
  auto model = ike::initialize<double, shape{dynamic, 3}, shape{dynamic, 3}>(net, ike::seed{1});
  int seen = 0;
  model.register_forward_pre_hook("", [&](const module_call& c) {
    ++seen;
    CHECK(c.input_count() == 2);
    CHECK(c.input_name(0) == "source");
    CHECK(c.input_name(1) == "bias");
    CHECK(c.input_index("bias") == 1);
    if (seen == 1) CHECK(c.input<double>("bias").data() == gradient.data());
    CHECK(message_of([&] { c.input<double>("mask"); }) ==
          "hook of the network: it has no input 'mask'");
    for (double& v : c.writable_input<double>("bias")) v = 0;
  });
  model.register_forward_pre_hook("fc"_s, [&](const module_call& c) {
    ++seen;
    CHECK(c.input_name(0).empty());
    CHECK_THROWS_AS(c.input_index(""), ike::error);
  });
  const auto y = values(model("bias"_arg = gradient, "source"_arg = x));
  CHECK(seen == 2);
  const auto none = ike::zeros<double, shape{2, 3}>();
  CHECK(y == values(model(x, none)));
}

TEST_CASE("indices that a hook wrote are checked before they are used") {
  constexpr auto net = ike::sequential("table"_m = ike::embedding<4, 3>{});
  auto model = ike::initialize<double, shape{2}>(net, ike::seed{1});
  ike::tensor<std::int64_t, shape{2}> i;
  i[0] = 1;
  i[1] = 3;
  std::int64_t wanted = 2;
  model.register_forward_pre_hook(
      "table"_s, [&](const module_call& c) { c.writable_input<std::int64_t>()[0] = wanted; });
  const auto y = values(model(i));
  CHECK(y[0] == model["table.weight"_s][6]);
  wanted = 4;
  const std::string said = message_of([&] { model(i); });
  CHECK(said.starts_with("table: "));
  wanted = 0;
  CHECK(values(model(i))[0] == model["table.weight"_s][0]);
}

TEST_CASE("what cannot be replaced is refused") {
  constexpr auto net = ike::graph([](auto in) {
    auto both = "both"_m(ike::graph([](auto z) { return std::tuple{ike::tanh{}(z), z}; }), in);
    return std::get<0>(both) + std::get<1>(both);
  });
  auto model = ike::initialize<double, shape{2, 3}>(net, ike::seed{1});
  std::vector<std::string> said;
  model.register_forward_pre_hook("both"_s, [&](const module_call& c) {
    said.push_back(message_of([&] { c.writable_input<double>(); }));
    said.push_back(message_of([&] { c.writable_input<float>(); }));
  });
  model.register_forward_hook("both"_s, [&](const module_call& c) {
    said.push_back(message_of([&] { c.writable_input<double>(); }));
    said.push_back(message_of([&] { c.writable_output<double>(1); }));
    said.push_back(message_of([&] { model(x); }));
  });
  model(x);
  CHECK(said == std::vector<std::string>{
                    "hook of both: the input is an output as well: write that after forward",
                    "hook of both: the input has elements of another type",
                    "hook of both: the input is replaced before forward, not after it",
                    "hook of both: the output is an input of the model, which is not written",
                    "a hook calls the model that it is a hook of"});
}

TEST_CASE("after a hook that threw, inputs are those of the call") {
  auto model = ike::initialize<double, shape{2, 3}>(
      ike::sequential("a"_m = ike::tanh{}, "b"_m = ike::linear<3, 3>{}), ike::seed{1});
  const auto expected = values(model(x));
  auto handle = model.register_forward_pre_hook("b"_s, [](const module_call& c) {
    doubled(c);
    throw ike::error("on purpose");
  });
  CHECK_THROWS_AS(model(x), ike::error);
  handle.remove();
  CHECK(values(model(x)) == expected);
}

TEST_CASE("hooks that replace inputs allocate once") {
  auto model = ike::initialize<double, shape{2, 3}>(
      ike::sequential("a"_m = ike::tanh{}, "b"_m = ike::linear<3, 3>{}), ike::seed{1});
  model.register_forward_pre_hook("b"_s, doubled);
  model(x);
  model.backward(gradient);
  const long before = allocation_count_here;
  model(x);
  model.backward(gradient);
  CHECK(allocation_count_here == before);
}
