#include "ikebana/deploy/embedded_quantized.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <type_traits>

#include "ikebana/compose/graph.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/deploy/freeze.hpp"
#include "ikebana/deploy/prepare_thread.hpp"
#include "ikebana/deploy/quantize.hpp"
#include "ikebana/io/safetensors.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/conv.hpp"
#include "ikebana/nn/dropout.hpp"
#include "ikebana/nn/embedding.hpp"
#include "ikebana/nn/flatten.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/lstm.hpp"
#include "ikebana/ops/elementwise.hpp"
#include "test/deploy/amplifier_bfloat16.hpp"
#include "test/deploy/embedded_bfloat16.hpp"
#include "test/deploy/embedded_folded.hpp"
#include "test/deploy/embedded_folded_float.hpp"
#include "test/deploy/embedded_int8.hpp"
#include "test/support/count_allocations.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dtype;
using ike::shape;

namespace {

constexpr auto amplifier = ike::sequential("lstm"_m = ike::lazy_lstm<8, ike::stateful<1>>{},
                                           "out"_m = ike::lazy_linear<1>{});
constexpr shape one_sample{1, 1, 1};

constexpr auto picture = ike::sequential(
    "conv"_m = ike::lazy_conv2d<3, ike::kernel<3>, ike::bias<false>>{},
    "norm"_m = ike::batch_norm2d<3>{}, "relu"_m = ike::relu{}, "drop"_m = ike::dropout{.p = 0.5},
    "flatten"_m = ike::flatten{}, "fc"_m = ike::lazy_linear<5>{});
constexpr shape one_picture{1, 2, 5, 7};

// What tools/embed writes of `picture`, filled at run time. quantize folds the norm.
template <dtype Half>
struct folded_picture {
  using value_type = float;
  inline static float data[8];
  inline static std::uint16_t halves[279];
  static constexpr ike::embedded_tensor tensors[] = {{"conv.weight", shape{3, 2, 3, 3}, 0, Half},
                                                     {"conv.bias", shape{3}, 0},
                                                     {"fc.weight", shape{5, 45}, 54, Half},
                                                     {"fc.bias", shape{5}, 3}};
};
struct picture_with_norm {
  using value_type = float;
  inline static float data[17];
  inline static std::uint16_t halves[279];
  static constexpr ike::embedded_tensor tensors[] = {
      {"conv.weight", shape{3, 2, 3, 3}, 0, dtype::float16},
      {"norm.weight", shape{3}, 0},
      {"norm.bias", shape{3}, 3},
      {"norm.running_mean", shape{3}, 6},
      {"norm.running_var", shape{3}, 9},
      {"fc.weight", shape{5, 45}, 54, dtype::float16},
      {"fc.bias", shape{5}, 12}};
};

// Of a graph that doubles its input: rounded by tools/embed, or by quantize, which has doubled the
// weights.
template <bool IsFolded>
struct doubled {
  using value_type = float;
  static constexpr bool is_folded = IsFolded;
  static constexpr float data[2] = {0.5f, 0.25f};
  static constexpr std::uint16_t halves[4] = {0x3f80, 0x4000, 0x3f80, 0x3f80};  // 1, 2, 1, 1
  static constexpr ike::embedded_tensor tensors[] = {{"fc.weight", shape{2, 2}, 0, dtype::bfloat16},
                                                     {"fc.bias", shape{2}, 0}};
};

/// Fills the arrays of W, 16-bit numbers or floats, from a state.
template <class W>
void fill(const ike::state_dict& state) {
  for (const ike::embedded_tensor& t : W::tensors) {
    const auto& from = state.at(std::string(t.name));
    if (from.type == dtype::float32) {
      const auto* const x = reinterpret_cast<const float*>(from.bytes.data());
      for (ike::dim_t i = 0; i < t.extents.numel(); ++i)
        if (t.type == dtype::float32)
          W::data[t.offset + i] = x[i];
        else
          W::halves[t.offset + i] = ike::float16(x[i]).bits;
    } else {
      REQUIRE(from.type == t.type);
      REQUIRE(from.extents == t.extents);
      std::memcpy(W::halves + t.offset, from.bytes.data(), from.bytes.size());
    }
  }
}

auto trained_picture() {
  auto model = ike::initialize<float, one_picture>(picture, ike::seed{1});
  for (std::uint64_t i = 0; i < 4; ++i)
    model(ike::uniform<float, one_picture>(ike::seed{i}));  // Running statistics.
  model.eval();
  return model;
}

template <class A, class B>
void compare(const A& net, const B& expected) {
  auto lane = net.lane();
  auto other = expected.lane();
  for (std::uint64_t i = 0; i < 5; ++i) {
    const auto x = ike::uniform<float, A::input_shapes[0]>(ike::seed{i});
    const auto y = net(lane, x);
    const auto z = expected(other, x);
    REQUIRE(y.size() == z.size());
    for (ike::dim_t j = 0; j < y.size(); ++j)
      CHECK(y.data()[j] == doctest::Approx(z.data()[j]).scale(1).epsilon(2e-6));
  }
}

struct large {
  using value_type = float;
  inline static float data[512];
  inline static std::uint16_t halves[512 * 512];
  static constexpr ike::embedded_tensor tensors[] = {
      {"fc.weight", shape{512, 512}, 0, dtype::bfloat16}, {"fc.bias", shape{512}, 0}};
};
struct large_bytes {
  using value_type = float;
  inline static float data[1026];
  inline static std::int8_t bytes[512 * 512];
  static constexpr ike::embedded_tensor tensors[] = {{"fc.weight", shape{512, 512}, 0, dtype::int8},
                                                     {"fc.scale", shape{512}, 0},
                                                     {"fc.bias", shape{512}, 512},
                                                     {"fc.input", shape{2}, 1024}};
};

// An embedding is a table that nothing multiplies.
struct half_table {
  using value_type = float;
  static constexpr float data[] = {0};
  static constexpr std::uint16_t halves[6] = {};
  static constexpr ike::embedded_tensor tensors[] = {
      {"table.weight", shape{2, 3}, 0, dtype::bfloat16}};
};
struct bytes_of_double {
  using value_type = double;
  [[maybe_unused]] static constexpr double data[] = {0};
  [[maybe_unused]] static constexpr std::int8_t bytes[1] = {};
  static constexpr ike::embedded_tensor tensors[] = {{"fc.weight", shape{1, 1}, 0, dtype::int8}};
};
template <class W, shape In, class M>
constexpr ike::diagnostic wrong(const M&) {
  return ike::detail::check_embedded<W, M, In>();
}

}  // namespace

