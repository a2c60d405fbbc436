#include "ikebana/model/hooks.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "ikebana/compose/graph.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/lazy_model.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/module/arithmetic.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/gru.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/nn/spectral_norm.hpp"
#include "ikebana/optim/sgd.hpp"
#include "test/support/count_allocations.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dynamic;
using ike::module_call;
using ike::shape;

namespace {

constexpr auto net = ike::sequential(
    "fc1"_m = ike::lazy_linear<4>{},
    "block"_m = ike::sequential("relu"_m = ike::relu{}, "fc2"_m = ike::lazy_linear<3>{}),
    "fc3"_m = ike::lazy_linear<2>{});
constexpr shape input{dynamic, 5};

auto make() { return ike::initialize<float, input>(net, ike::seed{1}); }

using names = std::vector<std::string>;

/// A hook that records that it ran.
auto noting(names& log, std::string what) {
  return [&log, what](const module_call& c) { log.push_back(what + " " + std::string{c.path}); };
}

const auto x = ike::uniform<float, shape{2, 5}>(ike::seed{3});

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

TEST_CASE("hooks run in PyTorch's order") {
  auto model = make();
  names log;
  // Registered from the inside out, which must not matter.
  for (const char* path : {"block.fc2", "block", "fc3", ""}) {
    model.register_forward_hook(path, noting(log, "after"));
    model.register_forward_pre_hook(path, noting(log, "before"));
  }
  model(x);
  CHECK(log == names{"before ", "before block", "before block.fc2", "after block.fc2",
                     "after block", "before fc3", "after fc3", "after "});
}

TEST_CASE("of one module, hooks run in the order of registration; prepended ones first") {
  auto model = make();
  names log;
  model.register_forward_pre_hook("fc1"_s, noting(log, "second"));
  model.register_forward_pre_hook("fc1"_s, noting(log, "third"));
  model.register_forward_pre_hook("fc1"_s, noting(log, "first"), true);
  model.register_forward_hook("fc1"_s, noting(log, "fifth"));
  model.register_forward_hook("fc1"_s, noting(log, "fourth"), true);
  model(x);
  CHECK(log == names{"first fc1", "second fc1", "third fc1", "fourth fc1", "fifth fc1"});
}

TEST_CASE("a hook sees the path, kind, shapes and data of its module's call") {
  auto model = make();
  model.eval();
  int seen = 0;
  model.register_forward_pre_hook("block.fc2"_s, [&](const module_call& c) {
    ++seen;
    CHECK(c.kind == "linear");
    CHECK(c.type == ike::dtype::float32);
    CHECK_FALSE(c.training);
    CHECK(c.input_shape() == shape{2, 4});
    CHECK(c.output_shape() == shape{2, 3});
    CHECK(c.input_count() == 1);
    for (float v : c.input<float>()) CHECK(v >= 0);
    CHECK(message_of([&] { c.output<float>(); }) ==
          "hook of block.fc2: the output is not there before forward");
    CHECK(message_of([&] { c.input<double>(); }) ==
          "hook of block.fc2: the input has elements of another type");
  });
  model.register_forward_hook("", [&](const module_call& c) {
    ++seen;
    CHECK(c.kind == "sequential");
    CHECK(c.input<float>().data() == x.data());
    CHECK(c.output<float>().size() == 4);
  });
  const auto y = model(x);
  model.register_forward_hook("", [&](const module_call& c) {
    CHECK(c.output<float>().data() == y.data());
    ++seen;
  });
  model(x);
  CHECK(seen == 5);
}

TEST_CASE("a hook after a module may write its output") {
  auto model = make();
  const ike::tensor<float, shape{dynamic, 2}> before{model(x)};
  auto handle = model.register_forward_hook("fc3"_s, [](const module_call& c) {
    for (float& v : c.writable_output<float>()) v *= 2;
  });
  const auto y = model(x);
  for (ike::dim_t i = 0; i < y.size(); ++i) CHECK(y[i] == 2 * before[i]);
  handle.remove();
  handle.remove();
  CHECK(model(x)[0] == before[0]);
}

TEST_CASE("a module that runs twice has its hooks run twice, a composition too") {
  constexpr auto twice = ike::graph([](auto in) {
    constexpr auto block = ike::sequential("fc"_m = ike::linear<3, 3>{}, "relu"_m = ike::relu{});
    return "block"_m(block, "block"_m(block, in)) + in;
  });
  auto model = ike::initialize<float, shape{dynamic, 3}>(twice, ike::seed{1});
  names log;
  for (const char* path : {"block", "block.fc"}) {
    model.register_forward_pre_hook(path, noting(log, "before"));
    model.register_forward_hook(path, noting(log, "after"));
  }
  model(ike::ones<float, shape{2, 3}>());
  const names once{"before block", "before block.fc", "after block.fc", "after block"};
  names expected = once;
  expected.insert(expected.end(), once.begin(), once.end());
  CHECK(log == expected);
}

TEST_CASE("hooks run in training as well, and follow the batch") {
  auto model = make();
  std::vector<ike::dim_t> batches;
  bool training = false;
  model.register_forward_hook("block"_s, [&](const module_call& c) {
    batches.push_back(c.output_shape()[0]);
    training = c.training;
  });
  ike::sgd optimizer{model, {.lr = 0.1}};
  model.train_step(x, ike::ones<float, shape{2, 2}>(), ike::mse_loss{}, optimizer);
  model(ike::ones<float, shape{7, 5}>());
  CHECK(batches == std::vector<ike::dim_t>{2, 7});
  CHECK(training);
}

TEST_CASE("memory that serves another value by now is not shown") {
  // Deep enough that a network without gradients shares memory between activations. The inputs of
  // the inner ones have different memory.
  constexpr auto two = ike::sequential(ike::tanh{}, ike::tanh{});
  constexpr auto deep = ike::sequential("a"_m = ike::tanh{}, "b"_m = two, "c"_m = ike::tanh{},
                                        "d"_m = two, "e"_m = ike::tanh{});
  auto model = ike::initialize<float, shape{dynamic, 5}>(deep, ike::seed{1});
  int gone = 0, there = 0;
  for (const char* path : {"b", "d"}) {
    model.register_forward_pre_hook(
        path, [&](const module_call& c) { there += c.input<float>().size() == 10; });
    model.register_forward_hook(path, [&](const module_call& c) {
      gone += message_of([&] { c.input<float>(); }).find("is gone") != std::string::npos;
      CHECK(c.output<float>().size() == 10);
    });
  }
  model(x);
  CHECK(there == 2);
  CHECK(gone == 2);
}

TEST_CASE("of a batch of 0 rows, hooks see inputs and outputs without elements") {
  auto model = make();
  model.eval();
  int ran = 0;
  for (const char* path : {"fc1", "block", "fc3"})
    model.register_forward_hook(path, [&](const module_call& c) {
      CHECK(c.input<float>().empty());
      CHECK(c.output<float>().empty());
      ++ran;
    });
  model(ike::tensor_view<const float, input>(nullptr, shape{0, 5}));
  CHECK(ran == 3);
}

TEST_CASE("hooks may register and remove hooks while they run") {
  auto model = make();
  names log;
  ike::hook_handle second;
  model.register_forward_hook("fc1"_s, [&](const module_call&) {
    second.remove();
    model.register_forward_hook("fc3"_s, noting(log, "new"));
  });
  second = model.register_forward_hook("fc1"_s, noting(log, "removed"));
  model(x);
  CHECK(log.empty());
  model(x);
  CHECK(log == names{"new fc3"});
}

TEST_CASE("a hook of a module that is not there is refused") {
  auto model = make();
  CHECK(message_of([&] { model.register_forward_hook("fc9", [](const module_call&) {}); }) ==
        "the network has no module 'fc9' to hook");
}

TEST_CASE("hooks of a lazy model are there before it is resolved, and survive it") {
  ike::lazy_model holder{net, ike::seed{1}};
  names log;
  auto first = holder.register_forward_pre_hook("fc1"_s, noting(log, "before"));
  holder.register_forward_hook("block"_s, noting(log, "after"));
  holder(x);
  holder(x);
  CHECK(log == names{"before fc1", "after block", "before fc1", "after block"});
  first.remove();
  holder.register_forward_hook("fc3"_s, noting(log, "late"));
  log.clear();
  holder(x);
  CHECK(log == names{"after block", "late fc3"});
  // The contained model has the same hooks.
  log.clear();
  holder.model_of(x).register_forward_hook("", noting(log, "within"));
  holder(x);
  CHECK(log == names{"after block", "late fc3", "within "});
}

TEST_CASE("hooks go where their model goes, and not to a clone") {
  names log;
  auto model = make();
  auto handle = model.register_forward_hook("fc1"_s, noting(log, "after"));
  auto copy = model.clone();
  copy(x);
  CHECK(log.empty());
  auto moved = std::move(model);
  moved(x);
  CHECK(log == names{"after fc1"});
  handle.remove();
  moved(x);
  CHECK(log.size() == 1);
  {
    auto gone = std::move(moved);
    handle = gone.register_forward_hook("fc1"_s, noting(log, "after"));
  }
  handle.remove();
}

TEST_CASE("after a hook that throws, buffers are as before the call, and no backward follows") {
  constexpr auto stateful = ike::sequential(
      "norm"_m = ike::batch_norm1d<3>{}, "spectral"_m = ike::spectral_norm(ike::linear<3, 4>{}),
      "gru"_m = ike::gru<4, 5, ike::stateful<1>>{}, "relu"_m = ike::relu{});
  auto m = ike::initialize<float, shape{2, 3}>(stateful, ike::seed{1}), same = m.clone();
  const auto in = ike::uniform<float, shape{2, 3}>(ike::seed{2});
  bool throws = false;
  m.register_forward_hook("relu"_s, [&](const ike::module_call&) {
    if (throws) throw ike::error("a hook");
  });
  const auto buffers_are_equal = [&] { return std::ranges::equal(m.buffers(), same.buffers()); };
  for (const bool training : {true, false}) {
    m.train(training);
    same.train(training);
    throws = false;
    m(in);
    same(in);
    CHECK(buffers_are_equal());
    throws = true;
    CHECK_THROWS_AS(m(in), ike::error);
    CHECK(buffers_are_equal());
    CHECK(m.random_step() == same.random_step());
    CHECK_THROWS_AS(m.backward(same.output()), ike::error);
    throws = false;
    const long before = allocation_count.load();
    m(in);
    CHECK(allocation_count.load() == before);
    CHECK(std::ranges::equal(m.output().span(), same(in).span()));
  }
}

TEST_CASE("without hooks, and with those that are gone, a forward allocates nothing") {
  auto model = make();
  auto handle = model.register_forward_hook("fc1"_s, [](const module_call&) {});
  model(x);
  handle.remove();
  const long before = allocation_count_here;
  model(x);
  CHECK(allocation_count_here == before);
}

TEST_CASE("hooks around a state: saving, and loading, where names may change") {
  auto model = make();
  names log;
  model.register_state_dict_hook([](ike::state_dict& dict) { dict.set_metadata("by", "a hook"); });
  CHECK(*ike::get_state_dict(model).find_metadata("by") == "a hook");

  auto other = ike::initialize<float, input>(net, ike::seed{2});
  ike::state_dict old = ike::get_state_dict(other).clone();
  old.rename("fc1.weight", "first.weight");
  CHECK(message_of([&] { ike::load_state_dict(model, old); }) ==
        "load_state_dict: missing keys: fc1.weight; unexpected keys: first.weight");
  model.register_load_state_dict_pre_hook([&](ike::state_dict& dict) {
    log.push_back("before");
    dict.rename("first.weight", "fc1.weight");
  });
  model.register_load_state_dict_post_hook([&](const ike::state_dict& dict) {
    log.push_back("after");
    CHECK(dict.contains("fc1.weight"));
  });
  ike::load_state_dict(model, old);
  CHECK(log == names{"before", "after"});
  CHECK(old.contains("first.weight"));  // The dict is unchanged.
  CHECK(model["fc1.weight"_s][7] == other["fc1.weight"_s][7]);

  // If keys are wrong after all, nothing is loaded, and no hook runs after it.
  log.clear();
  old.erase("fc1.bias");
  CHECK(message_of([&] { ike::load_state_dict(model, old); }) ==
        "load_state_dict: missing keys: fc1.bias");
  CHECK(log == names{"before"});
}

TEST_CASE("hooks around the state of a lazy model") {
  ike::lazy_model holder{net, ike::seed{1}};
  names log;
  holder.register_state_dict_hook([&](ike::state_dict&) { log.push_back("saved"); });
  holder.register_load_state_dict_post_hook(
      [&](const ike::state_dict&) { log.push_back("loaded"); });
  ike::get_state_dict(holder);
  ike::load_state_dict(holder, ike::get_state_dict(make()));
  holder(x);
  ike::get_state_dict(holder);
  ike::load_state_dict(holder, ike::get_state_dict(make()));
  CHECK(log == names{"saved", "loaded", "saved", "loaded"});
}
