#include "ikebana/replicate/utils/map_tensors.hpp"

#include <doctest/doctest.h>

#include <boost/hana/define_struct.hpp>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace ike = ikebana;
using ike::shape;

namespace {

using pair_of_floats = ike::tensor<float, shape{2}>;
using pair_of_doubles = ike::tensor<double, shape{2}>;
using counts = ike::tensor<std::int64_t, shape{3}>;

/// Doubles its argument and counts its calls.
struct doubling {
  int* calls;
  template <class T, shape S>
  ike::tensor<T, S> operator()(const ike::tensor<T, S>& t) const {
    ++*calls;
    ike::tensor<T, S> out(t);
    for (T& x : out) x += x;
    return out;
  }
};

constexpr auto to_double = [](const auto& t) {
  pair_of_doubles out;
  for (ike::dim_t i = 0; i < t.size(); ++i) out[i] = static_cast<double>(t[i]);
  return out;
};

pair_of_floats floats(float a, float b) { return ike::tensor_of<float, shape{2}>({a, b}); }

struct inner_batch {
  BOOST_HANA_DEFINE_STRUCT(inner_batch, (std::vector<pair_of_floats>, sequences), (int, length));
};
struct batch {
  BOOST_HANA_DEFINE_STRUCT(batch, (pair_of_floats, image), (std::string, name),
                           (inner_batch, rest));
  int not_adapted = 7;
};
struct frozen {
  BOOST_HANA_DEFINE_STRUCT(frozen, (const pair_of_floats, image), (const int, label));
};

}  // namespace

TEST_CASE("every tensor of a nested structure is visited once and containers keep their type") {
  using nested =
      std::tuple<std::vector<std::map<std::string, pair_of_floats>>, std::pair<int, counts>,
                 std::array<std::optional<pair_of_floats>, 2>, std::string,
                 std::unordered_map<int, std::variant<int, pair_of_floats>>>;
  nested x{{{{"a", floats(1, 2)}, {"b", floats(3, 4)}}, {{"c", floats(5, 6)}}},
           {9, ike::ones<std::int64_t, shape{3}>()},
           {floats(7, 8), std::nullopt},
           "a leaf",
           {{1, 5}, {2, floats(9, 10)}}};
  int calls = 0;
  const auto y = ike::map_tensors(doubling{&calls}, x);
  static_assert(std::is_same_v<decltype(y), const nested>);
  CHECK(calls == 6);
  CHECK(std::get<0>(y)[0].at("b")[1] == 8);
  CHECK(std::get<0>(y)[1].at("c")[0] == 10);
  CHECK(std::get<1>(y).first == 9);
  CHECK(std::get<1>(y).second[2] == 2);
  CHECK((*std::get<2>(y)[0])[1] == 16);
  CHECK(!std::get<2>(y)[1].has_value());
  CHECK(std::get<3>(y) == "a leaf");
  CHECK(std::get<int>(std::get<4>(y).at(1)) == 5);
  CHECK(std::get<pair_of_floats>(std::get<4>(y).at(2))[1] == 20);
  CHECK_MESSAGE(std::get<0>(x)[0].at("a")[0] == 1, "an lvalue is left as it was");
}

TEST_CASE("tensors become what the function returns") {
  const std::tuple<pair_of_floats, int> t{floats(1, 2), 3};
  const auto in_tuple = ike::map_tensors(to_double, t);
  static_assert(std::is_same_v<decltype(in_tuple), const std::tuple<pair_of_doubles, int>>);
  CHECK(std::get<0>(in_tuple)[1] == 2);

  const std::vector<pair_of_floats> v{floats(3, 4)};
  static_assert(
      std::is_same_v<decltype(ike::map_tensors(to_double, v)), std::vector<pair_of_doubles>>);
  const std::map<int, pair_of_floats, std::greater<>> m{{1, floats(5, 6)}, {2, floats(7, 8)}};
  const auto in_map = ike::map_tensors(to_double, m);
  static_assert(
      std::is_same_v<decltype(in_map), const std::map<int, pair_of_doubles, std::greater<>>>);
  CHECK(in_map.begin()->first == 2);
  CHECK(in_map.begin()->second[0] == 7);

  static_assert(std::is_same_v<decltype(ike::map_tensors(to_double, std::deque{floats(1, 2)})),
                               std::deque<pair_of_doubles>>);
  static_assert(std::is_same_v<decltype(ike::map_tensors(to_double, std::list{floats(1, 2)})),
                               std::list<pair_of_doubles>>);
  static_assert(std::is_same_v<decltype(ike::map_tensors(to_double, std::optional{floats(1, 2)})),
                               std::optional<pair_of_doubles>>);

  // Two alternatives that become one type remain two alternatives.
  const std::variant<pair_of_floats, pair_of_doubles> second{pair_of_doubles{}};
  const auto same = ike::map_tensors(to_double, second);
  static_assert(
      std::is_same_v<decltype(same), const std::variant<pair_of_doubles, pair_of_doubles>>);
  CHECK(same.index() == 1);

  const auto sizes =
      ike::map_tensors([](const auto& x) { return x.size(); },
                       std::make_pair(floats(1, 2), boost::hana::make_tuple(counts{}, 'c')));
  static_assert(std::is_same_v<decltype(sizes),
                               const std::pair<ike::dim_t, boost::hana::tuple<ike::dim_t, char>>>);
  CHECK(boost::hana::at_c<0>(sizes.second) == 3);
}

