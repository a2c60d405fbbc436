#include "ikebana/replicate/invariant/invariant_replicated.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "ikebana/compose/choose.hpp"
#include "ikebana/compose/graph.hpp"
#include "ikebana/replicate/launch.hpp"
#include "test/replicate/invariant_checks.hpp"
#include "test/support/count_allocations.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using namespace invariant_checks;
using ike::threads;

namespace {

template <class T>
std::vector<T> copied(std::span<const T> s) {
  return {s.begin(), s.end()};
}

/// The hash of every rank.
template <class T, dim_t S, class Make>
std::vector<std::uint64_t> hashes(int ranks, int steps, dim_t n, dim_t short_n) {
  return ike::launch(threads{ranks}, [&](ike::process_group auto& group) {
    return hash_after<T, S, Make>(group, steps, n, short_n);
  });
}

template <class T, dim_t S, class Make>
void check_worlds(const std::vector<int>& worlds, int steps, dim_t n, dim_t short_n) {
  const std::uint64_t alone = hashes<T, S, Make>(1, steps, n, short_n)[0];
  for (int ranks : worlds) {
    CAPTURE(ranks);
    for (std::uint64_t h : hashes<T, S, Make>(ranks, steps, n, short_n)) CHECK(h == alone);
  }
}

template <class Model>
auto snapshot(Model& model) {
  std::vector<std::byte> all;
  const auto add = [&all](auto s) {
    const auto bytes = std::as_bytes(s);
    all.insert(all.end(), bytes.begin(), bytes.end());
  };
  add(model.parameters());
  add(model.gradients());
  add(model.buffers());
  const auto step = model.random_step();
  add(std::span{&step, 1});
  return all;
}

/// Rows of a tensor.
template <class Tensor>
auto cut(const Tensor& t, ike::index_range rows) {
  return ike::detail::batch_rows_of<Tensor>::make(t, rows);
}

/// The text of the error of type E that f throws.
template <class E, class F>
std::string message(F&& f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  return "nothing was thrown";
}

}  // namespace

TEST_CASE("Worlds of 1 to 8 ranks end with the same bits: 50 steps of SGD with momentum") {
  check_worlds<float, 8, make_sgd>({2, 3, 4, 5, 8}, 50, 16, 16);
}
TEST_CASE("Worlds of 1 to 8 ranks end with the same bits: 50 steps of Adam") {
  check_worlds<float, 8, make_adam>({2, 4, 8}, 50, 16, 16);
}
TEST_CASE("Worlds of 1 to 8 ranks end with the same bits: double") {
  check_worlds<double, 8, make_sgd>({2, 3, 8}, 20, 16, 16);
}
TEST_CASE("Batches that the shards do not divide, and fewer rows than shards") {
  check_worlds<float, 8, make_sgd>({2, 3, 4, 8}, 20, 19, 5);
}
TEST_CASE("Any number of shards") { check_worlds<float, 5, make_sgd>({2, 3, 4, 5}, 20, 13, 7); }

TEST_CASE("One shard is train_step") {
  auto plain = initial<float>();
  ike::adam optimizer{plain, {.lr = 2e-3, .amsgrad = true}};
  float loss = 0;
  for (int step = 0; step < 10; ++step) {
    const batch<float> b(step, 16);
    loss = plain.train_step(b.x, b.labels, ike::cross_entropy{}, optimizer);
  }
  CHECK(hash_of(plain, loss) == hashes<float, 1, make_adam>(1, 10, 16, 16)[0]);
}

