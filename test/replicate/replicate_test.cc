#include "ikebana/replicate/replicate.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/dropout.hpp"
#include "ikebana/nn/flatten.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/optim/sgd.hpp"
#include "ikebana/replicate/launch.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dynamic;
using ike::shape;
using ike::threads;

namespace {

constexpr auto mlp = ike::sequential("fc1"_m = ike::lazy_linear<33>{}, "tanh"_m = ike::tanh{},
                                     "fc2"_m = ike::lazy_linear<17>{}, "relu"_m = ike::relu{},
                                     "fc3"_m = ike::lazy_linear<5>{});
constexpr auto normed =
    ike::sequential("norm"_m = ike::lazy_batch_norm2d<>{}, "flatten"_m = ike::flatten{},
                    "fc"_m = ike::lazy_linear<5>{});

constexpr shape rows{dynamic, 12};
constexpr shape images{dynamic, 2, 3, 3};
constexpr ike::dim_t batch = 12;  // Divisible by 1, 2, 3 and 4 ranks.

template <class T, shape S = rows>
ike::tensor<T, S> inputs(std::uint64_t step = 0) {
  return ike::uniform<T, S>(ike::seed{100 + step}, batch);
}
ike::tensor<std::int64_t, shape{dynamic}> labels(std::uint64_t step = 0) {
  ike::tensor<std::int64_t, shape{dynamic}> t(shape{batch});
  for (ike::dim_t i = 0; i < batch; ++i) t[i] = (i * 3 + static_cast<ike::dim_t>(step)) % 5;
  return t;
}

/// Rank r's part of a batch: rows [r n / size, (r + 1) n / size).
template <class Tensor, class Group>
auto part(const Tensor& t, const Group& group) {
  const ike::dim_t n = t.extents()[0] / group.size(), row = t.size() / t.extents()[0];
  return
      typename Tensor::const_view_type(t.data() + group.rank() * n * row, t.extents().with(0, n));
}

template <class T>
using numbers = std::vector<T>;

template <class T>
numbers<T> copied(std::span<const T> s) {
  return {s.begin(), s.end()};
}
template <class T>
numbers<T> copied(std::span<T> s) {
  return {s.begin(), s.end()};
}

template <class T>
double apart(const numbers<T>& a, const numbers<T>& b) {
  REQUIRE(a.size() == b.size());
  double most = 0, worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::fabs(static_cast<double>(b[i])));
    worst = std::max(worst, std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  }
  return worst / most;
}

template <class T>
numbers<T> train_alone(int steps) {
  auto model = ike::initialize<T, rows>(mlp, ike::seed{1});
  ike::sgd optimizer{model, {.lr = 0.1, .momentum = 0.9}};
  for (int s = 0; s < steps; ++s) {
    const auto step = static_cast<std::uint64_t>(s);
    model.train_step(inputs<T>(step), labels(step), ike::cross_entropy{}, optimizer);
  }
  return copied(model.parameters());
}

/// The weights of every rank.
template <class Policy, class T>
std::vector<numbers<T>> train_together(int ranks, int steps) {
  return ike::launch(threads{ranks}, [&](ike::process_group auto& group) {
    auto model = ike::replicate<Policy>(ike::initialize<T, rows>(mlp, ike::seed{1}), group);
    ike::sgd optimizer{model, {.lr = 0.1, .momentum = 0.9}};
    for (int s = 0; s < steps; ++s) {
      const auto step = static_cast<std::uint64_t>(s);
      const auto x = inputs<T>(step);
      const auto t = labels(step);
      model.train_step(part(x, group), part(t, group), ike::cross_entropy{}, optimizer);
    }
    return copied(model.parameters());
  });
}

template <class T>
void check_full_batch(double tolerance) {
  const numbers<T> alone = train_alone<T>(20);
  for (int ranks : {1, 2, 3, 4}) {
    CAPTURE(ranks);
    const auto whole = train_together<ike::replicate_policy<>, T>(ranks, 20);
    const auto cut = train_together<ike::replicate_policy<ike::bucket_cap<4>>, T>(ranks, 20);
    for (const auto& weights : whole) {
      CHECK(apart(weights, alone) <= tolerance);
      CHECK(weights == whole[0]);
      CHECK(weights == cut[0]);  // Bucket boundaries change no bit.
    }
    for (const auto& weights : cut) CHECK(weights == cut[0]);
    if (ranks == 1) CHECK(whole[0] == alone);
  }
}

}  // namespace

