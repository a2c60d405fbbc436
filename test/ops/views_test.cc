#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <type_traits>
#include <vector>

#include "ikebana/compose/checkpoint.hpp"
#include "ikebana/compose/choose.hpp"
#include "ikebana/compose/graph.hpp"
#include "ikebana/deploy/freeze.hpp"
#include "ikebana/model/gradient_check.hpp"
#include "ikebana/model/hooks.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/passes/output_gradients.hpp"
#include "ikebana/model/workspace.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/concat.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/smooth_activation.hpp"
#include "ikebana/nn/softmax.hpp"
#include "ikebana/ops.hpp"

using namespace ikebana;
using namespace ikebana::literals;

// Parts and permutations of values that are read where they are.

namespace {

/// The number of operations that copy elements although they could be views, and of those that do
/// not.
struct counts {
  int copies = 0, views = 0;
};
template <class Model>
counts count_views(const Model& m) {
  counts c;
  const auto& p = m.current_program();
  const auto plan = plan_memory<float>(p, Model::input_count);
  for (const program_node& node : p.all_nodes())
    if (node.view.exists)
      ++(plan.layouts[static_cast<std::size_t>(node.first_output)].is_view ? c.views : c.copies);
  return c;
}

/// Outputs, gradients of inputs and of parameters of a step.
template <class T, shape In, class Model>
std::vector<T> numbers_of(Model& m) {
  const auto x = uniform<T, In>(seed{1});
  auto dx = x;
  std::vector<T> all;
  const auto keep = [&](const auto& t) { all.insert(all.end(), t.begin(), t.end()); };
  m.zero_grad();
  const auto y = m(x);
  keep(y);
  const auto dy = uniform<T, std::remove_cvref_t<decltype(y)>::static_shape>(seed{2});
  m.backward(dy, dx);
  keep(dx);
  keep(m.gradients());
  return all;
}

template <class T>
double apart(const std::vector<T>& a, const std::vector<T>& b) {
  REQUIRE(a.size() == b.size());
  double d = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    d = std::max(d, std::abs(static_cast<double>(a[i] - b[i])));
  return d;
}

/// Whether views change nothing: in steps one after the other, without fusion, with hooks, frozen.
template <class T, shape In>
void check(const auto& network, counts expected) {
  constexpr double within = std::is_same_v<T, float> ? 2e-6 : 1e-14;
  const auto make = [&] { return initialize<T, In>(network, seed{3}); };
  auto own = make(), unfused = make(), hooked = make();
  const auto first = numbers_of<T, In>(own), second = numbers_of<T, In>(own);
  const counts found = count_views(own);
  CHECK(found.copies == expected.copies);
  CHECK(found.views == expected.views);
  CHECK(apart(first, second) <= within);
  unfused.set_fusion(false);
  CHECK(apart(first, numbers_of<T, In>(unfused)) <= within);
  unfused.set_fusion(true);
  CHECK(first == numbers_of<T, In>(unfused));
  CHECK(apart(first, numbers_of<T, In>(hooked)) <= within);
  int calls = 0;
  hooked.register_forward_hook("", [&](const auto&) { ++calls; });
  CHECK(apart(first, numbers_of<T, In>(hooked)) <= within);
  CHECK(calls > 0);

  const auto frozen = freeze(own);
  auto lane = frozen.lane();
  const auto x = uniform<T, In>(seed{1});
  const auto y = frozen(lane, x);
  double d = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(y.size()); ++i)
    d = std::max(d, std::abs(static_cast<double>(y.begin()[i] - first[i])));
  CHECK(d <= within);
}

