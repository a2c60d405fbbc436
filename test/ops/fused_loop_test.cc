#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ikebana/compose/graph.hpp"
#include "ikebana/compose/loss.hpp"
#include "ikebana/cpu/layer_norm.hpp"
#include "ikebana/cpu/threads.hpp"
#include "ikebana/deploy/freeze.hpp"
#include "ikebana/model/dot.hpp"
#include "ikebana/model/gradient_check.hpp"
#include "ikebana/model/hooks.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/jvp.hpp"
#include "ikebana/model/precision.hpp"
#include "ikebana/model/summary.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/smooth_activation.hpp"
#include "ikebana/ops.hpp"
#include "ikebana/optim/sgd.hpp"
#include "test/support/count_allocations.hpp"

using namespace ikebana;
using namespace ikebana::literals;

namespace {

constexpr auto layer_norm_formula = graph([](auto x, auto w, auto b) {
  const auto d = x - mean<-1>(x, keepdim);
  return d * rsqrt(mean<-1>(square(d), keepdim) + 1e-5) * w + b;
});
/// Bounds that cut nothing off a part of x, which a loop reads in place. What equal bounds need is
/// one block of the loop.
struct many_bounds {
  static constexpr std::size_t count = 40;
  std::array<double, 2 * count> bounds{};
  constexpr bool operator==(const many_bounds&) const = default;

  template <std::size_t I, class Y>
  constexpr auto clamped(const Y& y) const {
    if constexpr (I == count)
      return y;
    else
      return clamped<I + 1>(clamp(y, -bounds[I], bounds[count + I]));
  }
  template <symbolic X, symbolic T>
  constexpr auto operator()(const X& x, const T& t) const {
    return mean(relu{}(clamped<0>(relu{}(narrow<1>(x, 1, 2)))) * t);
  }
};
constexpr auto softmax_loss = graph([](auto x, auto t) {
  const auto s = x - max<-1>(x, keepdim);
  return mean(sum<-1>(t * (log(sum<-1>(exp(s), keepdim)) - s)));
});
constexpr auto gates = graph([](auto i, auto f, auto g, auto c) {
  const auto next = sigmoid{}(f)*c + sigmoid{}(i)*ikebana::tanh{}(g);
  return silu{}(next) * (1 - next);
});

/// The number of loops of a model.
template <class Model>
std::size_t loops_of(const Model& m) {
  std::set<int> loops;
  for (const auto& row : summarize(m).rows)
    if (row.loop > 0) loops.insert(row.loop);
  return loops.size();
}

template <shape>
struct shape_of {};
template <shape S>
struct same_shape {
  static constexpr shape value = S;
};

/// Inputs of numbers within [-1, 1], and tensors of their shapes.
template <class T, shape... In, std::size_t... I>
auto inputs_of(const shape_list& actual, std::index_sequence<I...>) {
  const auto numbers = [](auto t, std::size_t i) {
    for (dim_t k = 0; k < t.size(); ++k)
      t.data()[k] =
          static_cast<T>(std::sin(static_cast<double>(k * 7 + 3 * static_cast<dim_t>(i))));
    return t;
  };
  return std::pair{std::tuple{numbers(tensor<T, In>(actual[I]), I)...},
                   std::tuple{tensor<T, In>(actual[I])...}};
}

/// The largest difference between a fused and an unfused run, of the output and the gradients of
/// all inputs and parameters, relative to the largest number.
template <class T, shape... In>
double difference(const auto& net, std::size_t loops, const shape_list& actual = {In...}) {
  const auto run = [&](bool fuses) {
    auto model = initialize<T, In...>(net, seed{1});
    model.set_fusion(fuses);
    if (fuses) {
      CHECK(loops_of(model) == loops);
    }
    const auto [x, start] = inputs_of<T, In...>(actual, std::index_sequence_for<shape_of<In>...>{});
    auto dx = start;
    std::vector<double> all;
    const auto keep = [&](const auto& t) {
      for (dim_t i = 0; i < t.size(); ++i) all.push_back(static_cast<double>(t.data()[i]));
    };
    // The second run is of memory that was used before.
    for (int step = 0; step < 2; ++step) {
      all.clear();
      const auto y = std::apply([&](const auto&... each) { return model(each...); }, x);
      tensor<T, std::remove_cvref_t<decltype(y)>::static_shape> dy(y.extents());
      for (dim_t i = 0; i < dy.size(); ++i) dy.data()[i] = static_cast<T>(1 + i % 3);
      keep(y);
      model.zero_grad();
      std::apply([&](auto&... each) { model.backward(dy, each...); }, dx);
      std::apply([&](auto&... each) { (keep(each), ...); }, dx);
      for (const T g : model.gradients()) all.push_back(static_cast<double>(g));
    }
    return all;
  };
  const auto fused = run(true), single = run(false);
  REQUIRE(fused.size() == single.size());
  double largest = 1, worst = 0;
  for (std::size_t i = 0; i < fused.size(); ++i) {
    largest = std::max(largest, std::abs(single[i]));
    // Not-a-number is different from everything.
    const double d = std::abs(fused[i] - single[i]);
    if (!(d <= worst)) worst = d;
  }
  return worst / largest;
}

template <shape... In>
void agrees(const auto& net, std::size_t loops = 1) {
  CHECK(difference<float, In...>(net, loops) < 3e-6);
  CHECK(difference<double, In...>(net, loops) < 1e-14);
}

}  // namespace

