#include "ikebana/replicate/powersgd.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "hook_run.hpp"
#include "ikebana/core/random.hpp"
#include "ikebana/replicate/launch.hpp"
#include "test/support/count_allocations.hpp"
#include "test/support/load_recorded.hpp"

namespace ike = ikebana;
using hook_run::one_bucket;
using ike::dim_t;
using ike::powersgd;
using ike::shape;

namespace {

/// As in test/data/comm_hooks.py.
std::vector<ike::bucket_parameter> recorded_parameters() {
  return hook_run::parameters({{"a", shape{12, 9}},
                               {"b", shape{7}},
                               {"c", shape{8, 2, 2, 3}},
                               {"d", shape{14, 14}},
                               {"e", shape{3, 3}}});
}

template <class T>
void draw(std::span<T> x, std::uint64_t seed, std::uint32_t step = 0) {
  ike::fill_uniform(ike::random_stream{ike::seed{seed}, 1, step}, T{1}, x.data(),
                    static_cast<dim_t>(x.size()));
}

template <class T>
double distance(std::span<const T> a, std::span<const T> b) {
  double s = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    s += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
  return std::sqrt(s);
}

void compare_with_pytorch(const std::string& name, ike::powersgd_options options) {
  CAPTURE(name);
  const ike::state_dict all = load_recorded("comm_hooks");
  const auto wanted = all.at("powersgd/" + name).view<double, shape{3, 416}>();
  const std::string q = "q" + std::to_string(options.rank) + "/";
  options.start_iteration = 2;
  ike::launch(ike::threads{2}, [&](ike::process_group auto& group) {
    one_bucket<double, powersgd, std::remove_reference_t<decltype(group)>> run(
        recorded_parameters(), powersgd(options), group);
    const ike::state_dict::entry& gradients = all.at("gradients/" + std::to_string(group.rank()));
    const auto given = gradients.view<double, shape{5, 416}>();
    // Replaces our first Q by PyTorch's.
    ike::state_dict state, before;
    run.hook.save(before);
    for (const auto& e : before)
      if (e.name.ends_with(".q"))
        state.add_view(e.name, e.type, e.extents,
                       all.at(q + e.name.substr(0, e.name.size() - 2)).bytes.data());
      else
        state.add_view(e.name, e.type, e.extents, e.bytes.data());
    run.hook.load(state);
    for (dim_t step = 0; step < 5; ++step) {
      std::copy_n(given.data() + 416 * step, 416, run.gradients.begin());
      run.step();
      if (step < 2) continue;
      for (dim_t i = 0; i < 416; ++i)
        CHECK(run.gradients[static_cast<std::size_t>(i)] ==
              doctest::Approx(wanted[416 * (step - 2) + i]).epsilon(1e-9));
    }
    CHECK(run.hook.iteration() == 5);
  });
}

/// Steps on drawn gradients of every rank; rank 0's result of each.
template <class T>
std::vector<std::vector<T>> train(int ranks, int steps, ike::powersgd_options options) {
  const auto all = ike::launch(ike::threads{ranks}, [&](ike::process_group auto& group) {
    one_bucket<T, powersgd, std::remove_reference_t<decltype(group)>> run(recorded_parameters(),
                                                                          powersgd(options), group);
    std::vector<std::vector<T>> out;
    for (int s = 0; s < steps; ++s) {
      draw(std::span<T>{run.gradients}, static_cast<std::uint64_t>(group.rank()),
           static_cast<std::uint32_t>(s));
      run.step();
      out.push_back(run.gradients);
    }
    return out;
  });
  for (const auto& other : all) CHECK(other == all[0]);
  return all[0];
}

}  // namespace

TEST_CASE("PyTorch's powerSGD_hook on two processes gives the same") {
  compare_with_pytorch("rank1", {.rank = 1});
  compare_with_pytorch("rank2", {.rank = 2});
  compare_with_pytorch("rank3", {.rank = 3});
  compare_with_pytorch("no_feedback", {.rank = 2, .error_feedback = false});
}

TEST_CASE("Only what shrinks is compressed") {
  ike::single group;
  one_bucket<float, powersgd, ike::single> run(recorded_parameters(), powersgd({.rank = 2}), group);
  // a: 84 < 108, c: 80 < 96, d: 112 < 196; b and e (16) are sent uncompressed.
  CHECK(run.hook.compression().before == 416);
  CHECK(run.hook.compression().after == 42 + 40 + 56 + 16);
  CHECK(run.hook.compression().rate() == doctest::Approx(416.0 / 154));
  one_bucket<float, powersgd, ike::single> none(recorded_parameters(),
                                                powersgd({.min_compression_rate = 100}), group);
  CHECK(none.hook.compression().after == 416);
}

