#include "ikebana/io/safetensors.hpp"

#include <doctest/doctest.h>
#include <grp.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "colliding_names.hpp"
#include "ikebana/core/random.hpp"
#include "ikebana/model/state_dict.hpp"
#include "test/support/scratch.hpp"

namespace ike = ikebana;
namespace fs = std::filesystem;
using ike::dtype;
using ike::shape;
using ike::state_dict;

namespace {

state_dict sample() {
  state_dict dict;
  const auto add = [&dict](const char* name, dtype type, shape extents) {
    std::byte* data = dict.add_owned(name, type, extents);
    const std::size_t n = dict.at(name).bytes.size();
    for (std::size_t i = 0; i < n; ++i) data[i] = static_cast<std::byte>(i * 7 + dict.size());
  };
  add("fc1.weight", dtype::float32, shape{3, 5});
  add("mask", dtype::uint8, shape{7});
  add("fc1.bias", dtype::float64, shape{3});
  add("bn.num_batches_tracked", dtype::int64, shape{});
  add("empty", dtype::float32, shape{0, 4});
  add("\"quoted\"\n \xC3\xBC", dtype::int32, shape{1, 1, 1, 1, 1, 1, 1, 2});
  dict.set_metadata("format", "pt");
  dict.set_metadata("note", "a \"b\"");
  return dict;
}

void check_equal(const state_dict& a, const state_dict& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    CHECK(a[i].name == b[i].name);
    CHECK(a[i].type == b[i].type);
    CHECK(a[i].extents == b[i].extents);
    REQUIRE(a[i].bytes.size() == b[i].bytes.size());
    CHECK((a[i].bytes.empty() ||
           std::memcmp(a[i].bytes.data(), b[i].bytes.data(), a[i].bytes.size()) == 0));
  }
  REQUIRE(a.metadata().size() == b.metadata().size());
  for (std::size_t i = 0; i < a.metadata().size(); ++i) CHECK(a.metadata()[i] == b.metadata()[i]);
}

std::string framed(std::string_view header, std::string_view data = {}) {
  const auto length = static_cast<std::uint64_t>(header.size());
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file.append(header).append(data);
}

state_dict parse(std::string_view file) {
  return ike::parse_safetensors(std::as_bytes(std::span{file}));
}

std::string why_not(std::string_view file) {
  return message_of<ike::io_error>([&] { parse(file); });
}

/// The error for a header that does not match its `bytes` bytes of data.
std::string refusal(std::string_view header, std::size_t bytes = 0) {
  return why_not(framed(header, std::string(bytes, 'x')));
}

}  // namespace

TEST_CASE("a saved dict loads as it was") {
  const scratch_directory scratch;
  const fs::path path = scratch.path() / "model.safetensors";
  const state_dict dict = sample();
  ike::save(dict, path);
  check_equal(ike::load(path), dict);
  ike::save(state_dict{}, path);
  CHECK(ike::load(path).empty());
  CHECK(bytes_of(path) == framed("{}      "));
  CHECK(scratch.entries() == 1);
}

TEST_CASE("the bytes of a file are those of the format") {
  const scratch_directory scratch;
  const fs::path path = scratch.path() / "w.safetensors";
  const float weight[2] = {1.0f, -2.0f};
  const std::int64_t steps = 5;
  state_dict dict;
  dict.set_metadata("format", "pt");
  dict.add_view("w", dtype::float32, shape{1, 2}, weight);
  dict.add_view("n", dtype::int64, shape{}, &steps);
  ike::save(dict, path);
  // The wider element comes first in the data, so that both are aligned.
  std::string header = R"({"__metadata__":{"format":"pt"},)"
                       R"("w":{"dtype":"F32","shape":[1,2],"data_offsets":[8,16]},)"
                       R"("n":{"dtype":"I64","shape":[],"data_offsets":[0,8]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  CHECK(bytes_of(path) ==
        framed(header, std::string_view("\5\0\0\0\0\0\0\0\0\0\x80\x3f\0\0\0\xc0", 16)));
}

