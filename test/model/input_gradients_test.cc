#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <tuple>
#include <type_traits>
#include <vector>

#include "ikebana/compose/choose.hpp"
#include "ikebana/compose/graph.hpp"
#include "ikebana/compose/residual.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/module/arithmetic.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/concat.hpp"
#include "ikebana/nn/conv.hpp"
#include "ikebana/nn/dropout.hpp"
#include "ikebana/nn/flatten.hpp"
#include "ikebana/nn/gru.hpp"
#include "ikebana/nn/layer_norm.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/lstm.hpp"
#include "ikebana/nn/pool.hpp"
#include "ikebana/nn/rnn.hpp"
#include "ikebana/nn/smooth_activation.hpp"
#include "ikebana/nn/spectral_norm.hpp"
#include "ikebana/ops.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::shape;

namespace {

struct result {
  std::vector<double> output, gradients, input_gradient;
  std::vector<std::byte> buffers;
  bool operator==(const result&) const = default;
};

template <class Model, shape In>
result run(Model& m, const ike::tensor<double, In>& x) {
  const auto y = m(x);
  result r{{y.begin(), y.end()}, {}, {}, {}};
  auto dy = ike::uniform<double, std::remove_cvref_t<decltype(y)>::static_shape>(ike::seed{5});
  ike::tensor<double, In> dx;
  m.zero_grad();
  m.backward(dy, dx);
  r.gradients.assign(m.gradients().begin(), m.gradients().end());
  r.input_gradient.assign(dx.begin(), dx.end());
  r.buffers.assign(m.buffers().begin(), m.buffers().end());
  return r;
}

/// Compares the first backward with input gradients, for which memory is planned again, with that
/// of a model that has planned it before. Earlier forwards have changed all buffers.
template <shape In, class M>
void compare_first_with_later(const M& net, bool training = true, bool fuses = true) {
  const auto x = ike::uniform<double, In>(ike::seed{2});
  auto first = ike::initialize<double, In>(net, ike::seed{1}), later = first.clone();
  run(later, x);
  for (auto* m : {&first, &later}) {
    m->train(training);
    m->set_fusion(fuses);
  }
  first(x);
  first(x);
  std::ranges::copy(first.buffers(), later.buffers().begin());
  later.set_random_step(first.random_step());
  CHECK(run(first, x) == run(later, x));
  CHECK(run(first, x) == run(later, x));
}

/// Where the last backward of a `marked` wrote its input's gradient.
const void* written_at = nullptr;

struct marked {
  static constexpr std::string_view kind = "marked";

  constexpr ike::inferred infer(const shape& x) const { return x; }
  template <class T>
  void forward(const ike::context<T>& c) const {
    std::copy_n(c.input(), c.input_shape().numel(), c.output());
  }
  template <class T>
  void backward(const ike::context<T>& c) const {
    written_at = c.input_gradient();
    if (written_at != nullptr)
      std::copy_n(c.output_gradient(), c.input_shape().numel(), c.input_gradient());
  }
};

/// Compares the gradients of [2, 3, 4] under two views, and without them. Returns whether they were
/// written in the caller's memory.
bool compare_view_with_input(auto f) {
  const auto of_view =
      ike::graph([f](auto x) { return f(ike::reshape<6, 4>(ike::reshape<-1>(x))); });
  auto m = ike::initialize<double, shape{2, 3, 4}>(of_view, ike::seed{1});
  auto expected = ike::initialize<double, shape{6, 4}>(ike::graph(f), ike::seed{1});
  const auto x = ike::uniform<double, shape{2, 3, 4}>(ike::seed{2});
  ike::tensor<double, shape{6, 4}> flat;
  std::ranges::copy(x, flat.begin());
  ike::tensor<double, shape{2, 3, 4}> dx;
  written_at = nullptr;
  bool is_there = true;
  for (int i = 0; i < 2; ++i) {
    CHECK(run(m, x) == run(expected, flat));
    const auto y = m(x);
    const ike::tensor dy{y};
    m.zero_grad();
    m.backward(dy, dx);
    is_there = is_there && written_at == dx.data();
    const std::vector<double> before(m.gradients().begin(), m.gradients().end());
    const std::vector<double> of_input(dx.begin(), dx.end());
    m(x);
    m.zero_grad();
    m.backward(dy);
    CHECK(written_at != dx.data());
    CHECK(std::ranges::equal(m.gradients(), before));
    CHECK(std::ranges::equal(dx, of_input));
  }
  return is_there;
}

template <class Recurrent>
constexpr auto recurrent = ike::graph([](auto x) {
  auto states = "rnn"_m(Recurrent{}, x);
  return "head"_m(ike::lazy_linear<2>{}, std::get<0>(states));
});

}  // namespace

