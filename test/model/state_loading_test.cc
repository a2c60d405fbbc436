// Loading a part of a state, states of other versions, and states of wrappers.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/lazy_model.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/standard_scaler.hpp"
#include "ikebana/replicate/utils/replace_by_prefix.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dtype;
using ike::dynamic;
using ike::shape;

namespace somebody {

/// y = scale x, and in a later version + shift.
template <bool Later>
struct affine {
  static constexpr std::string_view kind = "affine";
  constexpr ike::inferred infer(const shape& in) const { return in; }
  constexpr std::array<ike::parameter_spec, 1 + Later> parameters() const {
    std::array<ike::parameter_spec, 1 + Later> p{};
    p[0] = {.name = "scale", .extents = shape{1}, .init = ike::initializer::constant(2)};
    if constexpr (Later)
      p[1] = {.name = "shift",
              .extents = shape{1},
              .init = ike::initializer::constant(0.5),
              .since = 2};
    return p;
  }
  template <class T>
  void forward(const ike::context<T>& c) const {
    for (ike::dim_t i = 0; i < c.input_shape().numel(); ++i)
      c.output()[i] = c.parameter(0)[0] * c.input()[i] + (Later ? c.parameter(Later)[0] : T{0});
  }
  template <class T>
  void backward(const ike::context<T>&) const {}
};

}  // namespace somebody