TEST_CASE("a header with keys in any order and spaces is taken") {
  const state_dict dict = parse(framed(
      " {"[1] + std::string(R"( "b" : {"data_offsets": [4, 12], "shape": [2], "dtype": "F32"},
            "__metadata__": {"format": "pt"},
            "a": {"dtype": "I32", "shape": [1, 1], "data_offsets": [0, 4]} }  )"),
      std::string(12, '\1')));
  REQUIRE(dict.size() == 2);
  CHECK(dict[0].name == "b");
  CHECK(dict.at("a").view<std::int32_t, shape{1, 1}>()[0] == 0x01010101);
  CHECK(*dict.find_metadata("format") == "pt");
  for (const auto& e : dict)
    CHECK(reinterpret_cast<std::uintptr_t>(e.bytes.data()) % ike::storage_alignment == 0);
}

TEST_CASE("what PyTorch saved loads, and is saved again with the same content") {
  const state_dict dict = ike::load("test/data/lenet_state_dict_f32.safetensors");
  CHECK(dict.size() == 10);
  CHECK(*dict.find_metadata("format") == "pt");
  CHECK(dict.at("conv1.weight").type == dtype::float32);
  const scratch_directory scratch;
  ike::save(dict, scratch.path() / "w");
  check_equal(ike::load(scratch.path() / "w"), dict);
}