constexpr auto first_half = graph([](auto x) {
  const auto [a, b] = chunk<2, 0>("fc"_m(linear<5, 7>{}, x));
  return "out"_m(linear<7, 3>{}, a) - "out2"_m(linear<7, 3>{}, b);
});
constexpr auto swiglu = graph([](auto x) {
  const auto [a, b] = chunk<2, -1>("fc"_m(linear<5, 14>{}, x));
  return "out"_m(linear<7, 3>{}, silu{}(a)*b);
});
constexpr auto heads = graph([](auto x) {
  const auto [q, k, v] = chunk<3, -1>("qkv"_m(linear<5, 36>{}, x));
  const auto split = [](auto y) { return transpose<1, 2>(reshape<2, 7, 3, 4>(y)); };
  const auto w = softmax<>{}(matmul(split(q), transpose<-2, -1>(split(k))) / 2);
  return reshape<2, 7, 12>(transpose<1, 2>(matmul(w, split(v))));
});
constexpr auto needs_copies = graph([](auto x) {
  const auto y = "fc"_m(linear<5, 14>{}, x);
  const auto z = "a"_m(linear<7, 3>{}, narrow<-1>(y, 0, 7));
  return concat<dim<1>>{}(z, slice<-1>(y, 1, 14, 2));
});
constexpr auto permuted_again = graph([](auto x) {
  const auto y = permute<1, 2, 0>("fc"_m(linear<5, 6>{}, x));  // [3, 6, 4]
  const auto z = select<2>(slice<1>(y, 1, 5), 1);              // [3, 4]
  return matmul(z, transpose<0, 1>(narrow<0>(z, 1, 2)));
});
constexpr auto recomputed = graph([](auto x) {
  const auto y = "again"_m(checkpoint(swiglu), x);
  const auto [a, b] = chunk<2, 0>(ikebana::tanh{}(y));
  return a * b;
});
}  // namespace

TEST_CASE("parts, permutations and repetitions are read where they are") {
  // The halves start where the first and the second start: linear reads them.
  check<float, shape{6, 5}>(first_half, {0, 2});
  check<double, shape{6, 5}>(first_half, {0, 2});
  // Rows with a stride, read by a loop.
  check<float, shape{4, 5}>(swiglu, {0, 2});
  check<double, shape{4, 5}>(swiglu, {0, 2});
  // A chunk, a reshape and a permutation after each other, read by a product.
  check<float, shape{2, 7, 5}>(heads, {1, 6});
  check<double, shape{2, 7, 5}>(heads, {1, 6});
  check<float, shape{4, 3, 5}>(permuted_again, {0, 5});
  check<double, shape{4, 3, 5}>(permuted_again, {0, 5});
  check<float, shape{4, 5}>(recomputed, {0, 4});
  check<double, shape{4, 5}>(recomputed, {0, 4});
}

TEST_CASE("what a leaf cannot read with strides is copied") {
  check<float, shape{4, 5}>(needs_copies, {2, 0});
  check<double, shape{4, 5}>(needs_copies, {2, 0});
}

TEST_CASE("an output is memory of the model, not of an input") {
  constexpr auto part = graph([](auto x) { return reshape<5, 2>(narrow<0>(x, 1, 2)); });
  auto model = initialize<float, shape{4, 5}>(part, seed{3});
  const auto frozen = freeze(model);
  auto lane = frozen.lane();
  auto x = uniform<float, shape{4, 5}>(seed{1});
  const auto expected = x;
  const auto y = model(x);
  const auto of_lane = frozen(lane, x);
  for (float& e : x) e = 0;
  for (dim_t i = 0; i < y.size(); ++i) {
    CHECK(y.data()[i] == expected.data()[5 + i]);
    CHECK(of_lane.data()[i] == expected.data()[5 + i]);
  }
}