TEST_CASE("a tensor itself and a view are mapped, anything else is returned as it is") {
  int calls = 0;
  CHECK(ike::map_tensors(doubling{&calls}, floats(1, 2))[1] == 4);
  pair_of_floats t = floats(3, 4);
  CHECK(ike::map_tensors(to_double, t.view())[0] == 3);

  std::vector<int> numbers{1, 2};
  static_assert(std::is_same_v<decltype(ike::map_tensors(to_double, numbers)), std::vector<int>&>);
  CHECK(&ike::map_tensors(to_double, numbers) == &numbers);
  static_assert(std::is_same_v<decltype(ike::map_tensors(to_double, 5)), int>);
  static_assert(!ike::holds_tensors<std::map<std::string, std::vector<std::string>>>);
  static_assert(ike::holds_tensors<const std::vector<std::tuple<int, pair_of_floats>>&>);
}

TEST_CASE("adapted structs are copied with their tensors mapped, frozen ones too") {
  int calls = 0;
  const batch b{floats(1, 2), "cat", {{floats(3, 4), floats(5, 6)}, 2}};
  const batch c = ike::map_tensors(doubling{&calls}, b);
  CHECK(calls == 3);
  CHECK(c.image[1] == 4);
  CHECK(c.name == "cat");
  CHECK(c.rest.sequences[1][0] == 10);
  CHECK(c.rest.length == 2);
  CHECK(c.not_adapted == 7);
  CHECK(b.image[0] == 1);

  calls = 0;
  const frozen f{floats(1, 2), 3};
  const frozen g = ike::map_tensors(doubling{&calls}, f);
  CHECK(calls == 1);
  CHECK(g.image[1] == 4);
  CHECK(g.label == 3);
}

TEST_CASE("what is moved in is moved through") {
  std::tuple<std::vector<pair_of_floats>, std::string> x{std::vector<pair_of_floats>{},
                                                         std::string(100, 'x')};
  std::get<0>(x).push_back(floats(1, 2));
  const float* const elements = std::get<0>(x)[0].data();
  const char* const text = std::get<1>(x).data();
  const auto y = ike::map_tensors([](auto&& t) { return std::move(t); }, std::move(x));
  CHECK(std::get<0>(y)[0].data() == elements);
  CHECK(std::get<1>(y).data() == text);
}

TEST_CASE("references in a tuple stay references where the function returns them") {
  pair_of_floats a = floats(1, 2);
  counts b;
  const auto y = ike::map_tensors(
      [](auto& t) -> auto& { return t; }, std::tie(a, b));
  static_assert(std::is_same_v<decltype(y), const std::tuple<pair_of_floats&, counts&>>);
  CHECK(&std::get<0>(y) == &a);
}

TEST_CASE("a variant without a value has nothing to map") {
  struct throws {
    throws() = default;
    throws(const throws&) { throw 1; }
    throws& operator=(const throws&) = default;
  };
  std::variant<pair_of_floats, throws> v;
  const throws t;
  CHECK_THROWS_AS(v.emplace<throws>(t), int);
  REQUIRE(v.valueless_by_exception());
  CHECK_THROWS_AS(ike::map_tensors([](const pair_of_floats& x) { return x; }, v),
                  std::bad_variant_access);
}
