#include "ikebana/compose/frozen.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "ikebana/ikebana.hpp"
#include "ikebana/nn/prelu.hpp"
#include "ikebana/replicate.hpp"
#include "test/support/count_allocations.hpp"

namespace ike = ikebana;
using namespace ike::literals;

namespace {

int forwards = 0, backwards = 0;

/// Scales its input by a weight and counts its calls. It cannot leave out the weight's gradient.
struct tally {
  static constexpr std::string_view kind = "tally";
  constexpr ike::inferred infer(const ike::shape& in) const { return in; }
  constexpr std::array<ike::parameter_spec, 1> parameters() const {
    return {ike::parameter_spec{"weight", ike::shape{1}, ike::initializer::uniform(1)}};
  }
  template <class T>
  void forward(const ike::context<T>& c) const {
    ++forwards;
    for (ike::dim_t i = 0; i < c.input_shape().numel(); ++i)
      c.output()[i] = c.parameter(0)[0] * c.input()[i];
  }
  template <class T>
  void backward(const ike::context<T>& c) const {
    ++backwards;
    if (!c.accumulate()) c.parameter_gradient(0)[0] = 0;
    for (ike::dim_t i = 0; i < c.input_shape().numel(); ++i) {
      c.parameter_gradient(0)[0] += c.output_gradient()[i] * c.input()[i];
      if (c.input_gradient() != nullptr)
        c.input_gradient()[i] = c.output_gradient()[i] * c.parameter(0)[0];
    }
  }
};

constexpr ike::shape images{4, 2, 5, 5};

constexpr auto body = ike::sequential(
    "conv"_m = ike::lazy_conv2d<3, ike::kernel<3>>{}, "bn"_m = ike::lazy_batch_norm2d<>{},
    ike::relu{}, "deep"_m = ike::residual("conv"_m = ike::conv2d<3, 3, ike::kernel<1>>{}),
    ike::flatten<>{});
constexpr auto net = ike::sequential("backbone"_m = body, "fc"_m = ike::lazy_linear<6>{},
                                     "head"_m = ike::linear<6, 2>{});

const auto x = ike::uniform<float, images>(ike::seed{2});
const auto y = ike::uniform<float, ike::shape{4, 2}>(ike::seed{3});

template <class M>
auto made(const M& module) {
  return ike::initialize<float, images>(module, ike::seed{1});
}

template <class A, class B>
bool equal(const A& a, const B& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), sizeof(float) * static_cast<std::size_t>(a.size())) == 0;
}

/// Evaluation fuses a batch norm into the convolution before it, if it is not frozen.
template <class A, class B>
bool close(const A& a, const B& b) {
  bool all = a.size() == b.size();
  for (ike::dim_t i = 0; all && i < a.size(); ++i)
    all = std::abs(a.data()[i] - b.data()[i]) <= 1e-6f;
  return all;
}

std::set<std::string> names(const ike::state_dict& dict) {
  std::set<std::string> all;
  for (const auto& e : dict) all.insert(e.name);
  return all;
}

/// Whether two models have the same state, and the same outputs in evaluation.
template <class A, class B>
bool same_state(A& a, B& b) {
  const auto one = ike::get_state_dict(a), two = ike::get_state_dict(b);
  bool same = names(one) == names(two);
  for (const auto& e : one)
    same = same && std::ranges::equal(e.bytes, two.at(e.name).bytes) &&
           e.extents == two.at(e.name).extents;
  return same;
}

}  // namespace

TEST_CASE("frozen modules have no parameters, but the same state and outputs") {
  auto whole = made(net);
  auto part = made(ike::frozen<"backbone">(net));
  CHECK(part.parameter_count == 4);
  CHECK(part.parameters().size() == part.gradients().size());
  CHECK(same_state(whole, part));
  CHECK(part.workspace_bytes() < whole.workspace_bytes());
  whole.eval();
  part.eval();
  CHECK(close(whole(x), part(x)));

  // Without a pattern, all is frozen.
  CHECK(made(ike::sequential("backbone"_m = ike::frozen(body), "head"_m = ike::lazy_linear<2>{}))
            .parameter_count == 2);
  CHECK(made(ike::trainable<"fc", "head">(net)).parameter_count == 4);
  CHECK(made(ike::frozen<"*conv", "head">(net)).parameter_count == 4);
  CHECK(made(ike::frozen<"head">(ike::frozen<"backbone">(net))).parameter_count == 2);
}

TEST_CASE("what is not frozen has the gradients it would have") {
  auto whole = made(net);
  auto part = made(ike::frozen<"backbone.deep", "fc">(net));
  whole.loss_backward(x, y, ike::mse_loss{});
  part.loss_backward(x, y, ike::mse_loss{});
  CHECK(equal(whole.gradient("backbone.conv.weight"_s), part.gradient("backbone.conv.weight"_s)));
  CHECK(equal(whole.gradient("backbone.bn.weight"_s), part.gradient("backbone.bn.weight"_s)));
  CHECK(equal(whole.gradient("head.weight"_s), part.gradient("head.weight"_s)));

  // Leaves that compute the gradients of their parameters in any case.
  constexpr auto others = ike::sequential("a"_m = ike::lazy_linear<3>{}, "count"_m = tally{},
                                          "prelu"_m = ike::prelu<3>{},
                                          "norm"_m = ike::weight_norm(ike::linear<3, 2>{}));
  auto all = ike::initialize<float, ike::shape{4, 5}>(others, ike::seed{1});
  auto some = ike::initialize<float, ike::shape{4, 5}>(ike::trainable<"a">(others), ike::seed{1});
  CHECK(same_state(all, some));
  const auto rows = ike::uniform<float, ike::shape{4, 5}>(ike::seed{2});
  all.loss_backward(rows, y, ike::mse_loss{});
  some.loss_backward(rows, y, ike::mse_loss{});
  CHECK(some.parameter_count == 2);
  CHECK(equal(all.gradient("a.weight"_s), some.gradient("a.weight"_s)));
}