TEST_CASE("a loop computes what its steps compute, and its gradients") {
  agrees<shape{3, 5}>(graph([](auto x) { return 0.5 * x * (1 + erf(x * 0.7071)); }));
  agrees<shape{3, 5}, shape{5}>(graph([](auto x, auto y) { return where(x > 0.25, y, -1.5 * x); }));
  agrees<shape{2, 3, 7}, shape{3, 1}, shape{}>(
      graph([](auto x, auto y, auto z) { return exp(x * y) / (abs(x) + z + 2) + y; }));
  agrees<shape{7, 33}, shape{33}, shape{33}>(layer_norm_formula);
  agrees<shape{5, 9}, shape{5, 9}>(softmax_loss);
  agrees<shape{5, 7}, shape{5, 7}, shape{5, 7}, shape{5, 7}>(gates);
  agrees<shape{4, 6}, shape{4, 1}>(graph([](auto x, auto r) {
    return var<1>(x * r, keepdim) * x + logsumexp<1>(x - r, keepdim) +
           min<1>(maximum(x, r), keepdim) * square(x) + norm<1>(x, keepdim) * r;
  }));
}

TEST_CASE("loops without reductions have the bits of their steps") {
  const auto same = [](auto net, auto... in) {
    CHECK(difference<float, decltype(in)::value...>(net, 1) == 0);
    CHECK(difference<double, decltype(in)::value...>(net, 1) == 0);
  };
  constexpr same_shape<shape{50, 77}> wide{};
  same(gates, wide, wide, wide, wide);
  same(graph([](auto x) { return 0.5 * x * (1 + erf(x * 0.7071)); }), wide);
  same(graph([](auto x) { return (x * x * x * 0.5 - x + 1) / (x * x + 1); }), wide);
}

TEST_CASE("models whose products alone are rounded run loops") {
  // Sums of long rows differ in their last bits between a loop and a kernel.
  constexpr auto formula = graph([](auto x) { return mean<-1>(square(x)); });
  auto model = initialize<precision<bf16>, shape{40, 5000}>(formula, seed{1});
  const auto x = uniform<float, shape{40, 5000}>(seed{3});
  const tensor<float, shape{40}> y(model(x));
  model.set_fusion(false);
  const auto without = model(x);
  CHECK_FALSE(std::equal(y.begin(), y.end(), without.begin()));
}

TEST_CASE("a loop is cut where a value of another shape is needed") {
  // Sums of columns are no reductions of rows.
  agrees<shape{6, 6}>(graph([](auto x) { return exp(x) - mean<0>(exp(x) * 2) * x; }), 2);
  // A view does not cut it.
  agrees<shape{4, 6}>(graph([](auto x) {
    const auto groups = reshape<4, 2, 3>(square(x) + x);
    const auto d = groups - mean<-1>(groups, keepdim);
    return reshape<4, 6>(d * rsqrt(mean<-1>(square(d), keepdim) + 0.1)) * 2;
  }));
  // A value that others read is stored.
  agrees<shape{4, 4}>(graph([](auto x) {
                        const auto h = exp(x) * x;
                        return matmul(h, square(h)) + h;
                      }),
                      1);
}

