#include "ikebana/model/initialize.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <type_traits>
#include <utility>

#include "ikebana/compose/residual.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/conv.hpp"
#include "ikebana/nn/flatten.hpp"
#include "ikebana/nn/linear.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dynamic;
using ike::shape;

namespace {

template <class A, class B>
bool same_bits(const A& a, const B& b) {
  return a.parameters().size() == b.parameters().size() &&
         a.buffers().size() == b.buffers().size() &&
         std::memcmp(a.parameters().data(), b.parameters().data(), a.parameters().size_bytes()) ==
             0 &&
         (a.buffers().empty() ||
          std::memcmp(a.buffers().data(), b.buffers().data(), a.buffers().size()) == 0);
}

constexpr auto lazy_net = ike::sequential(
    "conv"_m = ike::lazy_conv2d<8, ike::kernel<3>, ike::groups<1>>{},
    "norm"_m = ike::lazy_batch_norm2d<>{},
    "block"_m = ike::residual(ike::lazy_conv2d<8, ike::kernel<3>, ike::padding<1>>{}, ike::relu{}),
    "flatten"_m = ike::flatten{}, "fc"_m = ike::lazy_linear<5, ike::bias<false>>{},
    "out"_m = ike::lazy_linear<3>{});

constexpr auto written_net = ike::sequential(
    "conv"_m = ike::conv2d<2, 8, ike::kernel<3>, ike::groups<1>>{},
    "norm"_m = ike::batch_norm2d<8>{},
    "block"_m = ike::residual(ike::conv2d<8, 8, ike::kernel<3>, ike::padding<1>>{}, ike::relu{}),
    "flatten"_m = ike::flatten{}, "fc"_m = ike::linear<8 * 4 * 5, 5, ike::bias<false>>{},
    "out"_m = ike::linear<5, 3>{});

constexpr shape image{dynamic, 2, 6, 7};

template <class T>
void check_same_weights() {
  auto a = ike::initialize<T, image>(lazy_net, ike::seed{42});
  auto b = ike::initialize<T, image>(written_net, ike::seed{42});
  static_assert(std::is_same_v<decltype(a), decltype(b)>,
                "the lazy network becomes the written one");
  CHECK(same_bits(a, b));
  // Another batch, and a static one, change nothing.
  auto c = ike::initialize<T, shape{7, 2, 6, 7}>(lazy_net, ike::seed{42});
  CHECK(same_bits(a, c));
  auto d = ike::initialize<T, image>(lazy_net, ike::seed{43});
  CHECK_FALSE(same_bits(a, d));
}

}  // namespace

TEST_CASE("the lazy and the written-out network have the same weights, bit for bit") {
  check_same_weights<float>();
  check_same_weights<double>();
}

TEST_CASE("weights are the same on every instruction set") {
  const auto before = ike::cpu::active_instruction_set();
  const auto first = ike::initialize<float, image>(lazy_net, ike::seed{42});
  for (const auto set : ike::cpu::instruction_sets) {
    if (!ike::cpu::supports(set)) continue;
    ike::cpu::set_instruction_set(set);
    CHECK(same_bits(first, ike::initialize<float, image>(lazy_net, ike::seed{42})));
  }
  ike::cpu::set_instruction_set(before);
}

TEST_CASE("a weight depends on seed and path alone, wherever its module stands") {
  // The same paths in another order, between other modules, with one level of nesting written as
  // names.
  constexpr auto first =
      ike::sequential("a"_m = ike::lazy_linear<6>{}, "b"_m = ike::lazy_linear<6>{});
  constexpr auto second = ike::sequential(
      "b"_m = ike::linear<6, 6>{}, "x"_m = ike::lazy_linear<6>{}, "a"_m = ike::linear<6, 6>{});
  auto m1 = ike::initialize<double, shape{1, 6}>(first, ike::seed{5});
  auto m2 = ike::initialize<double, shape{1, 6}>(second, ike::seed{5});
  const auto equal = [](auto a, auto b) {
    return std::memcmp(a.data(), b.data(), sizeof(double) * 36) == 0;
  };
  CHECK(equal(m1["a.weight"_s], m2["a.weight"_s]));
  CHECK(equal(m1["b.weight"_s], m2["b.weight"_s]));
  CHECK_FALSE(equal(m1["a.weight"_s], m1["b.weight"_s]));
  CHECK_FALSE(equal(m2["x.weight"_s], m1["a.weight"_s]));
}

