#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
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