TEST_CASE("A step is the mean over models that each train on one shard") {
  constexpr dim_t count = 4, n = 14;  // Of 4, 4, 3 and 3 rows.
  std::vector<decltype(initial<double>())> alone;
  for (dim_t s = 0; s < count; ++s) {
    alone.push_back(initial<double>());
    alone.back().set_random_stream(static_cast<std::uint32_t>(s));
  }
  std::vector<ike::sgd<double>> optimizers;
  for (auto& m : alone) optimizers.push_back(make_sgd{}(m));
  double loss = 0;
  for (int step = 0; step < 5; ++step) {
    const batch<double> b(step, n);
    std::array<double, count> losses{}, weights{4, 4, 3, 3};
    for (dim_t s = 0; s < count; ++s) {
      auto& m = alone[static_cast<std::size_t>(s)];
      m.zero_grad();
      const ike::index_range r = ike::invariant_rows(n, count, {s, s + 1});
      losses[static_cast<std::size_t>(s)] =
          m.loss_backward(b.inputs(r), b.targets(r), ike::cross_entropy{});
    }
    const auto mean = [&](auto of) {
      double sum = 0;
      for (std::size_t s = 0; s < count; ++s) sum += weights[s] * of(s);
      return sum / double{n};
    };
    const auto everywhere = [&](auto of_model) {
      for (std::size_t i = 0; i < of_model(alone[0]).size(); ++i) {
        const double x = mean([&](std::size_t s) { return of_model(alone[s])[i]; });
        for (auto& m : alone) of_model(m)[i] = x;
      }
    };
    everywhere([](auto& m) { return m.gradients(); });
    everywhere([](auto& m) { return m.buffer("norm.running_mean"_s).span(); });
    everywhere([](auto& m) { return m.buffer("norm.running_var"_s).span(); });
    loss = mean([&](std::size_t s) { return losses[s]; });
    for (auto& o : optimizers) o.step();
  }
  const auto& expected = alone[0];  // All ranks read it.
  for (int ranks : {1, 2, 3}) {
    ike::launch(threads{ranks}, [&](ike::process_group auto& group) {
      auto model = ike::replicate<policy<count>>(initial<double>(), group);
      auto optimizer = make_sgd{}(model);
      const double got = train<double>(model, optimizer, 0, 5, n, n);
      double worst = std::abs(got - loss);
      for (std::size_t i = 0; i < model.parameters().size(); ++i)
        worst = std::max(worst, std::abs(model.parameters()[i] - expected.parameters()[i]));
      for (int b = 0; b < 5; ++b) {
        worst = std::max(worst, std::abs(model.buffer("norm.running_mean"_s)[b] -
                                         expected.buffer("norm.running_mean"_s)[b]));
        worst = std::max(worst, std::abs(model.buffer("norm.running_var"_s)[b] -
                                         expected.buffer("norm.running_var"_s)[b]));
      }
      CHECK(worst < 1e-13);
      CHECK(model.buffer("norm.num_batches_tracked"_s)[0] == 5);
      CHECK(model.random_step() == 5);
    });
  }
}

TEST_CASE("A batch extent that the compiler knows gives the same bits") {
  const std::uint64_t expected = hashes<float, 8, make_sgd>(1, 9, 16, 16)[0];
  ike::launch(threads{2}, [&](ike::process_group auto& group) {
    // All ranks have the same weights, so they need not be broadcast.
    auto model = ike::replicate<ike::replicate_policy<ike::invariant<8>, ike::init_sync<false>>>(
        ike::initialize<float, shape{2, 2, 5, 7}>(net, ike::seed{1}), group);
    auto optimizer = make_sgd{}(model);
    const float loss = train<float>(model, optimizer, 0, 9, 16, 16);
    CHECK(hash_of(model, loss) == expected);
    const auto before = snapshot(model);
    CHECK(message<ike::shape_error>([&] { train<float>(model, optimizer, 9, 10, 24, 24); }) ==
          "the model expects an input [2, 2, 5, 7], got [3, 2, 5, 7]");
    CHECK(snapshot(model) == before);
  });
}

TEST_CASE(
    "Batches accumulate, under no_sync or not, and a loss that sums is averaged over shards") {
  const auto gradients = [](int ranks, ike::reduction how, int batches) {
    return ike::launch(threads{ranks}, [&](ike::process_group auto& group) {
      auto model = ike::replicate<policy<4>>(initial<double>(), group);
      double loss = 0;
      for (int step = 0; step < batches; ++step) {
        const batch<double> b(step, 12);
        const auto part = model.part(12);
        const auto guard = model.no_sync();
        loss = model.loss_backward(b.inputs(part), b.targets(part), ike::cross_entropy{how});
      }
      auto all = copied<double>(model.gradients());
      all.push_back(loss);
      return all;
    });
  };
  const auto two = gradients(1, ike::reduction::mean, 2)[0];
  for (const auto& g : gradients(3, ike::reduction::mean, 2)) CHECK(g == two);
  const auto mean = gradients(1, ike::reduction::mean, 1)[0];
  CHECK(two != mean);
  CHECK(two[0] != mean[0]);
  const auto sum = gradients(2, ike::reduction::sum, 1)[0];
  for (std::size_t i = 0; i < mean.size(); ++i) CHECK(sum[i] == doctest::Approx(3 * mean[i]));
}