TEST_CASE("all drawn weights of a network differ") {
  auto m = ike::initialize<double, image>(lazy_net, ike::seed{42});
  std::multiset<double> drawn;
  for (const auto& e : ike::get_state_dict(m))
    if (e.name.starts_with("norm"))
      continue;
    else
      for (std::size_t i = 0; i < e.bytes.size() / 8; ++i)
        drawn.insert(reinterpret_cast<const double*>(e.bytes.data())[i]);
  CHECK(std::set<double>(drawn.begin(), drawn.end()).size() == drawn.size());
}

namespace {

/// Checks bounds, mean and standard deviation of uniform numbers in [-bound, bound), within six
/// standard errors. There must be so many that neither zeros nor one half of the range pass.
template <class View>
void check_uniform(const View& view, double bound) {
  const auto n = static_cast<double>(view.size());
  REQUIRE(n >= 250);
  double sum = 0, squares = 0, most = 0;
  for (auto v : view) {
    const auto x = static_cast<double>(v);
    sum += x;
    squares += x * x;
    most = std::fmax(most, std::fabs(x));
  }
  CHECK(most <= bound);
  CHECK(most > bound * (1 - 20 / n));
  const double deviation = bound / std::sqrt(3.0);
  CHECK(std::fabs(sum / n) < 6 * deviation / std::sqrt(n));
  // The variance of x^2 is 4/45 bound^4.
  CHECK(std::fabs(squares / n / (deviation * deviation) - 1) < 6 * std::sqrt(0.8 / n));
}

}  // namespace

TEST_CASE("weights and biases have PyTorch's distributions") {
  constexpr auto net = ike::sequential(
      "conv"_m = ike::lazy_conv2d<400, ike::kernel<3>, ike::groups<4>>{},
      "norm"_m = ike::lazy_batch_norm2d<>{}, "wide"_m = ike::lazy_conv2d<8, ike::kernel<3, 5>>{},
      "flatten"_m = ike::flatten{}, "fc"_m = ike::lazy_linear<300>{});
  auto m = ike::initialize<float, shape{1, 8, 9, 9}>(net, ike::seed{7});
  check_uniform(m["conv.weight"_s], 0.23570226039551587);
  check_uniform(m["conv.bias"_s], 0.23570226039551587);
  check_uniform(m["wide.weight"_s], 1 / std::sqrt(400.0 * 15));
  check_uniform(m["fc.weight"_s], 1 / std::sqrt(8.0 * 5 * 3));
  check_uniform(m["fc.bias"_s], 1 / std::sqrt(8.0 * 5 * 3));
  for (float x : m["norm.weight"_s]) CHECK(x == 1);
  for (float x : m["norm.bias"_s]) CHECK(x == 0);
  const ike::state_view dict = ike::get_state_dict(m);
  for (float x : dict.at("norm.running_mean").view<float, shape{400}>()) CHECK(x == 0);
  for (float x : dict.at("norm.running_var").view<float, shape{400}>()) CHECK(x == 1);
  CHECK(*dict.at("norm.num_batches_tracked").view<std::int64_t, shape{}>().data() == 0);
}