TEST_CASE("parts that are a whole write its gradient without sums") {
  // Of three and four, not in order, with one of a single element; read by others, too; twice.
  constexpr auto whole = graph([](auto x) {
    const auto y = "fc"_m(linear<5, 8>{}, x);
    const auto a = slice<-1>(y, 5, 8), b = narrow<-1>(y, 0, 4), c = select<-1>(y, 4);
    return concat<dim<-1>>{}(exp(a) * unsqueeze<-1>(c), b);
  });
  constexpr auto with_more = graph([](auto x) {
    const auto y = "fc"_m(linear<5, 8>{}, x);
    const auto [a, b] = chunk<2, -1>(y);
    return a * b + mean<-1>(y, keepdim);
  });
  constexpr auto overlapping = graph([](auto x) {
    const auto a = narrow<0>(x, 0, 3), b = narrow<0>(x, 1, 3);
    return a * b + narrow<0>(x, 1, 3);
  });
  constexpr auto one_stops = graph([](auto x) {
    const auto [a, b] = chunk<2, 0>(x);
    return a * stop_gradient(exp(b));
  });
  constexpr auto is_input = graph([](auto x) {
    const auto [a, b] = chunk<2, 0>(x);
    return a * exp(b);
  });
  const auto parts = [](const auto& network) {
    const auto model = initialize<double, shape{4, 5}>(network, seed{3});
    const auto& p = model.current_program();
    const auto plan = plan_memory<double>(p, 1, pass_purpose::training_with_input_gradients);
    int n = 0;
    for (const value_layout& v : plan.layouts) n += v.is_part;
    return n;
  };
  CHECK(parts(whole) == 3);
  CHECK(parts(with_more) == 0);
  CHECK(parts(overlapping) == 0);
  CHECK(parts(one_stops) == 0);
  CHECK(parts(is_input) == 2);
  check<float, shape{4, 5}>(whole, {2, 1});
  check<double, shape{4, 5}>(whole, {2, 1});
  check<double, shape{4, 5}>(with_more, {0, 2});
  check<double, shape{4, 5}>(overlapping, {0, 2});
  check<double, shape{4, 5}>(one_stops, {0, 2});
  check<double, shape{4, 5}>(is_input, {0, 2});
  CHECK(gradient_check(whole, uniform<double, shape{4, 5}>(seed{1})).largest < 1e-7);
}

TEST_CASE("parts that no gradient reaches get zeros") {
  constexpr shape X{4, 3};
  const auto x = uniform<double, X>(seed{1});
  const auto dy = uniform<double, shape{2, 3}>(seed{2});
  auto dx = x;
  const auto check_second = [&] {
    for (dim_t i = 0; i < 6; ++i) {
      CHECK(dx[i] == 0);
      CHECK(dx[6 + i] == doctest::Approx(18 * x[6 + i] * dy[i]));
    }
  };
  // Of two outputs, one has a gradient.
  auto split = initialize<double, X>(graph([](auto v) {
                                       const auto [a, b] = chunk<2, 0>(3 * v);
                                       return std::tuple(exp(a), square(b));
                                     }),
                                     seed{3});
  split(x);
  split.backward(std::tuple{dy, dy}, dx);
  split(x);
  split.backward(std::tuple{no_gradient, dy}, dx);
  check_second();
  // Each alternative reads one part.
  auto chosen = initialize<double, X>(
      graph([](auto v) {
        const auto [a, b] = chunk<2, 0>(3 * v);
        return "path"_m(choose("a"_m = graph([](auto p, auto) { return exp(p); }),
                               "b"_m = graph([](auto, auto q) { return square(q); })),
                        a, b);
      }),
      seed{3});
  for (const int alternative : {0, 1}) {
    chosen.choose("path"_s, alternative);
    chosen(x);
    chosen.backward(dy, dx);
  }
  check_second();
}

namespace {
/// The values that are made, and the gradients that are, as parts of a whole, from its second
/// element on.
struct joined {
  int values = 0, gradients = 0;
};
template <class T, shape In>
joined count_joined(const auto& network, pass_purpose purpose) {
  const auto model = initialize<T, In>(network, seed{3});
  const auto plan = plan_memory<T>(model.current_program(), 1, purpose);
  joined n;
  for (const value_layout& v : plan.layouts) {
    n.values += v.first_in_whole > 0;
    n.gradients += v.first_in_gradient > 0;
  }
  return n;
}
void check_joined(const auto& network, joined training, joined inference, counts views = {}) {
  constexpr shape X{3, 5};
  const joined steps = count_joined<float, X>(network, pass_purpose::training),
               calls = count_joined<float, X>(network, pass_purpose::inference);
  CHECK(steps.values == training.values);
  CHECK(steps.gradients == training.gradients);
  CHECK(calls.values == inference.values);
  CHECK(calls.gradients == inference.gradients);
  check<float, X>(network, views);
  check<double, X>(network, views);
  CHECK(gradient_check(network, uniform<double, X>(seed{1})).largest < 1e-6);
}

constexpr auto joined_products = graph([](auto x) {
  const auto a = "a"_m(linear<5, 3>{}, x);
  const auto b = ikebana::tanh{}("b"_m(linear<5, 3>{}, x));
  const auto c = relu{}("c"_m(linear<5, 3>{}, x));
  return "out"_m(linear<3, 2>{}, concat<dim<0>>{}(a, b, c));
});
constexpr auto joined_reshaped = graph([](auto x) {
  const auto a = reshape<1, 1, 3, 3>("a"_m(linear<5, 3>{}, x));
  const auto b = reshape<1, 2, 3, 3>("b"_m(linear<5, 6>{}, x));
  const auto c = concat<dim<1>>{}(concat<dim<-3>>{}(a, b), a);  // The second a is copied.
  return reshape<12, 3>(c) * 2;
});
constexpr auto joined_and_read = graph([](auto x) {
  const auto a = "a"_m(linear<5, 3>{}, x);
  const auto b = exp(a);
  return matmul(a, reshape<3, 6>(stack<0>(a, b))) + mean<-1>(b, keepdim);
});
constexpr auto joined_and_overwritten = graph([](auto x) {
  const auto a = "a"_m(linear<5, 3>{}, x);
  const auto b = "b"_m(linear<5, 3>{}, x);
  return "out"_m(linear<3, 2>{}, relu{}(concat<dim<0>>{}(a, b)));
});
constexpr auto joined_inputs = graph([](auto x) {
  const auto a = "a"_m(linear<5, 5>{}, x);
  return concat<dim<0>>{}(x, a, x, narrow<0>(a, 1, 2));
});
constexpr auto joined_in_lines = graph(
    [](auto x) { return concat<dim<1>>{}("a"_m(linear<5, 3>{}, x), "b"_m(linear<5, 3>{}, x)); });
}  // namespace