TEST_CASE("Several inputs are cut together") {
  static constexpr auto two = ike::graph<"a", "b">([](auto a, auto b) {
    return "fc"_m(ike::lazy_linear<3>{}, a + "g"_m(ike::lazy_linear<4>{}, b));
  });
  using matrix = ike::tensor<double, shape{dynamic, 4}>;
  using thin = ike::tensor<double, shape{dynamic, 2}>;
  const matrix a = ike::uniform<double, shape{dynamic, 4}>(ike::seed{1}, 10);
  const thin b = ike::uniform<double, shape{dynamic, 2}>(ike::seed{2}, 10);
  const auto y = ike::uniform<double, shape{dynamic, 3}>(ike::seed{3}, 10);
  std::vector<double> expected;
  for (int ranks : {1, 2, 4}) {
    const auto weights = ike::launch(threads{ranks}, [&](ike::process_group auto& group) {
      auto model = ike::replicate<policy<4>>(
          ike::initialize<double, shape{dynamic, 4}, shape{dynamic, 2}>(two, ike::seed{1}), group);
      ike::sgd optimizer{model, {.lr = 0.1}};
      const auto r = model.part(10);
      const auto xa = cut(a, r);
      const auto xb = cut(b, r);
      for (int step = 0; step < 3; ++step) {
        model.train_step(ike::inputs(xa, xb), cut(y, r), ike::mse_loss{}, optimizer);
        model.train_step(ike::inputs("b"_arg = xb, "a"_arg = xa), cut(y, r), ike::mse_loss{},
                         optimizer);
      }
      return copied<double>(model.parameters());
    });
    if (ranks == 1) expected = weights[0];
    for (const auto& w : weights) CHECK(w == expected);
  }
  auto plain = ike::initialize<double, shape{dynamic, 4}, shape{dynamic, 2}>(two, ike::seed{1});
  ike::sgd optimizer{plain, {.lr = 0.1}};
  for (int step = 0; step < 6; ++step)
    plain.train_step(ike::inputs(a, b), y, ike::mse_loss{}, optimizer);
  for (std::size_t i = 0; i < expected.size(); ++i)
    CHECK(expected[i] == doctest::Approx(plain.parameters()[i]).epsilon(1e-12));
}

TEST_CASE("Shards choose branches for themselves; a parameter that none reached has no gradient") {
  static constexpr auto branches = ike::sequential(
      "either"_m = ike::choose("a"_m = ike::lazy_linear<3>{}, "b"_m = ike::lazy_linear<3>{},
                               "c"_m = ike::lazy_linear<3>{}),
      "fc"_m = ike::lazy_linear<2>{});
  const auto after = [](int ranks) {
    return ike::launch(threads{ranks}, [](ike::process_group auto& group) {
      auto model = ike::replicate<policy<4>>(
          ike::initialize<double, shape{dynamic, 3}>(branches, ike::seed{1}), group);
      model.choose("either"_s, [](const ike::choice_context& c) -> std::size_t {
        return c.random.words(0)[0] % 2;
      });
      ike::adam optimizer{model, {.weight_decay = 0.1}};
      const auto part = model.part(8);
      for (int step = 0; step < 6; ++step) {
        const auto x = ike::uniform<double, shape{dynamic, 3}>(ike::seed{1}, 8);
        const auto y = ike::uniform<double, shape{dynamic, 2}>(ike::seed{2}, 8);
        model.train_step(cut(x, part), cut(y, part), ike::mse_loss{}, optimizer);
      }
      CHECK(model.has_gradient("either.a.weight"_s));
      CHECK(model.has_gradient("fc.bias"_s));
      CHECK(!model.has_gradient("either.c.weight"_s));
      return copied<double>(model.parameters());
    });
  };
  const auto alone = after(1)[0];
  for (int ranks : {2, 4})
    for (const auto& weights : after(ranks)) CHECK(weights == alone);
}

TEST_CASE("What does not fit is refused on every rank, before anything changed") {
  ike::launch(threads{3}, [&](ike::process_group auto& group) {
    auto model = ike::replicate<policy<8>>(initial<float>(), group);
    auto optimizer = make_sgd{}(model);
    train<float>(model, optimizer, 0, 2, 16, 16);
    const auto before = snapshot(model);
    const batch<float> b(0, 20);
    const auto step = [&](ike::index_range inputs, ike::index_range targets) {
      return message<ike::shape_error>([&] {
        model.train_step(b.inputs(inputs), b.targets(targets), ike::cross_entropy{}, optimizer);
      });
    };
    // Thirds of 15 rows are not the parts of 2, 3 and 3 shards.
    const ike::index_range third{5 * group.rank(), 5 * group.rank() + 5};
    CHECK(step(third, third) == "rank 0 has 4 rows of a batch of 15 in invariant<8>, got 5");
    CHECK(step(model.part(16), {0, group.rank() == 2 ? 1 : model.part(16).size()}) ==
          "rank 2 gave inputs and a target of different numbers of rows");
    CHECK(step({0, 0}, {0, 0}) == "a step of training needs a row, got none on any rank");
    CHECK(snapshot(model) == before);

    CHECK(message<ike::state_error>([&] {
            model(b.inputs({0, 4}));
          }) ==
          "an invariant replica trains by train_step or loss_backward; forward is for evaluation: "
          "call eval() first");
    model.eval();
    CHECK(model(b.inputs({0, 4})).extents() == shape{4, 5});
    CHECK(snapshot(model) == before);
  });
  ike::launch(threads{3}, [](ike::process_group auto& group) {
    CHECK(message<ike::state_error>([&] { ike::replicate<policy<2>>(initial<float>(), group); }) ==
          "replicate: invariant<2> has no shard for 3 ranks");
  });
}

