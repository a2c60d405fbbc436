#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "ikebana/compose/graph.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/core/compare.hpp"
#include "ikebana/model/gradient_check.hpp"
#include "ikebana/model/hooks.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/plan/memory_plan.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/adaptive_pool.hpp"
#include "ikebana/nn/flatten.hpp"
#include "ikebana/nn/group_norm.hpp"
#include "ikebana/nn/layer_norm.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/multihead_attention.hpp"
#include "ikebana/nn/rnn_cell.hpp"
#include "ikebana/nn/softmax.hpp"
#include "ikebana/ops.hpp"
#include "test/nn/layers.hpp"

using namespace ikebana;
using namespace ikebana::literals;

// Networks of the library's modules, and the same as formulas.

namespace {

/// Whether both models have the same outputs and input gradients, and give their parameters, in
/// order, the same gradients.
template <class A, class B, class... X>
void check_equal(const std::string& what, A& module, B& formula, const std::tuple<X...>& x) {
  using T = typename std::tuple_element_t<0, std::tuple<X...>>::value_type;
  const double within = std::is_same_v<T, float> ? 2e-6 : 1e-13;
  const auto run = [&](auto& model) {
    std::tuple<X...> dx = x;
    auto y = std::apply([&](const auto&... each) { return model(each...); }, x);
    const auto gradient = [](const auto& out) {
      tensor<T, std::remove_cvref_t<decltype(out)>::static_shape> d(out.extents());
      fill_random(d.data(), d.size(), 9);
      return d;
    };
    std::vector<T> all;
    const auto keep = [&](const auto& t) { all.insert(all.end(), t.begin(), t.end()); };
    model.zero_grad();
    if constexpr (A::output_count == 1) {
      keep(y);
      const auto d = gradient(y);
      std::apply([&](auto&... each) { model.backward(d, each...); }, dx);
    } else {
      std::apply([&](const auto&... out) { (keep(out), ...); }, y);
      const auto d =
          std::apply([&](const auto&... out) { return std::tuple{gradient(out)...}; }, y);
      std::apply([&](auto&... each) { model.backward(d, each...); }, dx);
    }
    std::apply([&](const auto&... each) { (keep(each), ...); }, dx);
    for (const auto& p : model.current_program().all_parameters()) {
      const auto i = static_cast<std::size_t>(&p - model.current_program().all_parameters().data());
      const T* const g = model.gradients().data() + model.layout().offsets[i];
      all.insert(all.end(), g, g + p.spec.extents.numel());
    }
    return all;
  };
  const auto expected = run(module), got = run(formula);
  REQUIRE_MESSAGE(expected.size() == got.size(), what);
  double largest = 0, apart = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(expected[i])));
    apart = std::max(apart, std::abs(static_cast<double>(expected[i] - got[i])));
  }
  CHECK_MESSAGE(apart <= within * largest, what << ": " << apart << " of " << largest);
}

/// Both models get the same random parameters, in order.
template <class... Model>
void share_parameters(Model&... model) {
  const auto fill = [](auto& m) {
    const auto all = m.current_program().all_parameters();
    for (std::size_t i = 0; i < all.size(); ++i)
      fill_random(m.parameters().data() + m.layout().offsets[i], all[i].spec.extents.numel(),
                  100 + i);
  };
  (fill(model), ...);
}

template <class T, shape... In>
void compare_networks(const std::string& what, const auto& module, const auto& formula) {
  auto a = initialize<T, In...>(module, seed{1});
  auto b = initialize<T, In...>(formula, seed{2});
  share_parameters(a, b);
  std::uint64_t k = 0;
  check_equal(what, a, b, std::tuple{uniform<T, In>(seed{++k})...});
}
template <shape... In>
void compare_both(const std::string& what, const auto& module, const auto& formula) {
  compare_networks<float, In...>(what, module, formula);
  compare_networks<double, In...>(what, module, formula);
}

}  // namespace

TEST_CASE("norms as formulas agree with the modules") {
  compare_both<shape{3, 5, 6}>(
      "layer_norm", graph([](auto x) { return "norm"_m(layer_norm<shape{6}>{}, x); }),
      graph([](auto x) {
        const auto centred = x - mean<-1>(x, keepdim);
        const auto v = var<-1>(x, correction<0>, keepdim);
        const auto y = centred * rsqrt(v + 1e-5);
        return y * parameter<"weight", shape{6}>(x) + parameter<"bias", shape{6}>(x);
      }));
  compare_both<shape{3, 6, 4, 5}>(
      "group_norm", graph([](auto x) { return "norm"_m(group_norm<2, 6>{}, x); }),
      graph([](auto x) {
        const auto g = reshape<3, 2, -1>(x);
        const auto y = (g - mean<-1>(g, keepdim)) / sqrt(var<-1>(g, correction<0>, keepdim) + 1e-5);
        return reshape<3, 6, 4, 5>(y) * unsqueeze<1, 2>(parameter<"weight", shape{6}>(x)) +
               unsqueeze<1, 2>(parameter<"bias", shape{6}>(x));
      }));
}

