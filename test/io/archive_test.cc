#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ikebana/core/tensor.hpp"
#include "ikebana/io/npz.hpp"
#include "ikebana/io/torch_file.hpp"
#include "test/support/load_recorded.hpp"
#include "test/support/scratch.hpp"

namespace ike = ikebana;
using ike::shape;
using namespace std::string_literals;
using namespace std::string_view_literals;

namespace {

const ike::state_dict& expected() {
  static const ike::state_dict all = load_recorded("archives");
  return all;
}

void check_equal(const ike::state_dict::entry& got, const ike::state_dict::entry& want) {
  CAPTURE(got.name);
  CHECK(got.type == want.type);
  CHECK(got.extents == want.extents);
  CHECK(std::ranges::equal(got.bytes, want.bytes));
}

/// A zip archive of stored files.
std::string zip(const std::vector<std::pair<std::string, std::string>>& files) {
  std::string out;
  ike::detail::zip_writer writer([&out](std::string_view text) { out.append(text); });
  for (const auto& [name, bytes] : files) writer.add(name, bytes);
  writer.finish();
  return out;
}

/// Why a pickle beside a storage of four floats is refused.
std::string why_not(std::string_view pickle, std::string_view part = {}) {
  const std::string file =
      zip({{"x/data.pkl", std::string(pickle)}, {"x/data/0", std::string(16, 'a')}});
  return message_of<ike::io_error>([&] { ike::detail::parse_torch("f", file, part); });
}

/// The pickle of {"w": tensor} of these sizes, strides and offset, tuples and a number in pickle.
std::string tensor(std::string_view sizes, std::string_view strides, std::string_view offset,
                   std::string_view storage = "FloatStorage", std::string_view key = "0") {
  std::string text =
      "\x80\x02}X\x01"s.append(3, '\0') + "wctorch._utils\n_rebuild_tensor_v2\n((X\x07";
  text.append(3, '\0').append("storagectorch\n").append(storage).append("\nX\x01").append(3, '\0');
  text.append(key).append("X\x03").append(3, '\0').append("cpuK\x04tQ");
  return text.append(offset).append(sizes).append(strides).append("\x89}tRs.");
}

}  // namespace

TEST_CASE("a checkpoint that PyTorch saved has the tensors that it had") {
  const std::string path = "test/data/archive.pt";
  const ike::state_dict tensors = ike::load_torch(path, "tensors");
  CHECK(tensors.size() == 16);
  for (const auto& e : tensors) check_equal(e, expected().at(e.name));
  const ike::state_dict model = ike::load_torch(path, "model");
  CHECK(model.size() == 7);
  for (const auto& e : model) check_equal(e, expected().at("model." + e.name));

  CHECK(message_of<ike::io_error>([&] { ike::load_torch(path); }) ==
        path +
            ": \"epoch\" is a number; only tensors are read, load_torch(path, part) reads a part "
            "of the file");
  CHECK(message_of<ike::io_error>([&] { ike::load_torch(path, "epoch"); }) ==
        path + ": holds a number; expected a dict of tensors");
  CHECK(message_of<ike::io_error>([&] { ike::load_torch(path, "ema"); }) ==
        path + ": has no part \"ema\"");
}

TEST_CASE("arrays that NumPy saved together are read, and those that are written are the same") {
  const ike::state_dict arrays = ike::load_npz("test/data/archive.npz");
  CHECK(arrays.size() == 12);
  for (const auto& e : arrays) check_equal(e, expected().at(e.name == "fortran" ? "f32" : e.name));

  const scratch_directory scratch;
  const auto path = scratch.path() / "again.npz";
  ike::save_npz(arrays, path);
  const ike::state_dict again = ike::load_npz(path);
  REQUIRE(again.size() == arrays.size());
  for (std::size_t i = 0; i < again.size(); ++i) {
    CHECK(again[i].name == arrays[i].name);
    check_equal(again[i], arrays[i]);
  }
  ike::state_dict halves;
  for (const auto type : {ike::dtype::bfloat16, ike::dtype::float16}) {
    std::byte* const to = halves.add_owned(ike::name(type), type, shape{2});
    const bool is_bfloat16 = type == ike::dtype::bfloat16;
    const std::uint16_t bits[] = {std::uint16_t(is_bfloat16 ? 0x3fc0 : 0x3e00), 0x8000};
    std::memcpy(to, bits, sizeof bits);
  }
  ike::save_npz(halves, path);
  for (const auto& e : ike::load_npz(path)) {
    CHECK(e.view<float, shape{2}>()[0] == 1.5f);
    CHECK(std::signbit(e.view<float, shape{2}>()[1]));
  }
  ike::save_npz(arrays, path);
  ike::state_dict lazy;
  lazy.add_uninitialized("w", ike::dtype::float32, shape{ike::lazy});
  CHECK_THROWS_AS(ike::save_npz(lazy, path), ike::state_error);
  CHECK(ike::load_npz(path).size() == arrays.size());
}

