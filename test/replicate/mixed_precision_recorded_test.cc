// Training in bfloat16 with float master weights, compared with PyTorch's records
// (test/data/README.md, "mixed_precision").
//
// Both round the same numbers to eight bits and sum products in float before, but in another order,
// so that occasionally a sum rounds to the other side of a tie. Such a number is off by at most
// 2^-7 of itself, and what is computed from it by as much of the largest of its kind: two layers
// on, by twice that. Hence the tolerance of 2^-6 of the largest number of each tensor; for master
// weights, whose steps are 0.1 of gradients below 1, of the steps.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/optim/sgd.hpp"
#include "ikebana/replicate/launch.hpp"
#include "ikebana/replicate/mixed_precision.hpp"
#include "ikebana/replicate/replicate.hpp"
#include "test/support/load_recorded.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::bfloat16;
using ike::dynamic;
using ike::shape;

namespace {

constexpr auto net = ike::sequential("fc1"_m = ike::linear<11, 17>{}, "tanh"_m = ike::tanh{},
                                     "fc2"_m = ike::linear<17, 13>{}, "relu"_m = ike::relu{},
                                     "fc3"_m = ike::linear<13, 5>{});
constexpr shape rows{dynamic, 11};
constexpr int steps = 5;

const ike::state_dict& recorded() {
  static const ike::state_dict dict = load_recorded("mixed_precision");
  return dict;
}
std::span<const float> numbers(const std::string& key) {
  const auto& e = recorded().at(key);
  return {reinterpret_cast<const float*>(e.bytes.data()),
          static_cast<std::size_t>(e.extents.numel())};
}

struct batch {
  ike::tensor_view<const float, rows> x;
  ike::tensor_view<const std::int64_t, shape{dynamic}> y;
};
/// Rank r's part of a recorded batch.
batch batch_of(int step, int rank = 0, int ranks = 1) {
  const ike::dim_t n = 12 / ranks;
  const auto* x = numbers("x/" + std::to_string(step)).data() + rank * n * 11;
  const auto* y = reinterpret_cast<const std::int64_t*>(
                      recorded().at("y/" + std::to_string(step)).bytes.data()) +
                  rank * n;
  return {{x, shape{n, 11}}, {y, shape{n}}};
}

template <class Policy, class Group>
auto made(Group& group) {
  auto model = ike::initialize<float, rows>(net, ike::seed{1});
  ike::state_dict initial;
  for (const auto& e : recorded())
    if (e.name.starts_with("initial/"))
      initial.add_view(std::string_view{e.name}.substr(8), e.type, e.extents, e.bytes.data());
  ike::load_state_dict(model, initial);
  return ike::replicate<Policy>(std::move(model), group);
}

constexpr double tolerance = 0x1p-6;

void check_close(std::span<const float> got, std::span<const float> wanted, double scale,
                 const std::string& what) {
  REQUIRE(got.size() == wanted.size());
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i)
    worst =
        std::max(worst, std::fabs(static_cast<double>(got[i]) - static_cast<double>(wanted[i])));
  CHECK_MESSAGE(worst <= tolerance * scale, what << ": " << worst << " of " << scale);
}
double largest(std::span<const float> x) {
  double most = 0;
  for (float v : x) most = std::max(most, std::fabs(static_cast<double>(v)));
  return most;
}

/// All parameters' gradients, which are numbers of type P.
template <class P, class Model>
void check_gradients(const Model& m, const std::string& record) {
  const auto& p = m.current_program();
  for (std::size_t i = 0; i < p.all_parameters().size(); ++i) {
    const std::string path{p.path(p.parameters[i]).view()};
    const auto wanted = numbers(record + "/grad." + path);
    const std::span<const float> got{m.gradients().data() + m.layout().offsets[i], wanted.size()};
    check_close(got, wanted, largest(wanted), record + " " + path);
    for (float g : got) CHECK(g == static_cast<float>(P(g)));
  }
}

/// The master weights, by what has changed them.
template <class Model>
void check_masters(const Model& m, const std::string& record) {
  for (const auto& e : ike::get_state_dict(m)) {
    const auto wanted = numbers(record + "/final." + e.name), before = numbers("initial/" + e.name);
    double moved = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i)
      moved = std::max(moved, std::fabs(static_cast<double>(wanted[i] - before[i])));
    CHECK(moved > 0.01);
    check_close({reinterpret_cast<const float*>(e.bytes.data()), wanted.size()}, wanted, moved,
                record + " " + e.name);
  }
}

template <class Reduce, class Group>
void check_two_ranks(Group& group, const std::string& record) {
  auto model = made<ike::replicate_policy<ike::mixed_precision<bfloat16, Reduce, float>>>(group);
  ike::sgd optimizer{model, {.lr = 0.1}};
  for (int s = 0; s < steps; ++s) {
    const batch b = batch_of(s, group.rank(), 2);
    model.train_step(b.x, b.y, ike::cross_entropy{}, optimizer);
    if (s == 0) check_gradients<Reduce>(model, record);
  }
  check_masters(model, record);
}

template <class Reduce>
void check_accumulation(const std::string& record) {
  ike::single group;
  auto model = made<ike::replicate_policy<ike::mixed_precision<bfloat16, Reduce, float>>>(group);
  const auto guard = model.no_sync();
  for (int s = 0; s < 4; ++s) {
    const batch b = batch_of(s);
    model.loss_backward(b.x, b.y, ike::cross_entropy{});
  }
  check_gradients<Reduce>(model, record);
}

}  // namespace

TEST_CASE("One process trains in bfloat16 as PyTorch does") {
  ike::single group;
  auto model = made<ike::replicate_policy<ike::mixed_precision<bfloat16, float, float>>>(group);
  ike::sgd optimizer{model, {.lr = 0.1}};
  for (int s = 0; s < steps; ++s) {
    const batch b = batch_of(s);
    const float loss = model.train_step(b.x, b.y, ike::cross_entropy{}, optimizer);
    const auto wanted = numbers("alone/output/" + std::to_string(s));
    check_close(model.output().span(), wanted, largest(wanted), "output");
    check_close({&loss, 1}, numbers("alone/loss/" + std::to_string(s)), 1, "loss");
    for (float y : model.output().span()) CHECK(y == static_cast<float>(bfloat16(y)));
    if (s == 0) check_gradients<bfloat16>(model, "alone");
  }
  check_masters(model, "alone");
}

TEST_CASE("The gradient of the input") {
  ike::single group;
  auto model = made<ike::replicate_policy<ike::mixed_precision<bfloat16, float, float>>>(group);
  const batch b = batch_of(0);
  model(b.x);
  ike::tensor<float, shape{dynamic, 5}> g(shape{12, 5});
  ike::cross_entropy{}.backward(model.output(), b.y, g.data());
  ike::tensor<float, rows> gx(shape{12, 11});
  model.backward(g, gx);
  check_close(gx.span(), numbers("alone/gx"), largest(numbers("alone/gx")), "gx");
}

TEST_CASE("Two ranks reduce in float and in bfloat16 as PyTorch does") {
  ike::launch(ike::threads{2}, [](ike::process_group auto& group) {
    check_two_ranks<float>(group, "float");
    check_two_ranks<bfloat16>(group, "bfloat16");
  });
}

TEST_CASE("Gradients accumulate in the reduce type as PyTorch's do") {
  check_accumulation<float>("accumulated_float");
  check_accumulation<bfloat16>("accumulated_bfloat16");
}
