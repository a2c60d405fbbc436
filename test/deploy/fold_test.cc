#include "ikebana/deploy/fold.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "ikebana/compose/frozen.hpp"
#include "ikebana/compose/graph.hpp"
#include "ikebana/compose/residual.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/deploy/freeze.hpp"
#include "ikebana/deploy/fuse_weights.hpp"
#include "ikebana/deploy/remove_parametrizations.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/state_dict.hpp"
#include "ikebana/module/lowering.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/causal_conv1d.hpp"
#include "ikebana/nn/conv.hpp"
#include "ikebana/nn/conv_transpose.hpp"
#include "ikebana/nn/dropout.hpp"
#include "ikebana/nn/gru.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/mse_loss.hpp"
#include "ikebana/nn/orthogonal.hpp"
#include "ikebana/nn/softmax.hpp"
#include "ikebana/nn/spectral_norm.hpp"
#include "ikebana/nn/weight_norm.hpp"
#include "ikebana/ops/constant.hpp"
#include "ikebana/ops/elementwise.hpp"
#include "ikebana/ops/product.hpp"
#include "ikebana/ops/rearrange.hpp"
#include "ikebana/ops/view.hpp"
#include "ikebana/optim/sgd.hpp"
#include "test/deploy/folded.hpp"
#include "test/nn/recorded.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dim_t;
using ike::shape;

namespace {

constexpr shape rows{ike::dynamic, 5};
constexpr shape images{ike::dynamic, 3, 7, 5};
constexpr shape sequences{ike::dynamic, 3, 9};

}  // namespace

TEST_CASE_TEMPLATE("a batch norm after a linear module or a convolution is part of its weights", T,
                   float, double) {
  CHECK(folded<T, rows>(ike::sequential(ike::lazy_linear<7>{}, ike::lazy_batch_norm1d<>{},
                                        ike::relu{}, ike::dropout{}, ike::lazy_linear<3>{})) ==
        "linear/2 identity/0 identity/0 linear/2");
  CHECK(folded<T, images>(
            ike::sequential(ike::lazy_conv2d<6, ike::kernel<3>, ike::groups<3>, ike::bias<false>>{},
                            ike::lazy_batch_norm2d<ike::affine<false>>{},
                            ike::residual(ike::lazy_conv2d<6, ike::kernel<3>, ike::same_padding>{},
                                          ike::lazy_batch_norm2d<>{.eps = 0.5}),
                            ike::relu{})) == "conv2d/2 identity/0 conv2d/2 identity/0");
  CHECK(folded<T, sequences>(ike::sequential(
            ike::lazy_causal_conv1d<4, ike::kernel<2>, ike::dilation<2>, ike::bias<false>>{},
            ike::lazy_batch_norm1d<>{}, ike::tanh{})) == "causal_conv1d/2 identity/0");
}

TEST_CASE_TEMPLATE("a batch norm after a transposed convolution is part of its weights", T, float,
                   double) {
  CHECK(folded<T, sequences>(ike::sequential(
            ike::lazy_conv_transpose1d<4, ike::kernel<3>, ike::stride<2>>{},
            ike::lazy_batch_norm1d<>{}, ike::tanh{})) == "conv_transpose1d/2 identity/0");
  // Groups of two outputs, and of one; a scaling alone needs no bias.
  CHECK(folded<T, images>(ike::sequential(
            ike::lazy_conv_transpose2d<6, ike::kernel<3, 2>, ike::groups<3>, ike::bias<false>>{},
            ike::lazy_batch_norm2d<>{.eps = 0.5}, ike::relu{},
            ike::lazy_conv_transpose2d<2, ike::kernel<2>, ike::groups<2>>{},
            ike::lazy_batch_norm2d<ike::affine<false>>{})) ==
        "conv_transpose2d/2 identity/0 conv_transpose2d/2 identity/0");
  CHECK(folded<T, shape{ike::dynamic, 4, 2, 3, 2}>(ike::sequential(
            ike::weight_norm(
                ike::conv_transpose3d<4, 6, ike::kernel<2>, ike::groups<2>, ike::padding<1>>{}),
            ike::lazy_batch_norm3d<>{})) == "conv_transpose3d/2 identity/0");
  CHECK(folded<T, sequences>(ike::graph([](auto x) {
          const auto y = "conv"_m(
              ike::conv_transpose1d<3, 6, ike::kernel<3>, ike::groups<3>, ike::bias<false>>{}, x);
          return y * ike::parameter<"scale", shape{6, 1}>(x, ike::initializer::uniform(1)) * 0.5;
        })) == "conv_transpose1d/1 identity/0 identity/0 identity/0");
}

