#include "ikebana/compose/checkpoint.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "ikebana/compose/choose.hpp"
#include "ikebana/compose/graph.hpp"
#include "ikebana/compose/repeat.hpp"
#include "ikebana/compose/residual.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/hooks.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/part.hpp"
#include "ikebana/model/summary.hpp"
#include "ikebana/model/workspace.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/conv.hpp"
#include "ikebana/nn/dropout.hpp"
#include "ikebana/nn/flatten.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/nn/multihead_attention.hpp"
#include "ikebana/nn/smooth_activation.hpp"
#include "ikebana/nn/spectral_norm.hpp"
#include "ikebana/ops/elementwise.hpp"
#include "ikebana/ops/product.hpp"
#include "ikebana/ops/reduction.hpp"
#include "ikebana/optim/sgd.hpp"
#include "ikebana/replicate/convert_sync_batch_norm.hpp"
#include "ikebana/replicate/launch.hpp"
#include "ikebana/replicate/mixed_precision.hpp"
#include "ikebana/replicate/replicate.hpp"
#include "test/support/count_allocations.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::checkpoint;
using ike::dynamic;
using ike::shape;

namespace {

/// Networks with and without checkpoints.
struct whole {
  constexpr auto operator()(auto m) const { return m; }
};
struct saving {
  constexpr auto operator()(auto m) const { return checkpoint(m); }
};

template <class T>
struct trained {
  std::vector<T> values, parameters, gradients, evaluation_gradients;
  std::vector<std::byte> buffers;
};

/// Bit by bit: of no rows, losses are no numbers.
template <class U>
bool same_bits(const std::vector<U>& a, const std::vector<U>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(U)) == 0;
}

/// Three steps, then the gradients of the inputs, in training and in evaluation, of a forward that
/// came before any plan for them.
template <class T, shape In, class M>
trained<T> train(const M& net, ike::dim_t batch) {
  auto m = ike::initialize<T, In>(net, ike::seed{1});
  ike::sgd optimizer{m, {.lr = 1e-2, .momentum = 0.9}};
  ike::tensor<T, In> x(ike::uniform<T, In>(ike::seed{2}, batch));
  trained<T> r;
  const auto note = [&](const auto& y) { r.values.insert(r.values.end(), y.begin(), y.end()); };
  for (int step = 0; step < 3; ++step) {
    const auto y = m(x);
    auto target = ike::tensor{y};
    std::ranges::fill(target, T{1});
    r.values.push_back(m.train_step(x, target, ike::mse_loss{}, optimizer));
  }
  for (const bool training : {true, false}) {
    m.train(training);
    const auto y = m(x);
    note(y);
    const ike::tensor dy{y};
    auto dx = x;
    m.zero_grad();
    m.backward(dy, dx);
    note(m.output());
    auto& to = training ? r.gradients : r.evaluation_gradients;
    to.assign(dx.begin(), dx.end());
    to.insert(to.end(), m.gradients().begin(), m.gradients().end());
  }
  r.parameters.assign(m.parameters().begin(), m.parameters().end());
  r.buffers.assign(m.buffers().begin(), m.buffers().end());
  return r;
}

/// Compares numbers bit by bit; `smaller`: the checkpoints save memory.
template <class T, shape In, class Net>
void compare(Net net, ike::dim_t batch, bool smaller = true) {
  constexpr auto plain = net(whole{});
  constexpr auto saved = net(saving{});
  const auto a = train<T, In>(plain, batch), b = train<T, In>(saved, batch);
  CHECK(same_bits(a.values, b.values));
  CHECK(same_bits(a.parameters, b.parameters));
  CHECK(same_bits(a.gradients, b.gradients));
  // In evaluation, several layers may run in one call at first.
  REQUIRE(a.evaluation_gradients.size() == b.evaluation_gradients.size());
  T difference{};
  for (std::size_t i = 0; i < a.evaluation_gradients.size(); ++i)
    difference =
        std::max(difference, std::abs(a.evaluation_gradients[i] - b.evaluation_gradients[i]));
  CHECK(difference <= (sizeof(T) == 4 ? 1e-5 : 1e-12));
  CHECK(same_bits(a.buffers, b.buffers));
  using plain_type = decltype(ike::initialize<T, In>(plain, ike::seed{}));
  using saved_type = decltype(ike::initialize<T, In>(saved, ike::seed{}));
  if (smaller) CHECK(ike::workspace_bytes<saved_type> < ike::workspace_bytes<plain_type>);
}