TEST_CASE("archives that are damaged, compressed or of something else are refused") {
  const auto why = [](std::string_view bytes) {
    return message_of<ike::io_error>([&] { ike::detail::parse_npz("f", bytes); });
  };
  const std::string good =
      zip({{"x.npy", ike::detail::npy_header(ike::dtype::uint8, {3}) + "abc"}});
  CHECK(ike::detail::parse_npz("f", good).at("x").view<std::uint8_t, shape{3}>()[2] == 'c');
  CHECK(why("") == "f: is no zip archive: it is too short");
  CHECK(why(std::string(30, 'x')) == "f: is no zip archive, or ends before its directory");
  CHECK(why(zip({{"x.txt", "abc"}})) == "f: has the file \"x.txt\"; expected .npy files alone");
  CHECK(why(zip({{"x.npy", "abc"}})) == "f: x.npy: expected a .npy file, got \"abc\"");
  std::string file = good;
  file[file.find("abc")] = 'z';
  CHECK(why(file) == "f: x.npy: its checksum differs: the file is damaged");
  file = good;
  file[file.find("PK\1\2") + 10] = 8;
  CHECK(why(file).starts_with("f: has the compressed file \"x.npy\"; only stored ones are read"));
  const std::string array = ike::detail::npy_header(ike::dtype::uint8, {0});
  CHECK(why(zip({{"x.npy", array}, {"x.npy", array}})) == "f: x.npy: is there twice");
  // No prefix of an archive is one, and no change of a byte leads outside.
  for (std::size_t n = 0; n < good.size(); ++n) CHECK(!why(good.substr(0, n)).empty());
  for (std::size_t i = 0; i < good.size(); ++i)
    for (const char c : {'\0', '\x7f', '\xff'}) {
      file = good;
      file[i] = c;
      why(file);
    }
  CHECK(ike::detail::crc32("123456789") == 0xcbf43926U);
}

TEST_CASE("the fields of zip64 count where the others are full") {
  const auto number = [](std::uint64_t n, std::size_t bytes) {
    return std::string(reinterpret_cast<const char*>(&n), bytes);
  };
  const std::string array = ike::detail::npy_header(ike::dtype::uint8, {3}) + "abc";
  const std::string small = zip({{"x.npy", array}});
  const std::size_t at = small.find("PK\1\2");
  std::string entry = small.substr(at, 46), full(4, '\xff');
  entry.replace(20, 8, full + full);
  entry.replace(30, 2, number(40, 2));
  entry.replace(42, 4, full);
  entry += "x.npy" + number(5, 2) + number(8, 2) + number(7, 8) + number(1, 2) + number(24, 2) +
           number(array.size(), 8) + number(array.size(), 8) + number(0, 8);
  std::string file = small.substr(0, at) + entry;
  const std::size_t large = file.size();
  file += "PK\6\6" + number(44, 8) + number(45, 4) + number(0, 8) + number(1, 8) + number(1, 8) +
          number(entry.size(), 8) + number(at, 8);
  file += "PK\6\7" + number(0, 4) + number(large, 8) + number(1, 4);
  file += "PK\5\6" + number(0, 4) + full + full + full + number(0, 2);
  CHECK(ike::detail::parse_npz("f", file).at("x").view<std::uint8_t, shape{3}>()[1] == 'b');
  file[large] = 'Q';
  CHECK(message_of<ike::io_error>([&] { ike::detail::parse_npz("f", file); }) ==
        "f: has a damaged zip64 directory");
}

