#include "ikebana/io/idx.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "ikebana/core/error.hpp"
#include "test/support/scratch.hpp"

namespace ike = ikebana;
using ike::dynamic;
using ike::shape;

namespace {

std::string idx(std::initializer_list<std::uint32_t> extents, std::string_view data,
                char type = 8) {
  std::string file{'\0', '\0', type, static_cast<char>(extents.size())};
  for (std::uint32_t d : extents)
    for (int shift : {24, 16, 8, 0}) file += static_cast<char>(d >> shift & 0xff);
  return file.append(data);
}

std::string why_not(std::string_view bytes) {
  return message_of<ike::io_error>([&] { ike::detail::parse_idx("f", bytes); });
}

}  // namespace

TEST_CASE("images and labels are read as they are") {
  const scratch_directory scratch;
  const std::string images =
      scratch.write("images", idx({2, 2, 3}, std::string_view("\0\1\2\3\4\5\xff\x80\2\1\0\7", 12)));
  const auto x = ike::read_idx<float, 3>(images);
  static_assert(x.static_shape == shape{dynamic, dynamic, dynamic});
  CHECK(x.extents() == shape{2, 2, 3});
  CHECK(x(0, 1, 2) == 5.0f);
  CHECK(x(1, 0, 0) == 255.0f);
  CHECK(x(1, 0, 1) == 128.0f);

  const std::string labels = scratch.write("labels", idx({3}, std::string_view("\7\0\xff", 3)));
  const auto t = ike::read_idx<std::int64_t, 1>(labels);
  CHECK(t.extents() == shape{3});
  CHECK(t[0] == 7);
  CHECK(t[2] == 255);

  CHECK(ike::read_idx<std::uint8_t, 4>(scratch.write("four", idx({1, 1, 1, 1}, "a")))[0] == 'a');
  CHECK(ike::read_idx<float, 2>(scratch.write("none", idx({0, 28}, ""))).extents() == shape{0, 28});
}

TEST_CASE("samples take the shape that a network expects") {
  const scratch_directory scratch;
  const std::string path = scratch.write("images", idx({2, 2, 3}, "abcdefghijkl"));
  const auto x = ike::read_idx_samples<float, shape{1, 2, 3}>(path);
  static_assert(x.static_shape == shape{dynamic, 1, 2, 3});
  CHECK(x.extents() == shape{2, 1, 2, 3});
  CHECK(x(1, 0, 0, 0) == 'g');
  const std::string why = message_of<ike::io_error>([&] {
    ike::read_idx_samples<float, shape{1, 3, 2}>(path);
  });
  CHECK(why == path + ": expected samples of [1, 3, 2], got [2, 2, 3]");
}

TEST_CASE("another rank is refused") {
  const scratch_directory scratch;
  const std::string path = scratch.write("labels", idx({3}, "abc"));
  CHECK(message_of<ike::io_error>([&] { ike::read_idx<float, 3>(path); }) ==
        path + ": expected rank 3, got [3]");
  CHECK(contains(message_of<ike::io_error>([&] { ike::read_idx<float, 3>(path + "x"); }),
                 "cannot open: No such file"));
}

TEST_CASE("what is not a whole IDX file is refused") {
  CHECK(contains(why_not(""), "expected an IDX file"));
  CHECK(contains(why_not(std::string_view("\0\0\x8", 3)), "expected an IDX file"));
  CHECK(contains(why_not("PK\3\4"), "expected an IDX file"));
  CHECK(why_not("\x1f\x8b\x08\x08") == "f: is compressed; unpack it first: gunzip f");
  CHECK(contains(why_not(idx({1}, "a", 0x0d)), "type 8 (unsigned bytes), got 13"));
  CHECK(contains(why_not(idx({}, "a")), "rank from 1 to 4, got 0"));
  CHECK(contains(why_not(idx({1, 1, 1, 1, 1}, "a")), "rank from 1 to 4, got 5"));
  const std::string whole = idx({2, 2}, "abcd");
  for (std::size_t n = 0; n < whole.size(); ++n) CHECK_FALSE(why_not(whole.substr(0, n)).empty());
  CHECK(why_not(whole).empty());
  CHECK(why_not(whole + "e") == "f: expected 4 bytes for [2, 2], got 5");
  CHECK(why_not(idx({2, 3}, "abcd")) == "f: expected 6 bytes for [2, 3], got 4");
  const std::uint32_t most = 0xffffffffu;
  CHECK(contains(why_not(idx({most, most, most, most}, "")), "expected a size below 2^60"));
  CHECK(contains(why_not(idx({0, most, most, most}, "")), "expected a size below 2^60"));
  CHECK(contains(why_not(idx({most}, "")), "expected 4294967295 bytes"));
}