TEST_CASE("replicas on parts of the batch end with the weights of one model, in float") {
  check_full_batch<float>(1e-6);
}
TEST_CASE("replicas on parts of the batch end with the weights of one model, in double") {
  check_full_batch<double>(1e-14);
}

TEST_CASE("any number of runs gives the same bits") {
  const auto first = train_together<ike::replicate_policy<ike::bucket_cap<256>>, float>(3, 5);
  for (int run = 0; run < 40; ++run) {
    const auto again = train_together<ike::replicate_policy<ike::bucket_cap<256>>, float>(3, 5);
    REQUIRE(again == first);
  }
}

TEST_CASE("replicas start with rank 0's weights and buffers, whatever their seeds") {
  const auto reference = ike::initialize<float, images>(normed, ike::seed{1});
  const auto states = ike::launch(threads{3}, [&](ike::process_group auto& group) {
    auto made = ike::initialize<float, images>(
        normed, ike::seed{1 + static_cast<std::uint64_t>(group.rank())});
    if (group.rank() == 1) made(inputs<float, images>());  // Changes its statistics.
    auto model = ike::replicate(std::move(made), group);
    return std::pair{copied(model.parameters()), copied(model.buffers())};
  });
  for (const auto& [parameters, buffers] : states) {
    CHECK(parameters == copied(reference.parameters()));
    CHECK(buffers == copied(reference.buffers()));
  }
}

namespace {

template <class Policy>
auto buffers_after_steps() {
  return ike::launch(threads{2}, [&](ike::process_group auto& group) {
    auto model =
        ike::replicate<Policy>(ike::initialize<float, images>(normed, ike::seed{1}), group);
    ike::sgd optimizer{model, {.lr = 0.1}};
    for (std::uint64_t s = 0; s < 4; ++s) {
      const auto x = inputs<float, images>(s);
      const auto t = labels(s);
      model.train_step(part(x, group), part(t, group), ike::cross_entropy{}, optimizer);
    }
    return std::pair{copied(model.buffers()), copied(model.parameters())};
  });
}

}  // namespace

TEST_CASE("buffers are rank 0's after every step, unless the policy says otherwise") {
  const auto sent = buffers_after_steps<ike::replicate_policy<>>();
  CHECK(sent[0].first == sent[1].first);
  CHECK(sent[0].second == sent[1].second);
  const auto kept = buffers_after_steps<ike::replicate_policy<ike::broadcast_buffers<false>>>();
  CHECK(kept[0].first == sent[0].first);
  CHECK(kept[0].first != kept[1].first);
  CHECK(kept[0].second == kept[1].second);
  CHECK(kept[0].second == sent[0].second);
}

TEST_CASE("without init_sync every rank starts with its own weights") {
  using policy = ike::replicate_policy<ike::init_sync<false>>;
  const auto weights = ike::launch(threads{2}, [&](ike::process_group auto& group) {
    auto model = ike::replicate<policy>(
        ike::initialize<float, rows>(mlp, ike::seed{static_cast<std::uint64_t>(group.rank())}),
        group);
    return copied(model.parameters());
  });
  CHECK(weights[0] != weights[1]);
  for (std::uint64_t r = 0; r < 2; ++r)
    CHECK(weights[r] == copied(ike::initialize<float, rows>(mlp, ike::seed{r}).parameters()));
}

