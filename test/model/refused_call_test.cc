#include <doctest/doctest.h>

#include <cstdint>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "ikebana/compose/graph.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/dropout.hpp"
#include "ikebana/nn/embedding.hpp"
#include "ikebana/nn/gru.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/lstm.hpp"
#include "ikebana/nn/rnn.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::shape;

namespace {

/// Dropout and running statistics come before the leaf that checks the lengths.
template <class Recurrent>
constexpr auto recurrent = ike::graph([](auto x, auto lengths) {
  auto h = "drop"_m(ike::dropout{.p = 0.5}, "norm"_m(ike::lazy_batch_norm1d<>{}, x));
  return std::get<0>("rnn"_m(Recurrent{}, h, lengths));
});

template <class Model>
auto state_of(const Model& m) {
  return std::tuple(std::vector<std::byte>(m.buffers().begin(), m.buffers().end()),
                    m.random_step());
}
template <class View>
std::vector<float> copy(const View& v) {
  return {v.begin(), v.end()};
}

template <class Recurrent>
void check_lengths(const char* said) {
  auto m = ike::initialize<float, shape{2, 4, 3}, shape{2}>(recurrent<Recurrent>, ike::seed{1});
  auto twin = m.clone();
  const auto x = ike::uniform<float, shape{2, 4, 3}>(ike::seed{2});
  const auto other = ike::uniform<float, shape{2, 4, 3}>(ike::seed{3});
  const auto lengths = ike::tensor_of<std::int64_t, shape{2}>({4, 2});
  const auto wrong = ike::tensor_of<std::int64_t, shape{2}>({4, 5});
  const auto dy = ike::uniform<float, shape{2, 4, 5}>(ike::seed{4});
  m(x, lengths);
  twin(x, lengths);
  CHECK_THROWS_WITH_AS(m(other, wrong), said, ike::shape_error);
  CHECK(state_of(m) == state_of(twin));
  // The backward of the last forward still finds its values.
  m.backward(dy);
  twin.backward(dy);
  CHECK(copy(m.gradients()) == copy(twin.gradients()));
  CHECK(copy(m(other, lengths)) == copy(twin(other, lengths)));
}

}  // namespace

TEST_CASE("the sentence about a wrong input shows the extents that the model knows") {
  const ike::linear<10, 4> fc;
  const auto said = [&](const ike::shape& given) {
    return std::string(ike::detail::check_inputs(fc, {shape{2, 10}}, {given}).message().view());
  };
  CHECK(said({ike::dynamic, 12}) == "linear expects in_features = 10, got 12 (input [2, 12])");
  CHECK(said({ike::dynamic, 3, 12}) ==
        "linear expects in_features = 10, got 12 (input [dynamic, 3, 12])");
  CHECK(said({ike::dynamic, 3, 10}) == "the model expects an input [2, 10], got [dynamic, 3, 10]");
  CHECK(said({ike::dynamic, 10}) == "");
}

TEST_CASE("wrong lengths are refused before an earlier leaf runs or the step is counted") {
  using ike::batch_first;
  using ike::packed;
  check_lengths<ike::lazy_rnn<5, packed<true>, batch_first<true>>>(
      "rnn: rnn expects lengths between 1 and 4, got 5");
  check_lengths<ike::lazy_lstm<5, packed<true>, batch_first<true>>>(
      "rnn: lstm expects lengths between 1 and 4, got 5");
  check_lengths<ike::lazy_gru<5, packed<true>, batch_first<true>>>(
      "rnn: gru expects lengths between 1 and 4, got 5");
}

TEST_CASE("a wrong index is refused before anything changes, and the last forward stays") {
  auto m = ike::initialize<float, shape{2}>(
      ike::sequential("embedding"_m = ike::embedding<7, 3>{}, "drop"_m = ike::dropout{.p = 0.5},
                      "fc"_m = ike::lazy_linear<2>{}),
      ike::seed{1});
  auto twin = m.clone();
  const auto x = ike::tensor_of<std::int64_t, shape{2}>({1, 6});
  const auto wrong = ike::tensor_of<std::int64_t, shape{2}>({2, 7});
  const auto dy = ike::uniform<float, shape{2, 2}>(ike::seed{4});
  m(x);
  twin(x);
  CHECK_THROWS_AS(m(wrong), ike::error);
  CHECK(m.random_step() == 1);
  m.backward(dy);
  twin.backward(dy);
  CHECK(copy(m.gradients()) == copy(twin.gradients()));
}

TEST_CASE("after a hook that threw, dropout drops what it would have dropped without the call") {
  auto m = ike::initialize<float, shape{4, 3}>(
      ike::sequential("drop"_m = ike::dropout{.p = 0.5}, "fc"_m = ike::lazy_linear<5>{},
                      "drop2"_m = ike::dropout{.p = 0.5}),
      ike::seed{1});
  auto twin = m.clone();
  const auto x = ike::uniform<float, shape{4, 3}>(ike::seed{2});
  m(x);
  twin(x);
  bool throws = true;
  m.register_forward_hook("fc"_s, [&](const ike::module_call&) {
    if (throws) throw std::runtime_error("stop");
  });
  CHECK_THROWS_WITH_AS(m(x), "stop", std::runtime_error);
  CHECK(m.random_step() == 1);
  CHECK_THROWS_AS(m.backward(ike::tensor<float, shape{4, 5}>{}), ike::error);
  throws = false;
  CHECK(copy(m(x)) == copy(twin(x)));
  CHECK(m.random_step() == 2);
}