TEST_CASE("attention as a formula agrees with the module") {
  compare_both<shape{2, 7, 12}>(
      "attention", graph([](auto x) {
        return "mha"_m(multihead_attention<12, 3, batch_first<true>, is_causal<true>>{}, x);
      }),
      graph([](auto x) {
        const auto [q, k, v] = chunk<3, -1>("in_proj"_m(linear<12, 36>{}, x));
        const auto heads = [](auto y) { return reshape<2, 7, 3, 4>(y); };
        const auto scores = einsum<"bqhd,bkhd->bhqk">(heads(q), heads(k)) / 2;
        const auto at = arange_like<1>(x);
        const auto causal = where(at > unsqueeze<1>(at), -1e30, 0.0);
        const auto w = softmax<>{}(scores + causal);
        return "out_proj"_m(linear<12, 12>{},
                            reshape<2, 7, 12>(einsum<"bhqk,bkhd->bqhd">(w, heads(v))));
      }));
}

TEST_CASE("an LSTM cell as a formula agrees with the module") {
  compare_both<shape{5, 4}, shape{5, 3}, shape{5, 3}>(
      "lstm_cell",
      graph([](auto x, auto h, auto c) { return "cell"_m(lstm_cell<4, 3>{}, x, h, c); }),
      graph([](auto x, auto h, auto c) {
        const auto gates = matmul_nt(x, parameter<"weight_ih", shape{12, 4}>(x)) +
                           matmul_nt(h, parameter<"weight_hh", shape{12, 3}>(x)) +
                           parameter<"bias_ih", shape{12}>(x) + parameter<"bias_hh", shape{12}>(x);
        const auto [i, f, g, o] = chunk<4, 1>(gates);
        const auto next = sigmoid{}(f)*c + sigmoid{}(i)*ikebana::tanh{}(g);
        return std::tuple{sigmoid{}(o)*ikebana::tanh{}(next), next};
      }));
}

TEST_CASE("squeeze and excitation as a formula agrees with the modules that it is made of") {
  constexpr auto gate = [](auto s) {
    return sigmoid{}("fc2"_m(linear<4, 6>{}, relu{}("fc1"_m(linear<6, 4>{}, s))));
  };
  compare_both<shape{3, 6, 5, 7}>(
      "excitation", graph([gate](auto x) {
        const auto s = flatten<>{}(adaptive_avg_pool2d<output_size<1>>{}(x));
        const auto g = reshape<3, 6, 1, 1>(gate(s));
        return x * expand<-1, -1, 5, 7>(g);
      }),
      graph([gate](auto x) { return x * unsqueeze<2, 3>(gate(mean<2, 3>(x))); }));
}

TEST_CASE("parts of a value add to its gradient in place") {
  constexpr auto parts = graph([](auto h) {
    const auto [a, b, c] = chunk<3, 1>(h);
    const auto scale = unsqueeze<1>(select<1>(h, 11));
    return ikebana::tanh{}(a)*b + c * slice<1>(h, 0, 8, 2) * scale;
  });
  const auto given = uniform<double, shape{5, 12}>(seed{2});
  CHECK(gradient_check(parts, std::tuple{given}).largest < 1e-7);
  constexpr auto twice = graph([parts](auto h) { return std::tuple{parts(h), square(parts(h))}; });
  CHECK(gradient_check(twice, std::tuple{given}).largest < 1e-7);

  constexpr auto net = sequential("fc"_m = linear<3, 12>{}, "parts"_m = parts);
  auto model = initialize<double, shape{5, 3}>(net, seed{1});
  auto hooked = model.clone();
  std::vector<double> seen;
  hooked.register_full_backward_hook("parts"_s, [&](const module_gradients& g) {
    const auto dh = g.input_gradient<double>();
    seen.assign(dh.begin(), dh.end());
  });
  const auto x = uniform<double, shape{5, 3}>(seed{3});
  for (auto* m : {&model, &hooked}) {
    (*m)(x);
    m->backward(ones<double, shape{5, 4}>());
  }
  CHECK(seen.size() == 60);
  for (std::size_t i = 0; i < model.gradients().size(); ++i)
    CHECK(model.gradients()[i] == doctest::Approx(hooked.gradients()[i]).epsilon(1e-12));
  // All contributions to the gradient of h but the first.
  const auto plan = plan_memory<double>(model.current_program(), 1);
  CHECK(std::ranges::count(plan.edge_scratch, detail::adds_in_place) == 4);
}
