#include "ikebana/model/state.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <boost/hana/first.hpp>
#include <boost/hana/for_each.hpp>
#include <boost/hana/second.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/dot.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/lazy_model.hpp"
#include "ikebana/model/named_parameters.hpp"
#include "ikebana/model/summary.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/conv.hpp"
#include "ikebana/nn/flatten.hpp"
#include "ikebana/nn/linear.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dtype;
using ike::dynamic;
using ike::shape;

namespace {

constexpr auto net = ike::sequential("conv"_m = ike::lazy_conv2d<4, ike::kernel<3>>{},
                                     "norm"_m = ike::lazy_batch_norm2d<>{},
                                     "flatten"_m = ike::flatten{}, "fc"_m = ike::lazy_linear<3>{});
constexpr shape image{dynamic, 1, 4, 4};

template <class T>
auto make(std::uint64_t s) {
  return ike::initialize<T, image>(net, ike::seed{s});
}

template <class Model>
std::vector<std::byte> all_bytes(const Model& m) {
  std::vector<std::byte> all;
  for (const auto& e : ike::get_state_dict(m))
    all.insert(all.end(), e.bytes.begin(), e.bytes.end());
  return all;
}

}  // namespace

TEST_CASE("the state of a model has PyTorch's names, order, types and shapes") {
  const auto m = make<float>(1);
  const ike::state_view dict = ike::get_state_dict(m);
  std::vector<std::string> names;
  for (const auto& e : dict) names.push_back(e.name);
  CHECK(names == std::vector<std::string>{"conv.weight", "conv.bias", "norm.weight", "norm.bias",
                                          "norm.running_mean", "norm.running_var",
                                          "norm.num_batches_tracked", "fc.weight", "fc.bias"});
  CHECK(dict.at("conv.weight").extents == shape{4, 1, 3, 3});
  CHECK(dict.at("norm.num_batches_tracked").type == dtype::int64);
  CHECK(dict.at("norm.num_batches_tracked").extents == shape{});
  CHECK(dict.at("norm.running_var").type == dtype::float32);
}

TEST_CASE("the state is a view; a clone is not") {
  auto m = make<float>(1);
  const ike::state_view view = ike::get_state_dict(m);
  const ike::state_dict kept = view.clone();
  m["fc.bias"_s][0] = 42;
  CHECK(view.at("fc.bias").view<float, shape{3}>()[0] == 42);
  CHECK(kept.at("fc.bias").view<float, shape{3}>()[0] != 42);
  ike::load_state_dict(m, kept);
  CHECK(view.at("fc.bias").view<float, shape{3}>()[0] != 42);
}

TEST_CASE("a state goes from one model to another, all of it") {
  auto a = make<float>(1), b = make<float>(2);
  a(ike::uniform<float, image>(ike::seed{1}, 3));  // Statistics and counter too.
  CHECK(all_bytes(a) != all_bytes(b));
  ike::load_state_dict(b, ike::get_state_dict(a));
  CHECK(all_bytes(a) == all_bytes(b));
  CHECK(
      *ike::get_state_dict(b).at("norm.num_batches_tracked").view<std::int64_t, shape{}>().data() ==
      1);
  ike::load_state_dict(a, ike::get_state_dict(a));  // Onto itself.
  CHECK(all_bytes(a) == all_bytes(b));
}

TEST_CASE("float and double convert, both ways") {
  auto single = make<float>(1);
  auto wide = make<double>(2);
  ike::load_state_dict(wide, ike::get_state_dict(single));
  for (ike::dim_t i = 0; i < 3; ++i)
    CHECK(wide["fc.bias"_s][i] == static_cast<double>(single["fc.bias"_s][i]));
  auto again = make<float>(3);
  ike::load_state_dict(again, ike::get_state_dict(wide));
  CHECK(all_bytes(again) == all_bytes(single));
}