constexpr auto dense = [](auto save) {
  return ike::sequential(
      "in"_m = ike::lazy_linear<23>{},
      "a"_m = save(ike::sequential(ike::lazy_linear<40>{}, ike::gelu{}, ike::dropout{.p = 0.4},
                                   ike::lazy_linear<40>{}, ike::tanh{}, ike::lazy_linear<23>{})),
      "b"_m = save(ike::residual(ike::lazy_linear<40>{}, ike::silu{}, ike::lazy_linear<23>{})),
      ike::relu{}, "out"_m = ike::lazy_linear<3>{});
};

constexpr auto convolutions = [](auto save) {
  return ike::sequential(
      "first"_m = ike::lazy_batch_norm2d<>{},
      "a"_m = save(ike::sequential(ike::lazy_conv2d<5, ike::kernel<3>, ike::padding<1>>{},
                                   ike::lazy_batch_norm2d<>{}, ike::relu{},
                                   ike::lazy_conv2d<4, ike::kernel<3>, ike::padding<1>>{},
                                   ike::lazy_batch_norm2d<>{})),
      "b"_m = save(ike::residual(ike::lazy_conv2d<4, ike::kernel<3>, ike::padding<1>>{},
                                 ike::lazy_batch_norm2d<>{}, ike::relu{})),
      ike::flatten{}, "out"_m = save(ike::spectral_norm(ike::linear<140, 3>{})));
};

constexpr auto formula = ike::graph([](auto x) {
  auto h = "fc"_m(ike::linear<9, 9>{}, x);
  auto n = (h - ike::mean<-1>(h, ike::keepdim)) * ike::rsqrt(ike::var<-1>(h, ike::keepdim) + 1e-5);
  auto twice = "fc"_m(ike::linear<9, 9>{}, n);  // the same parameters
  auto drawn = "drop"_m(ike::dropout{.p = 0.3}, ike::exp(-twice));
  return drawn + x * ike::sigmoid{}(n);
});
constexpr auto formulas = [](auto save) {
  return ike::sequential("in"_m = ike::lazy_linear<9>{}, "f"_m = ike::repeat<3>(save(formula)),
                         "out"_m = ike::lazy_linear<2>{});
};

constexpr auto nested = [](auto save) {
  return ike::sequential(
      "in"_m = ike::lazy_linear<6>{},
      "layers"_m = ike::repeat<2>(save(ike::residual(
          ike::lazy_linear<16>{}, save(ike::sequential(ike::lazy_linear<16>{}, ike::gelu{})),
          ike::lazy_linear<6>{}))),
      "choice"_m = ike::choose(save(ike::sequential(ike::lazy_linear<9>{}, ike::tanh{})),
                               "other"_m = ike::lazy_linear<9>{}),
      "or"_m = save(ike::choose(ike::lazy_linear<5>{}, ike::sequential(ike::lazy_linear<5>{}))));
};

constexpr auto attend =
    ike::graph([](auto x) { return "self"_m(ike::multihead_attention<6, 2>{}, x, x, x) + x; });
constexpr auto attention = [](auto save) {
  return ike::sequential("in"_m = ike::lazy_linear<6>{}, "a"_m = ike::repeat<3>(save(attend)),
                         "out"_m = save(ike::lazy_linear<2>{}));
};

constexpr auto saved_dense = dense(saving{});
constexpr shape rows{dynamic, 7};

ike::tensor<float, rows> some_rows(ike::dim_t n) {
  return ike::uniform<float, rows>(ike::seed{3}, n);
}
ike::tensor<float, shape{dynamic, 3}> some_targets(ike::dim_t n) {
  return ike::uniform<float, shape{dynamic, 3}>(ike::seed{4}, n);
}

}  // namespace

TEST_CASE("a network with checkpoints is trained to the same bits in less memory") {
  compare<float, rows>(dense, 5);
  compare<double, rows>(dense, 1);
  compare<float, rows>(dense, 0, false);
}

TEST_CASE("running statistics and other state of a checkpoint change once") {
  compare<float, shape{dynamic, 4, 5, 7}>(convolutions, 3);
}

TEST_CASE("a formula runs again with the random numbers of its first run") {
  compare<double, shape{dynamic, 5}>(formulas, 7);
}

TEST_CASE("checkpoints are nested, repeated, alternatives, and have alternatives") {
  compare<float, shape{dynamic, 5}>(nested, 4);
}

TEST_CASE("a module with tensors of its own is a checkpoint") {
  compare<float, shape{dynamic, 5, 4}>(attention, 2);
}

TEST_CASE("what a checkpoint contains keeps its paths, and prints as before") {
  const auto m = ike::initialize<float, rows>(saved_dense, ike::seed{1});
  CHECK(m["b.2.weight"_s].extents() == shape{23, 40});
  CHECK(ike::to_string(saved_dense).find("(a): checkpoint(") != std::string::npos);
}