TEST_CASE("Before start_iteration it is the average, bit by bit") {
  const auto exact = train<float>(3, 3, {.start_iteration = 3});
  const auto plain = train<float>(3, 3, {.min_compression_rate = 1e9});
  CHECK(exact == plain);
  CHECK(train<float>(3, 3, {.start_iteration = 2})[1] == plain[1]);
  CHECK(train<float>(3, 3, {.start_iteration = 2})[2] != plain[2]);
}

TEST_CASE("Gradients whose average has the rank, or less, are exact") {
  for (dim_t rank : {1, 2}) {
    for (int ranks : {1, 2, 3, 4}) {
      CAPTURE(rank);
      CAPTURE(ranks);
      ike::launch(ike::threads{ranks}, [&](ike::process_group auto& group) {
        one_bucket<double, powersgd, std::remove_reference_t<decltype(group)>> run(
            hook_run::parameters({{"w", shape{20, 5, 6}}}), powersgd({.rank = rank}), group);
        for (std::uint32_t step = 0; step < 4; ++step) {
          // u v^T with the same u on all ranks and a different v on each: the average has rank 1.
          std::vector<double> u(20), v(30), mean(30), average(600);
          draw(std::span{u}, 1, step);
          for (int r = group.size(); r-- > 0;) {
            if (r == group.rank()) continue;
            draw(std::span{v}, 2 + static_cast<std::uint64_t>(r), step);
            for (std::size_t j = 0; j < 30; ++j) mean[j] += v[j] / group.size();
          }
          draw(std::span{v}, 2 + static_cast<std::uint64_t>(group.rank()), step);
          for (std::size_t j = 0; j < 30; ++j) mean[j] += v[j] / group.size();
          for (std::size_t i = 0; i < 20; ++i)
            for (std::size_t j = 0; j < 30; ++j) {
              run.gradients[30 * i + j] = u[i] * v[j];
              average[30 * i + j] = u[i] * mean[j];
            }
          run.step();
          CHECK(distance<double>(run.gradients, average) < 1e-9);
        }
      });
    }
  }
}

TEST_CASE("With error feedback the sum of the steps follows the sum of the gradients") {
  constexpr int steps = 60;
  const auto apart = [&](bool feedback) {
    double last = 0;
    ike::launch(ike::threads{2}, [&](ike::process_group auto& group) {
      one_bucket<double, powersgd, std::remove_reference_t<decltype(group)>> run(
          hook_run::parameters({{"w", shape{16, 12}}}),
          powersgd({.rank = 1, .error_feedback = feedback}), group);
      std::vector<double> sent(192), wanted(192), other(192);
      for (int s = 0; s < steps; ++s) {
        for (int r = 0; r < 2; ++r) {
          draw(std::span{other}, static_cast<std::uint64_t>(r));  // The same in every step.
          for (std::size_t i = 0; i < 192; ++i) wanted[i] += other[i] / 2;
          if (r == group.rank()) run.gradients = other;
        }
        run.step();
        for (std::size_t i = 0; i < 192; ++i) sent[i] += run.gradients[i];
      }
      if (group.rank() == 0) {
        const std::vector<double> zero(192);
        last = distance<double>(sent, wanted) / distance<double>(wanted, zero);
      }
    });
    return last;
  };
  CHECK(apart(true) < 0.15);
  CHECK(apart(false) > 0.5);
}

TEST_CASE("The first Q is drawn from the standard normal distribution, as PyTorch's") {
  ike::single group;
  one_bucket<double, powersgd, ike::single> run(recorded_parameters(), powersgd({.rank = 2}),
                                                group);
  ike::state_dict state;
  run.hook.save(state);
  double n = 0, sum = 0, squares = 0;
  for (const auto& e : state)
    if (e.name.ends_with(".q"))
      for (std::size_t i = 0; i < e.bytes.size() / sizeof(double); ++i) {
        double q = 0;
        std::memcpy(&q, e.bytes.data() + i * sizeof(double), sizeof(double));
        n += 1;
        sum += q;
        squares += q * q;
      }
  CHECK(n == 2 * (9 + 12 + 14));
  CHECK(std::abs(sum / n) < 0.35);
  CHECK(std::abs(squares / n - 1) < 0.5);
}

TEST_CASE("Equal runs give equal bits, another seed others") {
  for (int ranks : {1, 2, 3, 4}) {
    const auto a = train<float>(ranks, 4, {.rank = 2});
    CHECK(a == train<float>(ranks, 4, {.rank = 2}));
    CHECK(a != train<float>(ranks, 4, {.rank = 2, .seed = ike::seed{9}}));
    CHECK(a != train<float>(ranks, 4, {.rank = 2, .warm_start = false}));
    CHECK(a != train<float>(ranks, 4, {.rank = 2, .error_feedback = false}));
  }
}