TEST_CASE("embedded weights of 16 bits are those that quantize rounds") {
  auto model = ike::initialize<float, one_sample>(amplifier, ike::seed{1});
  ike::load_state_dict(model, ike::load("examples/data/amplifier.safetensors"));
  const auto loaded = ike::quantize<ike::bfloat16>(model);
  const auto embedded = ike::freeze<amplifier_bfloat16, one_sample>(amplifier);
  static_assert(std::is_same_v<decltype(embedded), decltype(loaded)>);
  compare(embedded, loaded);
}

TEST_CASE("embedded bytes give PyTorch's numbers") {
  constexpr shape two{2, 3};
  const auto net = ike::freeze<embedded_int8, two>(
      ike::sequential("a"_m = ike::lazy_linear<5>{}, ike::relu{}, "b"_m = ike::lazy_linear<2>{}));
  const auto x = ike::tensor_of<float, two>({0.25f, -0.75f, 1.5f, -3, 0.125f, 9});
  auto lane = net.lane();
  ike::prepare_thread(net);
  net(lane, x);
  const long before = allocation_count.load();
  const auto y = net(lane, x);
  CHECK(allocation_count.load() == before);
  // Printed by test/data/embedded/int8.py.
  const float expected[] = {0.6571433f, -0.801059f, -0.6369308f, -0.2541223f};
  for (ike::dim_t i = 0; i < 4; ++i)
    CHECK(y.data()[i] == doctest::Approx(expected[i]).epsilon(1e-6));
}

TEST_CASE_TEMPLATE("the state of a quantised network is embedded as it is", Half, ike::bfloat16,
                   ike::float16) {
  using weights =
      folded_picture<std::is_same_v<Half, ike::bfloat16> ? dtype::bfloat16 : dtype::float16>;
  const auto quantised = ike::quantize<Half>(trained_picture());
  const auto path = std::filesystem::temp_directory_path() / "ikebana_embedded_quantized_test";
  ike::save(quantised.state(), path);  // PyTorch reads the numbers of 16 bits.
  const ike::state_dict stored = ike::detail::load_as_stored(path);
  CHECK(stored.is_folded());
  fill<weights>(stored);
  const ike::state_dict widened = ike::load(path);
  std::filesystem::remove(path);
  CHECK(widened.at("fc.weight").type == dtype::float32);
  const auto net = ike::freeze<weights, one_picture>(picture);
  static_assert(std::is_same_v<decltype(net), decltype(quantised)>);
  compare(net, quantised);
}

