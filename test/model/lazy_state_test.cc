#include "ikebana/model/lazy/lazy_state.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/lazy_model.hpp"
#include "ikebana/model/print.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/layer_norm.hpp"
#include "ikebana/nn/linear.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dtype;
using ike::dynamic;
using ike::lazy;
using ike::shape;

namespace {

// fc2 is written out, the others are lazy.
constexpr auto net =
    ike::sequential("fc1"_m = ike::lazy_linear<4>{}, "norm"_m = ike::lazy_batch_norm1d<>{},
                    "relu"_m = ike::relu{}, "fc2"_m = ike::linear<4, 2>{});
constexpr shape input{dynamic, 5};

auto concrete(std::uint64_t s) { return ike::initialize<float, input>(net, ike::seed{s}); }

ike::lazy_model<std::remove_const_t<decltype(net)>> holder_of(std::uint64_t s) {
  return {net, ike::seed{s}};
}

template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const ike::error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

const auto x = ike::uniform<float, shape{3, 5}>(ike::seed{9});
const auto narrow = ike::uniform<float, shape{3, 7}>(ike::seed{9});

std::vector<std::string> uninitialized(const ike::state_dict& dict) {
  std::vector<std::string> names;
  for (const auto& e : dict)
    if (e.uninitialized) names.push_back(e.name);
  return names;
}

const std::vector<std::string> lazy_names{"fc1.weight", "fc1.bias",          "norm.weight",
                                          "norm.bias",  "norm.running_mean", "norm.running_var"};

bool same_bytes(const ike::state_dict& a, const ike::state_dict& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i].name != b[i].name || a[i].bytes.size() != b[i].bytes.size() ||
        a[i].uninitialized != b[i].uninitialized || !(a[i].extents == b[i].extents) ||
        (!a[i].bytes.empty() &&
         std::memcmp(a[i].bytes.data(), b[i].bytes.data(), a[i].bytes.size()) != 0))
      return false;
  return true;
}

}  // namespace

TEST_CASE("before the first call a state marks what is uninitialized") {
  const auto holder = holder_of(1);
  const ike::state_view dict = ike::get_state_dict(holder);
  CHECK(uninitialized(dict) == lazy_names);
  CHECK(dict.at("fc1.weight").extents == shape{4, lazy});
  CHECK(dict.at("fc1.bias").extents == shape{4});
  CHECK(dict.at("norm.running_var").extents == shape{lazy});
  CHECK(dict.at("fc1.weight").bytes.empty());
  CHECK(message_of([&] { dict.at("fc1.bias").view<float, shape{4}>(); }) ==
        "fc1.bias: has no elements, for its module is still lazy");
  // The rest has its final initial values.
  const auto model = concrete(1);
  for (const char* name : {"fc2.weight", "fc2.bias", "norm.num_batches_tracked"}) {
    const auto expected = ike::get_state_dict(model).at(name).bytes;
    REQUIRE(dict.at(name).bytes.size() == expected.size());
    CHECK(std::memcmp(dict.at(name).bytes.data(), expected.data(), expected.size()) == 0);
  }
  CHECK(uninitialized(dict.clone()) == lazy_names);
}

TEST_CASE("what a loaded state leaves unknown is still printed as lazy") {
  auto holder = holder_of(1);
  const std::string before = holder.printed();
  ike::load_state_dict(holder, ike::get_state_dict(holder_of(2)));
  CHECK(holder.printed() == before);

  const auto source = concrete(2);
  const ike::state_view known = ike::get_state_dict(source);
  ike::state_dict given;
  for (const auto& e : ike::get_state_dict(holder))
    if (e.uninitialized && e.name.starts_with("norm."))
      given.add_uninitialized(e.name, e.type, e.extents);
    else
      given.add_view(e.name, e.type, known.at(e.name).extents, known.at(e.name).bytes.data());
  ike::load_state_dict(holder, given);
  CHECK(holder.printed().find("linear(in_features=5, out_features=4") != std::string::npos);
  CHECK(holder.printed().find("num_features=lazy") != std::string::npos);
  std::ostringstream stream;
  stream << holder;
  CHECK(stream.str() == holder.printed());
}

