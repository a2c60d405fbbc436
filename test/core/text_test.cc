#include "ikebana/core/text.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <string_view>

#include "ikebana/core/diagnostic.hpp"

namespace ike = ikebana;
using ike::dynamic;
using ike::shape;
using ike::text;

TEST_CASE("what does not fit is cut, and stays terminated") {
  text<6> t{"abc"};
  CHECK(t.size() == 3);
  t.append("defgh");
  CHECK(t.view() == "abcde");
  CHECK(t.c_str()[5] == '\0');
  t.append("x");
  CHECK(t.view() == "abcde");
  CHECK(text<4>{}.empty());
  CHECK(text<3>{}.append(ike::dim_t{12345}).view() == "12");
}

TEST_CASE("numbers of any size, and words for what has none") {
  const auto written = [](ike::dim_t d) { return text<40>{}.append(d); };
  CHECK(written(0).view() == "0");
  CHECK(written(1234567890123).view() == "1234567890123");
  CHECK(written(-3).view() == "-3");
  CHECK(written(dynamic).view() == "dynamic");
  CHECK(written(ike::lazy).view() == "lazy");
  CHECK(written(std::numeric_limits<ike::dim_t>::max()).view() == "9223372036854775807");
  CHECK(written(std::numeric_limits<ike::dim_t>::min()).view() == "-9223372036854775808");
}

TEST_CASE("shapes") {
  CHECK(text<80>{}.append(shape{}).view() == "[]");
  CHECK(text<80>{}.append(shape{dynamic, 3, ike::lazy}).view() == "[dynamic, 3, lazy]");
}

static_assert(text<8>{"ab"} == text<8>{"ab"} && !(text<8>{"ab"} == text<8>{"abc"}));

TEST_CASE("a diagnostic fills in its sentence, path first") {
  constexpr ike::diagnostic fine{};
  static_assert(fine.ok());
  CHECK(fine.message().empty());
  ike::diagnostic d{"linear expects {expected}, got {got} (input {input}, other {other})", 12, 10,
                    shape{32, 10}, shape{dynamic}};
  CHECK(d.message().view() == "linear expects 12, got 10 (input [32, 10], other [dynamic])");
  d.path = ike::path_text{"block.fc2"};
  CHECK(d.message().view() ==
        "block.fc2: linear expects 12, got 10 (input [32, 10], other [dynamic])");
}

TEST_CASE("place-holders that are none stand as they are") {
  CHECK(ike::diagnostic{"a {b} {expected} {", 1}.message().view() == "a {b} 1 {");
  CHECK(ike::diagnostic{"{got}{got}", 0, 7}.message().view() == "77");
  CHECK(ike::diagnostic{"{got} {number}", 0, -1}.message().view() == "dynamic -1");
}