TEST_CASE("a file with the tensors of a norm makes a network that has the norm") {
  const auto model = trained_picture();
  fill<picture_with_norm>(ike::get_state_dict(model));
  const auto net = ike::freeze<picture_with_norm, one_picture>(picture);
  auto lane = net.lane();
  const auto frozen = ike::freeze(model);
  auto other = frozen.lane();
  const auto x = ike::uniform<float, one_picture>(ike::seed{9});
  const auto y = net(lane, x);
  const auto z = frozen(other, x);
  for (ike::dim_t i = 0; i < y.size(); ++i) CHECK(std::abs(y.data()[i] - z.data()[i]) < 5e-3f);
}

TEST_CASE("embedded weights of 16 bits tell whether scalings are part of them") {
  constexpr auto net =
      ike::graph([](auto x) { return "fc"_m(ike::linear<2, 2>{}, ike::relu{}(x)*2); });
  const auto x = ike::ones<float, shape{1, 2}>();
  const auto as_it_is = ike::freeze<doubled<false>, shape{1, 2}>(net);
  const auto folded = ike::freeze<doubled<true>, shape{1, 2}>(net);
  auto lane = as_it_is.lane();
  auto other = folded.lane();
  CHECK(as_it_is(lane, x)(0, 0) == 6.5f);
  CHECK(folded(other, x)(0, 0) == 3.5f);
}

TEST_CASE_TEMPLATE("files tell tools/embed whether scalings are part of their weights", Weights,
                   embedded_bfloat16, embedded_folded, embedded_folded_float) {
  const auto net = ike::freeze<Weights, shape{1, 3}>(
      ike::graph([](auto x) { return "fc"_m(ike::linear<3, 2>{}, ike::relu{}(x)*2); }));
  auto lane = net.lane();
  const auto y = net(lane, ike::tensor_of<float, shape{1, 3}>({0.25f, -0.75f, 1.5f}));
  // Printed by test/data/embedded/folded.py.
  CHECK(y(0, 0) == doctest::Approx(-0.3056641f));
  CHECK(y(0, 1) == doctest::Approx(1.46582f));
  CHECK(net.state().is_folded() == Weights::is_folded);
}

TEST_CASE("embedded weights of 16 bits and bytes are read in place") {
  constexpr auto fc = ike::sequential("fc"_m = ike::lazy_linear<512>{});
  const auto check = [](const auto make, const void* at) {
    const std::size_t before = allocated_bytes.load();
    const auto net = make();
    CHECK(allocated_bytes.load() - before < 64 * 1024);
    CHECK(net.weight_bytes() == 0);
    CHECK(net.state().at("fc.weight").bytes.data() == at);
    const auto x = ike::ones<float, shape{1, 512}>();
    auto lane = net.lane();
    CHECK(lane.workspace_bytes() < 256 * 1024);
    CHECK(net(lane, x)(0, 0) == 0);
  };
  check([&] { return ike::freeze<large, shape{1, 512}>(fc); }, large::halves);
  check([&] { return ike::freeze<large_bytes, shape{1, 512}>(fc); }, large_bytes::bytes);
}

TEST_CASE("embedded weights of 16 bits and bytes are compared with the network by the compiler") {
  CHECK(wrong<half_table, shape{1}>(ike::sequential("table"_m = ike::embedding<2, 3>{}))
            .message()
            .view() == "table.weight: has numbers of another type in the embedded weights");
  CHECK(wrong<bytes_of_double, shape{1, 1}>(ike::sequential("fc"_m = ike::linear<1, 1>{}))
            .message()
            .view() == "embedded weights of bytes are those of a network of float");
  CHECK(wrong<large, shape{1, 2}>(ike::sequential("fc"_m = ike::lazy_linear<512>{}))
            .message()
            .view() == "fc.weight: has shape [512, 2], but [512, 512] in the embedded weights");
}