TEST_CASE("all that is wrong is said at once, and nothing has changed") {
  auto m = make<float>(1);
  const auto before = all_bytes(m);
  ike::state_dict dict;
  const ike::state_dict right = ike::get_state_dict(make<float>(2)).clone();
  for (const auto& e : right) {
    if (e.name == "conv.bias" || e.name == "norm.running_mean") continue;
    if (e.name == "fc.weight")
      dict.add_owned(e.name, e.type, shape{3, 5});
    else if (e.name == "norm.num_batches_tracked")
      dict.add_owned(e.name, dtype::float32, shape{});
    else if (e.name == "fc.bias")
      dict.add_owned(e.name, dtype::int32, shape{3});
    else
      dict.add_view(e.name, e.type, e.extents, e.bytes.data());
  }
  dict.add_owned("fc2.weight", dtype::float32, shape{1});
  dict.add_owned("module.fc.bias", dtype::float32, shape{1});
  CHECK_THROWS_WITH_AS(
      ike::load_state_dict(m, dict),
      "load_state_dict: missing keys: conv.bias, norm.running_mean; unexpected keys: fc2.weight, "
      "module.fc.bias; mismatched: norm.num_batches_tracked expects int64 [], got float32 [], "
      "fc.weight expects float32 [3, 16], got float32 [3, 5], fc.bias expects float32 [3], got "
      "int32 [3]",
      ike::state_error);
  CHECK(all_bytes(m) == before);
  CHECK_THROWS_AS(ike::load_state_dict(m, ike::state_dict{}), ike::state_error);
  CHECK(all_bytes(m) == before);
}

TEST_CASE("a parameter by its path has its shape in its type") {
  auto m = make<double>(1);
  const auto& constant = m;
  static_assert(decltype(m["conv.weight"_s])::static_shape == shape{4, 1, 3, 3});
  static_assert(std::is_same_v<decltype(m["fc.bias"_s])::value_type, double>);
  static_assert(std::is_const_v<std::remove_pointer_t<decltype(constant["fc.bias"_s].data())>>);
  CHECK(m["fc.weight"_s](2, 15) == m["fc.weight"_s][47]);
  m["fc.weight"_s](0, 0) = 3;
  CHECK(ike::get_state_dict(m).at("fc.weight").view<double, shape{3, 16}>()[0] == 3);
  const auto gradient = constant.gradient("fc.weight"_s);
  CHECK(gradient.data() - m.gradients().data() == m["fc.weight"_s].data() - m.parameters().data());
}

TEST_CASE("Hana's algorithms walk over the parameters") {
  auto m = make<float>(1);
  std::vector<std::string> names;
  ike::dim_t elements = 0;
  boost::hana::for_each(ike::named_parameters(m), [&](auto p) {
    names.emplace_back(boost::hana::first(p).c_str());
    elements += boost::hana::second(p).size();
    boost::hana::second(p)[0] = 7;
  });
  CHECK(names == std::vector<std::string>{"conv.weight", "conv.bias", "norm.weight", "norm.bias",
                                          "fc.weight", "fc.bias"});
  CHECK(elements == 36 + 4 + 4 + 4 + 48 + 3);
  CHECK(m["conv.bias"_s][0] == 7);
  const auto& constant = m;
  boost::hana::for_each(ike::named_parameters(constant), [&](auto p) {
    static_assert(std::is_const_v<std::remove_pointer_t<decltype(boost::hana::second(p).data())>>);
  });
}

TEST_CASE("a loop at run time walks over the parameters, too") {
  auto m = make<float>(1);
  std::vector<std::string_view> names;
  ike::dim_t elements = 0;
  for (auto [name, value] : ike::named_parameters(m)) {
    names.push_back(name);
    elements += value.size();
    if (name.ends_with(".bias"))
      for (float& v : value) v = 5;
  }
  CHECK(names == std::vector<std::string_view>{"conv.weight", "conv.bias", "norm.weight",
                                               "norm.bias", "fc.weight", "fc.bias"});
  CHECK(elements == 99);
  CHECK(ike::parameter_count(m) == 99);
  for (float v : m["fc.bias"_s]) CHECK(v == 5);
  CHECK(m["fc.weight"_s][0] != 5);

  const auto& constant = m;
  const auto list = ike::named_parameters(constant);
  static_assert(list.size() == 6);
  const auto weight = list.begin()[4].value;
  static_assert(std::is_same_v<decltype(weight.data()), const float*>);
  CHECK(weight.extents() == shape{3, 16});
  CHECK(weight.data() == m["fc.weight"_s].data());
  CHECK(weight.as<shape{ike::dynamic, 16}>()(2, 15) == weight[47]);
  CHECK_THROWS_AS((weight.as<shape{16, 3}>()), ike::shape_error);
  CHECK_THROWS_AS((weight.as<shape{48}>()), ike::shape_error);
}