TEST_CASE("the first gradients of inputs are those of later calls, with states kept in buffers") {
  constexpr shape in{4, 2, 3};
  for (const bool training : {true, false}) {
    CAPTURE(training);
    compare_first_with_later<in>(recurrent<ike::lazy_rnn<5, ike::stateful<2>>>, training);
    compare_first_with_later<in>(recurrent<ike::lazy_lstm<5, ike::stateful<2>>>, training);
    compare_first_with_later<in>(recurrent<ike::lazy_gru<5, ike::stateful<2>>>, training);
    compare_first_with_later<shape{4, 3}>(
        ike::sequential("fc1"_m = ike::spectral_norm(ike::linear<3, 5>{}), "tanh"_m = ike::tanh{},
                        "fc2"_m = ike::spectral_norm(ike::linear<5, 2>{})),
        training);
  }
}

TEST_CASE("the first gradients of inputs pass what stands before all parameters") {
  for (const bool training : {true, false}) {
    CAPTURE(training);
    compare_first_with_later<shape{3, 2, 6, 6}>(
        ike::sequential(
            "tanh"_m = ike::tanh{}, "norm"_m = ike::lazy_batch_norm2d<ike::affine<false>>{},
            "relu"_m = ike::relu{}, "drop"_m = ike::dropout{.p = 0.3},
            "pool"_m = ike::max_pool2d<ike::kernel<2>>{}, "sigmoid"_m = ike::sigmoid{},
            "conv"_m = ike::lazy_conv2d<3, ike::kernel<2>>{}, "bn"_m = ike::lazy_batch_norm2d<>{},
            "relu2"_m = ike::relu{}, "flatten"_m = ike::flatten{}, "fc"_m = ike::lazy_linear<2>{}),
        training);
    compare_first_with_later<shape{3, 4}>(
        ike::sequential("flatten"_m = ike::flatten{},
                        "path"_m = ike::choose("a"_m = ike::tanh{}, "b"_m = ike::sigmoid{}),
                        "block"_m = ike::residual(ike::sequential("fc"_m = ike::lazy_linear<4>{},
                                                                  "gelu"_m = ike::gelu{})),
                        "relu"_m = ike::relu{}),
        training);
  }
}

TEST_CASE("the first gradients of inputs pass what runs again behind stopped gradients") {
  for (const bool fuses : {true, false}) {
    CAPTURE(fuses);
    compare_first_with_later<shape{1, 5}>(
        ike::graph([](auto x) {
          const auto b = ike::tanh{}("b"_m(ike::linear<5, 3>{}, x));
          const auto w = ike::concat<ike::dim<1>>{}(ike::relu{}(x), b);
          return ike::where(w > 0.1, 1, 2.0) * "c"_m(ike::linear<5, 8>{}, x);
        }),
        true, fuses);
    compare_first_with_later<shape{3, 5}>(
        ike::graph([](auto x) {
          const auto a = ike::relu{}("a"_m(ike::linear<5, 5>{}, x));
          const auto gate = ike::stop_gradient(ike::tanh{}("b"_m(ike::linear<5, 5>{}, a)));
          return "c"_m(ike::linear<5, 2>{}, "d"_m(ike::linear<5, 5>{}, x * gate));
        }),
        true, fuses);
  }
}

TEST_CASE("the first gradients of inputs pass buffers beside stopped gradients") {
  // What is stopped reads values that backward does not, which later ones would be written over.
  constexpr auto net = ike::graph([](auto x) {
    const auto a = "n"_m(ike::batch_norm1d<5>{}, "a"_m(ike::linear<5, 5>{}, x));
    const auto gate = ike::stop_gradient(ike::tanh{}(
        "r"_m(ike::layer_norm<5>{}, "b"_m(ike::linear<5, 5>{}, "e"_m(ike::linear<5, 5>{}, a)))));
    return "c"_m(ike::linear<5, 2>{}, "d"_m(ike::linear<5, 5>{}, ike::relu{}(a)*gate));
  });
  constexpr auto compared = ike::graph([](auto x) {
    const auto h = "n"_m(ike::batch_norm1d<5>{}, x);
    const auto b = ike::tanh{}("b"_m(ike::linear<5, 3>{}, h));
    const auto w = ike::concat<ike::dim<1>>{}(ike::relu{}(x), b);
    return ike::where(w > 0.1, 1, 2.0) * "c"_m(ike::linear<5, 8>{}, h);
  });
  for (const bool fuses : {true, false})
    for (const bool training : {true, false}) {
      CAPTURE(fuses);
      CAPTURE(training);
      compare_first_with_later<shape{3, 5}>(net, training, fuses);
      compare_first_with_later<shape{3, 5}>(compared, training, fuses);
    }
}

TEST_CASE("hooks run once for a forward, also where gradients of inputs are planned after it") {
  auto m = ike::initialize<double, shape{3, 4}>(
      ike::sequential("tanh"_m = ike::tanh{}, "fc"_m = ike::lazy_linear<2>{}), ike::seed{1});
  int calls = 0;
  m.register_forward_hook("tanh"_s, [&](const ike::module_call&) { ++calls; });
  run(m, ike::uniform<double, shape{3, 4}>(ike::seed{2}));
  CHECK(calls == 1);
}