TEST_CASE("what comes between the steps of a loop does not end it, unless it reads them") {
  agrees<shape{4, 4}, shape{4, 4}>(graph([](auto x, auto y) {
    const auto h = exp(x) * 2;
    return h * matmul(y, y);
  }));
  // The gradient of x is a sum, in the order in which backward visits its readers.
  agrees<shape{4, 4}, shape{4, 4}>(graph([](auto x, auto y) {
                                     const auto h = exp(x) * 2;
                                     return h * matmul(x, y) + x;
                                   }),
                                   2);
  agrees<shape{4, 3}>(graph([](auto x) {
    const auto h = square(x) - 1;
    return h * parameter<"scale", shape{3}>(h) + parameter<"bias", shape{3}>(x);
  }));
}

TEST_CASE("blocks of a loop are parts of long rows, or several short ones") {
  agrees<shape{3, 5003}, shape{3, 5003}>(
      graph([](auto x, auto t) { return sum<1>(square(x - t) * x) + 2 * mean<1>(exp(x) * t); }));
  agrees<shape{9001}, shape{9001}>(
      graph([](auto x, auto t) { return mean(where(abs(x) < 0.5, square(x), t)) * 3; }));
  agrees<shape{1500, 3}, shape{3}, shape{3}>(layer_norm_formula);
  // Rows that no block holds are not reduced and read again in one loop.
  CHECK(difference<float, shape{2, 9001}, shape{9001}, shape{9001}>(layer_norm_formula, 2) < 3e-6);
  agrees<shape{2, 3001}, shape{3001}, shape{3001}>(layer_norm_formula);
}

TEST_CASE("a loop normalises rows as layer_norm does") {
  constexpr auto by_quotient = graph([](auto x) {
    return (x - mean<-1>(x, keepdim)) / sqrt(0.5 + var<-1>(x, correction<0>, keepdim));
  });
  constexpr auto by_product = graph([](auto x) {
    const auto d = x - mean<-1>(x, keepdim);
    return rsqrt(mean<-1>(d * d, keepdim) + 0.5) * d;
  });
  // Bits of the kernel, whichever the formula.
  const tensor<float, shape{5, 301}> numbers{uniform<float, shape{5, 301}>(seed{2})};
  std::vector<float> y(5 * 301), means(5), inverses(5);
  cpu::layer_norm_forward<float>(5, 301, 1, numbers.data(), nullptr, nullptr, 0.5F, y.data(),
                                 means.data(), inverses.data());
  const auto same_bits = [&](const auto& net) {
    auto model = initialize<float, shape{5, 301}>(net, seed{1});
    return std::memcmp(model(numbers).data(), y.data(), y.size() * sizeof(float)) == 0;
  };
  CHECK(same_bits(by_quotient));
  CHECK(same_bits(by_product));
  agrees<shape{5, 301}>(by_quotient);
  agrees<shape{3, 4}>(by_product);
  // Of a value of the loop that has other readers, twice, and of a group of channels.
  const auto twice = graph([](auto x) {
    const auto normed = [](auto v) {
      const auto d = v - mean<-1>(v, keepdim);
      return d * rsqrt(var<-1>(d, correction<0>, keepdim) + 1e-5);
    };
    const auto h = square(x) + x;
    return normed(normed(h) * x + h) + h;
  });
  agrees<shape{4, 9}>(twice);
  agrees<shape{2, 4, 3}, shape{4, 1}>(graph([](auto x, auto w) {
    const auto g = reshape<2, 2, -1>(x);
    const auto d = g - unsqueeze<2>(mean<-1>(g));
    return reshape<2, 4, 3>(d / sqrt(var<-1>(g, correction<0>, keepdim) + 1e-5)) * w;
  }));
  CHECK(gradient_check(twice, uniform<double, shape{3, 5}>(seed{2})).largest < 1e-6);
  // What another step or the output reads is computed as it is written.
  agrees<shape{4, 9}>(graph([](auto x) {
    const auto d = x - mean<-1>(x, keepdim), s = var<-1>(x, correction<0>, keepdim) + 0.5;
    return d * rsqrt(s) + s * d;
  }));
  agrees<shape{4, 9}>(graph([](auto x) {
    const auto d = x - mean<-1>(x, keepdim);
    return d * rsqrt(var<-1>(x, keepdim) + 0.5) + d * rsqrt(mean<-1>(square(x), keepdim) + 0.5);
  }));
}

