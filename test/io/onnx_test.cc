#include "ikebana/io/onnx.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <tuple>

#include "ikebana/deploy.hpp"
#include "ikebana/deploy/quantize.hpp"
#include "ikebana/ikebana.hpp"
#include "ikebana/nn.hpp"
#include "ikebana/ops.hpp"
#include "test/io/onnx_checks.hpp"

// Files that save_onnx writes are compared with those of test/data/onnx, byte by byte, and outputs
// with what ONNX Runtime computed of those files; Debian's checker has accepted them
// (test/data/onnx.py). With IKEBANA_RECORD_ONNX, they are written anew.

namespace ike = ikebana;
using namespace ike::literals;
using onnx_checks::check_export;
using onnx_checks::indices;
using onnx_checks::pattern;

namespace {

constexpr ike::dim_t batch = ike::dynamic;
constexpr double infinite = std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE("convolutions, pools and norms are exported to ONNX") {
  auto m = ike::initialize<float, ike::shape{batch, 4, 6, 6}>(
      ike::graph([](auto x) {
        auto a = "conv"_m(ike::conv2d<4, 6, ike::kernel<3, 2>, ike::padding<1, 0>,
                                      ike::stride<2, 1>, ike::groups<2>>{},
                          x);
        auto b =
            "same"_m(ike::conv2d<4, 2, ike::kernel<2>, ike::same_padding, ike::bias<false>>{}, x);
        auto c = "up"_m(ike::conv_transpose2d<2, 4, ike::kernel<3>, ike::stride<2>, ike::padding<1>,
                                              ike::output_padding<1>>{},
                        b);
        auto d = "bn"_m(ike::batch_norm2d<4>{}, x);
        auto e = "gn"_m(ike::group_norm<2, 4>{}, d) + "in"_m(ike::instance_norm2d<4>{}, x);
        auto f = ike::max_pool2d<ike::kernel<3>, ike::stride<2>, ike::padding<1>>{}(e);
        auto g = ike::avg_pool2d<ike::kernel<3>, ike::padding<1>, ike::stride<2>,
                                 ike::count_include_pad<false>>{}(c);
        auto h = ike::adaptive_avg_pool2d<ike::output_size<3>>{}(x);
        auto i = ike::flatten<>{}(ike::adaptive_avg_pool2d<ike::output_size<1>>{}(x));
        return std::tuple(a, c, e, f, g, h + ike::adaptive_max_pool2d<ike::output_size<3>>{}(x),
                          ike::local_response_norm<3>{}(x)*ike::lp_pool2d<ike::kernel<6>>{2.0}(x),
                          "fc"_m(ike::linear<4, 3>{}, i));
      }),
      ike::seed{1});
  check_export("images", m, pattern<float, ike::shape{2, 4, 6, 6}>(1));
}

TEST_CASE("activations are exported to ONNX") {
  auto m = ike::initialize<float, ike::shape{3, 4, 5}>(
      ike::graph([](auto x) {
        const ike::concat<> join;
        auto a = join(ike::relu{}(x), ike::tanh{}(x), ike::sigmoid{}(x), ike::gelu<>{}(x),
                      ike::gelu<ike::approximate<"tanh">>{}(x), ike::silu{}(x), ike::elu{0.7}(x));
        auto b =
            join(ike::celu{1.5}(x), ike::selu{}(x), ike::softplus{}(x), ike::softplus{2.5, 20}(x),
                 ike::log_sigmoid{}(x), ike::mish{}(x), ike::softsign{}(x));
        auto c = join(ike::tanhshrink{}(x), ike::leaky_relu{0.1}(x), "rrelu"_m(ike::rrelu{}, x),
                      ike::hardtanh{-0.5, 0.25}(x), ike::relu6{}(x), ike::hard_sigmoid{}(x),
                      ike::hardswish{}(x));
        auto d = join(ike::threshold{0.25, -3}(x), ike::hardshrink{0.3}(x), ike::softshrink{0.3}(x),
                      "prelu"_m(ike::prelu<>{}, x), "each"_m(ike::prelu<4>{}, x),
                      ike::softmax<ike::dim<1>>{}(x), ike::log_softmax<ike::dim<-1>>{}(x),
                      ike::softmin<ike::dim<0>>{}(x));
        auto e = "drop"_m(ike::dropout{0.5}, ike::glu<ike::dim<1>>{}(x));
        auto f = "rms"_m(
            ike::rms_norm<ike::shape{5}>{},
            "plain"_m(ike::layer_norm<ike::shape{4, 5}, ike::elementwise_affine<false>>{}, x));
        return std::tuple(a, b, c, d, e, f);
      }),
      ike::seed{2});
  check_export("activations", m, pattern<float, ike::shape{3, 4, 5}>(1));
}

TEST_CASE("formulas are exported to ONNX") {
  auto m = ike::initialize<float, ike::shape{batch, 3, 4}, ike::shape{batch, 3, 4}>(
      ike::graph([](auto x, auto y) {
        const ike::concat<> join;
        auto p = ike::abs(x) + 0.5;
        auto a = join(-x, ike::exp(x), ike::log(p), ike::sqrt(p), ike::rsqrt(p), ike::square(x),
                      ike::reciprocal(p), ike::sign(x)) *
                 2;
        auto b = join(ike::erf(x), x + y, 1 - x, x / p, ike::pow(p, y), ike::minimum(x, y),
                      ike::maximum(x, 0.25), ike::clamp(x, -0.5));
        auto c = join(x == y, x != 0.2, x<y, x <= y, 0> x, x >= y, ike::where(x < y, x * 3, y),
                      ike::clamp(x, -0.5, 0.75));
        auto d = ike::transpose<1, 2>(ike::pad<1, 0, 0, 2>(ike::slice<2>(x, 1, -1), 7));
        auto k =
            ike::permute<0, 2, 1>(ike::narrow<1>(ike::flip<1, 2>(x), 0, 3) + ike::roll<1>(y, -1)) *
            ike::unsqueeze<1>(ike::select<1>(ike::transpose<-2, -1>(x), -1));
        auto e = join(ike::sum<1>(x), ike::mean<2>(ike::transpose<1, 2>(x)), ike::max<1>(x),
                      ike::min<-2>(x), ike::logsumexp<1>(x), ike::var<1>(x), ike::norm<1>(x, 3.0),
                      ike::norm<1>(x));
        auto f = ike::matmul_nt(x, y) + ike::einsum<"bij,bkj->bik">(y, x) + ike::slice<1>(k, 0, -1);
        auto g = ike::squeeze<1>(ike::norm<1, 2>(x, infinite, ike::keepdim)) +
                 ike::squeeze<1>(ike::var<1, 2>(x, ike::correction<0>, ike::keepdim)) *
                     ike::argmax<1>(ike::reshape<-1, 12>(x), ike::keepdim);
        auto h = ike::stack<1>(ike::cumsum<1>(x) + ike::full_like(x, 2), x * ike::arange_like(x)) *
                 ike::parameter<"scale", ike::shape{2, 1, 4}>(x);
        return std::tuple(a, b, c, d, e, f, g, h);
      }),
      ike::seed{3});
  check_export("formulas", m, pattern<float, ike::shape{2, 3, 4}>(1),
               pattern<float, ike::shape{2, 3, 4}>(2));
}

TEST_CASE("sequences are exported to ONNX") {
  auto m = ike::initialize<float, ike::shape{4, batch}, ike::shape{batch, 5, 6}>(
      ike::graph([](auto i, auto x) {
        auto e = "table"_m(ike::embedding<7, 6>{}, i);
        auto [y, h, c] =
            "lstm"_m(ike::lstm<6, 3, ike::num_layers<2>, ike::bidirectional<true>>{}, e);
        auto [z, k] = "gru"_m(ike::gru<6, 4, ike::batch_first<true>>{}, x);
        auto [r, l] = "rnn"_m(ike::rnn<6, 2, ike::nonlinearity<"relu">, ike::bias<false>>{}, e);
        return std::tuple(y, h + c, z, k, r, l);
      }),
      ike::seed{4});
  check_export("recurrent", m, indices<ike::shape{4, 2}>(3),
               pattern<float, ike::shape{2, 5, 6}>(2));
}

TEST_CASE("attention is exported to ONNX") {
  auto m = ike::initialize<float, ike::shape{batch, 5, 6}, ike::shape{batch, 4, 6},
                           ike::shape{batch, 4}>(
      ike::graph([](auto x, auto z, auto mask) {
        auto h = "learned"_m(ike::learned_positions<9, 6, ike::batch_first<true>>{}, x);
        auto g = ike::sinusoidal_encoding<ike::batch_first<true>>{}(x);
        auto a = "cross"_m(
            ike::multihead_attention<6, 2, ike::batch_first<true>, ike::key_padding_mask<true>>{},
            g, z, z, mask);
        auto [b, w] = "self"_m(
            ike::multihead_attention<6, 3, ike::is_causal<true>, ike::need_weights<true>>{}, h);
        auto c = "layer"_m(ike::transformer_encoder_layer<6, 2, 8, ike::batch_first<true>>{}, h);
        auto d = "causal"_m(ike::causal_attention<6, 3>{}, x, h, g);
        return std::tuple(a, b, w, c, d);
      }),
      ike::seed{5});
  ike::tensor<bool, ike::shape{2, 4}> mask;
  for (ike::dim_t i = 0; i < 8; ++i) mask.data()[i] = i % 3 == 2;
  check_export("attention", m, pattern<float, ike::shape{2, 5, 6}>(1),
               pattern<float, ike::shape{2, 4, 6}>(2), mask);
}

TEST_CASE("tables, cells and layers of double are exported to ONNX") {
  auto m = ike::initialize<double, ike::shape{3, 4}, ike::shape{3, 4}, ike::shape{3, 2}>(
      ike::graph([](auto x, auto y, auto i) {
        auto s = "scale"_m(ike::standard_scaler<4>{}, x);
        auto b = "both"_m(ike::bilinear<4, 4, 2>{}, s, y);
        auto t = ike::gather<1>(x, i) + ike::sum<2>(ike::one_hot<3>(i) * 2);
        auto [first, second] = ike::split<ike::sections<1, ike::lazy>, ike::dim<-1>>{}(x);
        return std::tuple(b + t, ike::scatter_add<1>(x, i, b), first, second);
      }),
      ike::seed{6});
  check_export("doubles", m, pattern<double, ike::shape{3, 4}>(1),
               pattern<double, ike::shape{3, 4}>(2), indices<ike::shape{3, 2}>(3));
}

TEST_CASE("images that are resized, padded and sampled are exported to ONNX") {
  auto m = ike::initialize<float, ike::shape{batch, 4, 6, 6}, ike::shape{batch, 2, 3, 2}>(
      ike::graph([](auto x, auto grid) {
        const ike::concat<ike::dim<1>> join;
        using ike::scale_factor;
        auto a = join(
            ike::upsample<scale_factor<2>>{}(x),
            ike::upsample<scale_factor<2>, ike::mode<"nearest-exact">>{}(x),
            ike::upsample<scale_factor<2>, ike::mode<"bilinear">>{}(x),
            ike::upsample<ike::output_size<12>, ike::mode<"bilinear">, ike::align_corners<true>>{}(
                x),
            ike::upsample<scale_factor<2>, ike::mode<"bicubic">>{}(x));
        auto b = join(ike::zero_pad2d<ike::padding<1, 2, 0, 1>>{}(x),
                      ike::constant_pad2d<ike::padding<1, 2, 0, 1>>{1.5}(x),
                      ike::reflection_pad2d<ike::padding<1, 2, 0, 1>>{}(x),
                      ike::replication_pad2d<ike::padding<1, 2, 0, 1>>{}(x));
        auto c = ike::pixel_unshuffle<2>{}(ike::channel_shuffle<2>{}(x)) *
                 ike::max_pool2d<ike::kernel<4>>{}(ike::pixel_shuffle<2>{}(x));
        auto d = "reflect"_m(
            ike::conv2d<4, 2, ike::kernel<3>, ike::padding<2, 1>, ike::padding_mode<"reflect">>{},
            x);
        auto e = ike::unflatten<ike::dim<1>, ike::unflattened_size<2, 1>>{}(
            "causal"_m(ike::causal_conv1d<4, 2, ike::kernel<3>, ike::dilation<2>>{},
                       ike::reshape<-1, 4, 36>(x)));
        return std::tuple(a, b, c, d, e, ike::grid_sample<>{}(x, grid));
      }),
      ike::seed{7});
  check_export("sampled", m, pattern<float, ike::shape{2, 4, 6, 6}>(1),
               pattern<float, ike::shape{2, 2, 3, 2}>(2));
}

TEST_CASE("cells, packed sequences and masks are exported to ONNX") {
  auto m = ike::initialize<float, ike::shape{batch, 4}, ike::shape{5, batch, 4}, ike::shape{batch},
                           ike::shape{batch, 3}, ike::shape{5, 5}, ike::shape{batch, 4}>(
      ike::graph([](auto x, auto s, auto lengths, auto words, auto mask, auto drop) {
        auto [h, c] = "lstm"_m(ike::lstm_cell<4, 4>{}, x, x, x * 2);
        auto g = "rnn"_m(ike::rnn_cell<4, 4>{}, x) +
                 "bag"_m(ike::embedding_bag<3, 4, ike::mode<"max">>{}, words) * h * c;
        auto k = ike::unsqueeze<0>("gru"_m(ike::gru_cell<4, 3>{}, x, ike::slice<1>(x, 0, 3)));
        auto [y, n] = "packed"_m(ike::gru<4, 3, ike::packed<true>>{}, s, lengths, k);
        auto a = "masked"_m(
            ike::multihead_attention<4, 2, ike::attn_mask<ike::mask_kind::additive>>{}, s, mask);
        return std::tuple(g, y, n, a, ike::masked_fill(x, drop, -2));
      }),
      ike::seed{8});
  ike::tensor<bool, ike::shape{2, 4}> drop;
  for (ike::dim_t i = 0; i < 8; ++i) drop.data()[i] = i % 3 == 2;
  check_export("masked", m, pattern<float, ike::shape{2, 4}>(1),
               pattern<float, ike::shape{5, 2, 4}>(2), indices<ike::shape{2}>(3),
               indices<ike::shape{2, 3}>(3), pattern<float, ike::shape{5, 5}>(5), drop);
}

TEST_CASE("a frozen network is exported to ONNX with its norms folded") {
  auto model = ike::initialize<float, ike::shape{batch, 4}>(
      ike::sequential("fc"_m = ike::weight_norm<ike::linear<4, 3>>{},
                      "bn"_m = ike::batch_norm1d<3>{}, ike::relu{}, "drop"_m = ike::dropout{0.5},
                      "scale"_m = ike::standard_scaler<3>{}),
      ike::seed{9});
  const scratch_directory scratch;
  const auto folder = scratch.path();
  CHECK(
      message_of<ike::error>([&] { ike::save_onnx(model, folder / "model.onnx"); }) ==
      "fc: ONNX (opset 17) has no counterpart of linear whose weight weight_norm computes; freeze "
      "the model first");
  auto turned = ike::initialize<float, ike::shape{batch, 4}>(ike::orthogonal<ike::linear<4, 3>>{},
                                                             ike::seed{9});
  CHECK(message_of<ike::error>([&] { ike::save_onnx(turned, folder / "model.onnx"); }) ==
        "ONNX (opset 17) has no counterpart of linear whose weight orthogonal computes; freeze the "
        "model first");
  CHECK(scratch.entries() == 0);
  CHECK(message_of<ike::error>([&] {
          ike::save_onnx(ike::quantize<ike::bfloat16>(model), folder / "model.onnx");
        }) == "fc: ONNX (opset 17) has no counterpart of linear with weights=bfloat16");
  CHECK(scratch.entries() == 0);
  ike::save_onnx(ike::freeze(model), folder / "model.onnx");
  const auto written = ike::detail::parse_onnx("it", bytes_of(folder / "model.onnx"));
  std::string ops;
  for (const auto& n : written.nodes) ops += n.op + ' ';
  CHECK(ops == "Gemm Relu Sub Div ");
  CHECK(written.inputs[0].dims[0].parameter == "batch");

  // Scalings, and parameters that scale.
  const auto scaled = ike::initialize<float, ike::shape{batch, 4}>(
      ike::graph([](auto x) {
        const auto p = ike::parameter<"p", ike::shape{4}>(x, ike::initializer::uniform(1));
        return "fc"_m(ike::linear<4, 3, ike::bias<false>>{}, x * 2 - p) *
               ike::parameter<"q", ike::shape{3}>(x, ike::initializer::constant(3));
      }),
      ike::seed{9});
  const auto frozen = ike::freeze(scaled);
  ike::save_onnx(frozen, folder / "scaled.onnx");
  const auto product = ike::detail::parse_onnx("it", bytes_of(folder / "scaled.onnx"));
  REQUIRE(product.nodes.size() == 1);
  CHECK(product.nodes[0].op == "Gemm");
  CHECK(product.nodes[0].inputs.size() == 3);
  CHECK(frozen.state().size() == 2);
  CHECK(frozen.parameters()[0] == doctest::Approx(6 * scaled["fc.weight"_s](0, 0)));
}

TEST_CASE("what does nothing in evaluation is no node of an ONNX file") {
  const auto model = ike::initialize<float, ike::shape{batch, 4}>(
      ike::graph([](auto x) {
        const auto a = "a"_m(ike::alpha_dropout{}, ike::identity{}(x));
        const auto b = "b"_m(ike::feature_alpha_dropout{}, ike::stop_gradient(a));
        return "norm"_m(ike::sync_batch_norm1d<4>{}, b);
      }),
      ike::seed{10});
  const scratch_directory scratch;
  ike::save_onnx(model, scratch.path() / "it.onnx");
  const auto written = ike::detail::parse_onnx("it", bytes_of(scratch.path() / "it.onnx"));
  REQUIRE(written.nodes.size() == 1);
  CHECK(written.nodes[0].op == "BatchNormalization");
  CHECK(written.nodes[0].inputs[0] == written.inputs[0].name);
}

TEST_CASE("a network without a counterpart in ONNX is refused before a file is made") {
  const scratch_directory scratch;
  const auto refusal = [&](const auto& model) {
    return message_of<ike::error>([&] { ike::save_onnx(model, scratch.path() / "it.onnx"); });
  };
  const auto images = ike::initialize<float, ike::shape{batch, 2, 5, 5}>(
      ike::sequential("a"_m = ike::sequential("pad"_m = ike::circular_pad2d<ike::padding<1>>{})),
      ike::seed{1});
  CHECK(refusal(images) == "a.pad: ONNX (opset 17) has no counterpart of circular_pad2d");
  const auto pool = ike::initialize<float, ike::shape{batch, 2, 5, 5}>(
      ike::sequential("pool"_m = ike::adaptive_avg_pool2d<ike::output_size<2>>{}), ike::seed{1});
  CHECK(refusal(pool) ==
        "pool: ONNX (opset 17) has no counterpart of adaptive_avg_pool2d from 5 to 2 elements");
  using ike::shape;
  const auto bags = ike::initialize<float, shape{5}, shape{2}>(
      ike::embedding_bag<9, 3, ike::offsets<true>>{}, ike::seed{1});
  CHECK(refusal(bags) == "ONNX (opset 17) has no counterpart of embedding_bag with offsets=true");
  const auto weighted = ike::initialize<float, shape{2, 3}, shape{2, 3}>(
      ike::embedding_bag<9, 3, ike::mode<"sum">, ike::per_sample_weights<true>>{}, ike::seed{1});
  CHECK(refusal(weighted) ==
        "ONNX (opset 17) has no counterpart of embedding_bag with per_sample_weights=true");
  CHECK(scratch.entries() == 0);
  const auto fine = ike::initialize<float, ike::shape{batch, 2, 5, 5}>(ike::sequential(ike::relu{}),
                                                                       ike::seed{1});
  CHECK(message_of<ike::io_error>(
            [&] { ike::save_onnx(fine, scratch.path() / "nowhere" / "it.onnx"); }) != "");
}