TEST_CASE("a frozen batch norm runs as in evaluation, and passes its gradient on") {
  auto whole = made(net);
  auto part = made(ike::frozen<"backbone.bn">(net));
  for (auto* mean : {whole.buffer("backbone.bn.running_mean"_s).data(),
                     part.buffer("backbone.bn.running_mean"_s).data()})
    std::fill_n(mean, 3, 0.25f);
  whole.eval();
  whole.loss_backward(x, y, ike::mse_loss{});
  part.loss_backward(x, y, ike::mse_loss{});
  CHECK(part.is_training());
  CHECK(close(whole.gradient("backbone.conv.weight"_s), part.gradient("backbone.conv.weight"_s)));
  CHECK(part.buffer("backbone.bn.running_mean"_s)(0) == 0.25f);
  CHECK(part.buffer("backbone.bn.num_batches_tracked"_s)() == 0);
}

TEST_CASE("backward ends where no module before needs it") {
  constexpr auto counting = ike::sequential("count"_m = tally{}, "head"_m = ike::lazy_linear<2>{});
  auto model =
      ike::initialize<float, ike::shape{4, 3}>(ike::frozen<"count">(counting), ike::seed{1});
  ike::sgd optimizer{model, {.lr = 0.1, .momentum = 0.9, .max_norm = 1}};
  const auto rows = ike::uniform<float, ike::shape{4, 3}>(ike::seed{2});
  model.train_step(rows, y, ike::mse_loss{}, optimizer);
  forwards = backwards = 0;
  const float weight = model.buffer("count.weight"_s)(0);
  const long before = allocation_count_here;
  for (int i = 0; i < 3; ++i) model.train_step(rows, y, ike::mse_loss{}, optimizer);
  CHECK(allocation_count_here == before);
  CHECK(forwards == 3);
  CHECK(backwards == 0);
  CHECK(model.buffer("count.weight"_s)(0) == weight);
}

TEST_CASE("a backbone is loaded under another head, and stays as it is") {
  auto trained = made(net);
  ike::adam first{trained, {.lr = 0.1}};
  trained.train_step(x, y, ike::mse_loss{}, first);
  constexpr auto other = ike::sequential("backbone"_m = body, "top"_m = ike::lazy_linear<2>{});
  auto model = made(ike::frozen<"backbone">(other));
  model.eval();
  const auto before = ike::tensor<float, ike::shape{4, 2}>(model(x));
  const auto state = ike::get_state_dict(trained);
  ike::load_state_dict(model, state, ike::only<"backbone">);
  CHECK(!equal(before, model(x)));
  model.train();
  ike::adamw optimizer{model, {.lr = 0.1}};
  for (int i = 0; i < 3; ++i) model.train_step(x, y, ike::mse_loss{}, optimizer);
  for (const auto& e : ike::get_state_dict(model))
    if (e.name.starts_with("backbone")) CHECK(std::ranges::equal(e.bytes, state.at(e.name).bytes));
  // Products see weights that are written.
  model.eval();
  const auto with = ike::tensor<float, ike::shape{4, 2}>(model(x));
  model.buffer("backbone.conv.weight"_s)(0, 0, 0, 0) += 1;
  CHECK(!equal(with, model(x)));
}

TEST_CASE("replicas reduce what is trained, and have the same frozen parameters") {
  ike::launch(ike::threads{2}, [&](ike::process_group auto& group) {
    const auto module = ike::frozen<"backbone">(net);
    auto model = ike::replicate(
        ike::initialize<float, images>(module, ike::seed{group.rank() == 0 ? 1U : 9U}), group);
    auto alone = made(module);
    CHECK(model.buffer("backbone.conv.weight"_s)(0, 0, 0, 0) ==
          alone.buffer("backbone.conv.weight"_s)(0, 0, 0, 0));
    ike::sgd optimizer{model, {.lr = 0.1}}, its{alone, {.lr = 0.1}};
    for (int i = 0; i < 2; ++i) {
      model.train_step(x, y, ike::mse_loss{}, optimizer);
      alone.train_step(x, y, ike::mse_loss{}, its);
    }
    CHECK(std::ranges::equal(model.parameters(), alone.parameters()));
  });
}

TEST_CASE("a lazy_model freezes, too") {
  ike::lazy_model model{ike::frozen<"backbone">(net), ike::seed{1}};
  auto at_once = made(ike::frozen<"backbone">(net));
  model.eval();
  at_once.eval();
  CHECK(close(model(x), at_once(x)));
}

TEST_CASE("a graph freezes, too") {
  constexpr auto graph = ike::graph([](auto in) {
    auto h = "a"_m(ike::lazy_linear<3>{}, in);
    return "b"_m(ike::lazy_linear<3>{}, h) + h;
  });
  auto whole = ike::initialize<double, ike::shape{4, 3}>(graph, ike::seed{1});
  auto part = ike::initialize<double, ike::shape{4, 3}>(ike::frozen<"b">(graph), ike::seed{1});
  const auto in = ike::uniform<double, ike::shape{4, 3}>(ike::seed{2});
  whole.loss_backward(in, in, ike::mse_loss{});
  part.loss_backward(in, in, ike::mse_loss{});
  CHECK(part.parameter_count == 2);
  const auto a = whole.gradient("a.weight"_s), b = part.gradient("a.weight"_s);
  CHECK(std::equal(a.data(), a.data() + a.size(), b.data()));
}