TEST_CASE("elements of fewer bytes are widened") {
  const auto read = [](const char* type, std::string bytes) {
    const auto n = std::to_string(bytes.size() /
                                  (std::string(type) == "U32"                                 ? 4
                                   : std::string(type) == "I8" || std::string(type) == "BOOL" ? 1
                                                                                              : 2));
    // Between others, so that an element too many would be theirs.
    const std::string end = std::to_string(bytes.size() + 1);
    return parse(framed(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"w":{"dtype":")" +
                            std::string(type) + R"(","shape":[)" + n + R"(],"data_offsets":[1,)" +
                            end + R"(]},"b":{"dtype":"U8","shape":[1],"data_offsets":[)" + end +
                            "," + std::to_string(bytes.size() + 2) + "]}}",
                        "\x11" + bytes + "\x22"));
  };
  using ike::dynamic;
  const auto check = [&]<class T>(const char* type, const std::string& bytes,
                                  const std::vector<T>& expected) {
    CAPTURE(type);
    const state_dict dict = read(type, bytes);
    CHECK(dict.at("w").type == ike::dtype_of<T>);
    const auto w = dict.at("w").template view<T, shape{dynamic}>();
    CHECK(std::vector<T>(w.begin(), w.end()) == expected);
    CHECK(std::to_integer<int>(dict.at("a").bytes[0]) == 0x11);
    CHECK(std::to_integer<int>(dict.at("b").bytes[0]) == 0x22);
  };
  // The bytes are those of torch.tensor([..], dtype=..).view(torch.uint8).
  const float infinity = std::numeric_limits<float>::infinity();
  check("F16", std::string("\0\x3c\0\xc0\1\0\0\x7c\xff\x7b", 10),
        std::vector<float>{1, -2, 0x1p-24f, infinity, 65504});
  check("BF16", std::string("\x80\x3f\0\xc0\x49\x40\x80\xff", 8),
        std::vector<float>{1, -2, 3.140625f, -infinity});
  check("I16", std::string("\xff\xff\0\x80\xff\x7f", 6),
        std::vector<std::int32_t>{-1, -32768, 32767});
  check("I8", std::string("\xff\x80\x7f", 3), std::vector<std::int32_t>{-1, -128, 127});
  check("U16", std::string("\xff\xff\1\0", 4), std::vector<std::int32_t>{65535, 1});
  check("U32", std::string("\xff\xff\xff\xff\2\0\0\0", 8),
        std::vector<std::int64_t>{4294967295, 2});
  check("BOOL", std::string("\0\1\1", 3), std::vector<std::uint8_t>{0, 1, 1});
  check("F16", "", std::vector<float>{});
}

TEST_CASE("what is not a header is refused") {
  CHECK(contains(why_not("\1\2\3\4\5\6\7"), "at least the 8 bytes of a safetensors length, got 7"));
  CHECK(contains(why_not(std::string(8, '\0')), "expected a JSON object"));
  CHECK(contains(why_not(std::string(8, '\xff')), "at most 100000000 bytes"));
  CHECK(contains(why_not(framed("{}").substr(0, 9)), "expected a header of 2 bytes, got 1"));
  CHECK(contains(refusal("[]"), "expected a JSON object"));
  CHECK(contains(refusal(" {}"), "expected a JSON object"));
  CHECK(contains(refusal("{"), "expected a header in JSON"));
  CHECK(contains(refusal("{} {}"), "expected a header in JSON"));
  CHECK(contains(refusal("{\"a\xff\":1}"), "expected a header in JSON"));
  CHECK(contains(refusal("{" + std::string(100000, '[')), "expected a header in JSON"));
  CHECK(contains(refusal("{\"a\":" + std::string(100000, '[')), "\"a\": expected an object"));
  CHECK(refusal("{}").empty());
}

TEST_CASE("a file of another format is called by its name") {
  const scratch_directory scratch;
  const auto why = [&](std::string bytes) {
    bytes.resize(std::max<std::size_t>(bytes.size(), 100), ' ');
    const std::string path = scratch.write("model", bytes);
    const std::string text = message_of<ike::io_error>([&] { ike::load(path); });
    CHECK(text.starts_with(path + ": expected a safetensors file, got "));
    return text;
  };
  const std::string zip("PK\3\4\0\0\x8\x8\0\0", 10), pickle("\x80\x2\x8a\nl\xfc\x9c\x46\xf9 ", 10);
  CHECK(contains(why(zip),
                 "got a zip archive, as torch.save writes (.pt, .pth), which load_torch reads"));
  CHECK(contains(why(pickle),
                 "got a pickle, as torch.save wrote before PyTorch 1.6: in Python, "
                 "safetensors.torch.save_file(torch.load(\"model\"), "
                 "\"model.safetensors\") makes one"));
  CHECK(contains(why("epoch,loss\n1,0.5\n"), "got a text file that begins with \"epoch,loss\""));
  CHECK(contains(why("{\"metadata\": {\"total_size\": 10}"),
                 "got a text file that begins with \"{\"metadata\": {"));
  CHECK(contains(why("\n\n<!DOCTYPE html>"), "got a text file that begins with \"<!DOCTYPE html>"));
  CHECK(contains(why("version https://git-lfs.github.com/spec/v1\noid sha256:1\n"),
                 "got a pointer of Git LFS: `git lfs pull` brings the file itself"));
  CHECK(contains(why("\x89HDF\r\n\x1a\n"), "got an HDF5 file"));
  CHECK(contains(why(std::string("GGUF\3\0\0\0", 8)), "got a GGUF file"));
  CHECK(contains(why("\x93NUMPY\x01\x00v"), "got a NumPy array"));
  CHECK(contains(why("\x1f\x8b\x08\x08\x08\x08\x08\x08"), "got a gzip archive"));
  const auto empty = scratch.write("empty", "");
  CHECK(contains(message_of<ike::io_error>([&] { ike::load(empty); }), "got an empty file"));
  CHECK(contains(message_of<ike::io_error>([&] { ike::load(scratch.write("few", "abc\n")); }),
                 "got a text file that begins with \"abc\""));
}

TEST_CASE("a tensor that breaks the format is named") {
  const auto tensor = [](const char* type, const char* extents, const char* offsets) {
    return std::string(R"("w":{"dtype":")") + type + R"(","shape":)" + extents +
           R"(,"data_offsets":)" + offsets + "}";
  };
  const auto one = [&](const char* type, const char* extents, const char* offsets) {
    const std::string text = refusal("{" + tensor(type, extents, offsets) + "}", 8);
    CHECK_MESSAGE((text.empty() || contains(text, "memory: tensor \"w\": ")), text);
    return text;
  };
  CHECK(one("F32", "[2]", "[0,8]").empty());
  for (const char* type : {"F8_E4M3", "U64", "f32", ""})
    CHECK(contains(one(type, "[2]", "[0,8]"),
                   "expected a dtype of F64, F32, F16, BF16, I64, I32, I16, I8, U32, U16, U8 or "
                   "BOOL, got \"" +
                       std::string(type)));
  CHECK(contains(one("F32", "[3]", "[0,8]"), "expected 12 bytes for F32 [3], got"));
  CHECK(contains(one("BF16", "[2]", "[0,8]"), "expected 4 bytes for BF16 [2], got"));
  CHECK(contains(one("F32", "[2]", "[4,12]"), "within the 8 bytes of data, got [4, 12]"));
  CHECK(contains(one("F32", "[2]", "[8,0]"), "within the 8 bytes"));
  CHECK(contains(one("F32", "[1]", "[4,8]"), "leaves a hole before it"));
  CHECK(contains(one("F32", "[2]", "[-8,0]"), "non-negative integers in data_offsets, got -8"));
  CHECK(contains(one("F32", "[-2]", "[0,8]"), "non-negative integers in shape, got -2"));
  CHECK(contains(one("F32", "[2.0]", "[0,8]"), "got 2.0"));
  CHECK(contains(one("F32", "[1e300]", "[0,8]"), "got 1e300"));
  CHECK(contains(one("F32", "[99999999999999999999]", "[0,8]"), "got 99999999999999999999"));
  CHECK(contains(one("F32", "[18446744073709551615]", "[0,8]"), "below 2^63"));
  CHECK(contains(one("F32", "[4611686018427387906]", "[0,8]"), "below 2^63 bytes"));
  CHECK(contains(one("F32", "[4294967296,4294967296,4]", "[0,8]"), "below 2^63 bytes"));
  CHECK(contains(one("F32", "[0,4294967296,4294967296]", "[0,0]"), "below 2^63 bytes"));
  CHECK(contains(one("F32", "[1,1,1,1,1,1,1,1,2]", "[0,8]"), "rank of at most 8"));
  CHECK(contains(one("F32", "[[2]]", "[0,8]"), "got an array"));
  CHECK(contains(one("F32", "2", "[0,8]"), "got 2"));
  CHECK(contains(one("F32", "null", "[0,8]"), "got null"));
  CHECK(contains(one("F32", "[true]", "[0,8]"), "got a boolean"));
  CHECK(contains(one("F32", "{}", "[0,8]"), "got an object"));
  CHECK(contains(one("F32", "[2]", "[0]"), "two data_offsets, got 1"));
  CHECK(contains(one("F32", "[2]", "[0,8,8]"), "two data_offsets, got more"));
  CHECK(contains(one("F32", "[2]", "\"0\""), "got the string \"0\""));

  const std::string w = tensor("F32", "[1]", "[0,4]");
  CHECK(contains(refusal("{" + w + "}", 8), "4 more after the last tensor"));
  CHECK(contains(refusal("{" + w + "," + w + "}", 4), "\"w\" twice"));
  CHECK(contains(refusal("{" + w + R"(,"v":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4),
                 "overlaps another tensor"));
  CHECK(contains(refusal(R"({"w":{"dtype":"F32","dtype":"F32"}})"), "dtype appears twice"));
  CHECK(
      contains(refusal(R"({"w":{"dtype":"F32","shape":[1]}})"), "expected data_offsets, got none"));
  CHECK(contains(refusal(R"({"w":{"what":1}})"), "got the key \"what\""));
  CHECK(contains(refusal(R"({"w":1})"), "expected an object, got 1"));
  CHECK(contains(refusal(R"({"w":"F32"})"), "got the string \"F32\""));
  CHECK(contains(refusal(R"({"__metadata__":{"a":1}})"), "__metadata__ \"a\": expected a string"));
  CHECK(contains(refusal(R"({"__metadata__":{"a":"1","a":"2"}})"), "\"a\" twice"));
  CHECK(contains(refusal(R"({"__metadata__":{},"__metadata__":{}})"), "appears twice"));
}

TEST_CASE("no names make a file costly to read") {
  // The cost of reading is compared with a file of as many names of the same lengths.
  const auto seconds = [](const std::vector<std::string>& names, bool uninitialized) {
    state_dict dict;
    for (const std::string& name : names) {
      if (uninitialized)
        dict.add_uninitialized(name, dtype::float32, shape{});
      else
        dict.add_owned(name, dtype::uint8, shape{0});
    }
    const std::string header = ike::detail::lay_out_safetensors("memory", dict).header;
    const std::clock_t start = std::clock();
    CHECK(parse(framed(header)).size() == names.size());
    return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  };
  const std::vector<std::string> colliding = colliding_names(14);
  std::vector<std::string> ordinary = colliding;
  for (std::size_t i = 0; i < ordinary.size(); ++i)
    for (std::size_t c = 0; c < 8; ++c)
      ordinary[i][c] = static_cast<char>('a' + (i >> (2 * c)) % 4);
  const double usual = seconds(ordinary, false);
  const double hostile = seconds(colliding, false);
  const double marks = seconds(colliding, true);
  MESSAGE(usual, " s, ", hostile, " s, ", marks, " s");
  CHECK(hostile < 4 * usual + 0.1);
  CHECK(marks < 6 * usual + 0.1);
}

TEST_CASE("a dict that the format cannot hold is refused before the file is touched") {
  const scratch_directory scratch;
  const std::string path = scratch.write("old.safetensors", "old");
  for (const char* name : {"__metadata__", "bad \xff utf-8"}) {
    state_dict dict;
    dict.add_owned(name, dtype::uint8, shape{1});
    CHECK_THROWS_AS(ike::save(dict, path), ike::io_error);
  }
  CHECK(bytes_of(path) == "old");
  CHECK(scratch.entries() == 1);
}

TEST_CASE("a failed save leaves the old file and no temporary") {
  const scratch_directory scratch;
  const std::string path = scratch.write("old.safetensors", "old");
  state_dict dict;
  dict.add_owned("w", dtype::float32, shape{100000});

  SUBCASE("the disk is full, or a limit is reached, in the middle of the data") {
    rlimit before{};
    ::getrlimit(RLIMIT_FSIZE, &before);
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit small{4096, before.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
    const std::string why = message_of<ike::io_error>([&] { ike::save(dict, path); });
    ::setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, handler);
    CHECK_MESSAGE(why == path + ": cannot write: File too large", why);
  }
  SUBCASE("the directory refuses new files") {
    fs::permissions(scratch.path(), fs::perms::owner_read | fs::perms::owner_exec);
    // Root, who may write everywhere, is not refused.
    const bool refused = ::access(scratch.path().c_str(), W_OK) != 0;
    const std::string why = message_of<ike::io_error>([&] {
      if (refused) ike::save(dict, path);
    });
    fs::permissions(scratch.path(), fs::perms::owner_all);
    CHECK((!refused || contains(why, "Permission denied")));
  }
  CHECK(bytes_of(path) == "old");
  CHECK(scratch.entries() == 1);
}

TEST_CASE("a file that vanishes with its directory before it is renamed is an error") {
  const scratch_directory scratch;
  const fs::path directory = scratch.path() / "gone";
  fs::create_directory(directory);
  std::string why = message_of<ike::io_error>([&] {
    ike::detail::atomic_file file(directory / "w");
    fs::remove_all(directory);
    file.commit();
  });
  CHECK_MESSAGE(contains(why, "No such file or directory"), why);
  why = message_of<ike::io_error>([&] { ike::save(state_dict{}, directory / "w"); });
  CHECK_MESSAGE(contains(why, "cannot create"), why);
  CHECK(contains(why, "No such file or directory"));
  CHECK(scratch.entries() == 0);
}

TEST_CASE("a file that is not committed never appears") {
  const scratch_directory scratch;
  const std::string path = scratch.write("w", "old");
  {
    ike::detail::atomic_file file(path);
    file.write(std::as_bytes(std::span{"new", 3}));
    CHECK(scratch.entries() == 2);
  }
  CHECK(scratch.entries() == 1);
  CHECK(bytes_of(path) == "old");
}

TEST_CASE("only regular files are written and read") {
  const scratch_directory scratch;
  const state_dict dict;
  const auto message = [](auto&& f) { return message_of<ike::io_error>(f); };
  CHECK(contains(message([&] { ike::save(dict, scratch.path()); }), "is not a regular file"));
  CHECK(contains(message([&] { ike::save(dict, "/dev/null"); }), "is not a regular file"));
  CHECK(contains(message([&] { ike::save(dict, ""); }), "has no file name"));
  CHECK(contains(message([&] { ike::load(scratch.path()); }), "is not a regular file"));
  CHECK(contains(message([&] { ike::load("/dev/zero"); }), "is not a regular file"));
  CHECK(contains(message([&] { ike::load(scratch.path() / "none"); }), "No such file"));
  const fs::path fifo = scratch.path() / "fifo";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  CHECK(contains(message([&] { ike::load(fifo); }), "is not a regular file"));
}

TEST_CASE("a link is followed and permissions are kept") {
  const scratch_directory scratch;
  const fs::path file = scratch.path() / "w", link = scratch.path() / "latest";
  ike::save(sample(), file);
  fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink("w", link);
  ike::save(state_dict{}, link);
  CHECK(fs::is_symlink(link));
  CHECK(ike::load(file).empty());
  CHECK(fs::status(file).permissions() == (fs::perms::owner_read | fs::perms::owner_write));
}

TEST_CASE("a link whose target is not there yet is followed, and so are links to links") {
  const scratch_directory scratch;
  const fs::path directory = scratch.path() / "runs";
  fs::create_directory(directory);
  fs::create_symlink("runs/../runs/latest", scratch.path() / "best");
  fs::create_symlink("w", directory / "latest");
  for (int i = 0; i < 2; ++i) {
    ike::save(sample(), scratch.path() / "best");
    CHECK(fs::is_symlink(scratch.path() / "best"));
    CHECK(fs::is_symlink(directory / "latest"));
    CHECK(fs::is_regular_file(fs::symlink_status(directory / "w")));
  }
  check_equal(ike::load(directory / "w"), sample());
  CHECK(scratch.entries() == 2);

  fs::create_symlink("there", scratch.path() / "back");
  fs::create_symlink("back", scratch.path() / "there");
  const std::string why =
      message_of<ike::io_error>([&] { ike::save(sample(), scratch.path() / "back"); });
  CHECK_MESSAGE(contains(why, "cannot follow the link: Too many levels of symbolic links"), why);
  fs::create_symlink(scratch.path() / "none" / "w", scratch.path() / "nowhere");
  CHECK(
      contains(message_of<ike::io_error>([&] { ike::save(sample(), scratch.path() / "nowhere"); }),
               "No such file or directory"));
}

TEST_CASE("what killed processes left of a file goes with its next save, and nothing else") {
  const scratch_directory scratch;
  const fs::path path = scratch.path() / "w", other = scratch.path() / "v";
  const auto killed_while_writing = [](const fs::path& file) {
    const ::pid_t child = ::fork();
    if (child == 0) {
      ike::detail::atomic_file temporary(file);
      temporary.write(std::as_bytes(std::span{"half", 4}));
      std::raise(SIGKILL);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFSIGNALED(status));
  };
  // A temporary file that a living process writes is not a leftover.
  ike::detail::atomic_file living(path);
  living.write(std::as_bytes(std::span{"living", 6}));
  for (int i = 0; i < 3; ++i) {
    killed_while_writing(path);
    CHECK(scratch.entries() == 2);
  }
  killed_while_writing(other);
  CHECK(scratch.entries() == 3);
  ike::save(sample(), path);
  check_equal(ike::load(path), sample());
  CHECK(scratch.entries() == 3);
  living.commit();
  CHECK(bytes_of(path) == "living");
  ike::save(sample(), other);
  CHECK(scratch.entries() == 2);
}

TEST_CASE("names of temporaries are not made of the process alone") {
  const scratch_directory scratch;
  const auto name_in_a_child = [&](int i) {
    // Simulates a process with the same number, in another container, before its first save.
    const fs::path file = scratch.path() / std::to_string(i);
    fs::create_directory(file);
    const ::pid_t child = ::fork();
    if (child == 0) {
      ike::detail::atomic_file temporary(file / "w");
      std::raise(SIGKILL);
    }
    ::waitpid(child, nullptr, 0);
    std::string name = fs::directory_iterator(file)->path().filename().string();
    const std::string number = std::to_string(child);
    if (const auto at = name.find("-" + number + "-"); at != std::string::npos)
      name.erase(at, number.size() + 1);
    return name;
  };
  CHECK(name_in_a_child(1) != name_in_a_child(2));
}

TEST_CASE("owner and group are kept where they may be, and what is not kept opens nothing") {
  const scratch_directory scratch;
  const fs::path path = scratch.path() / "w";
  const auto stat_of = [&] {
    struct stat status {};
    REQUIRE(::stat(path.c_str(), &status) == 0);
    return status;
  };
  ike::save(sample(), path);
  if (::chown(path.c_str(), 12345, 54321) != 0) {
    MESSAGE("who runs this may not give files away");
    return;
  }
  REQUIRE(::chmod(path.c_str(), 0664) == 0);
  ike::save(state_dict{}, path);
  CHECK(stat_of().st_uid == 12345);
  CHECK(stat_of().st_gid == 54321);
  CHECK((stat_of().st_mode & 07777) == 0664);

  REQUIRE(::chmod(scratch.path().c_str(), 0777) == 0);
  const ::pid_t child = ::fork();
  if (child == 0) {
    // A user who is neither the owner nor in the group.
    const bool left = ::setgroups(0, nullptr) == 0 && ::setgid(1001) == 0 && ::setuid(1001) == 0;
    try {
      if (left) ike::save(state_dict{}, path);
    } catch (...) {
      ::_exit(1);
    }
    ::_exit(left ? 0 : 2);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  if (WEXITSTATUS(status) == 2) {
    MESSAGE("who runs this may not become somebody else");
    return;
  }
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(stat_of().st_uid == 1001);
  CHECK(stat_of().st_gid == 1001);
  CHECK((stat_of().st_mode & 07777) == 0644);
}

TEST_CASE("a name as long as a name can be is written") {
  const scratch_directory scratch;
  const fs::path path = scratch.path() / std::string(255, 'n');
  ike::save(state_dict{}, path);
  CHECK(ike::load(path).empty());
}

TEST_CASE("damaged files load or are refused, and never crash") {
  const scratch_directory scratch;
  const fs::path path = scratch.path() / "w";
  ike::save(sample(), path);
  const std::string whole = bytes_of(path);
  int refused = 0, loaded = 0;
  const auto attempt = [&](const std::string& file) {
    // A copy of exactly this size, so that a sanitizer sees reads past its end.
    const std::unique_ptr<std::byte[]> copy(new std::byte[file.size()]);
    if (!file.empty()) std::memcpy(copy.get(), file.data(), file.size());
    try {
      const state_dict dict = ike::parse_safetensors({copy.get(), file.size()});
      ++loaded;
    } catch (const ike::io_error&) {
      ++refused;
    }
  };
  for (std::size_t n = 0; n < whole.size(); ++n) attempt(whole.substr(0, n));
  CHECK(loaded == 0);

  const ike::seed seed{20240611};
  MESSAGE("seed ", seed.value);
  const ike::random_stream stream{seed, ike::hash_path("mutations")};
  const std::string_view alphabet = "{}[],:\"0123456789-eE.\\ \0\xff\x80nullF3264IUdtypeshape";
  const std::size_t header_end = whole.find_last_of('}');
  for (std::uint32_t i = 0; i < 8000; ++i) {
    std::string file = whole;
    const std::uint32_t changes = 1 + stream.words(8 * i)[0] % 3;
    for (std::uint32_t c = 0; c < changes; ++c) {
      const auto w = stream.words(8 * i + 1 + c);
      // Mostly the header: a change in the data is always harmless.
      const std::size_t at = w[0] % (w[1] % 8 == 0 ? file.size() : header_end);
      const char byte = w[2] % 4 == 0 ? static_cast<char>(w[3]) : alphabet[w[3] % alphabet.size()];
      switch (w[1] % 5) {
        case 0:
          file.insert(at, 1, byte);
          break;
        case 1:
          file.erase(at, 1 + w[3] % 4);
          break;
        case 2:
          file.insert(at, file.substr(w[3] % header_end, w[2] % 40));
          break;
        default:
          file[at] = byte;
          break;
      }
    }
    attempt(file);
  }
  CHECK(refused > 4000);
  CHECK(loaded > 50);
}