TEST_CASE("a norm of rows takes weights and biases with it") {
  constexpr auto normed = [](auto x) {
    const auto d = x - mean<-1>(x, keepdim);
    return d * rsqrt(mean<-1>(square(d), keepdim) + 0.5);
  };
  // Bits of the kernel.
  const auto x = uniform<float, shape{5, 301}>(seed{2});
  const auto w = uniform<float, shape{301}>(seed{3}), b = uniform<float, shape{301}>(seed{4});
  std::vector<float> y(5 * 301), means(6), inverses(6);
  cpu::layer_norm_forward<float>(5, 301, 1, x.data(), w.data(), b.data(), 0.5F, y.data(),
                                 means.data(), inverses.data());
  const auto net = graph([normed](auto v, auto s, auto t) { return t + s * normed(v); });
  auto model = initialize<float, shape{5, 301}, shape{301}, shape{301}>(net, seed{1});
  CHECK(std::memcmp(model(x, w, b).data(), y.data(), y.size() * sizeof(float)) == 0);
  agrees<shape{5, 301}, shape{301}, shape{301}>(net);
  agrees<shape{3, 4}, shape{4}>(graph([normed](auto v, auto s) { return normed(v) * s; }));
  // One array as both, and what others read in between.
  agrees<shape{3, 4}, shape{4}>(graph([normed](auto v, auto s) { return normed(v) * s + s; }));
  agrees<shape{3, 4}, shape{4}, shape{4}>(graph([normed](auto v, auto s, auto t) {
    const auto h = normed(v) * s;
    return (h + t) * h;
  }));
  agrees<shape{3, 4}, shape{4}, shape{4}>(graph([normed](auto v, auto s, auto t) {
    const auto h = normed(v);
    return (h * s + t) * h;
  }));
  // Channels of groups: all the rows of a sample in a block, a part of them, and one row each.
  constexpr auto group_normed = []<shape Of, dim_t Groups>(auto v, auto s, auto t) {
    const auto g = reshape<Of[0], Groups, -1>(v);
    const auto d = g - mean<-1>(g, keepdim);
    const auto h = d / sqrt(var<-1>(g, correction<0>, keepdim) + 1e-5);
    return reshape<Of[0], Of[1], -1>(h) * unsqueeze<1>(s) + unsqueeze<1>(t);
  };
  const auto of_groups = [&]<shape Of, dim_t Groups>() {
    agrees<Of, shape{Of[1]}, shape{Of[1]}>(graph([](auto v, auto s, auto t) {
      return decltype(group_normed){}.template operator()<Of, Groups>(v, s, t);
    }));
  };
  of_groups.operator()<shape{2, 6, 4}, 2>();
  of_groups.operator()<shape{3, 6, 200}, 2>();
  of_groups.operator()<shape{1, 6, 50}, 3>();
  of_groups.operator()<shape{2, 3, 7}, 3>();
  // The gradient of the biases is that of the kernel of group norm, to the bit.
  const auto images = uniform<float, shape{3, 6, 200}>(seed{2}),
             dy = uniform<float, shape{3, 6, 200}>(seed{5});
  const auto scale = uniform<float, shape{6}>(seed{3}), shift = uniform<float, shape{6}>(seed{4});
  auto of_two = initialize<float, shape{3, 6, 200}, shape{6}, shape{6}>(
      graph([normed](auto v, auto s, auto t) {
        return reshape<3, 6, 200>(normed(reshape<3, 2, -1>(v))) * unsqueeze<1>(s) + unsqueeze<1>(t);
      }),
      seed{1});
  auto dx = images, dx_of_kernel = images;
  auto ds = scale, dt = shift, ds_of_kernel = scale, dt_of_kernel = shift;
  of_two(images, scale, shift);
  of_two.backward(dy, dx, ds, dt);
  cpu::group_norm_forward<float>(3, 6, 200, 2, images.data(), scale.data(), shift.data(), 0.5F,
                                 dx_of_kernel.data(), means.data(), inverses.data());
  cpu::group_norm_backward<float>(3, 6, 200, 2, images.data(), dy.data(), scale.data(),
                                  means.data(), inverses.data(), dx_of_kernel.data(),
                                  ds_of_kernel.data(), dt_of_kernel.data(), false);
  CHECK(std::equal(dt.begin(), dt.end(), dt_of_kernel.begin()));
  // The gradient of x is written; what those of the weights and biases are added to is zero before.
  const auto& p = of_two.current_program();
  auto plan = plan_memory<float>(p, 3, pass_purpose::training_with_input_gradients);
  detail::loop_storage<std::remove_cvref_t<decltype(p)>::sizes> loops;
  REQUIRE(detail::build_loops<float>(p.view(), plan.tables(), loops.tables));
  CHECK(std::ranges::count(loops.edges, detail::loop_edge::gradient) == 1);
  CHECK(std::ranges::count(loops.edges, detail::loop_edge::sum) == 2);
  // Without the gradient of x.
  const auto gradients = [&](bool fuses) {
    auto m = initialize<double, shape{4, 9}>(graph([normed](auto v) {
                                               return normed(v) * parameter<"s", shape{9}>(v) +
                                                      parameter<"t", shape{9}>(v);
                                             }),
                                             seed{1});
    m.set_fusion(fuses);
    m(uniform<double, shape{4, 9}>(seed{2}));
    m.backward(uniform<double, shape{4, 9}>(seed{3}));
    return std::vector<double>(m.gradients().data(), m.gradients().data() + m.gradients().size());
  };
  const auto fused = gradients(true), single = gradients(false);
  for (std::size_t i = 0; i < fused.size(); ++i)
    CHECK(fused[i] == doctest::Approx(single[i]).epsilon(1e-12));
}

