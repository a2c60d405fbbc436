#include "ikebana/nn/orthogonal.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <string>

#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/conv.hpp"
#include "ikebana/nn/embedding.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/nn/spectral_norm.hpp"
#include "ikebana/nn/weight_norm.hpp"
#include "ikebana/optim/sgd.hpp"
#include "layers.hpp"

using namespace ikebana;

TEST_CASE("orthogonal computes what PyTorch recorded") {
  compare_layer("norm", "orthogonal_tall", orthogonal<linear<3, 7>, "weight", false>{});
  compare_layer("norm", "orthogonal_wide",
                orthogonal<linear<7, 3, bias<false>>, "weight", false>{});
  compare_layer("norm", "orthogonal_conv2d",
                orthogonal<conv2d<2, 3, kernel<2, 3>>, "weight", false>{});
  compare_layer("norm", "orthogonal_base", orthogonal(linear<5, 5>{}));
  compare_layer("norm", "orthogonal_base_tall", orthogonal(linear<3, 6>{}));
  compare_layer("norm", "orthogonal_base_wide", orthogonal(linear<6, 2>{}));
  CHECK(layers_not_compared("norm", "orthogonal").empty());
}

TEST_CASE("the gradients of orthogonal are those of its forward") {
  check_gradients(orthogonal<linear<3, 5>, "weight", false>{}, {2, 3});
  check_gradients(orthogonal(linear<5, 3>{}), {2, 5});
  check_gradients(orthogonal(conv2d<1, 2, kernel<2, 3>>{}), {1, 1, 4, 4});
}

namespace {

/// Forward with the identity gives the transposed weight.
template <class M, dim_t In, dim_t Out>
void check_orthonormal(const M& m) {
  leaf_run<double, M> run(m, {In, In});
  run.initialize(seed{3});
  for (dim_t i = 0; i < In * In; ++i) run.input[i] = 0;
  for (dim_t i = 0; i < In; ++i) run.input[i * In + i] = 1;
  run.forward();
  constexpr dim_t n = In < Out ? In : Out, other = In < Out ? Out : In;
  const auto at = [&](dim_t i, dim_t j) {
    return run.output[In < Out ? i * Out + j : j * Out + i];
  };
  for (dim_t a = 0; a < n; ++a)
    for (dim_t b = 0; b < n; ++b) {
      double dot = 0;
      for (dim_t j = 0; j < other; ++j) dot += at(a, j) * at(b, j);
      CHECK(std::abs(dot - (a == b)) < 1e-14);
    }
}

}  // namespace

TEST_CASE(
    "an orthogonal weight begins as Q of the values that it would have, with orthonormal rows or "
    "columns") {
  check_orthonormal<orthogonal<linear<4, 6, bias<false>>>, 4, 6>({});
  check_orthonormal<orthogonal<linear<6, 4, bias<false>>>, 6, 4>({});
  check_orthonormal<orthogonal<linear<5, 5, bias<false>>, "weight", false>, 5, 5>({});
  check_orthonormal<orthogonal<linear<3, 1, bias<false>>, "weight", false>, 3, 1>({});
  // Q R is the weight that linear has, and R's diagonal is positive: so are the products of the
  // columns of Q and of the weight.
  leaf_run<double, orthogonal<linear<2, 3, bias<false>>>> run({}, {2, 2});
  leaf_run<double, linear<2, 3, bias<false>>> plain({}, {2, 2});
  for (any_leaf_run<double>* r :
       {static_cast<any_leaf_run<double>*>(&run), static_cast<any_leaf_run<double>*>(&plain)}) {
    r->initialize(seed{3});
    r->input[0] = r->input[3] = 1;
    r->input[1] = r->input[2] = 0;
    r->forward();
  }
  for (dim_t j = 0; j < 2; ++j) {
    double dot = 0;
    for (dim_t i = 0; i < 3; ++i) dot += run.output[j * 3 + i] * plain.output[j * 3 + i];
    CHECK(dot > 0);
  }
}

TEST_CASE("orthogonal takes an empty batch, and describes itself") {
  check_empty_batch(orthogonal(linear<3, 2>{}), {0, 3});
  CHECK(described(orthogonal(linear<3, 2>{})) ==
        "in_features=3, out_features=2, bias=true, orthogonal=weight");
}

namespace {

template <class Sparse, class Dense>
void check_steps_alike() {
  constexpr shape indices{2};
  auto sparse = initialize<float, indices>(Sparse{}, seed{1});
  auto dense = initialize<float, indices>(Dense{}, seed{1});
  sgd of_sparse{sparse, {.lr = 0.5}}, of_dense{dense, {.lr = 0.5}};
  const auto target = ones<float, shape{2, 3}>();
  for (std::int64_t step = 0; step < 3; ++step) {
    const auto x = tensor_of<std::int64_t, indices>({step, step + 3});
    sparse.train_step(x, target, mse_loss{}, of_sparse);
    dense.train_step(x, target, mse_loss{}, of_dense);
  }
  for (std::size_t i = 0; i < dense.parameters().size(); ++i)
    CHECK(sparse.parameters()[i] == dense.parameters()[i]);
}

}  // namespace

TEST_CASE("a table that is computed has a dense gradient, with sparse<true>, too") {
  using table = embedding<6, 3>;
  using of_rows = embedding<6, 3, sparse<true>>;
  check_steps_alike<orthogonal<of_rows>, orthogonal<table>>();
  check_steps_alike<weight_norm<of_rows>, weight_norm<table>>();
  check_steps_alike<spectral_norm<of_rows>, spectral_norm<table>>();
}