TEST_CASE("a batch norm stays where its channels are not those of the weights") {
  // Its channels are the second dimension.
  CHECK(folded<double, shape{ike::dynamic, 4, 5}>(ike::sequential(
            ike::lazy_linear<7>{}, ike::lazy_batch_norm1d<>{})) == "linear/2 batch_norm1d/2");
  // Something else reads what it normalises.
  CHECK(folded<double, rows>(ike::graph([](auto x) {
          auto y = "fc"_m(ike::lazy_linear<5>{}, x);
          return y + "norm"_m(ike::lazy_batch_norm1d<>{}, y);
        })) == "linear/2 batch_norm1d/2");
  CHECK(folded<double, rows>(
            ike::sequential(ike::lazy_linear<7>{}, ike::relu{}, ike::lazy_batch_norm1d<>{})) ==
        "linear/2 batch_norm1d/2");
}

TEST_CASE_TEMPLATE("computed weights are computed once", T, float, double) {
  CHECK(folded<T, rows>(ike::sequential(ike::weight_norm(ike::linear<5, 4>{}), ike::tanh{},
                                        ike::spectral_norm(ike::linear<4, 3, ike::bias<false>>{}),
                                        ike::lazy_batch_norm1d<>{})) ==
        "linear/2 linear/2 identity/0");
  CHECK(folded<T, images>(ike::sequential(
            ike::weight_norm<ike::conv2d<3, 4, ike::kernel<2>>, "weight", 1>{},
            ike::spectral_norm(ike::conv2d<4, 2, ike::kernel<3>>{}))) == "conv2d/2 conv2d/2");
  CHECK(folded<T, rows>(ike::sequential(ike::orthogonal(ike::linear<5, 4>{}),
                                        ike::orthogonal<ike::linear<4, 4>, "weight", false>{})) ==
        "linear/2 linear/2");
  // The weights themselves, not only their product.
  auto model = ike::initialize<T, shape{1, 5}>(ike::weight_norm(ike::linear<5, 4>{}), ike::seed{1});
  CHECK(ike::freeze(model).parameters().size() < model.parameters().size());
}

TEST_CASE("the weights that a norm is fused into are those that PyTorch recorded") {
  const auto compare = [](const std::string& name, const auto& got) {
    using T = typename decltype(got.weight)::value_type;
    compares("layers_written", name);
    check_close<T>(got.weight.data(), recorded<T>("layers_written").at(name + "/y0"), name);
    check_close<T>(got.bias.data(), recorded<T>("layers_written").at(name + "/y1"), name);
  };
  const auto each = [&]<class T>(T) {
    const auto vector = [](const std::string& tensor) {
      return recorded<T>("layers_written").at(tensor).template view<T, shape{3}>();
    };
    const auto weight = [](const std::string& name, auto extents) {
      return recorded<T>("layers_written").at(name + "/x0").template view<T, extents()>();
    };
    std::string n = "fuse_linear_bn_weights";
    compare(n, ike::fuse_linear_bn_weights(weight(n,
                                                  [] {
                                                    return shape{3, ike::dynamic};
                                                  }),
                                           vector(n + "/x1"), vector(n + "/x2"), vector(n + "/x3"),
                                           1e-3, vector(n + "/x4"), vector(n + "/x5")));
    n = "fuse_linear_bn_weights_none";
    compare(n, ike::fuse_linear_bn_weights(weight(n,
                                                  [] {
                                                    return shape{3, 5};
                                                  }),
                                           std::nullopt, vector(n + "/x1"), vector(n + "/x2"), 1e-5,
                                           std::nullopt, std::nullopt));
    n = "fuse_conv_bn_weights";
    compare(n, ike::fuse_conv_bn_weights(weight(n,
                                                [] {
                                                  return shape{3, 2, 2, 3};
                                                }),
                                         vector(n + "/x1"), vector(n + "/x2"), vector(n + "/x3"),
                                         1e-5, vector(n + "/x4"), vector(n + "/x5")));
    n = "fuse_conv_bn_weights_transpose";
    compare(n, ike::fuse_conv_bn_weights(weight(n,
                                                [] {
                                                  return shape{2, 3, 2};
                                                }),
                                         vector(n + "/x1"), vector(n + "/x2"), vector(n + "/x3"),
                                         1e-5, vector(n + "/x4"), vector(n + "/x5"), true));
  };
  each(float{});
  each(double{});
  CHECK(not_compared("layers_written", {"fuse_"}).empty());
  const auto w = ike::zeros<float, shape{2, 3}>();
  const auto three = ike::zeros<float, shape{3}>();
  CHECK_THROWS_WITH_AS(
      ike::fuse_linear_bn_weights(w, std::nullopt, three, three, 1e-5, std::nullopt, std::nullopt),
      "a batch norm is fused into weights of 2 channels, got one of 3", ike::shape_error);
}