TEST_CASE("A gradient that vanishes for a step makes no not-a-number, and is followed afterwards") {
  ike::single group;
  one_bucket<double, powersgd, ike::single> run(hook_run::parameters({{"w", shape{16, 12}}}),
                                                powersgd({.rank = 2}), group);
  run.step();
  CHECK(std::count(run.gradients.begin(), run.gradients.end(), 0.0) == 192);
  for (std::size_t i = 0; i < 192; ++i) run.gradients[i] = static_cast<double>(i / 12 + 1);
  const std::vector<double> wanted = run.gradients;  // Of rank 1.
  run.step();
  CHECK(distance<double>(run.gradients, wanted) < 1e-11);
}

TEST_CASE("A saved hook goes on with the same bits") {
  ike::launch(ike::threads{2}, [](ike::process_group auto& group) {
    using run_type = one_bucket<float, powersgd, std::remove_reference_t<decltype(group)>>;
    run_type run(recorded_parameters(), powersgd({.rank = 2}), group);
    const auto rank = static_cast<std::uint64_t>(group.rank());
    for (std::uint32_t s = 0; s < 3; ++s) {
      draw(std::span{run.gradients}, rank, s);
      run.step();
    }
    ike::state_dict state;
    run.hook.save(state, "hook.");
    CHECK(state.contains("hook.a.q"));
    CHECK(state.at("hook.c.error").extents == shape{8, 2, 2, 3});
    CHECK(state.size() == 7);
    const ike::state_dict saved = state.clone();
    run_type again(recorded_parameters(), powersgd({.rank = 2}), group);
    again.hook.load(saved, "hook.");
    CHECK(again.hook.iteration() == 3);
    draw(std::span{run.gradients}, rank, 3);
    again.gradients = run.gradients;
    run.step();
    again.step();
    CHECK(run.gradients == again.gradients);

    run_type other(recorded_parameters(), powersgd({.rank = 1}), group);
    CHECK_THROWS_WITH_AS(other.hook.load(saved, "hook."),
                         "hook.a.q: expected float32 [1, 9], got float32 [2, 9]", ike::state_error);
    CHECK(other.hook.iteration() == 0);

    const std::int64_t minus_five = -5;
    std::memcpy(const_cast<std::byte*>(saved.at("hook.iteration").bytes.data()), &minus_five,
                sizeof minus_five);
    CHECK_THROWS_WITH_AS(again.hook.load(saved, "hook."),
                         "hook.iteration: expected a number of steps, got -5", ike::state_error);
    CHECK(again.hook.iteration() == 4);
  });
}

TEST_CASE("Steps allocate nothing") {
  ike::launch(ike::threads{2}, [](ike::process_group auto& group) {
    one_bucket<float, powersgd, std::remove_reference_t<decltype(group)>> run(
        recorded_parameters(), powersgd({.rank = 2}), group);
    long before = 0;
    for (std::uint32_t s = 0; s < 4; ++s) {
      if (s == 1) before = allocation_count_here;  // The first allocates gemm's packing buffer.
      draw(std::span{run.gradients}, 1, s);
      run.step();
    }
    CHECK(allocation_count_here == before);
  });
}

TEST_CASE("Options out of range, and buckets that were not announced, are refused") {
  CHECK_THROWS_AS(powersgd({.rank = 0}), ike::error);
  CHECK_THROWS_AS(powersgd({.start_iteration = -1}), ike::error);
  CHECK_THROWS_AS(powersgd({.min_compression_rate = 0}), ike::error);
  CHECK_THROWS_AS(powersgd({.epsilon = -1}), ike::error);
  ike::single group;
  powersgd hook;
  std::vector<float> g(4);
  CHECK_THROWS_AS(hook.start(ike::gradient_bucket<float>{std::span{g}}, group), ike::state_error);
}

TEST_CASE("Rows become orthonormal; what depends on others becomes 0") {
  std::vector<double> a{3, 0, 4, 0, 6, 0, 8, 0, 1, 1, 0, 0};
  ike::detail::orthonormalize_rows(3, 4, a.data(), 0, [](dim_t) { return false; });
  CHECK(a[0] == doctest::Approx(0.6));
  CHECK(a[2] == doctest::Approx(0.8));
  for (std::size_t i = 4; i < 8; ++i) CHECK(a[i] == 0);
  CHECK(ike::detail::dot<double>(4, a.data(), a.data() + 8) == doctest::Approx(0));
  CHECK(ike::detail::dot<double>(4, a.data() + 8, a.data() + 8) == doctest::Approx(1));
}
