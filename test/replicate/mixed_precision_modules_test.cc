// The boundaries: overrides by path, several inputs, norms, buffers, hooks, shared modules,
// branches. (Tests of PyTorch's replicate, C6.)

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "ikebana/compose/choose.hpp"
#include "ikebana/compose/graph.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/hooks.hpp"
#include "ikebana/model/inputs.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/flatten.hpp"
#include "ikebana/nn/layer_norm.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/optim/sgd.hpp"
#include "ikebana/replicate/launch.hpp"
#include "ikebana/replicate/unused.hpp"
#include "ikebana/replicate/utils/cast_forward_inputs.hpp"
#include "test/replicate/mixed_precision_checks.hpp"

using namespace mixed_precision_checks;
using ike::cast_inputs;
using ike::mixed_precision;
using ike::mixed_precision_at;

namespace {

/// y = x w, one number for all; records what it saw.
struct seen_by_probe {
  std::vector<float> x, w, gy;
};
std::array<seen_by_probe, 4> seen;

template <std::size_t Id>
struct probe {
  static constexpr std::string_view kind = "probe";
  constexpr ike::inferred infer(const shape& s) const { return s; }
  constexpr std::array<ike::parameter_spec, 1> parameters() const {
    return {{{"weight", shape{1}, ike::initializer::constant(1.1)}}};
  }
  template <class T>
  void forward(const ike::context<T>& c) const {
    const ike::dim_t n = c.input_shape().numel();
    seen[Id] = {{c.input(), c.input() + n}, {c.parameter(0), c.parameter(0) + 1}, {}};
    for (ike::dim_t i = 0; i < n; ++i) c.output()[i] = c.input()[i] * c.parameter(0)[0];
  }
  template <class T>
  void backward(const ike::context<T>& c) const {
    const ike::dim_t n = c.input_shape().numel();
    seen[Id].gy = {c.output_gradient(), c.output_gradient() + n};
    T dw = c.accumulate() ? *c.parameter_gradient(0) : T{0};
    for (ike::dim_t i = 0; i < n; ++i) {
      dw += c.output_gradient()[i] * c.input()[i];
      if (c.input_gradient() != nullptr)
        c.input_gradient()[i] = c.output_gradient()[i] * c.parameter(0)[0];
    }
    *c.parameter_gradient(0) = dw;
  }
  template <ike::symbolic... X>
  constexpr auto operator()(const X&... x) const {
    return ike::apply(*this, x...);
  }
};

constexpr shape four{4, 5};
constexpr auto chain = ike::sequential("c1"_m = probe<0>{}, "c2"_m = probe<1>{});

auto random_input(std::uint64_t seed = 3) { return ike::uniform<float, four>(ike::seed{seed}); }

template <class P>
bool is(const std::vector<float>& x) {
  return is_rounded<P>(std::span<const float>{x});
}

/// A replica of `chain` that ran forward and backward.
template <class Mixed>
auto run_chain(ike::single& group) {
  auto model =
      ike::replicate<policy<Mixed>>(ike::initialize<float, four>(chain, ike::seed{1}), group);
  const auto x = random_input();
  model(x);
  model.backward(random_input(4));
  return model;
}

float weight_of(std::size_t probe) { return seen[probe].w[0]; }

}  // namespace

