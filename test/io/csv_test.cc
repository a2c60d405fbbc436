#include "ikebana/io/csv.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "ikebana/core/random.hpp"
#include "test/support/scratch.hpp"

namespace ike = ikebana;
using ike::csv_options;
using ike::shape;

namespace {

template <class T = double>
std::vector<T> numbers(std::string_view text, const csv_options& options = {}) {
  const auto table = ike::parse_csv<T>(text, options);
  return {table.values.begin(), table.values.end()};
}

template <class T = double>
std::string why_not(std::string_view text, const csv_options& options = {}) {
  return message_of<ike::io_error>([&] { ike::parse_csv<T>(text, options); });
}

}  // namespace

TEST_CASE("rows of numbers are read, whatever ends the lines") {
  for (const char* text : {"1,2,3\n4,5,6\n", "1,2,3\r\n4,5,6\r\n", "1,2,3\n4,5,6",
                           "1,2,3\n4,5,6\n\n", "1, 2 ,3\n 4,\t5,6 \n\r\n \n"}) {
    const auto table = ike::parse_csv<float>(text);
    CHECK(table.values.extents() == shape{2, 3});
    CHECK(table.values(1, 2) == 6);
    CHECK(table.values(0, 1) == 2);
    CHECK(table.columns.empty());
  }
  CHECK(numbers("\xEF\xBB\xBF\"4\", \"5\" ,+6") == std::vector<double>{4, 5, 6});
}

TEST_CASE("numbers are exact and do without a locale") {
  CHECK(numbers("0.1,1e-3,-.5,5.,1E+2") == std::vector<double>{0.1, 1e-3, -.5, 5, 100});
  CHECK(numbers<float>("0.1,16777217")[0] == 0.1f);
  CHECK(numbers("9007199254740993")[0] == 9007199254740992.0);
  CHECK(numbers<std::int64_t>("9007199254740993")[0] == 9007199254740993);
  CHECK(std::isnan(numbers("nan")[0]));
  CHECK(numbers("-inf")[0] == -std::numeric_limits<double>::infinity());
  CHECK(numbers<float>("1e-60,-1e-40") == std::vector<float>{0.0f, -1e-40f});
  CHECK(numbers("1e-400")[0] == 0);
}

TEST_CASE("a header names the columns") {
  const auto table =
      ike::parse_csv<double>("name;\"a \"\"b\"\"; c\";\"two\nlines\"; last \r\n1;2;3;4\r\n",
                             {.delimiter = ';', .header = true});
  CHECK(table.columns == std::vector<std::string>{"name", "a \"b\"; c", "two\nlines", "last"});
  CHECK(table.values.extents() == shape{1, 4});
  CHECK(ike::column_index(table, "last") == 3);
  CHECK_THROWS_WITH_AS(ike::column_index(table, "none"), "no column is named \"none\"",
                       ike::io_error);
  CHECK(numbers("1\t2\n3\t4\n", {.delimiter = '\t'}) == std::vector<double>{1, 2, 3, 4});
  CHECK(numbers("1 2\n3 4\n", {.delimiter = ' '}) == std::vector<double>{1, 2, 3, 4});
}

TEST_CASE("what is wrong is named with its line, column and text") {
  CHECK(why_not("") == "memory: holds no row of numbers");
  CHECK(why_not("\n\n") == "memory: holds no row of numbers");
  CHECK(why_not("a,b\n", {.header = true}) == "memory: holds no row of numbers");
  CHECK(why_not("1,2\n3,x y\n") == "memory: line 2, column 2: expected a number, got \"x y\"");
  CHECK(why_not("a,b\n1,2\n") ==
        "memory: line 1, column 1: expected a number (is it a header?), got \"a\"");
  CHECK(why_not("1,2\n3,\n") == "memory: line 2, column 2: expected a number, got \"\"");
  CHECK(why_not("1,2\n3\n") == "memory: line 2, column 1: expected 2 fields, got 1");
  CHECK(why_not("1,2\n3,4,5,6\n") == "memory: line 2, column 4: expected 2 fields, got 4");
  CHECK(why_not("a,b\n1,2,3\n", {.header = true}) ==
        "memory: line 2, column 3: expected 2 fields, got 3");
  CHECK(why_not("1,2\n\n3,4\n") == "memory: line 2: blank");
  CHECK(why_not("1,\"2\n3,4\n") ==
        "memory: line 1, column 2: a quote is not closed, got \"\"2?3,4?\"");
  CHECK(why_not("1,\"2\"3\n") == "memory: line 1, column 2: text after a closing quote, got \"3\"");
  for (const char* field : {"1x", "0x10", "1,5e", "--1", "+-1", "++1", "1e999", "1 2", "+", "-"})
    CHECK_MESSAGE(contains(why_not("0\n" + std::string(field)), "line 2"), field);
  CHECK(contains(why_not<std::int64_t>("9223372036854775808"), "expected a number"));
  CHECK(contains(why_not<std::int64_t>("1.5"), "expected a number"));
  CHECK(contains(why_not("1\n", {.delimiter = '"'}), "delimiter"));
  CHECK(contains(why_not(std::string_view("1\0", 2)), "expected a number"));
  CHECK(contains(why_not("0\n" + std::string(1000, 'z')), std::string(40, 'z') + "...\""));
}