TEST_CASE("a fused backward follows a forward step by step") {
  // That of a forward hook, or that repeats the steps for the first gradient of an input.
  constexpr auto net = graph([](auto x) {
    const auto h = (x - mean<-1>(x, keepdim)) / sqrt(var<-1>(x, correction<0>, keepdim) + 0.5);
    return h + x;
  });
  const auto x = uniform<double, shape{5, 7}>(seed{2}), dy = uniform<double, shape{5, 7}>(seed{3});
  const auto run = [&](bool fuses, int steps, bool hooked) {
    auto model = initialize<double, shape{5, 7}>(net, seed{1});
    model.set_fusion(fuses);
    if (hooked) model.register_forward_hook("", [](const module_call&) {});
    auto dx = x;
    for (int i = 0; i < steps; ++i) {
      model(x);
      model.backward(dy, dx);
    }
    return dx;
  };
  const auto expected = run(false, 1, false);
  for (const bool hooked : {false, true})
    for (const int steps : {1, 2}) {
      const auto dx = run(true, steps, hooked);
      for (dim_t i = 0; i < dx.size(); ++i)
        CHECK(dx[i] == doctest::Approx(expected[i]).epsilon(1e-12));
    }
}

TEST_CASE("loops of batches of any size") {
  for (const dim_t n : {dim_t{0}, dim_t{1}, dim_t{6}}) {
    CHECK(difference<float, shape{dynamic, 5}, shape{5}, shape{5}>(
              layer_norm_formula, 1, {shape{n, 5}, shape{5}, shape{5}}) < 3e-6);
    CHECK(difference<double, shape{dynamic}>(graph([](auto x) { return exp(x) * x; }), 0,
                                             {shape{n}}) < 1e-14);
  }
  // The divisor of a variance is not below 0.
  auto few = initialize<double, shape{1, 2}>(
      graph([](auto x) { return var<-1>(exp(x), correction<3>) * 2; }), seed{1});
  CHECK(few(uniform<double, shape{1, 2}>(seed{2}))[0] == std::numeric_limits<double>::infinity());
}

TEST_CASE("the gradients of loops are exact") {
  const auto x = uniform<double, shape{3, 4}>(seed{2});
  const auto w = uniform<double, shape{4}>(seed{3});
  CHECK(gradient_check(layer_norm_formula, std::tuple{x, w, w}).largest < 1e-7);
  CHECK(gradient_check(softmax_loss, std::tuple{x, x}).largest < 1e-7);
  CHECK(gradient_check(gates, std::tuple{x, x, x, x}).largest < 1e-7);
}