TEST_CASE("a backward in evaluation does not move states on, and is that of the forward before") {
  constexpr auto net = ike::graph([](auto x) {
    auto states = "lstm"_m(ike::lazy_lstm<5, ike::stateful<2>>{}, x);
    auto h = ike::relu{}(std::get<0>(states));
    return "fc2"_m(ike::lazy_linear<2>{}, ike::gelu{}("fc1"_m(ike::lazy_linear<6>{}, h)));
  });
  constexpr shape in{4, 2, 3};
  const auto x = ike::uniform<double, in>(ike::seed{2});
  auto fused = ike::initialize<double, in>(net, ike::seed{1});
  fused.eval();
  fused(x);
  auto apart = fused.clone();
  apart.set_fusion(false);
  // The second run has planned input gradients already.
  for (int i = 0; i < 2; ++i) {
    const result a = run(fused, x), b = run(apart, x);
    CHECK(a.buffers == b.buffers);
    for (std::size_t k = 0; k < a.gradients.size(); ++k)
      CHECK(a.gradients[k] == doctest::Approx(b.gradients[k]).epsilon(1e-12));
    for (std::size_t k = 0; k < a.input_gradient.size(); ++k)
      CHECK(a.input_gradient[k] == doctest::Approx(b.input_gradient[k]).epsilon(1e-12));
  }
}

TEST_CASE("an output stays what it was until the next forward, also where backward plans again") {
  const auto net =
      ike::sequential("a"_m = ike::linear<7, 33>{}, ike::tanh{}, "b"_m = ike::linear<33, 20>{});
  auto model = ike::initialize<double, shape{ike::dynamic, 7}>(net, ike::seed{1});
  const auto x = ike::uniform<double, shape{11, 7}>(ike::seed{2});
  const auto dy = ike::uniform<double, shape{11, 20}>(ike::seed{3});
  ike::tensor<double, shape{11, 7}> dx;
  const auto y = model(x);
  const std::vector<double> before(y.begin(), y.end());
  model.backward(dy, dx);
  // What is free is written over.
  std::vector<std::vector<char>> others;
  for (std::size_t size = 64; size <= 1 << 16; size += 64) others.emplace_back(size, char{1});
  CHECK(std::vector<double>(y.begin(), y.end()) == before);
  const auto again = model.output();
  CHECK(std::vector<double>(again.begin(), again.end()) == before);
}

TEST_CASE("views of an input write its gradient in the caller's memory") {
  CHECK(compare_view_with_input([](auto x) {
    return "fc"_m(ike::linear<4, 2>{}, "mark"_m(marked{}, x) * ike::parameter<"w", shape{4}>(x));
  }));
  CHECK(compare_view_with_input([](auto x) {
    const auto y = "fc"_m(ike::linear<4, 4>{}, x) * ike::relu{}(x);
    return y + ike::reshape<6, 4>("mark"_m(marked{}, x));
  }));
  // Not if it is a part of a larger one.
  CHECK(!compare_view_with_input([](auto x) {
    const auto w = ike::parameter<"w", shape{2, 4}>(x);
    return "fc"_m(ike::linear<4, 2>{}, "mark"_m(marked{}, ike::concat<ike::dim<0>>{}(x, w)));
  }));
}

TEST_CASE("the given gradient of an output that is a view of an input is not written over") {
  auto m = ike::initialize<double, shape{2, 3}>(ike::graph([](auto x) {
                                                  const auto y = ike::reshape<-1>(x);
                                                  return std::tuple{3 * y, y};
                                                }),
                                                ike::seed{1});
  const auto x = ike::uniform<double, shape{2, 3}>(ike::seed{2});
  ike::tensor<double, shape{2, 3}> dx;
  const ike::tensor<double, shape{6}> dy{ike::uniform<double, shape{6}>(ike::seed{3})},
      dz{ike::uniform<double, shape{6}>(ike::seed{4})};
  for (int i = 0; i < 2; ++i) {
    m(x);
    m.backward(std::tuple{dy, dz}, dx);
    for (ike::dim_t k = 0; k < 6; ++k) CHECK(dx.data()[k] == 3 * dy.data()[k] + dz.data()[k]);
  }
}

TEST_CASE("a backward that a hook ends writes no gradient of an input afterwards") {
  const auto check = [](const auto& net) {
    auto m = ike::initialize<double, shape{2, 3, 4}>(net, ike::seed{1});
    const auto x = ike::uniform<double, shape{2, 3, 4}>(ike::seed{2});
    ike::tensor<double, shape{2, 3, 4}> dx;
    bool ends = true;
    m.register_full_backward_pre_hook("fc", [&](const ike::module_gradients&) {
      if (ends) throw std::runtime_error("ended");
    });
    const ike::tensor dy{m(x)};
    CHECK_THROWS_AS(m.backward(dy, dx), std::runtime_error);
    ends = false;
    std::ranges::fill(dx, 7.0);
    m(x);
    m.backward(dy);
    CHECK(std::ranges::all_of(dx, [](double d) { return d == 7; }));
  };
  check(ike::sequential(ike::flatten<>{}, "fc"_m = ike::linear<12, 2>{}));
  check(ike::sequential("fc"_m = ike::linear<4, 2>{}));
}
