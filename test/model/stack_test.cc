#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/nn/multihead_attention.hpp"
#include "ikebana/optim/sgd.hpp"
#include "test/support/stack_of.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dynamic;
using ike::shape;

namespace {

template <std::size_t Levels>
constexpr auto nested() {
  if constexpr (Levels == 0)
    return ike::lazy_linear<8>{};
  else
    return ike::sequential("inner"_m = nested<Levels - 1>(), "fc"_m = ike::lazy_linear<8>{});
}

template <std::size_t... I>
constexpr auto blocks(std::index_sequence<I...>) {
  return ike::sequential(
      (static_cast<void>(I),
       ike::sequential("fc"_m = ike::lazy_linear<8>{}, "norm"_m = ike::lazy_batch_norm1d<>{},
                       "relu"_m = ike::relu{}))...);
}

/// The most stack that a network uses.
template <shape In = shape{dynamic, 8}, class M>
std::size_t most_used(const M&) {
  static constexpr M net{};
  const auto make = [] { return ike::initialize<float, In>(net, ike::seed{1}); };
  auto m = make();
  const auto x = ike::uniform<float, In>(ike::seed{1}, 3);
  auto dx = x;
  std::size_t most = 0;
  const auto measure = [&](const std::string& what, auto f) {
    CAPTURE(what);
    const std::size_t used = stack_of(f);
    CHECK(used < 32 * 1024);
    most = std::max(most, used);
  };
  measure("initialize", [&] { auto other = make(); });
  m.eval();
  measure("the first evaluation", [&] { m(x); });
  measure("an evaluation of another batch",
          [&] { m(ike::tensor_view<const float, In.with(0, 2)>(x.data())); });
  m.train();
  ike::sgd optimizer{m, {.lr = 0.1}};
  measure("the first step", [&] { m.train_step(x, x, ike::mse_loss{}, optimizer); });
  m(x);
  measure("planning gradients of inputs", [&] { m.backward(x, dx); });
  measure("a clone", [&] { auto other = m.clone(); });
  return most;
}

}  // namespace

TEST_CASE("initialize, the first evaluation and steps take less than 32 KiB of stack") {
  if (!is_plain) return;
  const std::size_t shallow = most_used(blocks(std::make_index_sequence<4>{}));
  const std::size_t deep = most_used(blocks(std::make_index_sequence<40>{}));
  // Only copies of the modules' options grow, by 40 bytes per block.
  CHECK(deep < shallow + 36 * 4 * 40);
  // Each level of nesting takes a stack frame of a few hundred bytes.
  most_used(nested<16>());
  // The kernel with the largest blocks.
  most_used<shape{dynamic, 70, 8}>(ike::multihead_attention<8, 2, ike::batch_first<true>>{});
}