TEST_CASE("frozen modules have parameters again") {
  constexpr auto net =
      ike::sequential("a"_m = ike::lazy_linear<6>{}, "norm"_m = ike::lazy_batch_norm1d<>{},
                      ike::relu{}, "b"_m = ike::weight_norm(ike::linear<6, 2>{}));
  CHECK(folded<double, rows>(ike::frozen<"a", "norm">(net)) == "linear/2 identity/0 linear/2");
  CHECK(folded<double, rows>(ike::frozen<"norm", "b">(net)) == "linear/2 identity/0 linear/2");
  CHECK(folded<float, rows>(ike::frozen(net)) == "linear/2 identity/0 linear/2");
}

TEST_CASE_TEMPLATE("a model without parametrizations has their weights, and trains on", T, float,
                   double) {
  constexpr auto net = ike::sequential(
      "a"_m = ike::weight_norm(ike::linear<5, 4>{}), ike::tanh{},
      "b"_m = ike::sequential("c"_m = ike::spectral_norm(ike::linear<4, 3, ike::bias<false>>{}),
                              "norm"_m = ike::lazy_batch_norm1d<>{},
                              "d"_m = ike::orthogonal(ike::linear<3, 3>{})));
  auto model = ike::initialize<T, rows>(net, ike::seed{1});
  ike::sgd optimizer{model, {.lr = T(0.1)}};
  const auto x = ike::uniform<T, rows>(ike::seed{2}, dim_t{6});
  const auto t = ike::uniform<T, shape{6, 3}>(ike::seed{3});
  for (int i = 0; i < 3; ++i) model.train_step(x, t, ike::mse_loss{}, optimizer);
  model.eval();
  const auto same = [&](auto& other) {
    const auto expected = model(x);
    const auto y = other(x);
    for (dim_t i = 0; i < y.size(); ++i)
      CHECK(y.data()[i] == doctest::Approx(static_cast<double>(expected.data()[i]))
                               .scale(1)
                               .epsilon(std::is_same_v<T, float> ? 3e-6 : 3e-15));
  };

  auto plain = ike::remove_parametrizations(model);
  CHECK(kinds(plain.module()) == "linear/2 linear/1 batch_norm1d/2 linear/2");
  CHECK(!plain.is_training());
  same(plain);
  CHECK(plain["b.c.weight"_s].extents() == shape{3, 4});
  auto parts = ike::remove_parametrizations<"b">(model);
  CHECK(kinds(parts.module()) == "linear/3 linear/1 batch_norm1d/2 linear/2");
  same(parts);

  // Frozen modules stay.
  auto frozen = ike::initialize<T, rows>(ike::frozen<"a", "b.norm">(net), ike::seed{4});
  ike::sgd of_rest{frozen, {.lr = T(0.1)}};
  frozen.train_step(x, t, ike::mse_loss{}, of_rest);
  frozen.eval();
  auto rest = ike::remove_parametrizations(frozen);
  CHECK(kinds(rest.module()) == "linear/1 linear/2");
  const auto expected = frozen(x);
  const auto y = rest(x);
  for (dim_t i = 0; i < y.size(); ++i)
    CHECK(y.data()[i] == doctest::Approx(static_cast<double>(expected.data()[i])).epsilon(1e-5));

  plain.train();
  ike::sgd again{plain, {.lr = T(0.1)}};
  const auto before = plain.train_step(x, t, ike::mse_loss{}, again);
  for (int i = 0; i < 5; ++i) plain.train_step(x, t, ike::mse_loss{}, again);
  CHECK(plain.train_step(x, t, ike::mse_loss{}, again) < before);
  same(parts);  // The first is unchanged.
}

namespace {

/// Twice the input; counts its calls.
struct counting {
  static constexpr std::string_view kind = "counting";
  static constexpr ike::kept keeps = ike::kept::nothing;
  static inline int calls = 0;
  static inline bool fails = false;

  constexpr ike::inferred infer(const shape& in) const { return in; }
  constexpr dim_t multiply_adds(const ike::shape_list&, const ike::shape_list&) const { return 0; }
  template <class T>
  void forward(const ike::context<T>& c) const {
    ++calls;
    if (fails) throw ike::error("counting fails");
    for (dim_t i = 0; i < c.output_shape().numel(); ++i) c.output()[i] = 2 * c.input()[i];
  }
  template <class T>
  void backward(const ike::context<T>&) const {}
  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return ike::apply(*this, x...);
  }
};

