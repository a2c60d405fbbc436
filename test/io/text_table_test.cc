#include "ikebana/io/text_table.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "test/support/scratch.hpp"

namespace ike = ikebana;
using ike::missing_as;
using ike::shape;

namespace {

constexpr std::string_view people =
    "name,age, city ,\"height, cm\"\n"
    "Ada,36,London,165\n"
    "\"Bo \"\"B\"\" Li\",NA,Oslo,\n"
    "Cy,61,London,180.5\r\n"
    "Di,?,,171\n";

template <class F>
std::string why_not(F f) {
  return message_of<ike::io_error>(f);
}

}  // namespace

TEST_CASE("a table has columns of numbers and of text, by name") {
  const auto table = ike::parse_table(people);
  CHECK(table.rows() == 4);
  CHECK(table.columns() == std::vector<std::string>{"name", "age", "city", "height, cm"});
  CHECK(table.text(1, "name") == "Bo \"B\" Li");
  CHECK(table.is_missing(1, "age"));
  CHECK_FALSE(table.is_missing(0, "age"));
  const auto age = table.numbers<float>("age", missing_as{-1.f});
  CHECK(std::vector<float>(age.begin(), age.end()) == std::vector<float>{36, -1, 61, -1});
  const auto nan =
      table.numbers<double>("height, cm", missing_as{std::numeric_limits<double>::quiet_NaN()});
  CHECK(std::isnan(nan[1]));
  const auto x = table.matrix<double>({"height, cm", "age"}, missing_as{0.});
  CHECK(x.extents() == shape{4, 2});
  CHECK(x(2, 0) == 180.5);
  CHECK(x(0, 1) == 36);
  CHECK(x(3, 1) == 0);
}

TEST_CASE("text becomes labels, or columns of zeros and ones") {
  const auto table = ike::parse_table(people);
  const auto city = table.categories("city");
  CHECK(city.names == std::vector<std::string>{"London", "Oslo"});
  CHECK(std::vector<std::int64_t>(city.labels.begin(), city.labels.end()) ==
        std::vector<std::int64_t>{0, 1, 0, -1});
  const auto other = table.categories("city", {"Oslo", "Rome", "London"});
  CHECK(other.labels[0] == 2);
  CHECK(other.labels[1] == 0);
  const auto hot = table.one_hot<float>("city", {"Oslo", "Rome", "London"});
  CHECK(hot.extents() == shape{4, 3});
  CHECK(hot(0, 2) == 1);
  CHECK(hot(0, 0) == 0);
  CHECK((hot(3, 0) == 0 && hot(3, 1) == 0 && hot(3, 2) == 0));
  CHECK(table.one_hot<double>("city")(1, 1) == 1);
}

TEST_CASE("what is wrong with a table is said with line and column") {
  const auto table = ike::parse_table(people);
  CHECK(why_not([&] { table.numbers<float>("age"); }) ==
        "memory: line 3, column \"age\": a missing value (missing_as{0.f} sets another), got "
        "\"NA\"");
  CHECK(why_not([&] { table.numbers<float>("city", missing_as{0.f}); }) ==
        "memory: line 2, column \"city\": expected a number, got \"London\"");
  CHECK(why_not([&] { table.categories("city", {"Oslo"}); }) ==
        "memory: line 2, column \"city\": not one of the categories, got \"London\"");
  CHECK(why_not([&] { table.numbers<float>("Age"); }) ==
        "memory: no column is named \"Age\", only name, age, city, height, cm");
  CHECK(why_not([&] {
          table.matrix<float>({"age", "weight"});
        }).find("\"age\"") != std::string::npos);
  CHECK(why_not([] { ike::parse_table("a,a\n1,2\n").numbers<float>("a"); }) ==
        "memory: column \"a\" occurs twice");
  CHECK(why_not([] { ike::parse_table("a,b\n1,2\n3\n"); }) ==
        "memory: line 3, column 1: expected 2 fields, got 1");
  CHECK(why_not([] { ike::parse_table("a,b\n1,2,3\n"); }) ==
        "memory: line 2, column 3: expected 2 fields, got 3");
  CHECK(why_not([] { ike::parse_table(""); }) == "memory: holds no header");
  CHECK_THROWS_AS(static_cast<void>(table.text(4, "age")), ike::error);
}

TEST_CASE("a table may be empty, have other delimiters, and other words for what is missing") {
  const auto empty = ike::parse_table("a;b\n", {.delimiter = ';'});
  CHECK(empty.rows() == 0);
  CHECK(empty.numbers<float>("b").size() == 0);
  CHECK(empty.categories("a").names.empty());
  CHECK(empty.one_hot<float>("a").extents() == shape{0, 0});
  const auto own = ike::parse_table("a\n-\nNA\n", {.missing = {"-"}});
  CHECK(own.is_missing(0, "a"));
  CHECK_FALSE(own.is_missing(1, "a"));
  CHECK_THROWS_AS(ike::read_table("no such file"), ike::io_error);
}