TEST_CASE("a file is read by its path") {
  const scratch_directory scratch;
  const std::string path = scratch.write("a.csv", "1,2\n3,4\n");
  CHECK(ike::read_csv<float>(path).values(1, 0) == 3);
  CHECK(ike::read_csv<float>(scratch.path() / "a.csv").values(1, 1) == 4);
  const std::string bad = scratch.write("b.csv", "1,2\n3;4\n");
  CHECK(message_of<ike::io_error>([&] { ike::read_csv<float>(bad); }) ==
        bad + ": line 2, column 1: expected a number, got \"3;4\"");
  CHECK(contains(message_of<ike::io_error>([&] { ike::read_csv<float>(bad + "none"); }),
                 "none: cannot open: No such file or directory"));
  CHECK(contains(message_of<ike::io_error>([&] { ike::read_csv<float>(scratch.path().string()); }),
                 "cannot read: Is a directory"));
}

TEST_CASE("a table falls into features and labels") {
  const auto table = ike::parse_csv<float>("1,2,3,4,0\n5,6,7,8,1\n");
  const auto x = ike::columns(table, 1, 4);
  CHECK(x.extents() == shape{2, 3});
  CHECK(x(1, 0) == 6);
  const auto images = ike::columns<shape{1, 2, 2}>(table);
  static_assert(images.static_shape == shape{ike::dynamic, 1, 2, 2});
  CHECK(images(1, 0, 1, 0) == 7);
  CHECK(ike::columns<shape{1}>(table, 4)(1, 0) == 1);
  const auto t = ike::labels(table, 4);
  CHECK(t.extents() == shape{2});
  CHECK(t[1] == 1);
  CHECK(ike::columns(table, 2, 2).extents() == shape{2, 0});

  CHECK_THROWS_AS(ike::columns(table, 1, 6), ike::shape_error);
  CHECK_THROWS_AS(ike::columns(table, -1, 2), ike::shape_error);
  CHECK_THROWS_AS(ike::columns(table, 3, 2), ike::shape_error);
  CHECK_THROWS_AS(ike::columns<shape{2}>(table, 4), ike::shape_error);
  CHECK_THROWS_AS(ike::labels(table, 5), ike::shape_error);
}

TEST_CASE("labels that are not integral are refused") {
  for (const char* text : {"0\n1.5", "0\nnan", "0\ninf", "0\n1e30", "0\n-1e30"}) {
    const auto table = ike::parse_csv<double>(text);
    const std::string why = message_of<ike::io_error>([&] { ike::labels(table, 0); });
    CHECK_MESSAGE(contains(why, "row 2, column 1: expected an integral label"), why);
  }
  CHECK(ike::labels(ike::parse_csv<std::int64_t>("9007199254740993"), 0)[0] == 9007199254740993);
  CHECK(ike::labels(ike::parse_csv<double>("-100"), 0)[0] == -100);
}

TEST_CASE("damaged text is read or refused, and never crashes") {
  const ike::seed seed{7};
  MESSAGE("seed ", seed.value);
  const ike::random_stream stream{seed, ike::hash_path("csv")};
  const std::string_view alphabet = "0123456789.,,,\n\n\r\"\" +-einfa\0x";
  int read = 0;
  for (std::uint32_t i = 0; i < 5000; ++i) {
    std::string text;
    const std::uint32_t length = stream.words(100 * i)[0] % 40;
    for (std::uint32_t k = 1; k <= length; ++k)
      text += alphabet[stream.words(100 * i + k)[0] % alphabet.size()];
    try {
      ike::parse_csv<float>(text, {.header = i % 2 == 1});
      ++read;
    } catch (const ike::io_error&) {
    }
  }
  CHECK(read > 50);
}