TEST_CASE("A shard that batch norm refuses stops the step on every rank") {
  // 8 shards of 12 rows: 4 of two rows, 4 of one; with a layer without spatial extents.
  static constexpr auto flat =
      ike::sequential("fc"_m = ike::lazy_linear<3>{}, "norm"_m = ike::lazy_batch_norm1d<>{});
  ike::launch(threads{2}, [&](ike::process_group auto& group) {
    auto model = ike::replicate<policy<8>>(
        ike::initialize<float, shape{dynamic, 4}>(flat, ike::seed{1}), group);
    ike::sgd optimizer{model, {.lr = 0.1}};
    const auto before = snapshot(model);
    const auto n = model.part(12).size();
    const auto x = ike::uniform<float, shape{dynamic, 4}>(ike::seed{1}, n);
    const auto y = ike::uniform<float, shape{dynamic, 3}>(ike::seed{2}, n);
    CHECK(message<ike::shape_error>([&] {
            model.train_step(x, y, ike::mse_loss{}, optimizer);
          }).starts_with("norm: batch_norm1d expects more than 1 value per channel"));
    CHECK(snapshot(model) == before);
  });
}

TEST_CASE("A wrong label leaves everything as it was") {
  ike::launch(threads{1}, [&](ike::process_group auto& group) {
    auto model = ike::replicate<policy<8>>(initial<float>(), group);
    auto optimizer = make_sgd{}(model);
    train<float>(model, optimizer, 0, 2, 16, 16);
    const auto before = snapshot(model);
    batch<float> b(2, 16);
    b.labels[15] = 5;
    CHECK(
        message<ike::error>([&] {
          model.train_step(b.inputs({0, 16}), b.targets({0, 16}), ike::cross_entropy{}, optimizer);
        }) == "cross_entropy expects labels from 0 to 4, got 5 at index 1");
    CHECK(snapshot(model) == before);
    b.labels[15] = 4;
    CHECK_NOTHROW(
        model.train_step(b.inputs({0, 16}), b.targets({0, 16}), ike::cross_entropy{}, optimizer));
  });
}

TEST_CASE("A hook that throws in the backward of a shard leaves everything as it was") {
  ike::launch(threads{1}, [&](ike::process_group auto& group) {
    auto model = ike::replicate<policy<8>>(initial<float>(), group);
    auto optimizer = make_sgd{}(model);
    train<float>(model, optimizer, 0, 2, 16, 16);
    const auto before = snapshot(model);
    int calls = 0;
    auto hook = model.register_full_backward_hook("fc"_s, [&](const ike::module_gradients&) {
      if (++calls == 3) throw ike::error("out of apples");
    });
    CHECK(message<ike::error>([&] { train<float>(model, optimizer, 2, 3, 16, 16); }) ==
          "out of apples");
    CHECK(calls == 3);
    CHECK(snapshot(model) == before);
    hook.remove();
    CHECK_NOTHROW(train<float>(model, optimizer, 2, 3, 16, 16));
  });
}

TEST_CASE("A wrong label on one rank ends the others, with its error") {
  for (int ranks : {3, 4})
    CHECK(message<ike::error>([&] {
            ike::launch(threads{ranks}, [&](ike::process_group auto& group) {
              auto model = ike::replicate<policy<8>>(initial<float>(), group);
              auto optimizer = make_sgd{}(model);
              train<float>(model, optimizer, 0, 2, 16, 16);
              batch<float> b(2, 16);
              b.labels[15] = 5;
              model.train_step(b.inputs(model.part(16)), b.targets(model.part(16)),
                               ike::cross_entropy{}, optimizer);
            });
          }) == "rank " + std::to_string(ranks - 1) +
                    ": cross_entropy expects labels from 0 to 4, got 5 at index 1");
}

TEST_CASE("Steps allocate nothing once a batch of each size was seen") {
  ike::launch(threads{2}, [&](ike::process_group auto& group) {
    auto model = ike::replicate<policy<8>>(initial<float>(), group);
    auto optimizer = make_sgd{}(model);
    const batch<float> even(0, 16), uneven(1, 19);
    const auto step = [&](const batch<float>& b) {
      const auto part = model.part(b.labels.size());
      model.train_step(b.inputs(part), b.targets(part), ike::cross_entropy{}, optimizer);
    };
    for (int i = 0; i < 2; ++i) step(even), step(uneven);
    group.barrier();
    const long before = allocation_count_here;
    for (int i = 0; i < 3; ++i) step(even), step(uneven);
    CHECK(allocation_count_here == before);
  });
}
