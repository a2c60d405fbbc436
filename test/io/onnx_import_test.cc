#include "tools/onnx_import.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ikebana/ikebana.hpp"
#include "test/io/onnx_activations.hpp"
#include "test/io/onnx_checks.hpp"
#include "test/io/onnx_formulas.hpp"
#include "test/io/onnx_images.hpp"
#include "test/io/onnx_keras_image.hpp"
#include "test/io/onnx_keras_sequence.hpp"
#include "test/io/onnx_recurrent.hpp"
#include "test/io/onnx_torch_encoder.hpp"
#include "test/io/onnx_torch_residual.hpp"
#include "test/io/onnx_torch_tagger.hpp"

// Networks that tools/onnx_import makes of the files of test/data/onnx, with their weights, compute
// what ONNX Runtime computes of the files.

namespace ike = ikebana;
using onnx_checks::check_values;
using onnx_checks::indices;
using onnx_checks::pattern;

namespace {

/// Loads the weights of the file that a network is made of.
template <class Model>
void load_weights(const std::string& name, Model& m) {
  ike::load_state_dict(
      m,
      onnx_import::import_onnx(name, bytes_of("test/data/onnx/" + name + ".onnx"), name).weights);
  m.eval();
}

/// The network that is made of the network's own file is the same, with the same bits.
template <class Model>
void check_round_trip(const std::string& name, const Model& m) {
  INFO(name);
  const scratch_directory scratch;
  const std::string file = name + ".onnx", again = (scratch.path() / file).string();
  ike::save_onnx(m, again);
  const onnx_import::result first = onnx_import::import_onnx(
                                file, bytes_of("test/data/onnx/" + file), name),
                            second = onnx_import::import_onnx(again, bytes_of(again), name);
  CHECK(second.header == first.header);
  REQUIRE(second.weights.size() == first.weights.size());
  for (const auto& e : first.weights) {
    INFO(e.name);
    const auto& other = second.weights.at(e.name);
    CHECK(other.extents == e.extents);
    CHECK(std::equal(e.bytes.begin(), e.bytes.end(), other.bytes.begin(), other.bytes.end()));
  }
}

}  // namespace

TEST_CASE("networks that PyTorch exported are imported from ONNX") {
  auto residual =
      ike::initialize<float, torch_residual::input>(torch_residual::network, ike::seed{1});
  load_weights("torch_residual", residual);
  check_round_trip("torch_residual", residual);
  check_values("torch_residual", residual, pattern<float, ike::shape{2, 3, 8, 8}>(1));
  auto encoder = ike::initialize<float, torch_encoder::input>(torch_encoder::network, ike::seed{1});
  load_weights("torch_encoder", encoder);
  check_values("torch_encoder", encoder, pattern<float, ike::shape{2, 5, 6}>(1));
  auto tagger = ike::initialize<float, torch_tagger::input>(torch_tagger::network, ike::seed{1});
  load_weights("torch_tagger", tagger);
  check_round_trip("torch_tagger", tagger);
  check_values("torch_tagger", tagger, indices<ike::shape{2, 5}>(3));
}

TEST_CASE("networks that were exported are imported from ONNX") {
  auto i = ike::initialize<float, images::input>(images::network, ike::seed{1});
  load_weights("images", i);
  check_round_trip("images", i);
  check_values("images", i, pattern<float, ike::shape{2, 4, 6, 6}>(1));
  auto r = ike::initialize<float, recurrent::input0, recurrent::input1>(recurrent::network,
                                                                        ike::seed{1});
  load_weights("recurrent", r);
  check_round_trip("recurrent", r);
  check_values("recurrent", r, indices<ike::shape{4, 2}>(3),
               pattern<float, ike::shape{2, 5, 6}>(2));
  auto a = ike::initialize<float, activations::input>(activations::network, ike::seed{1});
  load_weights("activations", a);
  check_values("activations", a, pattern<float, ike::shape{3, 4, 5}>(1));
  auto f =
      ike::initialize<float, formulas::input0, formulas::input1>(formulas::network, ike::seed{1});
  load_weights("formulas", f);
  check_values("formulas", f, pattern<float, ike::shape{2, 3, 4}>(1),
               pattern<float, ike::shape{2, 3, 4}>(2));
}