TEST_CASE("float16 on one submodule") {
  ike::single group;
  {  // on the second: its input is cast as it comes in
    const auto m =
        run_chain<mixed_precision<void, void, void, void, mixed_precision_at<"c2", float16>>>(
            group);
    CHECK(!is<float16>(seen[0].x));
    CHECK(is<float16>(seen[1].x));
    CHECK(weight_of(0) == 1.1f);
    CHECK(weight_of(1) == rounded<float16>(1.1f));
    CHECK(is_rounded<float16>(m.output().span()));
    CHECK(is<float16>(seen[1].gy));
    CHECK(is<float16>(seen[0].gy));  // what comes back out of c2 is float16
    CHECK(m.gradient("c2.weight"_s)[0] == rounded<float16>(m.gradient("c2.weight"_s)[0]));
    CHECK(m.gradient("c1.weight"_s)[0] != rounded<float16>(m.gradient("c1.weight"_s)[0]));
    CHECK(m["c2.weight"_s][0] == 1.1f);
  }
  {  // whoever owns the cast
    run_chain<mixed_precision<void, void, void, void,
                              mixed_precision_at<"c2", float16, void, void, cast_inputs<false>>>>(
        group);
    CHECK(!is<float16>(seen[1].x));
    CHECK(weight_of(1) == rounded<float16>(1.1f));
  }
  {  // On the first, with a float output: the values are those of float16.
    run_chain<
        mixed_precision<void, void, void, void, mixed_precision_at<"c1", float16, void, float>>>(
        group);
    CHECK(is<float16>(seen[0].x));
    CHECK(is<float16>(seen[1].x));
    CHECK(weight_of(1) == 1.1f);
    CHECK(is<float16>(seen[0].gy));
  }
  {  // A narrower output than the computation.
    run_chain<
        mixed_precision<void, void, void, void, mixed_precision_at<"c1", float, void, bfloat16>>>(
        group);
    CHECK(!is<bfloat16>(seen[0].x));
    CHECK(is<bfloat16>(seen[1].x));
    CHECK(is<bfloat16>(seen[0].gy));
  }
}

TEST_CASE("cast_inputs<false> leaves the model's inputs alone") {
  ike::single group;
  run_chain<mixed_precision<bfloat16, float, void, void, cast_inputs<false>>>(group);
  CHECK(!is<bfloat16>(seen[0].x));
  CHECK(is<bfloat16>(seen[1].x));
  run_chain<mixed_precision<bfloat16, float>>(group);
  CHECK(is<bfloat16>(seen[0].x));

  // A view of such an input is not rounded either.
  constexpr auto viewing = ike::sequential("flat"_m = ike::flatten<>{}, "c1"_m = probe<0>{});
  using mixed = mixed_precision<bfloat16, float, void, void, cast_inputs<false>>;
  const auto x = random_input();
  const auto kept = copied(x.span());
  auto model =
      ike::replicate<policy<mixed>>(ike::initialize<float, four>(viewing, ike::seed{1}), group);
  model(x);
  CHECK(seen[0].x == kept);
  CHECK(copied(x.span()) == kept);
}

TEST_CASE("The output type rounds what the model gives, not what its last leaf works with") {
  ike::single group;
  const auto m = run_chain<mixed_precision<float, void, bfloat16>>(group);
  CHECK(is_rounded<bfloat16>(m.output().span()));
  CHECK(is<bfloat16>(seen[1].gy));
  CHECK(!is<bfloat16>(seen[0].gy));

  // Likewise for a submodule.
  constexpr auto nested = ike::sequential("block"_m = chain, "c3"_m = probe<2>{});
  using mixed =
      mixed_precision<void, void, void, void, mixed_precision_at<"block", float, void, bfloat16>>;
  auto model =
      ike::replicate<policy<mixed>>(ike::initialize<float, four>(nested, ike::seed{1}), group);
  model(random_input());
  CHECK(!is<bfloat16>(seen[1].x));
  CHECK(is<bfloat16>(seen[2].x));
}

