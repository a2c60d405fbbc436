#include "ikebana/io/onnx.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <tuple>
#include <vector>

#include "ikebana/ikebana.hpp"
#include "ikebana/nn.hpp"
#include "test/support/load_recorded.hpp"
#include "test/support/scratch.hpp"

// Files that save_onnx writes are compared with those of test/data/onnx, byte by byte, and outputs
// with what ONNX Runtime computed of those files; Debian's checker has accepted them
// (test/data/onnx.py). With IKEBANA_RECORD_ONNX, they are written anew.

namespace ike = ikebana;
using namespace ike::literals;

namespace {

constexpr ike::dim_t batch = ike::dynamic;

/// Numbers between -1 and 1 that JavaScript computes alike.
template <class T, ike::shape S>
ike::tensor<T, S> pattern(int first) {
  ike::tensor<T, S> x;
  for (ike::dim_t i = 0; i < x.extents().numel(); ++i)
    x.data()[i] = static_cast<T>(static_cast<double>((37 * i + first) % 101) / 50 - 1);
  return x;
}
template <ike::shape S>
ike::tensor<std::int64_t, S> indices(std::int64_t limit) {
  ike::tensor<std::int64_t, S> x;
  for (ike::dim_t i = 0; i < x.extents().numel(); ++i) x.data()[i] = (5 * i + 1) % limit;
  return x;
}

/// The outputs of a call.
template <class... V>
auto as_tuple(const std::tuple<V...>& y) {
  return y;
}
template <class V>
auto as_tuple(const V& y) {
  return std::tuple<V>(y);
}

template <class Model, class... X>
void check_export(const std::string& name, Model& m, const X&... x) {
  INFO(name);
  m.eval();
  const scratch_directory scratch;
  const std::string file = name + ".onnx";
  ike::save_onnx(m, scratch.path() / file);
  const std::string written = bytes_of(scratch.path() / file);
  if (std::getenv("IKEBANA_RECORD_ONNX") != nullptr) {
    std::filesystem::copy_file(scratch.path() / file, "test/data/onnx/" + file,
                               std::filesystem::copy_options::overwrite_existing);
    return;
  }
  CHECK(written == bytes_of("test/data/onnx/" + file));

  const ike::state_dict recorded = load_recorded("onnx/values");
  const auto y = as_tuple(m(x...));
  std::size_t output = 0;
  const auto compare = [&](const auto& got) {
    const ike::state_dict::entry& e = recorded.at(name + '.' + std::to_string(output++));
    INFO(e.name);
    REQUIRE(e.extents.numel() == got.extents().numel());
    const auto* const expected = reinterpret_cast<const double*>(e.bytes.data());
    for (ike::dim_t i = 0; i < got.extents().numel(); ++i) {
      CAPTURE(i);
      CHECK(static_cast<double>(got.data()[i]) == doctest::Approx(expected[i]).epsilon(2e-5));
    }
  };
  std::apply([&](const auto&... each) { (compare(each), ...); }, y);
}

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