TEST_CASE("networks of Keras are imported from what tf2onnx writes") {
  auto i = ike::initialize<float, keras_image::input>(keras_image::network, ike::seed{1});
  load_weights("keras_image", i);
  check_values("keras_image", i, pattern<float, ike::shape{2, 8, 8, 3}>(1));
  auto s = ike::initialize<float, keras_sequence::input>(keras_sequence::network, ike::seed{1});
  load_weights("keras_sequence", s);
  check_values("keras_sequence", s, pattern<float, ike::shape{2, 5, 3}>(1));
}

namespace {

/// A file with one node, which reads `x`, [N, 2, 5, 5], and weights `w`, [3, 2, 4, 4].
std::string file_of(const std::string& op, std::vector<ike::detail::onnx_attribute> attributes,
                    std::vector<std::string> inputs = {"x", "w"}) {
  ike::detail::onnx_model m;
  m.opset = 17;
  m.nodes.push_back({op, "it", "", std::move(inputs), {"y"}, std::move(attributes)});
  ike::detail::onnx_tensor w;
  w.name = "w";
  w.type = ike::detail::onnx_type::float32;
  w.dims = {3, 2, 4, 4};
  w.own = std::string(4 * 96, '\0');
  m.initializers.push_back(w);
  m.inputs.push_back({"x", w.type, {{-1, "N"}, {2, ""}, {5, ""}, {5, ""}}});
  m.outputs.push_back({"y", w.type, {}});
  const scratch_directory scratch;
  ike::detail::write_onnx(m, scratch.path() / "it.onnx");
  return bytes_of(scratch.path() / "it.onnx");
}
std::string error_of(const std::string& file) {
  return message_of<ike::io_error>([&] { onnx_import::import_onnx("it.onnx", file, "it"); });
}

}  // namespace

TEST_CASE("Keras leaves the padding to ONNX") {
  const std::string header =
      onnx_import::import_onnx("it.onnx",
                               file_of("Conv", {{"auto_pad", "SAME_UPPER"},
                                                {"strides", std::vector<std::int64_t>{2, 1}}}),
                               "it")
          .header;
  // Of the last dimension first: 4 - 1 more columns; (3 - 1) * 2 + 4 - 5 = 3 more rows.
  CHECK(contains(header, "auto v1 = ike::pad<1, 2, 1, 2>(x, 0);"));
  CHECK(contains(header, "ike::kernel<4>, ike::stride<2, 1>, ike::bias<false>>{}, v1);"));
}

TEST_CASE("a reshape of a recurrent output that does not join its directions is one") {
  using ints = std::vector<std::int64_t>;
  // A bidirectional RNN of 4 on [3, 2, 5], [L, directions, N, H] transposed to [L, N, directions,
  // H].
  const auto header_of = [](const ints& to) {
    ike::detail::onnx_model m;
    m.opset = 17;
    const auto tensor = [&](const char* name, ints dims) {
      ike::detail::onnx_tensor t;
      t.name = name;
      t.type = ike::detail::onnx_type::float32;
      std::int64_t n = 4;
      for (std::int64_t d : dims) n *= d;
      t.dims = std::move(dims);
      t.own = std::string(static_cast<std::size_t>(n), '\0');
      return t;
    };
    m.initializers = {tensor("w", {2, 4, 5}), tensor("r", {2, 4, 4})};
    ike::detail::onnx_tensor shape;
    shape.name = "to";
    shape.type = ike::detail::onnx_type::int64;
    shape.dims = {static_cast<std::int64_t>(to.size())};
    shape.own = std::string(reinterpret_cast<const char*>(to.data()), 8 * to.size());
    m.initializers.push_back(shape);
    m.nodes.push_back({"RNN",
                       "rnn",
                       "",
                       {"x", "w", "r"},
                       {"a"},
                       {{"hidden_size", std::int64_t{4}}, {"direction", "bidirectional"}}});
    m.nodes.push_back({"Transpose", "t", "", {"a"}, {"b"}, {{"perm", ints{0, 2, 1, 3}}}});
    m.nodes.push_back({"Reshape", "r", "", {"b", "to"}, {"y"}, {}});
    m.inputs.push_back({"x", shape.type, {{3, ""}, {2, ""}, {5, ""}}});
    m.inputs[0].type = ike::detail::onnx_type::float32;
    m.outputs.push_back({"y", ike::detail::onnx_type::float32, {}});
    const scratch_directory scratch;
    ike::detail::write_onnx(m, scratch.path() / "it.onnx");
    return onnx_import::import_onnx("it.onnx", bytes_of(scratch.path() / "it.onnx"), "it").header;
  };
  for (const ints& joins : {ints{0, 0, -1}, ints{3, 2, 8}, ints{-1, 2, 8}, ints{0, -1, 8}})
    CHECK(!contains(header_of(joins), "reshape"));
  CHECK(contains(header_of({-1, 2, 4}), "unflattened_size<2, 4>>{}"));
  CHECK(contains(header_of({-1, 2, 4}), "ike::reshape<6, 2, 4>("));
  CHECK(contains(header_of({3, 4, 4}), "ike::reshape<3, 4, 4>("));
}