TEST_CASE("a concrete state resolves a lazy model without any input") {
  const auto source = concrete(2);
  const ike::state_view dict = ike::get_state_dict(source);
  auto holder = holder_of(1);
  CHECK(holder.has_uninitialized_params());
  ike::load_state_dict(holder, dict);
  CHECK_FALSE(holder.has_uninitialized_params());
  CHECK(holder.printed().find("linear(in_features=5, out_features=4") != std::string::npos);
  CHECK(holder.printed().find("num_features=4") != std::string::npos);
  CHECK(same_bytes(ike::get_state_dict(holder), dict));

  // Inputs that do not match the weights are refused, as by any model; the state is kept.
  CHECK(message_of([&] { holder(narrow); }) ==
        "fc1: linear expects in_features = 5, got 7 (input [3, 7])");
  CHECK(same_bytes(ike::get_state_dict(holder), dict));
  auto model = source.clone();
  model.eval();
  holder.eval();
  // Without fusion, which the holder does without: it sums in another order.
  model.set_fusion(false);
  CHECK(std::memcmp(holder(x).data(), model(x).data(), sizeof(float) * 6) == 0);
  CHECK(same_bytes(ike::get_state_dict(holder), dict));
  CHECK(message_of([&] { holder(narrow); }) ==
        "fc1: linear expects in_features = 5, got 7 (input [3, 7])");
}

TEST_CASE("after the first call a state is loaded as into any model") {
  auto holder = holder_of(1);
  holder(x);
  const auto source = concrete(2);
  ike::load_state_dict(holder, ike::get_state_dict(source));
  CHECK(same_bytes(ike::get_state_dict(holder), ike::get_state_dict(source)));
  CHECK(message_of([&] {
          ike::load_state_dict(holder, ike::get_state_dict(holder_of(3)));
        }).starts_with("load_state_dict: uninitialized: fc1.weight, "));
}

TEST_CASE("a lazy state leaves a lazy model lazy, and brings what it has") {
  auto source = holder_of(2);
  auto holder = holder_of(1);
  ike::load_state_dict(holder, ike::get_state_dict(source));
  CHECK(holder.has_uninitialized_params());
  CHECK(uninitialized(ike::get_state_dict(holder)) == lazy_names);
  holder(x);
  // The lazy parts depend on the holder's seed, the others are as loaded.
  const ike::state_view got = ike::get_state_dict(holder);
  const auto one = concrete(1), two = concrete(2);
  CHECK(got.at("fc1.weight").view<float, shape{4, 5}>()[3] == one["fc1.weight"_s][3]);
  CHECK(got.at("fc2.weight").view<float, shape{2, 4}>()[3] == two["fc2.weight"_s][3]);
}

TEST_CASE("a state may be uninitialized where the network is lazy, a module at a time") {
  const auto source = concrete(2);
  const ike::state_view full = ike::get_state_dict(source);
  ike::state_dict half;
  for (const auto& e : full)
    if (e.name.starts_with("norm.") && e.name != "norm.num_batches_tracked")
      half.add_uninitialized(e.name, e.type, shape{lazy});
    else
      half.add_view(e.name, e.type, e.extents, e.bytes.data());
  auto holder = holder_of(1);
  ike::load_state_dict(holder, half);
  CHECK(holder.has_uninitialized_params());
  CHECK(message_of([&] { holder(narrow); }) ==
        "fc1: linear expects in_features = 5, got 7 (input [3, 7])");
  holder(x);
  CHECK_FALSE(holder.has_uninitialized_params());
  CHECK(ike::get_state_dict(holder).at("fc1.weight").view<float, shape{4, 5}>()[3] ==
        source["fc1.weight"_s][3]);
}