TEST_CASE("Submodules with external inputs, and inputs by name") {
  // PyTorch casts every tensor that enters a module, wherever it comes from.
  constexpr auto network = ike::graph<"x", "y">([](auto x, auto y) {
    const auto z = "l1"_m(probe<0>{}, x);
    return "l2"_m(probe<1>{}, z + "l3"_m(probe<2>{}, y)) + y;
  });
  ike::single group;
  using mixed = mixed_precision<float, float, void, void, mixed_precision_at<"l1", bfloat16>,
                                mixed_precision_at<"l3", float16>>;
  auto model = ike::replicate<policy<mixed>>(
      ike::initialize<float, four, four>(network, ike::seed{1}), group);
  const auto x = random_input(3), y = random_input(4);
  const auto kept = copied(y.span());
  model("y"_arg = y, "x"_arg = x);
  CHECK(copied(y.span()) == kept);
  CHECK(is<bfloat16>(seen[0].x));
  CHECK(is<float16>(seen[2].x));
  CHECK(!is<bfloat16>(seen[1].x));
  const auto z = copied(model.output().span());
  bool right = true;
  for (std::size_t i = 0; i < z.size(); ++i) {
    const float a = rounded<bfloat16>(rounded<bfloat16>(x.span()[i]) * rounded<bfloat16>(1.1f));
    const float b = rounded<float16>(rounded<float16>(y.span()[i]) * rounded<float16>(1.1f));
    right = right && z[i] == (a + b) * 1.1f + y.span()[i];
  }
  CHECK(right);
  ike::tensor<float, four> gx, gy;
  model.backward(random_input(5), gx, gy);
  CHECK(is_rounded<bfloat16>(gx.span()));
  CHECK(!is_rounded<float16>(gy.span()));  // One of the two that are added is float.
}

TEST_CASE("Inputs of another floating-point type are cast, by position and by name, and kept") {
  constexpr auto biased = ike::graph<"source", "bias">(
      [](auto x, auto b) { return "fc"_m(ike::linear<3, 2>{}, x) + b; });
  using policy = ike::replicate_policy<mixed_precision<bfloat16>>;
  ike::launch(ike::threads{2}, [&](ike::thread_group& group) {
    const auto make = [&] {
      return ike::replicate<policy>(
          ike::initialize<float, shape{ike::dynamic, 3}, shape{ike::dynamic, 2}>(biased,
                                                                                 ike::seed{1}),
          group);
    };
    const auto rank = static_cast<std::uint64_t>(group.rank());
    const auto x = ike::uniform<double, shape{4, 3}>(ike::seed{rank});
    const auto b = ike::uniform<double, shape{4, 2}>(ike::seed{10 + rank});
    const auto target = ike::uniform<float, shape{4, 2}>(ike::seed{20 + rank});
    const auto cast = ike::cast_forward_inputs<float>(x, b);
    const auto& [xf, bf] = cast;
    auto model = make(), reference = make();
    const auto same = [&] {
      CHECK(std::ranges::equal(model.gradients(), reference.gradients()));
      CHECK(std::ranges::equal(std::span{model.output().data(), 8},
                               std::span{reference.output().data(), 8}));
    };
    reference(xf, bf);
    reference.backward(target);
    model("bias"_arg = b, "source"_arg = x);
    model.backward(target);
    same();
    // Temporary inputs live until backward, whether they are cast or not.
    reference(xf, bf);
    reference.backward(target);
    model(ike::tensor<double, shape{4, 3}>{x}, ike::tensor<float, shape{4, 2}>{bf});
    model.backward(target);
    same();
    ike::sgd step{model, {.lr = 0.1}}, reference_step{reference, {.lr = 0.1}};
    reference.train_step(ike::inputs(xf, bf), target, ike::mse_loss{}, reference_step);
    model.train_step(ike::inputs(x, "bias"_arg = b), target, ike::mse_loss{}, step);
    same();
    CHECK(std::ranges::equal(model.parameters(), reference.parameters()));
    reference.loss_backward(ike::inputs(xf, bf), target, ike::mse_loss{});
    model.loss_backward(ike::inputs(x, b), target, ike::mse_loss{});
    same();
  });
}