/// Checks that calls of a frozen network have the bits of the model, and that `counting` runs
/// once for each length.
template <class Net>
void check_constants(const Net& net, bool fuses = true) {
  auto model = ike::initialize<float, shape{ike::dynamic, 5}>(net, ike::seed{1});
  model.set_fusion(fuses);
  model.eval();
  const auto frozen = ike::freeze(model);
  auto lane = frozen.lane();
  std::vector<std::byte> memory(frozen.lane_bytes(shape{7, 5}));
  auto placed = frozen.lane(std::span(memory), shape{7, 5});
  for (const dim_t n : {dim_t{4}, dim_t{7}, dim_t{1}, dim_t{0}}) {
    for (std::uint64_t call = 0; call < 3; ++call) {
      const auto x = ike::uniform<float, shape{ike::dynamic, 5}>(ike::seed{2 + call}, n);
      const auto expected = model(x);
      for (auto* l : {&lane, &placed}) {
        counting::calls = 0;
        const auto y = frozen(*l, x);
        CHECK(counting::calls == (fuses && call > 0 ? 0 : 1));
        REQUIRE(y.extents() == expected.extents());
        for (dim_t i = 0; i < y.size(); ++i) CHECK(y.data()[i] == expected.data()[i]);
      }
    }
  }
}

}  // namespace

TEST_CASE("what depends on parameters and shapes alone is computed once for a lane") {
  // A product of parameters, read by a loop, a view and a product.
  const auto low_rank = ike::graph([](auto x) {
    const auto w = ike::matmul(ike::parameter<"a", shape{5, 2}>(x, ike::initializer::uniform(1)),
                               ike::parameter<"b", shape{2, 5}>(x, ike::initializer::uniform(1)));
    const auto v = ike::relu{}(counting{}(ike::exp(w * 0.5) + 1));
    const auto y = ike::matmul(x, v);
    return ike::tanh{}(y + ike::matmul(ike::relu{}(y), ike::permute<1, 0>(v))) *
           ike::parameter<"scale", shape{5}>(x);
  });
  check_constants(low_rank);
  check_constants(low_rank, false);
  // A table of the input's length.
  check_constants(ike::graph([](auto x) {
    const auto i = ike::arange_like<0>(x);
    const auto bias = ike::where(ike::unsqueeze<1>(i) >= i, counting{}(i), -1.0);
    return ike::matmul(ike::softmax<>{}(bias), "fc"_m(ike::linear<5, 3>{}, x));
  }));
  // The output itself, and one that is overwritten elsewhere.
  check_constants(ike::graph([](auto x) {
    return ike::relu{}(counting{}(ike::full_like(x, -0.5) + ike::arange_like<1>(x)));
  }));
}

TEST_CASE("a lane whose constants could not be computed computes them in its next call") {
  auto model = ike::initialize<float, shape{ike::dynamic, 5}>(
      ike::graph([](auto x) { return x + counting{}(ike::arange_like<1>(x)); }), ike::seed{1});
  model.eval();
  const auto frozen = ike::freeze(model);
  auto lane = frozen.lane();
  const auto x = ike::uniform<float, shape{ike::dynamic, 5}>(ike::seed{2}, 3);
  counting::fails = true;
  CHECK_THROWS_AS(frozen(lane, x), ike::error);
  counting::fails = false;
  const auto y = frozen(lane, x), expected = model(x);
  for (dim_t i = 0; i < y.size(); ++i) CHECK(y.data()[i] == expected.data()[i]);
}

TEST_CASE("a stream that reads parameters alone goes on with each call") {
  const auto differ = [](const auto& net) {
    auto model = ike::initialize<float, shape{1, 1, 4}>(net, ike::seed{1});
    model.eval();
    const auto frozen = ike::freeze(model);
    auto lane = frozen.lane();
    const ike::tensor<float, shape{1, 1, 4}> x;
    std::vector<float> before;
    for (int call = 0; call < 3; ++call) {
      const auto y = frozen(lane, x);
      const std::vector<float> now(y.data(), y.data() + y.size());
      CHECK(now != before);
      const auto expected = model(x);
      for (dim_t i = 0; i < y.size(); ++i)
        CHECK(y.data()[i] == doctest::Approx(expected.data()[i]).epsilon(1e-5));
      before = now;
    }
  };
  differ(ike::graph([](auto x) {
    const auto p = ike::parameter<"p", shape{1, 1, 4}>(x, ike::initializer::uniform(1));
    auto [y, last] = "gru"_m(ike::gru<4, 3, ike::stateful<1>>{}, p);
    return "fc"_m(ike::linear<4, 3>{}, x) + y;
  }));
}