namespace {

using names = std::vector<std::string>;

constexpr auto backbone = ike::sequential(
    "fc"_m = ike::linear<5, 4>{}, "norm"_m = ike::batch_norm1d<4>{}, "relu"_m = ike::relu{});

/// The same backbone with a head of N outputs.
template <ike::dim_t N>
auto make(std::uint64_t s) {
  return ike::initialize<float, shape{dynamic, 5}>(
      ike::sequential("backbone"_m = backbone, "head"_m = ike::linear<4, N>{}), ike::seed{s});
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

bool same(const ike::state_dict& a, const ike::state_dict& b, std::string_view name) {
  return std::ranges::equal(a.at(name).bytes, b.at(name).bytes);
}

}  // namespace

TEST_CASE("what is wrong with a state is there as lists, too") {
  auto m = make<3>(1);
  ike::state_dict dict = make<2>(2).snapshot();
  dict.erase("backbone.fc.bias");
  dict.add_owned("extra", dtype::float32, shape{1});
  try {
    ike::load_state_dict(m, dict);
    FAIL("nothing was thrown");
  } catch (const ike::state_error& e) {
    CHECK(e.missing == names{"backbone.fc.bias"});
    CHECK(e.unexpected == names{"extra"});
    CHECK(e.mismatched == names{"head.weight", "head.bias"});
    CHECK(e.uninitialized.empty());
  }
  CHECK(ike::state_error("of something else").empty());
}

TEST_CASE("without strictness what fits is loaded, and the rest is listed") {
  auto m = make<3>(1);
  const ike::state_dict before = m.snapshot();
  const ike::state_dict given = [] {
    ike::state_dict dict = make<2>(2).snapshot();
    dict.erase("backbone.fc.bias");
    dict.erase("backbone.norm.weight");
    dict.add_owned("extra", dtype::float32, shape{1});
    dict.add_uninitialized("backbone.norm.weight", dtype::float32, shape{ike::lazy});
    return dict;
  }();
  const ike::state_differences left = ike::load_state_dict(m, given, {.strict = false});
  CHECK(left.missing == names{"backbone.fc.bias"});
  CHECK(left.unexpected == names{"extra"});
  CHECK(left.mismatched == names{"head.weight", "head.bias"});
  CHECK(left.uninitialized == names{"backbone.norm.weight"});
  CHECK_FALSE(left.empty());
  const ike::state_view after = ike::get_state_dict(m);
  CHECK(same(after, given, "backbone.fc.weight"));
  for (const char* name : {"backbone.fc.bias", "backbone.norm.weight", "head.weight", "head.bias"})
    CHECK(same(after, before, name));

  CHECK(ike::load_state_dict(m, before, {.strict = false}).empty());
  CHECK(same(ike::get_state_dict(m), before, "backbone.fc.weight"));
  CHECK(ike::load_state_dict(m, before, {}).empty());
  CHECK_THROWS_AS(ike::load_state_dict(m, given, {.strict = true}), ike::state_error);
}

TEST_CASE("some modules alone are saved and loaded, strictly") {
  auto m = make<3>(1);
  const ike::state_dict before = m.snapshot();
  const ike::state_dict other = make<7>(2).snapshot();
  CHECK(ike::load_state_dict(m, other, ike::only<"backbone">).empty());
  CHECK(same(ike::get_state_dict(m), other, "backbone.fc.weight"));
  CHECK(same(ike::get_state_dict(m), other, "backbone.norm.running_var"));
  CHECK(same(ike::get_state_dict(m), before, "head.weight"));

  const ike::state_view part = ike::get_state_dict(m, ike::only<"backbone.fc", "head">);
  CHECK(part.size() == 4);
  CHECK(part.at("head.bias").bytes.data() == ike::get_state_dict(m).at("head.bias").bytes.data());
  CHECK(ike::load_state_dict(m, part, ike::only<"head">).empty());

  // "backbone.fc" is not below "backbone.f", and "backbone.norm" is not in the state.
  CHECK(message_of([&] {
          ike::load_state_dict(m, part, ike::only<"backbone">);
        }).starts_with("load_state_dict: missing keys: backbone.norm.weight, "));
  CHECK(ike::load_state_dict(m, part, ike::only<"backbone">, {.strict = false}).missing.size() ==
        5);
  CHECK(message_of([&] { ike::load_state_dict(m, other, ike::only<"head">); }) ==
        "load_state_dict: mismatched: head.weight expects float32 [3, 4], got float32 [7, 4], "
        "head.bias expects float32 [3], got float32 [7]");
  CHECK(same(ike::get_state_dict(m), before, "head.weight"));
}

TEST_CASE("a module whose name begins as another's is not the other") {
  auto m = ike::initialize<float, shape{dynamic, 5}>(
      ike::sequential("fc"_m = ike::linear<5, 4>{}, "fc2"_m = ike::linear<4, 4>{}), ike::seed{1});
  CHECK(ike::get_state_dict(m, ike::only<"fc">).size() == 2);
  // "" means the whole network, as for hooks.
  CHECK(ike::get_state_dict(m, ike::only<"">).size() == 4);
}

TEST_CASE("a lazy_model takes a part of a state once it is resolved") {
  ike::lazy_model m{
      ike::sequential("fc"_m = ike::lazy_linear<4>{}, "head"_m = ike::lazy_linear<2>{}),
      ike::seed{1}};
  const ike::state_dict full = [] {
    ike::state_dict d;
    d.add_owned("fc.weight", dtype::float32, shape{4, 5});
    return d;
  }();
  CHECK(message_of([&] { ike::load_state_dict(m, full, {.strict = false}); }) ==
        "load_state_dict: a lazy_model takes a part of a state once it is resolved: "
        "holder.initialize_parameters(x)");
  m.initialize_parameters(ike::ones<float, shape{2, 5}>());
  CHECK(ike::load_state_dict(m, full, {.strict = false}).missing.size() == 3);
  CHECK(ike::load_state_dict(m, full, ike::only<"fc">, {.strict = false}).missing ==
        names{"fc.bias"});
  CHECK(ike::get_state_dict(m).at("fc.weight").view<float, shape{4, 5}>()[3] == 0);
}

TEST_CASE("keys that a wrapper put its name before are called so") {
  auto m = make<3>(1);
  ike::state_dict dict = m.snapshot();
  const auto why = [&] { return message_of([&] { ike::load_state_dict(m, dict); }); };
  for (const char* prefix : {"module.", "_orig_mod.", "module.net.", "model."}) {
    ike::replace_by_prefix(dict, "", prefix);
    const std::string text = why();
    const std::string quoted = '"' + std::string(prefix) + '"';
    CHECK_MESSAGE(text.starts_with("load_state_dict: every key begins with " + quoted), text);
    CHECK(text.find(": replace_by_prefix(dict, " + quoted +
                    ", \"\") takes it away; missing keys: "
                    "backbone.fc.weight, ") != std::string::npos);
    CHECK((text.find("DistributedDataParallel") != std::string::npos) ==
          (std::string_view(prefix) == "module."));
    ike::replace_by_prefix(dict, prefix, "");
  }
  ike::load_state_dict(m, dict);
  // One key without the prefix suffices to leave out the hint.
  ike::replace_by_prefix(dict, "", "module.");
  dict.add_owned("epoch", dtype::int64, shape{});
  CHECK(why().starts_with("load_state_dict: missing keys: "));

  auto wrapped = ike::initialize<float, shape{dynamic, 5}>(
      ike::sequential("module"_m = ike::sequential("fc"_m = ike::linear<5, 4>{})), ike::seed{1});
  ike::state_dict bare = wrapped.snapshot();
  ike::replace_by_prefix(bare, "module.", "");
  CHECK(message_of([&] { ike::load_state_dict(wrapped, bare); }) ==
        "load_state_dict: every key lacks \"module.\" before it: replace_by_prefix(dict, \"\", "
        "\"module.\") puts it there; missing keys: module.fc.weight, module.fc.bias; unexpected "
        "keys: fc.weight, fc.bias");
}

TEST_CASE("a state of an older version of a module loads, one of this version must be whole") {
  const auto old = ike::initialize<float, shape{dynamic, 3}>(
      ike::sequential("a"_m = somebody::affine<false>{}, "b"_m = somebody::affine<false>{}),
      ike::seed{1});
  auto m = ike::initialize<float, shape{dynamic, 3}>(
      ike::sequential("a"_m = somebody::affine<true>{}, "b"_m = somebody::affine<true>{}),
      ike::seed{1});
  ike::state_dict dict = old.snapshot();
  CHECK(dict.version("a") == 0);
  reinterpret_cast<float*>(const_cast<std::byte*>(dict.at("a.scale").bytes.data()))[0] = 9;
  m["a.shift"_s][0] = 4;
  ike::load_state_dict(m, dict);
  CHECK(m["a.scale"_s][0] == 9);
  CHECK(m["a.shift"_s][0] == 4);

  ike::state_dict now = m.snapshot();
  CHECK(now.version("a") == 2);
  CHECK(now.version("b") == 2);
  ike::load_state_dict(m, now);
  now.erase("b.shift");
  CHECK(message_of([&] { ike::load_state_dict(m, now); }) ==
        "load_state_dict: missing keys: b.shift");
  now.set_version("b", 1);
  ike::load_state_dict(m, now);
  // A note that is not a number counts as none.
  for (const char* text : {"", "two", "-2", "99999999999999999999"}) {
    now.set_metadata("ikebana.version:b", text);
    CHECK((now.version("b") == 0 || text[0] == '\0'));
    ike::load_state_dict(m, now);
  }
  now.set_metadata("ikebana.version:b", "x");
  CHECK(ike::load_state_dict(m, now, {.strict = false}).empty());
  CHECK(ike::load_state_dict(m, now, ike::only<"b">).empty());
}

TEST_CASE("norms without num_batches_tracked load, as in PyTorch") {
  const auto source = make<3>(2);
  ike::state_dict dict = source.snapshot();
  CHECK(dict.version("backbone.norm") == 2);
  const auto scaled =
      ike::initialize<float, shape{dynamic, 3}>(ike::standard_scaler<3>{}, ike::seed{1});
  CHECK_MESSAGE(scaled.snapshot().metadata().empty(),
                "all of its buffers are of the first version");
  dict.erase("backbone.norm.num_batches_tracked");
  auto m = make<3>(1);
  CHECK(message_of([&] { ike::load_state_dict(m, dict); }) ==
        "load_state_dict: missing keys: backbone.norm.num_batches_tracked");
  dict.set_metadata(std::vector<std::pair<std::string, std::string>>{});
  m(ike::ones<float, shape{2, 5}>());
  ike::load_state_dict(m, dict);
  CHECK(same(ike::get_state_dict(m), source.snapshot(), "backbone.norm.running_mean"));
  CHECK(m.buffer("backbone.norm.num_batches_tracked"_s).data()[0] == 1);

  // Also before the first call of a lazy_model.
  constexpr auto lazy_backbone =
      ike::sequential("fc"_m = ike::lazy_linear<4>{}, "norm"_m = ike::lazy_batch_norm1d<>{});
  ike::lazy_model holder{
      ike::sequential("backbone"_m = lazy_backbone, "head"_m = ike::lazy_linear<3>{}),
      ike::seed{3}};
  ike::load_state_dict(holder, dict);
  CHECK_FALSE(holder.has_uninitialized_params());
  holder.eval();
  holder(ike::ones<float, shape{2, 5}>());
  CHECK(same(ike::get_state_dict(holder), dict, "backbone.fc.weight"));
  CHECK(ike::get_state_dict(holder).contains("backbone.norm.num_batches_tracked"));
}
