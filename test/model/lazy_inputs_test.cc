#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "ikebana/compose/graph.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/lazy_model.hpp"
#include "ikebana/nn/bilinear.hpp"
#include "ikebana/nn/embedding.hpp"
#include "ikebana/nn/linear.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dynamic;
using ike::shape;

namespace {

template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const ike::error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

/// y = x where the mask is set, else 0; the mask has the shape of x.
struct masked {
  static constexpr std::string_view kind = "masked";
  static constexpr ike::element_kind input_kind(std::size_t i, std::size_t) {
    return i == 0 ? ike::element_kind::real : ike::element_kind::boolean;
  }
  constexpr ike::inferred infer(const shape& x, const shape& mask) const {
    if (!ike::compatible(x, mask))
      return ike::diagnostic{"masked expects a mask {input}, got {other}", 0, 0, x, mask};
    return x;
  }
  template <class T>
  void forward(const ike::context<T>& c) const {
    for (ike::dim_t i = 0; i < c.input_shape().numel(); ++i)
      c.output()[i] = c.template input<bool>(1)[i] ? c.input(0)[i] : T{0};
  }
  template <class T>
  void backward(const ike::context<T>& c) const {
    for (ike::dim_t i = 0; i < c.input_shape().numel() && c.input_gradient(0); ++i)
      c.input_gradient(0)[i] = c.template input<bool>(1)[i] ? c.output_gradient()[i] : T{0};
  }
  template <ike::symbolic... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

}  // namespace

TEST_CASE("several inputs, by their order or name") {
  constexpr auto two = ike::graph<"left", "right">([](auto left, auto right) {
    return "bi"_m(ike::bilinear<ike::lazy, ike::lazy, 3>{}, left,
                  "fc"_m(ike::lazy_linear<2>{}, right));
  });
  ike::lazy_model holder{two, ike::seed{1}};
  const auto left = ike::uniform<float, shape{4, 5}>(ike::seed{1});
  const auto right = ike::uniform<float, shape{4, 6}>(ike::seed{2});
  const ike::tensor<float, shape{dynamic, 3}> first{holder(left, right)};
  const auto again = holder("right"_arg = right, "left"_arg = left);
  CHECK(std::memcmp(again.data(), first.data(), sizeof(float) * 12) == 0);
  const auto wrong = ike::ones<float, shape{4, 7}>();
  CHECK(message_of([&] { holder(left, "right"_arg = wrong); }) ==
        "fc: linear expects in_features = 6, got 7 (input [4, 7])");
  CHECK(message_of([&] { holder("right"_arg = right, "left"_arg = wrong); }) ==
        "bi: bilinear expects in1_features = 5, got 7 (input [4, 7])");
}

TEST_CASE("truth values are inputs as numbers are") {
  constexpr auto net_with_mask = ike::graph<"x", "mask">(
      [](auto x, auto mask) { return masked{}("fc"_m(ike::lazy_linear<2>{}, x), mask); });
  ike::lazy_model holder{net_with_mask, ike::seed{1}};
  const auto x = ike::uniform<double, shape{2, 3}>(ike::seed{1});
  const auto mask = ike::tensor_of<bool, shape{2, 2}>({true, false, false, true});
  const auto y = holder(x, "mask"_arg = mask);
  static_assert(std::is_same_v<decltype(y)::value_type, double>);
  CHECK(y[0] != 0);
  CHECK(y[1] == 0);
  CHECK(y[2] == 0);
  CHECK(holder(ike::ones<double, shape{1, 3}>(), ike::full<bool, shape{1, 2}>(false)).extents() ==
        shape{1, 2});
}

TEST_CASE("of indices alone, the element type is chosen") {
  constexpr auto words =
      ike::sequential("embedding"_m = ike::embedding<7, 4>{}, "fc"_m = ike::lazy_linear<2>{});
  ike::lazy_model holder{words, ike::seed{1}, ike::element_type<float>{}};
  const auto x = ike::tensor_of<std::int64_t, shape{3}>({1, 6, 0});
  CHECK(holder(x).extents() == shape{3, 2});
  CHECK(holder(ike::tensor_of<std::int64_t, shape{2}>({4, 4})).extents() == shape{2, 2});
  CHECK(message_of([&] {
          holder(ike::tensor_of<std::int64_t, shape{2}>({4, 7}));
        }) == "embedding: embedding expects indices below 7, got 7");
}