TEST_CASE("a fan-in of 0 gives zeros") {
  auto m = ike::initialize<float, shape{2, 0}>(ike::lazy_linear<5>{}, ike::seed{7});
  for (float x : m["bias"_s]) CHECK(x == 0);
  auto convolved = ike::initialize<double, shape{1, 0, 4, 4}>(ike::lazy_conv2d<3, ike::kernel<3>>{},
                                                              ike::seed{7});
  for (double x : convolved["bias"_s]) CHECK(x == 0);
  for (const auto& init :
       {ike::initializer::kaiming_uniform(0), ike::initializer::xavier_uniform(0, 0)}) {
    float x[3] = {1, 1, 1};
    init.fill(ike::random_stream{ike::seed{1}, 2}, x, shape{3});
    for (float y : x) CHECK(y == 0);
  }
}

TEST_CASE("a small fan-in has wide bounds") {
  auto m = ike::initialize<float, shape{1, 3}>(ike::lazy_linear<4000>{}, ike::seed{7});
  check_uniform(m["weight"_s], 1 / std::sqrt(3.0));
}

namespace {
constexpr auto table_net = ike::sequential("fc1"_m = ike::lazy_linear<10>{}, "act"_m = ike::tanh{},
                                           "fc2"_m = ike::lazy_linear<1>{});
constexpr shape table{dynamic, dynamic};

template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const ike::shape_error& e) {
    return e.what();
  }
  return "nothing was thrown";
}
}  // namespace

TEST_CASE("columns that only run time knows are fixed by the extents of the first input") {
  auto m = ike::initialize<double, table>(table_net, ike::seed{3}, shape{1, 13});
  auto written = ike::initialize<double, shape{dynamic, 13}>(table_net, ike::seed{3});
  CHECK(same_bits(m, written));
  CHECK(m["fc1.weight"_s].extents() == shape{10, 13});
  CHECK(ike::get_state_dict(m).at("fc1.weight").extents == shape{10, 13});

  const auto x = ike::uniform<double, table>(ike::seed{1}, 4, 13);
  CHECK(m(x).extents() == shape{4, 1});
  const ike::tensor<double, shape{6, 13}> fixed{
      ike::uniform<double, table>(ike::seed{1}, 6, 13).view()};
  CHECK(m(fixed).extents() == shape{6, 1});

  const auto other = ike::uniform<double, table>(ike::seed{1}, 4, 12);
  CHECK(message_of([&] { m(other); }) ==
        "fc1: linear expects in_features = 13, got 12 (input [4, 12])");
  const ike::tensor<double, shape{dynamic, 12}> half_known{other.view()};
  CHECK(message_of([&] { m(half_known); }) ==
        "fc1: linear expects in_features = 13, got 12 (input [4, 12])");
  CHECK(m(x).extents() == shape{4, 1});
}

TEST_CASE("the sentence of run time is the compiler's") {
  constexpr ike::inferred refused =
      ike::infer(ike::sequential("fc1"_m = ike::linear<13, 10>{}), ike::shape_list{shape{4, 12}});
  static_assert(!refused.ok());
  constexpr ike::sentence at_compile_time = refused.error.message();
  auto m = ike::initialize<double, table>(table_net, ike::seed{3}, shape{1, 13});
  const auto other = ike::uniform<double, table>(ike::seed{1}, 4, 12);
  CHECK(message_of([&] { m(other); }) == at_compile_time.c_str());
}

TEST_CASE("extents that contradict the declared shape or the module are refused") {
  CHECK(message_of([] {
          (void)ike::initialize<double, table>(ike::sequential("fc"_m = ike::linear<4, 2>{}),
                                               ike::seed{1}, shape{1, 5});
        }) == "fc: linear expects in_features = 4, got 5 (input [1, 5])");
  CHECK(message_of([] {
          (void)ike::initialize<double, shape{dynamic, 4}>(table_net, ike::seed{1}, shape{1, 5});
        }) == "tensor expects [dynamic, 4], got [1, 5]");
  CHECK(message_of([] {
          (void)ike::initialize<double, table>(table_net, ike::seed{1}, shape{1, 2, 3});
        }) == "tensor expects [dynamic, dynamic], got [1, 2, 3]");
}