TEST_CASE("threads do not change the results of loops") {
  const auto run = [](int threads) {
    const int before = num_threads();
    set_num_threads(threads);
    auto model =
        initialize<float, shape{4000, 40}, shape{40}, shape{40}>(layer_norm_formula, seed{1});
    const auto x = uniform<float, shape{4000, 40}>(seed{2});
    const auto w = uniform<float, shape{40}>(seed{3});
    tensor<float, shape{4000, 40}> y, dx;
    tensor<float, shape{40}> dw, db;
    std::ranges::copy(model(x, w, w), y.begin());
    model.backward(x, dx, dw, db);
    set_num_threads(before);
    return std::tuple{std::move(y), std::move(dx), std::move(dw)};
  };
  const auto [y, dx, dw] = run(1);
  const auto [y3, dx3, dw3] = run(3);
  CHECK(std::memcmp(y.data(), y3.data(), sizeof(float) * 160000) == 0);
  CHECK(std::memcmp(dx.data(), dx3.data(), sizeof(float) * 160000) == 0);
  CHECK(std::memcmp(dw.data(), dw3.data(), sizeof(float) * 40) == 0);
}

TEST_CASE("a loop with captured numbers follows them") {
  auto model = initialize<double, shape{4, 3}>(linear<3, 2>{}, seed{1});
  const auto x = uniform<double, shape{4, 3}>(seed{2});
  const auto t = uniform<double, shape{4, 2}>(seed{3});
  sgd optimizer{model, {.lr = 0}};
  const auto value = [&](double weight) {
    return model.train_step(
        x, t, [weight](auto y, auto target) { return mean(square(y - target) * weight + 1); },
        optimizer);
  };
  const double one = value(1), three = value(3);
  CHECK(three - 1 == doctest::Approx(3 * (one - 1)));
}

TEST_CASE("a loop that no longer fits because its numbers differ runs step by step") {
  auto model = initialize<double, shape{6, 3}>(linear<3, 4>{}, seed{1});
  const auto x = uniform<double, shape{6, 3}>(seed{2});
  const auto t = uniform<double, shape{6, 2}>(seed{3});
  sgd optimizer{model, {.lr = 0}};
  many_bounds loss;
  for (double& a : loss.bounds) a = 5;
  const double one = model.train_step(x, t, loss, optimizer);
  const std::vector<double> gradients(model.gradients().begin(), model.gradients().end());
  for (std::size_t i = 0; i < loss.bounds.size(); ++i)
    loss.bounds[i] += static_cast<double>(i) / 1000;
  for (int step = 0; step < 3; ++step) {
    const long before = allocation_count_here;
    CHECK(model.train_step(x, t, loss, optimizer) == doctest::Approx(one));
    if (step > 0) CHECK(allocation_count_here == before);
    for (std::size_t i = 0; i < gradients.size(); ++i)
      CHECK(model.gradients()[i] == doctest::Approx(gradients[i]));
  }
}

TEST_CASE("fusion may be switched between forward and backward, and hooks run single steps") {
  constexpr auto net = graph([](auto x) {
    const auto h = "fc"_m(linear<4, 4>{}, exp(x) * 2 - x);
    return ikebana::tanh{}(square(h) + h) * h;
  });
  const auto x = uniform<double, shape{3, 4}>(seed{2}), dy = uniform<double, shape{3, 4}>(seed{3});
  const auto run = [&](auto between) {
    auto model = initialize<double, shape{3, 4}>(net, seed{1});
    tensor<double, shape{3, 4}> dx;
    model(x);
    // The first backward with input gradients plans the memory anew.
    between(model, dx);
    model.zero_grad();
    model.backward(dy, dx);
    double total = 0;
    for (const double d : dx) total += std::abs(d);
    for (const double d : model.gradients()) total += std::abs(d);
    return total;
  };
  const double expected = run([](auto& m, auto&) { m.set_fusion(true); });
  CHECK(run([](auto& m, auto&) { m.set_fusion(false); }) == doctest::Approx(expected));
  CHECK(run([&](auto& m, auto&) {
          m.set_fusion(false);
          m(x);
          m.set_fusion(true);
        }) == doctest::Approx(expected));
  CHECK(run([&](auto& m, auto& dx) {
          m.backward(dy, dx);
          m(x);
        }) == doctest::Approx(expected));
  CHECK(run([&](auto& m, auto&) {
          m.register_forward_hook("fc"_s, [](const module_call&) {});
          m(x);
        }) == doctest::Approx(expected));
}

