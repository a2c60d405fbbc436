#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <thread>
#include <type_traits>

#include "ikebana/compose/checkpoint.hpp"
#include "ikebana/compose/graph.hpp"
#include "ikebana/compose/parallel.hpp"
#include "ikebana/compose/repeat.hpp"
#include "ikebana/compose/residual.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/deploy/freeze.hpp"
#include "ikebana/model/gradient_check.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/concat.hpp"
#include "ikebana/nn/conv.hpp"
#include "ikebana/nn/conv_transpose.hpp"
#include "ikebana/nn/flatten.hpp"
#include "ikebana/nn/group_norm.hpp"
#include "ikebana/nn/gru.hpp"
#include "ikebana/nn/layer_norm.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/pool.hpp"
#include "ikebana/nn/smooth_activation.hpp"
#include "ikebana/nn/softmax.hpp"
#include "ikebana/nn/transformer_encoder_layer.hpp"
#include "ikebana/nn/upsample.hpp"
#include "ikebana/ops/elementwise.hpp"
#include "ikebana/ops/reduction.hpp"

// Networks that a generator drew from the catalogue, with sizes that no kernel is made for: however
// a network is run, it computes the same.

namespace ike = ikebana;
using namespace ike::literals;
using ike::dim_t;
using ike::dynamic;
using ike::shape;

namespace {

template <class A, class B>
bool close(const A& a, const B& b) {
  bool same = a.size() == b.size();
  for (dim_t i = 0; same && i < a.size(); ++i)
    same = std::abs(a.data()[i] - b.data()[i]) <= 1e-11 * (1 + std::abs(b.data()[i]));
  return same;
}

/// One network, fused or not, frozen, on another thread, within `checkpoint`, for batches of any
/// size, on every instruction set; and its gradients.
template <shape In, class Net>
void check(const Net& net) {
  const auto before = ike::cpu::active_instruction_set();
  auto model = ike::initialize<double, In>(net, ike::seed{1});
  auto again = ike::initialize<double, In>(ike::checkpoint(net), ike::seed{1});
  const auto x = ike::uniform<double, In>(ike::seed{2}, 17);
  for (const auto set : ike::cpu::instruction_sets) {
    if (!ike::cpu::supports(set)) continue;
    ike::cpu::set_instruction_set(set);
    CAPTURE(ike::cpu::name(set));
    model.train();
    const auto y = model(x);
    ike::tensor<double, std::remove_cvref_t<decltype(y)>::static_shape> expected(y.extents()),
        dy(y.extents());
    for (dim_t i = 0; i < y.size(); ++i) {
      expected.data()[i] = y.data()[i];
      dy.data()[i] = std::sin(static_cast<double>(i));
    }
    auto dx = ike::zeros<double, In>(17), other = dx;
    model.backward(dy, dx);
    again.zero_grad();
    CHECK(close(again(x), expected));
    again.backward(dy, other);
    CHECK(close(other, dx));
    model.set_fusion(false);
    CHECK(close(model(x), expected));
    model.backward(dy, other);
    CHECK(close(other, dx));
    model.set_fusion(true);

    model.eval();
    const auto frozen = ike::freeze(model);
    std::thread([&] {
      auto lane = frozen.lane();
      const dim_t row = x.size() / 17, wide = expected.size() / 17;
      for (const dim_t n : {3, 0, 17, 1}) {
        const ike::tensor_view<const double, In> part(x.data(), x.extents().with(0, n));
        const auto z = frozen(lane, part);
        CHECK(z.size() == n * wide);
        CHECK(part.size() == n * row);
        bool same = true;
        for (dim_t i = 0; i < z.size(); ++i)
          same = same && std::abs(z.data()[i] - expected.data()[i]) <=
                             1e-11 * (1 + std::abs(expected.data()[i]));
        CHECK(same);
      }
    }).join();
  }
  ike::cpu::set_instruction_set(before);
  const auto gradients = ike::gradient_check(net, ike::uniform<double, In>(ike::seed{3}, 2));
  CHECK_MESSAGE(gradients.largest < 1e-5, gradients.where);
}

}  // namespace

TEST_CASE("networks drawn at random compute the same, however they are run") {
  check<shape{dynamic, 7}>(ike::sequential(
      ike::lazy_linear<33>{}, ike::tanh{},
      ike::repeat<2>(ike::residual(ike::linear<33, 33>{}, ike::tanh{})),
      ike::sequential(ike::parallel(ike::lazy_linear<5>{}, ike::lazy_linear<1, ike::bias<false>>{}),
                      ike::concat<ike::dim<1>>{}),
      ike::graph([](auto x) {
        const auto m = "m"_m = ike::linear<6, 6>{};
        return m(ike::tanh{}(m(x))) + x / (1 + ike::square(ike::mean<-1>(x, ike::keepdim)));
      }),
      ike::log_softmax<ike::dim<1>>{}));
  check<shape{dynamic, 5, 9}>(ike::sequential(
      ike::lazy_gru<13, ike::batch_first<true>, ike::bidirectional<true>>{}, ike::lazy_linear<6>{},
      ike::transformer_encoder_layer<6, 3, 17, ike::batch_first<true>, ike::norm_first<true>,
                                     ike::activation<ike::gelu<>>>{{.dropout = 0}},
      ike::graph([](auto x) { return ike::mean<1>(x) * ike::sigmoid{}(ike::sum<1>(x)); }),
      ike::layer_norm<6>{}));
  check<shape{dynamic, 3, 8, 13}>(ike::sequential(
      ike::lazy_conv2d<6, ike::kernel<3, 5>, ike::stride<1, 2>, ike::padding<2, 1>,
                       ike::groups<3>>{},
      ike::gelu<>{}, ike::group_norm<3, 6>{},
      ike::avg_pool2d<ike::kernel<2>, ike::padding<1>, ike::ceil_mode<true>>{},
      ike::conv_transpose2d<6, 2, ike::kernel<3, 2>, ike::stride<2>>{},
      ike::upsample<ike::scale_factor<1.5>, ike::mode<"bilinear">>{},
      ike::residual(ike::lazy_conv2d<2, ike::kernel<3>, ike::padding<1>>{}, ike::silu{}),
      ike::flatten<>{}, ike::lazy_linear<3>{}));
}