TEST_CASE("a step with checkpoints allocates nothing, and summary shows what they save") {
  auto m = ike::initialize<float, rows>(saved_dense, ike::seed{1});
  auto plain = ike::initialize<float, rows>(dense(whole{}), ike::seed{1});
  ike::sgd optimizer{m, {.lr = 0.1f}};
  const auto x = some_rows(4);
  const auto t = some_targets(4);
  m.train_step(x, t, ike::mse_loss{}, optimizer);
  plain(x);
  const auto before = allocation_count.load();
  m.train_step(x, t, ike::mse_loss{}, optimizer);
  CHECK(allocation_count.load() == before);
  const ike::dim_t saved = plain.workspace_bytes() - m.workspace_bytes();
  CHECK(saved > 0);
  CHECK(ike::summarize(m).checkpoint_bytes == saved);
  CHECK(ike::summarize(plain).checkpoint_bytes == 0);
  CHECK(ike::summary(m).find(" saved by checkpoints)") != std::string::npos);
}

TEST_CASE("hooks run once, and may not write to values within a checkpoint") {
  auto m = ike::initialize<float, rows>(saved_dense, ike::seed{1});
  auto plain = ike::initialize<float, rows>(dense(whole{}), ike::seed{1});
  int calls = 0;
  auto reading = m.register_forward_hook("a.3"_s, [&](const ike::module_call&) { ++calls; });
  // With hooks, leaves run one by one.
  plain.register_forward_hook("a.3"_s, [](const ike::module_call&) {});
  const auto gradients = [&](auto& of) {
    of(some_rows(4));
    of.zero_grad();
    of.backward(some_targets(4));
    return std::vector<float>(of.gradients().begin(), of.gradients().end());
  };
  CHECK(gradients(m) == gradients(plain));
  CHECK(calls == 1);
  auto outside = m.register_forward_hook(
      "in"_s, [](const ike::module_call& c) { c.writable_output<float>()[0] = 0; });
  CHECK_NOTHROW(gradients(m));
  auto within = m.register_forward_hook(
      "b.0"_s, [](const ike::module_call& c) { c.writable_output<float>()[0] = 0; });
  CHECK_THROWS_WITH_AS(
      m(some_rows(4)),
      "b.0: a hook writes to a value within a checkpoint, which backward runs again",
      ike::state_error);
}

TEST_CASE("a part that contains checkpoints, or is one, has their gradients") {
  auto m = ike::initialize<float, rows>(saved_dense, ike::seed{1});
  auto plain = ike::initialize<float, rows>(dense(whole{}), ike::seed{1});
  const ike::tensor<float, shape{dynamic, 23}> x(
      ike::uniform<float, shape{dynamic, 23}>(ike::seed{3}, 3));
  const auto gradients = [&](auto& of) {
    auto part = of.template part<"a">();
    part(x);
    of.zero_grad();
    part.backward(x);
    return std::vector<float>(of.gradients().begin(), of.gradients().end());
  };
  CHECK(gradients(m) == gradients(plain));
}

TEST_CASE("replicas train a network with checkpoints as one without, rounded or not") {
  const auto run = [](const auto& net, auto policy) {
    std::vector<float> parameters;
    ike::launch(ike::threads{2}, [&](ike::process_group auto& group) {
      auto m = ike::replicate<decltype(policy)>(
          ike::initialize<float, shape{dynamic, 4, 5, 7}>(net, ike::seed{1}), group);
      ike::sgd optimizer{m, {.lr = 0.01f}};
      const ike::tensor<float, shape{dynamic, 4, 5, 7}> x(
          ike::uniform<float, shape{dynamic, 4, 5, 7}>(
              ike::seed{static_cast<std::uint64_t>(group.rank())}, 3));
      for (int step = 0; step < 2; ++step)
        m.train_step(x, some_targets(3), ike::mse_loss{}, optimizer);
      if (group.rank() == 0) parameters.assign(m.parameters().begin(), m.parameters().end());
    });
    return parameters;
  };
  constexpr auto plain = convolutions(whole{});
  constexpr auto saved = convolutions(saving{});
  using exact = ike::replicate_policy<>;
  using rounded = ike::replicate_policy<ike::mixed_precision<ike::bfloat16, float, ike::bfloat16>>;
  CHECK(run(plain, exact{}) == run(saved, exact{}));
  CHECK(run(plain, rounded{}) == run(saved, rounded{}));
  constexpr auto plain_sync = ike::convert_sync_batch_norm(plain);
  constexpr auto saved_sync = ike::convert_sync_batch_norm(saved);
  CHECK(run(plain_sync, exact{}) == run(saved_sync, exact{}));
  CHECK(run(plain_sync, exact{}) != run(plain, exact{}));
}
