#include "ikebana/model/functional_call.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/linear.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::shape;

namespace {

constexpr auto net = ike::sequential(
    "fc"_m = ike::linear<3, 4>{}, "norm"_m = ike::batch_norm1d<4>{}, "out"_m = ike::linear<4, 2>{});

auto make(std::uint64_t seed) { return ike::initialize<float, shape{5, 3}>(net, ike::seed{seed}); }

std::vector<float> numbers(const auto& x) { return {x.data(), x.data() + x.size()}; }

}  // namespace

TEST_CASE("functional_call takes given parameters for one call, and the model's for the rest") {
  auto a = make(1), b = make(2);
  const auto x = ike::uniform<float, shape{5, 3}>(ike::seed{3});
  const auto of_a = numbers(a(x)), of_b = numbers(b(x));
  auto fresh = make(1), other = make(2);
  const auto before = ike::get_state_dict(fresh).clone();
  CHECK(numbers(ike::functional_call(fresh, ike::get_state_dict(other), x)) == of_b);
  // Parameters, and running statistics that the call changed, are those from before.
  for (const auto& e : ike::get_state_dict(fresh))
    CHECK(std::ranges::equal(e.bytes, before.at(e.name).bytes));
  CHECK(numbers(fresh(x)) == of_a);

  ike::state_dict one;
  const auto& bias = ike::get_state_dict(other).at("out.bias");
  std::copy(bias.bytes.begin(), bias.bytes.end(),
            one.add_owned("out.bias", ike::dtype::float32, shape{2}));
  auto mixed = make(1);
  std::ranges::copy(other["out.bias"_s], mixed["out.bias"_s].begin());
  CHECK(numbers(ike::functional_call(fresh, one, x)) == numbers(mixed(x)));
}

TEST_CASE("functional_call refuses names and shapes that the model does not have") {
  auto model = make(1);
  const auto x = ike::uniform<float, shape{5, 3}>(ike::seed{3});
  const auto error_of = [&](const char* name, const shape& extents) -> std::string {
    ike::state_dict given;
    given.add_owned(name, ike::dtype::float32, extents);
    try {
      ike::functional_call(model, given, x);
    } catch (const ike::state_error& e) {
      return e.what();
    }
    return "nothing was thrown";
  };
  CHECK(error_of("out.weights", shape{2}) == "functional_call: the model has no out.weights");
  CHECK(error_of("out.bias", shape{3}) ==
        "functional_call: out.bias has another shape in the model");
}
