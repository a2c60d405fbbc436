#include "ikebana/replicate/utils/pack_arguments.hpp"

#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace ike = ikebana;
using namespace ike::literals;
using ike::shape;

namespace {
using tensor2 = ike::tensor<float, shape{2}>;
using tensor3 = ike::tensor<float, shape{3}>;
}  // namespace

TEST_CASE("a call is taken apart into values and names and put together again") {
  const tensor2 x;
  const tensor3 lengths, mask;
  const auto packed = ike::pack_arguments(x, 7, "lengths"_arg = lengths, "mask"_arg = mask);
  static_assert(std::is_same_v<decltype(packed.values),
                               std::tuple<const tensor2&, int, const tensor3&, const tensor3&>>);
  static_assert(packed.names.value[0] == "lengths");
  static_assert(packed.names.value[1] == "mask");
  static_assert(packed.names.size() == 2);
  CHECK(&std::get<0>(packed.values) == &x);
  CHECK(std::get<1>(packed.values) == 7);
  CHECK(&std::get<2>(packed.values) == &lengths);

  const auto call = ike::unpack_arguments(packed);
  CHECK(&std::get<0>(call) == &x);
  CHECK(std::get<1>(call) == 7);
  const auto& third = std::get<2>(call);
  using third_name = typename std::remove_cvref_t<decltype(third)>::name_type;
  static_assert(std::string_view{third_name::c_str()} == "lengths");
  CHECK(&third.value == &lengths);
  CHECK(&std::get<3>(call).value == &mask);

  const auto again = std::apply([](const auto&... a) { return ike::pack_arguments(a...); }, call);
  static_assert(std::is_same_v<decltype(again.names), decltype(packed.names)>);
  CHECK(&std::get<3>(again.values) == &mask);
}

TEST_CASE("without names the values are the call") {
  const tensor2 x;
  const auto packed = ike::pack_arguments(x, x);
  static_assert(packed.names.size() == 0);
  const auto call = ike::unpack_arguments(packed.values, packed.names);
  static_assert(std::is_same_v<decltype(call), const std::tuple<const tensor2&, const tensor2&>>);
  CHECK(&std::get<1>(call) == &x);
  static_assert(std::tuple_size_v<decltype(ike::pack_arguments().values)> == 0);
}

TEST_CASE("all values may have names, given by hand") {
  const tensor2 x;
  const tensor3 y;
  const auto call =
      ike::unpack_arguments(std::tie(x, y), ike::names_of_arguments<"source", "target">);
  CHECK(&std::get<0>(call).value == &x);
  CHECK(&std::get<1>(call).value == &y);
}

TEST_CASE("what is moved in is kept, and referred to") {
  tensor3 y;
  const float* const elements = y.data();
  const auto packed = ike::pack_arguments(std::move(y), std::string("text"));
  CHECK(std::get<0>(packed.values).data() == elements);
  const auto call = ike::unpack_arguments(packed);
  CHECK(&std::get<1>(call) == &std::get<1>(packed.values));
}

namespace {
template <class V>
concept unpacks = requires(V&& v) {
  ike::unpack_arguments(std::forward<V>(v), ike::names_of_arguments<"x">);
};
}  // namespace

TEST_CASE("values that would be gone are not unpacked") {
  static_assert(unpacks<const std::tuple<tensor2>&>);
  static_assert(unpacks<std::tuple<const tensor2&>>);
  static_assert(!unpacks<std::tuple<tensor2>>);
}