TEST_CASE("what is joined along its first dimension is made in place") {
  check_joined(joined_products, {4, 4}, {4, 0});
  check_joined(joined_reshaped, {2, 2}, {2, 0});
  check_joined(joined_and_read, {1, 0}, {1, 0});
  check_joined(joined_and_overwritten, {0, 0}, {0, 0});
  check_joined(joined_inputs, {2, 1}, {2, 0}, {0, 1});
  check_joined(joined_in_lines, {0, 0}, {0, 0});
}

TEST_CASE("what is read and made in place has the bits of copies") {
  const auto same = [](const auto& network, auto x) {
    using T = std::remove_cvref_t<decltype(x[0])>;
    constexpr shape X = decltype(x)::static_shape;
    auto own = initialize<T, X>(network, seed{3}), copying = initialize<T, X>(network, seed{3});
    copying.set_fusion(false);
    CHECK(numbers_of<T, X>(own) == numbers_of<T, X>(copying));
  };
  same(swiglu, tensor<float, shape{4, 5}>{});
  same(heads, tensor<float, shape{2, 7, 5}>{});
  same(heads, tensor<double, shape{2, 7, 5}>{});
  same(joined_products, tensor<float, shape{3, 5}>{});
  same(joined_reshaped, tensor<double, shape{3, 5}>{});
}

TEST_CASE("views take no memory") {
  const auto model = initialize<float, shape{64, 5}>(swiglu, seed{3});
  const auto& p = model.current_program();
  using program_type = std::remove_cvref_t<decltype(p)>;
  const auto bytes = [&p](bool has_views) {
    memory_plan<program_type::sizes> plan;
    detail::planning_tables<program_type::sizes> scratch;
    detail::plan_memory_into<float>(plan, scratch, p, 1, pass_purpose::inference, has_views);
    return plan.bytes;
  };
  // [64, 14], silu and the product; or the three of them and two copies, of which one fits where
  // [64, 14] was.
  CHECK(bytes(true) == 64 * 28 * 4);
  CHECK(bytes(false) == 64 * 35 * 4);
}

TEST_CASE("what is joined along its first dimension takes no memory of its own") {
  const auto model = initialize<float, shape{64, 5}>(
      graph([](auto x) {
        return concat<dim<0>>{}("a"_m(linear<5, 16>{}, x), "b"_m(linear<5, 16>{}, x),
                                "c"_m(linear<5, 16>{}, x));
      }),
      seed{3});
  const auto& p = model.current_program();
  // The whole alone, and in training its gradient, too, whose parts linear layers read there.
  for (const auto purpose : {pass_purpose::inference, pass_purpose::training})
    CHECK(plan_memory<float>(p, 1, purpose).bytes ==
          (purpose == pass_purpose::inference ? 1 : 2) * 3 * 64 * 16 * 4);
}
