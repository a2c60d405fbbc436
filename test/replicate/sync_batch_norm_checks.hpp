#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/conv.hpp"
#include "ikebana/nn/flatten.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/optim/sgd.hpp"
#include "ikebana/replicate/convert_sync_batch_norm.hpp"
#include "ikebana/replicate/replicate.hpp"

/// Replicas with sync_batch_norm against one model with batch_norm and the whole batch.
namespace sync_batch_norm_checks {

namespace ike = ikebana;
using namespace ike::literals;
using ike::dim_t;
using ike::dynamic;
using ike::shape;

inline constexpr shape images{dynamic, 2, 3, 3}, outputs{dynamic, 4};

inline constexpr auto net = ike::sequential(
    "conv"_m = ike::conv2d<2, 3, ike::kernel<2>>{}, "bn1"_m = ike::batch_norm2d<3>{.momentum = 0.3},
    "relu"_m = ike::relu{}, "flatten"_m = ike::flatten<>{}, "fc"_m = ike::linear<12, 4>{},
    "bn2"_m = ike::lazy_batch_norm1d<ike::affine<false>>{});

/// The largest difference.
template <class A, class B>
double apart(const A& a, const B& b) {
  double most = 0;
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < static_cast<std::size_t>(a.size()); ++i)
    most = std::fmax(most, std::fabs(static_cast<double>(a.data()[i] - b.data()[i])));
  return most;
}

/// Rows [begin, end) of a batch.
template <class Tensor>
auto rows(const Tensor& t, dim_t begin, dim_t end) {
  const dim_t row = t.extents().numel() / t.extents()[0];
  return typename Tensor::const_view_type(t.data() + begin * row, t.extents().with(0, end - begin));
}

template <class T, class A, class B>
void compare_statistics(const A& all, const B& one, double tolerance) {
  CHECK(apart(all.buffer("bn1.running_mean"_s), one.buffer("bn1.running_mean"_s)) < tolerance);
  CHECK(apart(all.buffer("bn1.running_var"_s), one.buffer("bn1.running_var"_s)) < tolerance);
  CHECK(apart(all.buffer("bn2.running_var"_s), one.buffer("bn2.running_var"_s)) < tolerance);
  CHECK(all.buffer("bn1.num_batches_tracked"_s)[0] == one.buffer("bn1.num_batches_tracked"_s)[0]);
}

/// Training by train_step: losses, parameters and statistics.
template <class T, class Group>
void trains(Group& group) {
  const double tolerance = sizeof(T) == 4 ? 2e-5 : 1e-12;
  constexpr dim_t batch = 12;
  auto one = ike::initialize<T, images>(net, ike::seed{3});
  auto all = ike::replicate(
      ike::initialize<T, images>(ike::convert_sync_batch_norm(net), ike::seed{3}), group);
  ike::sgd of_one{one, {.lr = 0.2, .momentum = 0.9}}, of_all{all, {.lr = 0.2, .momentum = 0.9}};
  const dim_t n = batch / group.size(), first = group.rank() * n;
  for (std::uint64_t step = 0; step < 4; ++step) {
    const auto x = ike::uniform<T, images>(ike::seed{step + 10}, batch);
    const auto t = ike::uniform<T, outputs>(ike::seed{step + 20}, batch);
    one.train_step(x, t, ike::mse_loss{}, of_one);
    all.train_step(rows(x, first, first + n), rows(t, first, first + n), ike::mse_loss{}, of_all);
    CHECK(apart(all.gradients(), one.gradients()) < tolerance);
    CHECK(apart(all.parameters(), one.parameters()) < tolerance);
    compare_statistics<T>(all, one, tolerance);
  }
  one.eval();
  all.eval();
  const auto x = ike::uniform<T, images>(ike::seed{1}, 2);
  CHECK(apart(all(x), one(x)) < tolerance);
}

/// Outputs, and gradients of inputs and parameters, where the parts of the ranks differ in size:
/// rank r has r rows, rank 0 none where there are others, and the last one five more.
template <class T, class Group>
void parts_of_any_size(Group& group) {
  const double tolerance = sizeof(T) == 4 ? 2e-5 : 1e-12;
  const int ranks = group.size(), rank = group.rank();
  const dim_t batch = dim_t{ranks} * (ranks - 1) / 2 + 5;
  const dim_t first = ranks == 1 ? 0 : dim_t{rank} * (rank - 1) / 2,
              end = rank == ranks - 1 ? batch : first + rank;
  auto one = ike::initialize<T, images>(net, ike::seed{3});
  auto all = ike::replicate(
      ike::initialize<T, images>(ike::convert_sync_batch_norm(net), ike::seed{3}), group);
  const auto x = ike::uniform<T, images>(ike::seed{5}, batch);
  const auto dy = ike::uniform<T, outputs>(ike::seed{6}, batch);
  ike::tensor<T, images> dx(x.extents()), mine(x.extents().with(0, end - first));
  const auto part = rows(x, first, end);
  CHECK(apart(all(part), rows(ike::tensor(one(x)), first, end)) < tolerance);
  one.backward(dy, dx);
  all.backward(rows(dy, first, end), mine);
  CHECK(apart(mine, rows(dx, first, end)) < tolerance);
  for (std::size_t i = 0; i < one.gradients().size(); ++i)
    CHECK(std::fabs(static_cast<double>(all.gradients()[i] * static_cast<T>(ranks) -
                                        one.gradients()[i])) < 10 * tolerance);
  compare_statistics<T>(all, one, tolerance);
}

/// One element per channel on all ranks together is refused on each, before anything has changed.
template <class Group>
void one_element(Group& group) {
  constexpr auto norm = ike::sequential("bn"_m = ike::sync_batch_norm1d<2>{});
  auto all = ike::replicate(ike::initialize<float, shape{dynamic, 2}>(norm, ike::seed{3}), group);
  ike::tensor<float, shape{dynamic, 2}> x(shape{group.rank() == 0 ? 1 : 0, 2});
  try {
    all(x);
    CHECK(false);
  } catch (const ike::shape_error& e) {
    CHECK(std::string(e.what()).find("expects more than 1 value per channel when training, got 1 "
                                     "on all ranks together") != std::string::npos);
  }
  CHECK(all.buffer("bn.num_batches_tracked"_s)[0] == 0);
  // In evaluation it is no matter.
  all.eval();
  all(x);
}

}  // namespace sync_batch_norm_checks