TEST_CASE("views of a storage are read within it, and nothing else is rebuilt") {
  const auto read = [](std::string_view pickle) {
    const std::string file =
        zip({{"x/data.pkl", std::string(pickle)},
             {"x/data/0", std::string("\0\0\x80\x3f\0\0\0\x40\0\0\x40\x40\0\0\x80\x40"sv)}});
    const auto dict = ike::detail::parse_torch("f", file, {});
    const auto& e = dict.at("w");
    return std::vector<float>(reinterpret_cast<const float*>(e.bytes.data()),
                              reinterpret_cast<const float*>(e.bytes.data() + e.bytes.size()));
  };
  const auto two = "K\2K\2\x86"sv;
  CHECK(read(tensor(two, "K\2K\1\x86", "K\0"sv)) == std::vector<float>{1, 2, 3, 4});
  CHECK(read(tensor(two, "K\1K\2\x86", "K\0"sv)) == std::vector<float>{1, 3, 2, 4});
  CHECK(read(tensor("K\2\x85", "K\2\x85", "K\1")) == std::vector<float>{2, 4});
  CHECK(read(tensor(")", ")", "K\3")) == std::vector<float>{4});
  CHECK(read(tensor("K\0\x85"sv, "K\1\x85", "K\3")).empty());

  const std::string beyond = "f: \"w\" reaches beyond its storage, or repeats its elements";
  CHECK(why_not(tensor("K\5\x85", "K\1\x85", "K\0"sv)) == beyond);
  CHECK(why_not(tensor("K\4\x85", "K\1\x85", "K\1")) == beyond);
  CHECK(why_not(tensor("K\5\x85", "K\0\x85"sv, "K\0"sv)) == beyond);
  CHECK(why_not(tensor("K\4\x85", "\x8a\7\0\0\0\0\0\0\1\x85"sv, "K\0"sv)) == beyond);
  const auto many = "\x8a\7\0\0\0\0\0\0\1K\0\x8a\7\0\0\0\0\0\0\1\x87"sv;
  CHECK(why_not(tensor(many, many, "K\0"sv)) == "f: \"w\" has more than 2^56 elements");
  CHECK(why_not(tensor("K\2\x85", "K\2K\1\x86", "K\0"sv)) == "f: \"w\" has no sizes and strides");
  CHECK(why_not(tensor("J\xff\xff\xff\xff\x85", "K\1\x85", "K\0"sv)) ==
        "f: \"w\" has a size, stride or offset that is no number");
  CHECK(why_not(tensor("\x8a\1\xff\x85", "K\1\x85", "K\0"sv)) ==
        "f: \"w\" has a size, stride or offset that is no number");
  std::string nested = "}";
  for (int i = 0; i < 18; ++i) nested += "X\1\0\0\0a}"s;
  CHECK(why_not(nested + std::string(18, 's') + '.') ==
        "f: has dicts that are nested more than 16 times");
  CHECK(why_not(tensor("K\4\x85", "K\1\x85", "K\0"sv, "ComplexFloatStorage")) ==
        "f: \"w\" has elements of \"torch ComplexFloatStorage\"; floating numbers, integers and "
        "bool are read");
  CHECK(why_not(tensor("K\4\x85", "K\1\x85", "K\0"sv, "FloatStorage", "7")) ==
        "f: \"w\" has a storage that is not in the archive");

  CHECK(why_not("\x80\2cos\nsystem\nX\2\0\0\0ls\x85R."sv) ==
        "f: holds an object of \"os system\"; expected a dict of tensors");
  CHECK(why_not("\x80\2}X\1\0\0\0wcos\nsystem\nX\2\0\0\0ls\x85Rs."sv) ==
        "f: \"w\" is an object of \"os system\"; only tensors are read, load_torch(path, part) "
        "reads a part of the file");
  CHECK(why_not("\x80\2cbuiltins\nset\n)R}b."sv) ==
        "f: restores an object; only dicts of tensors are read");
  CHECK(why_not("\x80\2}K\1K\2s."sv) == "f: has a key in \"\" that is a number");
  CHECK(why_not("\x80\2}q\0X\1\0\0\0ah\0s."sv).starts_with("f: has a dict"));
  CHECK(why_not("\x80\2i"sv) ==
        "f: has the pickle opcode 105 at 2, which no dict of tensors needs");
  CHECK(why_not("\x80\2}"sv) == "f: has a pickle that ends too early");
  for (const auto damaged :
       {"."sv, "(u."sv, "}(K\1u."sv, "}(."sv, "K\1K\1s."sv, "h\1."sv, "\x87."sv, "R."sv, "}u."sv,
        "]K\1s."sv, "}(K\1K\1s."sv, "K\1K\2\x93."sv})
    CHECK(why_not(damaged).starts_with("f: has a damaged pickle at "));
  CHECK(message_of<ike::io_error>([] {
          ike::detail::parse_torch("f", zip({{"x/other", ""}}), {});
        }) == "f: is a zip archive without data.pkl: expected a file of torch.save");
  CHECK(message_of<ike::io_error>([] {
          ike::detail::parse_torch("f", "\x80\2}.", {});
        }).starts_with("f: expected a file that torch.save wrote since PyTorch 1.6, got a pickle"));
  CHECK(message_of<ike::io_error>([] {
          ike::detail::parse_torch("f", zip({{"x/data.pkl", "}."}, {"x/byteorder", "big"}}), {});
        }) == "f: was written on a big-endian machine");
}