TEST_CASE("pads that PyTorch computes of constants are found") {
  const std::string header =
      onnx_import::import_onnx("it.onnx", bytes_of("test/data/onnx/torch_padded.onnx"), "it")
          .header;
  CHECK(contains(header, "ike::pad<1, 2>(x, 0);"));
}

TEST_CASE("a part of a constant along two dimensions is taken in the graph") {
  const std::string header =
      onnx_import::import_onnx("it.onnx", bytes_of("test/data/onnx/part_of_constant.onnx"), "it")
          .header;
  CHECK(contains(header, "ike::slice<"));
}

TEST_CASE("masks that a file computes of constants are parameters") {
  using namespace ike::literals;
  const auto model = ike::initialize<float, ike::shape{ike::dynamic, 4}>(
      ike::graph([](auto words) {
        const auto e = "words"_m(ike::embedding<7, 6>{}, words);
        const auto x = e + ike::parameter<"places", ike::shape{4, 6}>(e);
        const auto i = ike::arange_like<1>(x);
        const auto mask = ike::where(i > ike::unsqueeze<1>(i), -1e9, i / 4 + 2 * (i == 1));
        const auto scores = ike::einsum<"nqd,nkd->nqk">(x, x);
        return ike::reshape<-1, 24>(ike::matmul(ike::softmax<>{}(scores + mask), x));
      }),
      ike::seed{1});
  const scratch_directory scratch;
  const std::string file = (scratch.path() / "it.onnx").string();
  ike::save_onnx(model, file);
  const auto r = onnx_import::import_onnx(file, bytes_of(file), "it");
  CHECK(contains(r.header, "ike::parameter<\"places\", ike::shape{4, 6}>(v1)"));
  CHECK(contains(r.header, "ike::reshape<-1, 24>("));
  CHECK(!contains(r.header, "where"));
  std::size_t masks = 0;
  for (const auto& e : r.weights) {
    if (e.extents != ike::shape{4, 4}) continue;
    ++masks;
    for (ike::dim_t q = 0; q < 4; ++q)
      for (ike::dim_t k = 0; k < 4; ++k)
        CHECK(reinterpret_cast<const float*>(e.bytes.data())[4 * q + k] ==
              (k > q ? -1e9f : static_cast<float>(k) / 4 + (k == 1 ? 2.0f : 0.0f)));
  }
  CHECK(masks == 1);
}

TEST_CASE("what is not translated of an ONNX file is an error that names the node") {
  CHECK(error_of(file_of("Frobnicate", {})) ==
        "it.onnx: the node \"it\" (Frobnicate) is an operator that is not translated");
  CHECK(error_of(file_of("Relu", {}, {"z"})) ==
        "it.onnx: the node \"it\" (Relu) reads \"z\", which no node before it makes");
  CHECK(error_of(file_of("ConvTranspose", {{"auto_pad", "SAME_UPPER"}})) ==
        "it.onnx: the node \"it\" (ConvTranspose) has an auto_pad, which is not translated");
  CHECK(error_of(file_of("Transpose", {{"perm", std::vector<std::int64_t>{0, 9, 1, 2}}}, {"x"})) ==
        "it.onnx: the node \"it\" (Transpose) has an axis of 9");
  CHECK(error_of("") == "it.onnx: is not an ONNX file: it has no graph");
  CHECK(error_of("\x08") == "it.onnx: is not an ONNX file: it has a number that does not end");
  const std::string whole = file_of("Relu", {}, {"x"});
  CHECK(error_of(whole.substr(0, whole.size() - 1)) != "");
}