TEST_CASE("while no_sync lives gradients stay; the first backward after it reduces their sum") {
  ike::launch(threads{2}, [&](ike::process_group auto& group) {
    auto model = ike::replicate(ike::initialize<double, rows>(mlp, ike::seed{1}), group);
    auto alone = ike::initialize<double, rows>(mlp, ike::seed{1});
    auto full = ike::initialize<double, rows>(mlp, ike::seed{1});
    numbers<double> local;
    {
      const auto guard = model.no_sync();
      for (std::uint64_t s = 0; s < 2; ++s) {
        const auto x = inputs<double>(s);
        const auto t = labels(s);
        model.loss_backward(part(x, group), part(t, group), ike::cross_entropy{});
        alone.loss_backward(part(x, group), part(t, group), ike::cross_entropy{});
        full.loss_backward(x, t, ike::cross_entropy{});
      }
      local = copied(model.gradients());
      CHECK(local == copied(alone.gradients()));
    }
    const auto x = inputs<double>(2);
    const auto t = labels(2);
    model.loss_backward(part(x, group), part(t, group), ike::cross_entropy{});
    full.loss_backward(x, t, ike::cross_entropy{});
    CHECK(apart(copied(model.gradients()), copied(full.gradients())) < 1e-14);

    // The guard affects backward: a backward after it is synchronised, even if forward ran within
    // it.
    model.zero_grad();
    const auto g = ike::ones<double, shape{dynamic, 5}>(part(x, group).extent(0));
    {
      const auto guard = model.no_sync();
      model(part(x, group));
    }
    model.backward(g);
    numbers<double> mine = copied(model.gradients()), sum = mine;
    group.broadcast(std::span<double>(sum), 0);
    CHECK(mine == sum);
    // A backward within it is not, even if forward ran before it.
    model.zero_grad();
    model(part(x, group));
    {
      const auto outer = model.no_sync();
      { const auto inner = model.no_sync(); }
      model.backward(g);  // Still in the outer one.
    }
    mine = sum = copied(model.gradients());
    group.broadcast(std::span<double>(sum), 0);
    CHECK((mine == sum) == (group.rank() == 0));
  });
}

TEST_CASE("backward by hand gives the averaged gradients, and each rank its input's") {
  ike::launch(threads{2}, [&](ike::process_group auto& group) {
    auto model = ike::replicate(ike::initialize<double, rows>(mlp, ike::seed{1}), group);
    auto full = ike::initialize<double, rows>(mlp, ike::seed{1});
    const auto x = inputs<double>();
    const auto g = ike::uniform<double, shape{dynamic, 5}>(ike::seed{4}, batch);
    ike::tensor<double, rows> dx(shape{batch / 2, 12}), dx_full(x.extents());
    full(x);
    full.backward(g, dx_full);
    model(part(x, group));
    model.backward(part(g, group), dx);
    numbers<double> halved = copied(full.gradients());
    for (double& v : halved) v /= 2;
    CHECK(apart(copied(model.gradients()), halved) < 1e-14);
    const auto mine = part(dx_full, group);
    CHECK(apart(copied(dx.span()), numbers<double>(mine.begin(), mine.end())) < 1e-14);
  });
}

TEST_CASE("dropout draws other masks on other ranks") {
  const auto outputs = ike::launch(threads{3}, [&](ike::process_group auto& group) {
    auto model = ike::replicate(
        ike::initialize<float, shape{64}>(ike::sequential(ike::dropout{.p = 0.5}), ike::seed{1}),
        group);
    const auto y = model(ike::ones<float, shape{64}>());
    return numbers<float>(y.begin(), y.end());
  });
  CHECK(outputs[0] != outputs[1]);
  CHECK(outputs[0] != outputs[2]);
  CHECK(outputs[1] != outputs[2]);
}

TEST_CASE("a network without parameters can be replicated") {
  ike::launch(threads{2}, [&](ike::process_group auto& group) {
    auto model = ike::replicate(ike::initialize<float, rows>(ike::relu{}, ike::seed{1}), group);
    const auto x = inputs<float>();
    model(x);
    model.backward(inputs<float>());
    CHECK(model.bucket_plan().size() == 0);
  });
}

TEST_CASE("a replica has the paths, states and modes of its model") {
  const auto reference = ike::initialize<float, images>(normed, ike::seed{1});
  ike::launch(threads{2}, [&](ike::process_group auto& group) {
    auto model = ike::replicate(reference.clone(), group);
    const ike::state_view own = ike::get_state_dict(model);
    const ike::state_view expected = ike::get_state_dict(reference);
    REQUIRE(own.size() == expected.size());
    for (std::size_t i = 0; i < own.size(); ++i) {
      CHECK(own[i].name == expected[i].name);
      CHECK(std::ranges::equal(own[i].bytes, expected[i].bytes));
    }
    CHECK(model["fc.weight"_s](0, 0) ==
          model.parameters()[static_cast<std::size_t>(model["fc.weight"_s].data() -
                                                      model.parameters().data())]);
    model.eval();
    CHECK_FALSE(model.is_training());
    ike::load_state_dict(model, expected);
    auto moved = std::move(model);
    ike::sgd optimizer{moved, {.lr = 0.1}};
    moved.train();
    const auto x = inputs<float, images>();
    const auto t = labels();
    moved.train_step(part(x, group), part(t, group), ike::cross_entropy{}, optimizer);
  });
}