TEST_CASE("frozen networks run loops, with the bits of the model") {
  // Sums of long rows differ in their last bits between a loop, block by block, and a kernel.
  constexpr auto formula = graph([](auto x) { return mean<-1>(square(x)); });
  auto model = initialize<float, shape{dynamic, 5000}>(formula, seed{1});
  const auto x = uniform<float, shape{dynamic, 5000}>(seed{3}, 40);
  model.eval();
  const auto frozen = freeze(model);
  auto lane = frozen.lane();
  const auto z = frozen(lane, x);
  const tensor<float, shape{dynamic}> y(model(x));
  model.set_fusion(false);
  const auto without = model(x);
  int differ = 0;
  for (dim_t i = 0; i < y.size(); ++i) {
    CHECK(y.data()[i] == z.data()[i]);
    differ += y.data()[i] != without.data()[i];
  }
  REQUIRE(differ > 0);
}

TEST_CASE("no gradient goes through stop_gradient and comparisons") {
  constexpr shape S{3, 5};
  const auto x = uniform<double, S>(seed{1});
  const auto dy = uniform<double, S>(seed{2});
  const auto run = [&](const auto& net, bool fused) {
    auto model = initialize<double, S>(net, seed{3});
    model.set_fusion(fused);
    tensor<double, S> dx(uniform<double, S>(seed{4}));
    model(x);
    model.backward(dy, dx);
    for (const double d : model.gradients()) CHECK(d == 0);
    return dx;
  };
  constexpr auto stopped = graph([](auto v) {
    const auto y = exp(v);
    return y * stop_gradient(square(y)) + stop_gradient(y);
  });
  constexpr auto compared = graph([](auto v) { return (exp(v) < 1.5) * 2 + sign(square(v)); });
  constexpr auto behind =
      graph([](auto v) { return 2 * v - stop_gradient(relu{}("fc"_m(linear<5, 5>{}, v))); });
  for (const bool fused : {false, true}) {
    const auto a = run(stopped, fused), b = run(compared, fused), c = run(behind, fused);
    for (dim_t i = 0; i < 15; ++i) {
      CHECK(a[i] == doctest::Approx(dy[i] * std::exp(3 * x[i])).epsilon(1e-12));
      CHECK(b[i] == 0);
      CHECK(c[i] == 2 * dy[i]);
    }
  }
  auto model = initialize<double, S>(stopped, seed{3});
  const auto along = jvp(model, x, dy).second;
  for (dim_t i = 0; i < 15; ++i)
    CHECK(along[i] == doctest::Approx(dy[i] * std::exp(3 * x[i])).epsilon(1e-12));
  CHECK(summary(model).find("stop_gradient (loop 1)") != std::string::npos);
}

TEST_CASE("a norm of which a step passes no gradient on is none") {
  constexpr shape S{3, 5};
  const auto x = uniform<double, S>(seed{1});
  const auto dy = uniform<double, S>(seed{2});
  auto model = initialize<double, S>(graph([](auto v) {
                                       const auto d = v - stop_gradient(mean<-1>(v, keepdim));
                                       const auto variance = mean<-1>(square(d), keepdim);
                                       return d * rsqrt(stop_gradient(variance) + 1e-5);
                                     }),
                                     seed{3});
  auto dx = x;
  const auto y = model(x);
  model.backward(dy, dx);
  model(x);
  model.backward(dy, dx);
  for (dim_t i = 0; i < 15; i += 5)
    for (dim_t j = i + 1; j < i + 5; ++j)
      CHECK(dx[j] / dy[j] == doctest::Approx((y[j] - y[i]) / (x[j] - x[i])));
}

TEST_CASE("summary and to_dot show loops") {
  const auto model =
      initialize<float, shape{4, 8}, shape{8}, shape{8}>(layer_norm_formula, seed{1});
  CHECK(summary(model).find("mul (loop 1)") != std::string::npos);
  CHECK(to_dot(model).find("subgraph cluster_loop1 { label=\"loop 1\"; n0; n1;") !=
        std::string::npos);
  auto single = initialize<float, shape{4, 8}, shape{8}, shape{8}>(layer_norm_formula, seed{1});
  single.set_fusion(false);
  CHECK(summary(single).find("loop") == std::string::npos);
}