TEST_CASE("a wrong input changes nothing") {
  constexpr auto net =
      ike::sequential("norm"_m = ike::lazy_batch_norm2d<>{}, "flatten"_m = ike::flatten{},
                      "fc"_m = ike::lazy_linear<2>{});
  constexpr shape free{dynamic, dynamic, dynamic, dynamic};
  auto m = ike::initialize<float, free>(net, ike::seed{3}, shape{2, 3, 4, 4});
  const auto right = ike::uniform<float, free>(ike::seed{1}, 2, 3, 4, 4);
  m(right);
  const auto before = m.clone();
  const auto held = ike::get_state_dict(m).clone();
  const ike::tensor<float, shape{dynamic, 2}> y{m.output()};
  CHECK(message_of([&] { m(ike::uniform<float, free>(ike::seed{1}, 2, 3, 4, 5)); }) ==
        "fc: linear expects in_features = 48, got 60 (input [2, 60])");
  CHECK(message_of([&] { m(ike::uniform<float, free>(ike::seed{1}, 2, 2, 4, 4)); }) ==
        "norm: batch_norm2d expects num_features = 3, got 2 (input [2, 2, 4, 4])");
  CHECK(same_bits(m, before));
  CHECK(m.output().extents() == y.extents());
  CHECK(std::memcmp(m.output().data(), y.data(), y.span().size_bytes()) == 0);
}

TEST_CASE("a clone has the state and lives alone") {
  auto m = ike::initialize<float, image>(lazy_net, ike::seed{42});
  const auto x = ike::uniform<float, image>(ike::seed{1}, 3);
  m(x);  // Changes the running statistics.
  auto copy = m.clone();
  CHECK(same_bits(m, copy));
  CHECK(copy.is_training());
  m.eval();
  CHECK_FALSE(m.clone().is_training());
  copy.eval();
  const ike::tensor<float, decltype(m)::output_shape> y{m(x)};
  const auto y2 = copy(x);
  CHECK(std::memcmp(y.data(), y2.data(), y.span().size_bytes()) == 0);
  copy.parameters()[0] += 1;
  CHECK_FALSE(same_bits(m, copy));
}

TEST_CASE("moving a model moves no parameter") {
  auto m = ike::initialize<float, image>(lazy_net, ike::seed{42});
  const auto x = ike::uniform<float, image>(ike::seed{1}, 3);
  m.eval();
  const ike::tensor<float, decltype(m)::output_shape> y{m(x)};
  const float* at = m.parameters().data();
  auto moved = std::move(m);
  CHECK(moved.parameters().data() == at);
  const auto again = moved(x);
  CHECK(std::memcmp(y.data(), again.data(), y.span().size_bytes()) == 0);
  auto other = ike::initialize<float, image>(lazy_net, ike::seed{1});
  other = std::move(moved);
  CHECK(other.parameters().data() == at);
  const auto third = other(x);
  CHECK(std::memcmp(y.data(), third.data(), y.span().size_bytes()) == 0);
}

TEST_CASE("train and eval switch what batch norm does") {
  auto m = ike::initialize<float, image>(lazy_net, ike::seed{42});
  const auto x = ike::uniform<float, image>(ike::seed{1}, 3);
  CHECK(m.is_training());
  m.eval();
  const auto before = m.clone();
  m(x);
  CHECK(same_bits(m, before));  // Evaluation does not change statistics.
  m.train();
  m(x);
  CHECK_FALSE(same_bits(m, before));
  m.train(false);
  CHECK_FALSE(m.is_training());
}

namespace {

/// A model as a member, by the name of its type.
class holder {
 public:
  float first_weight() { return model_.parameters()[0]; }

 private:
  ike::model_of<lazy_net, float, image> model_{
      ike::initialize<float, image>(lazy_net, ike::seed{42})};
};

}  // namespace

TEST_CASE("a class may have a model as a member, initialised where it is declared") {
  auto m = ike::initialize<float, image>(lazy_net, ike::seed{42});
  static_assert(std::is_same_v<decltype(m), ike::model_of<lazy_net, float, image>>);
  CHECK(holder{}.first_weight() == m.parameters()[0]);
}