TEST_CASE("partial, surplus and unfit states are refused, with every key, and nothing changes") {
  const auto source = concrete(2);
  const ike::state_view full = ike::get_state_dict(source);
  const auto refuse = [&](auto&& edit, const std::string& expected) {
    ike::state_view dict = full.views();
    edit(dict);
    const std::size_t entries = dict.size();
    auto holder = holder_of(1);
    const ike::state_view before = ike::get_state_dict(holder);
    CHECK(message_of([&] { ike::load_state_dict(holder, dict); }) == expected);
    CHECK(same_bytes(ike::get_state_dict(holder), before));
    CHECK(dict.size() == entries);
    CHECK(holder.has_uninitialized_params());
    CHECK(holder(narrow).extents() == shape{3, 2});  // Resolved by its input after all.
  };
  refuse([](ike::state_dict& d) { d.erase("fc1.weight"), d.erase("norm.running_mean"); },
         "load_state_dict: missing keys: fc1.weight, norm.running_mean");
  refuse([](ike::state_dict& d) { d.add_owned("fc3.weight", dtype::float32, shape{1}); },
         "load_state_dict: unexpected keys: fc3.weight");
  refuse(
      [](ike::state_dict& d) {
        d.erase("fc1.weight"), d.erase("fc2.bias"), d.erase("norm.weight");
        d.add_owned("fc1.weight", dtype::float32, shape{3, 5});
        d.add_owned("fc2.bias", dtype::int32, shape{2});
        d.add_owned("norm.weight", dtype::float32, shape{6});
        d.add_owned("more", dtype::float32, shape{1});
      },
      "load_state_dict: unexpected keys: more; mismatched: fc1.weight expects float32 [4, 5], got "
      "float32 [3, 5], norm.bias expects float32 [6], got float32 [4], norm.running_mean expects "
      "float32 [6], got float32 [4], norm.running_var expects float32 [6], got float32 [4], "
      "fc2.bias expects float32 [2], got int32 [2]");
  refuse(
      [](ike::state_dict& d) {
        d.erase("fc1.bias"), d.erase("fc2.bias");
        d.add_uninitialized("fc1.bias", dtype::float32, shape{4});
        d.add_uninitialized("fc2.bias", dtype::float32, shape{2});
      },
      "load_state_dict: uninitialized: fc1.bias, fc2.bias");
}

TEST_CASE("an extent that the module's type has is not taken from a state, not even 0") {
  ike::lazy_model holder{ike::sequential("ln"_m = ike::layer_norm<shape{0, lazy}>{}), ike::seed{1}};
  ike::state_dict dict;
  dict.add_owned("ln.weight", dtype::float32, shape{2, 3});
  dict.add_owned("ln.bias", dtype::float32, shape{2, 3});
  CHECK(message_of([&] { ike::load_state_dict(holder, dict); }) ==
        "load_state_dict: mismatched: ln.weight expects float32 [0, 3], got float32 [2, 3], "
        "ln.bias expects float32 [0, 3], got float32 [2, 3]");
}

TEST_CASE("a lazy state is refused by a concrete model, with every key") {
  auto model = concrete(1);
  const ike::state_dict before = ike::get_state_dict(model).clone();
  CHECK(message_of([&] { ike::load_state_dict(model, ike::get_state_dict(holder_of(2))); }) ==
        "load_state_dict: uninitialized: fc1.weight, fc1.bias, norm.weight, norm.bias, "
        "norm.running_mean, norm.running_var");
  CHECK(same_bytes(ike::get_state_dict(model), before));
}

TEST_CASE("modules that were loaded but do not fit each other are refused at the first call") {
  // The second's in_features were loaded as 9, but the first gives 4.
  constexpr auto two =
      ike::sequential("a"_m = ike::lazy_linear<4>{}, "b"_m = ike::lazy_linear<2>{});
  ike::lazy_model holder{two, ike::seed{1}};
  ike::state_dict dict;
  dict.add_owned("a.weight", dtype::float32, shape{4, 5});
  dict.add_owned("a.bias", dtype::float32, shape{4});
  dict.add_owned("b.weight", dtype::float32, shape{2, 9});
  dict.add_owned("b.bias", dtype::float32, shape{2});
  ike::load_state_dict(holder, dict);
  CHECK(message_of([&] { holder(x); }) ==
        "b: linear expects in_features = 9, got 4 (input [3, 4])");
}

TEST_CASE("the element type that was chosen is kept when a state of another is loaded") {
  const auto source = concrete(2);
  ike::lazy_model holder{net, ike::seed{1}, ike::element_type<double>{}};
  ike::load_state_dict(holder, ike::get_state_dict(source));
  CHECK(ike::get_state_dict(holder).at("fc1.weight").type == dtype::float64);
  CHECK(ike::get_state_dict(holder).at("norm.num_batches_tracked").type == dtype::int64);
  holder(ike::ones<double, shape{3, 5}>());
  CHECK(ike::get_state_dict(holder).at("fc1.weight").view<double, shape{4, 5}>()[3] ==
        static_cast<double>(source["fc1.weight"_s][3]));
}