TEST_CASE_TEMPLATE("Norms train in smaller types, and keep float where told to", P, bfloat16,
                   float16) {
  constexpr auto network = ike::sequential(
      "fc"_m = ike::lazy_linear<8>{}, "ln"_m = ike::lazy_layer_norm<>{}, "probe"_m = probe<0>{},
      "bn"_m = ike::lazy_batch_norm1d<>{}, "out"_m = ike::lazy_linear<3>{});
  const auto run = [&]<class Mixed>(std::type_identity<Mixed>) {
    ike::launch(ike::threads{2}, [&](ike::process_group auto& group) {
      // The probe writes to one location: one rank at a time.
      for (int turn = 0; turn < group.size(); ++turn) {
        if (turn == group.rank()) {
          ike::single alone;
          auto model = ike::replicate<policy<Mixed>>(
              ike::initialize<float, four>(network, ike::seed{1}), alone);
          ike::sgd optimizer{model, {.lr = 0.05}};
          const auto target = ike::uniform<float, shape{4, 3}>(ike::seed{9});
          float first = 0, last = 0;
          for (int i = 0; i < 30; ++i) {
            last = model.train_step(random_input(), target, ike::mse_loss{}, optimizer);
            if (i == 0) first = last;
          }
          CHECK(last < first / 2);
          // Buffers are not rounded.
          CHECK(!is_rounded<P>(model.buffer("bn.running_var"_s).span()));
        }
        group.barrier();
      }
    });
  };
  run(std::type_identity<mixed_precision<P, float>>{});
  CHECK(is<P>(seen[0].x));
  run(std::type_identity<mixed_precision<P, float, void, void, mixed_precision_at<"ln", float>,
                                         mixed_precision_at<"bn", float>>>{});
  CHECK(is<P>(seen[0].x));
  CHECK(is<P>(seen[0].gy));
}

TEST_CASE("Buffers are rounded where that is asked for") {
  constexpr shape images{3, 2, 2, 2};
  constexpr auto network =
      ike::sequential("bn"_m = ike::lazy_batch_norm2d<>{}, "flat"_m = ike::flatten{},
                      "out"_m = ike::lazy_linear<3>{});
  ike::single group;
  auto model = ike::replicate<policy<mixed_precision<float16, void, void, bfloat16>>>(
      ike::initialize<float, images>(network, ike::seed{1}), group);
  ike::sgd optimizer{model, {.lr = 0.05}};
  const auto x = ike::uniform<float, images>(ike::seed{3});
  const auto target = ike::uniform<float, shape{3, 3}>(ike::seed{9});
  for (int i = 0; i < 3; ++i) {
    model.train_step(x, target, ike::mse_loss{}, optimizer);
    CHECK(is_rounded<bfloat16>(model.buffer("bn.running_mean"_s).span()));
    CHECK(is_rounded<bfloat16>(model.buffer("bn.running_var"_s).span()));
  }
  CHECK(model.buffer("bn.num_batches_tracked"_s)[0] == 3);
  CHECK(model.buffer("bn.running_var"_s)[0] != 1);
  // Values written from outside are rounded before they are read.
  model.buffer("bn.running_mean"_s)[0] = 0.3f;
  model.eval();
  model(x);
  CHECK(model.buffer("bn.running_mean"_s)[0] == rounded<bfloat16>(0.3f));
}

TEST_CASE("Hooks see what leaves give, rounded, also hooks from before") {
  ike::single group;
  auto made = ike::initialize<float, in>(net, ike::seed{1});
  int before = 0, after = 0;
  const auto check = [](int& calls) {
    return [&calls](const ike::module_call& c) {
      ++calls;
      CHECK(is_rounded<bfloat16>(c.output<float>()));
    };
  };
  auto first = made.register_forward_hook("fc1"_s, check(before));
  auto model = ike::replicate<policy<mixed_precision<bfloat16>>>(std::move(made), group);
  by_hand<float> reference{ike::number_format::bfloat16};
  reference.run(model, 0);
  model.loss_backward(x_of<float>(0), y_of<float>(0), ike::mse_loss{});
  CHECK(before == 1);
  auto second = model.register_forward_hook("tanh"_s, check(after));
  model.zero_grad();
  model.loss_backward(x_of<float>(0), y_of<float>(0), ike::mse_loss{});
  CHECK((before == 2 && after == 1));
  CHECK(copied(std::as_const(model).gradients()) == reference.gradients);
  first.remove();
  second.remove();
  model.zero_grad();
  model.loss_backward(x_of<float>(0), y_of<float>(0), ike::mse_loss{});
  CHECK((before == 2 && after == 1));
  CHECK(copied(std::as_const(model).gradients()) == reference.gradients);
}