TEST_CASE("the summary counts what there is") {
  auto m = make<float>(1);
  const ike::model_summary s = ike::summarize(m);
  REQUIRE(s.rows.size() == 4);
  CHECK(s.rows[0].path == "conv");
  CHECK(s.rows[0].output == shape{1, 4, 2, 2});
  CHECK(s.rows[0].parameters == 40);
  CHECK(s.rows[0].multiply_adds == 4 * 4 * 9);
  CHECK(s.rows[3].multiply_adds == 48);
  CHECK(s.parameters == 99);
  CHECK(s.parameter_bytes == 396);
  m(ike::uniform<float, image>(ike::seed{1}, 3));
  CHECK(ike::summarize(m).rows[3].output == shape{3, 3});
  const std::string table = ike::summary(m);
  CHECK(table.find("fc       linear") != std::string::npos);
  CHECK(table.find("[3, 4, 2, 2]") != std::string::npos);
  CHECK(std::count(table.begin(), table.end(), '\n') == 9);
}

TEST_CASE("the summary is a table with aligned columns") {
  ike::model_summary s;
  s.rows = {{"fc", "linear(in_features=3)", "linear", shape{2, 3}, 12, 1234567},
            {"activation", "relu", "relu", shape{2, 3}}};
  s.inputs = {shape{2, 3}, shape{4}};
  s.parameters = 12;
  s.multiply_adds = 1234567;
  s.parameter_bytes = 48;
  s.workspace_bytes = 1000;
  CHECK(ike::to_string(s) ==
        "path        module  output  parameters  multiply-adds\n"
        "-----------------------------------------------------\n"
        "fc          linear  [2, 3]          12      1,234,567\n"
        "activation  relu    [2, 3]           0              0\n"
        "-----------------------------------------------------\n"
        "total                               12      1,234,567\n"
        "input [2, 3] [4], parameters 48 bytes, buffers 0 bytes, workspace 1,000 bytes\n");
}

TEST_CASE("the drawing has a node for each module and an edge for each value") {
  const std::string dot = ike::to_dot(make<float>(1));
  CHECK(dot.starts_with("digraph network {\n"));
  CHECK(dot.ends_with("}\n"));
  const auto times = [&](std::string_view what) {
    int n = 0;
    for (std::size_t at = dot.find(what); at != std::string::npos; at = dot.find(what, at + 1)) ++n;
    return n;
  };
  CHECK(times(" -> ") == 5);
  CHECK(times("shape=ellipse") == 2);
  CHECK(dot.find("label=\"fc: linear(in_features=16, out_features=3, bias=true)\"") !=
        std::string::npos);
  CHECK(dot.find("label=\"[1, 16]\"") != std::string::npos);
}

TEST_CASE("the best so far is a snapshot, and comes back") {
  auto m = make<float>(1);
  static_assert(std::is_same_v<decltype(ike::get_state_dict(m)), ike::state_view>);
  static_assert(std::is_same_v<decltype(m.snapshot()), ike::state_dict>);
  const auto first = all_bytes(m);
  ike::state_dict best = m.snapshot();
  m["fc.bias"_s][0] = 42;
  m.buffer("norm.running_mean"_s)[1] = 3;
  CHECK(all_bytes(m) != first);
  ike::load_state_dict(m, best);
  CHECK(all_bytes(m) == first);
  m["fc.bias"_s][0] = 43;
  best = m.snapshot();
  m["fc.bias"_s][0] = 44;
  ike::load_state_dict(m, best);
  CHECK(m["fc.bias"_s][0] == 43);
  // Hooks on saved states see it.
  m.register_state_dict_hook([](ike::state_dict& d) { d.rename("fc.bias", "head.bias"); });
  CHECK(m.snapshot().contains("head.bias"));

  ike::lazy_model holder{net, ike::seed{1}};
  const ike::state_dict before = holder.snapshot();
  CHECK(before.at("fc.weight").uninitialized);
}
