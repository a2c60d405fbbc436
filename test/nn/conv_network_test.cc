#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/cpu/verbose.hpp"
#include "ikebana/deploy/freeze.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/summary.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/conv.hpp"
#include "ikebana/nn/conv_transpose.hpp"
#include "test/support/printed_plans.hpp"

using namespace ikebana;
using namespace ikebana::literals;

namespace {

constexpr auto coder =
    sequential("in"_m = lazy_conv2d<5, kernel<3>, padding<2>, padding_mode<"reflect">>{},
               "same"_m = lazy_conv2d<4, kernel<4>, same_padding, padding_mode<"circular">>{},
               "out"_m = lazy_conv_transpose2d<2, kernel<3>, stride<2>, output_padding<1>>{});

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

/// Where the last of them found what it keeps.
std::uintptr_t plan_at = 1;
struct keeps_a_byte {
  static constexpr std::string_view kind = "keeps_a_byte";
  static constexpr std::size_t plan_bytes = 1;
  constexpr inferred infer(const shape& in) const { return in; }
  template <class T>
  void forward(const context<T>& c) const {
    plan_at = reinterpret_cast<std::uintptr_t>(c.plan(0, 1).data());
    for (dim_t i = 0; i < c.input_shape().numel(); ++i) c.output()[i] = c.input()[i];
  }
  template <class T>
  void backward(const context<T>& c) const {
    for (dim_t i = 0; i < c.input_shape().numel(); ++i)
      c.input_gradient()[i] = c.output_gradient()[i];
  }
};

/// What it finds, although it does not say that it keeps something.
std::size_t bytes_of_none = 1;
struct keeps_nothing {
  static constexpr std::string_view kind = "keeps_nothing";
  constexpr inferred infer(const shape& in) const { return in; }
  template <class T>
  void forward(const context<T>& c) const {
    bytes_of_none = c.plan(0, 1).size();
    for (dim_t i = 0; i < c.input_shape().numel(); ++i) c.output()[i] = c.input()[i];
  }
  template <class T>
  void backward(const context<T>&) const {}
};

}  // namespace

TEST_CASE("what modules keep is aligned, however many bytes others keep") {
  auto model = initialize<float, shape{1, 3}>(sequential(keeps_a_byte{}, keeps_a_byte{}), seed{1});
  model(tensor<float, shape{1, 3}>{});
  CHECK(plan_at % alignof(std::uint64_t) == 0);
}

TEST_CASE("a module without plan_bytes gets none of another's") {
  auto model = initialize<float, shape{1, 3}>(
      sequential(keeps_a_byte{}, keeps_nothing{}, keeps_a_byte{}), seed{1});
  model(tensor<float, shape{1, 3}>{});
  CHECK(bytes_of_none == 0);
}

TEST_CASE("static and dynamic extents give the same bits through padding of every kind") {
  auto fixed = initialize<float, shape{4, 3, 6, 7}>(coder, seed{3});
  auto open = initialize<float, shape{dynamic, 3, dynamic, 7}>(coder, seed{3});
  REQUIRE(same_bits(fixed.parameters(), open.parameters()));
  const auto gy = uniform<float, shape{4, 2, 18, 20}>(seed{9});
  for (std::uint64_t step = 0; step < 2; ++step) {
    const auto x = uniform<float, shape{4, 3, 6, 7}>(seed{step});
    fixed.zero_grad();
    open.zero_grad();
    CHECK(same_bits(fixed(x).span(), open(x).span()));
    fixed.backward(gy);
    open.backward(gy);
    CHECK(same_bits(fixed.gradients(), open.gradients()));
    // Other extents in between, larger and smaller.
    CHECK(open(uniform<float, shape{9, 3, 11, 7}>(seed{1})).extents() == shape{9, 2, 28, 20});
    CHECK(open(uniform<float, shape{1, 3, 3, 7}>(seed{1})).extents() == shape{1, 2, 12, 20});
  }
  CHECK_THROWS_WITH_AS(open(uniform<float, shape{1, 3, dynamic, 7}>(seed{1}, 2)),
                       "in: conv2d expects spatial extents of at least 3 (more than the padding, "
                       "which reflects), got 2 (input [1, 3, 2, 7])",
                       shape_error);
}

TEST_CASE("a model plans its convolutions once for inputs of one shape") {
  const auto net = sequential(conv2d<2, 3, kernel<3>, stride<2>>{}, relu{},
                              conv_transpose2d<3, 2, kernel<3>, stride<2>>{});
  auto model = initialize<float, shape{dynamic, 2, 9, 9}>(net, seed{1});
  // Products within convolutions have plans of their own.
  const auto lines = [](const auto& f) {
    const std::string text = printed_by(f);
    int n = 0;
    for (std::size_t at = 0; (at = text.find("ikebana_verbose,conv,", at)) != text.npos; ++at) ++n;
    return n;
  };
  const auto step = [&](dim_t batch) {
    const tensor<float, shape{dynamic, 2, 9, 9}> x{shape{batch, 2, 9, 9}};
    return lines([&] {
      model(x);
      model.backward(x);
    });
  };
  cpu::set_verbose(true);
  // Of six, but for the gradient of the input.
  CHECK(step(2) >= 5);
  CHECK(step(2) == 0);
  CHECK(step(1) >= 5);
  CHECK(step(1) == 0);
  const model_summary rows = summarize(model);
  CHECK(!rows.rows[0].algorithm.empty());
  CHECK(rows.rows[1].algorithm.empty());
  CHECK(summary(model).find("conv2d (" + rows.rows[0].algorithm + ")") != std::string::npos);
  auto frozen = freeze(model);
  auto one = frozen.lane(shape{1, 2, 9, 9}), other = frozen.lane(shape{1, 2, 9, 9});
  const tensor<float, shape{dynamic, 2, 9, 9}> x{shape{1, 2, 9, 9}};
  for (auto* lane : {&one, &other}) {
    CHECK(lines([&] { frozen(*lane, x); }) >= 2);
    CHECK(lines([&] { frozen(*lane, x); }) == 0);
  }
  cpu::set_verbose(false);
}