TEST_CASE("A module that is called twice: its gradients are rounded, then added and rounded") {
  constexpr auto network = ike::graph([](auto x) {
    const auto h = "p"_m(probe<0>{}, x);
    // Its gradients stand before those of p.
    return "q"_m(probe<1>{}, "p"_m(probe<0>{}, h));
  });
  ike::single group;
  auto model = ike::replicate<policy<mixed_precision<bfloat16>>>(
      ike::initialize<float, four>(network, ike::seed{1}), group);
  using P = bfloat16;
  const float w = rounded<P>(1.1f);
  int differ = 0;
  for (std::uint64_t seed = 3; seed < 11; ++seed) {
    const auto x = random_input(seed), g = random_input(seed + 100);
    float second = 0, both = 0, gy[20];
    for (std::size_t i = 0; i < 20; ++i) {
      const float h = rounded<P>(rounded<P>(x.span()[i]) * w);
      gy[i] = rounded<P>(rounded<P>(g.span()[i]) * w);
      second += gy[i] * h;
    }
    float first = rounded<P>(second);
    both = second;
    for (std::size_t i = 0; i < 20; ++i) {
      first += rounded<P>(gy[i] * w) * rounded<P>(x.span()[i]);
      both += rounded<P>(gy[i] * w) * rounded<P>(x.span()[i]);
    }
    const float once = rounded<P>(first);
    differ += once != rounded<P>(both);
    model.zero_grad();
    for (int i = 1; i <= 2; ++i) {
      model(x);
      model.backward(g);
      CHECK(model.gradient("p.weight"_s)[0] == (i == 1 ? once : rounded<P>(once + once)));
    }
  }
  CHECK(differ > 0);
}

TEST_CASE("Of branches only what runs is rounded, and what does not has no gradient") {
  constexpr auto network = ike::sequential(
      "a"_m = probe<0>{}, "path"_m = ike::choose("low"_m = probe<1>{}, "high"_m = probe<2>{}),
      "b"_m = probe<3>{});
  ike::single group;
  using mixed =
      mixed_precision<bfloat16, float, void, void, mixed_precision_at<"path.high", float>>;
  const auto x = random_input(3), g = random_input(4);
  auto model = ike::replicate<ike::replicate_policy<mixed, ike::find_unused_parameters<true>>>(
      ike::initialize<float, four>(network, ike::seed{1}), group);
  for (std::size_t which : {0u, 1u, 0u}) {
    seen[1] = seen[2] = {};
    model.choose("path"_s, which);
    model.zero_grad();
    model(x);
    model.backward(g);
    const seen_by_probe& taken = seen[1 + which];
    CHECK(seen[2 - which].x.empty());
    CHECK(is<bfloat16>(taken.x));
    CHECK(is<bfloat16>(seen[3].x));  // cast on entry
    CHECK(is<bfloat16>(taken.gy));
    CHECK(taken.w[0] == (which == 0 ? rounded<bfloat16>(1.1f) : 1.1f));
    CHECK((model.gradient("path.low.weight"_s)[0] == 0) == (which == 1));
    CHECK((model.gradient("path.high.weight"_s)[0] == 0) == (which == 0));
    CHECK(is_rounded<bfloat16>(model.output().span()));
    CHECK(model.gradient("a.weight"_s)[0] != 0);
  }
}

TEST_CASE("float16, and gradients of float reduced in double") {
  ike::launch(ike::threads{2}, [](ike::process_group auto& group) {
    computes_and_reduces<float, float16, void, bfloat16>(group);
    computes_and_reduces<float, bfloat16, double, void>(group);
  });
}
