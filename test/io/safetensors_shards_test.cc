#include "ikebana/io/safetensors_shards.hpp"

#include <doctest/doctest.h>

#include <string>
#include <utility>

#include "ikebana/core/error.hpp"
#include "test/support/scratch.hpp"

namespace ike = ikebana;
using ike::dtype;
using ike::shape;

namespace {

/// Two files of a state: "a" and "b", and "c".
void write_shards(const scratch_directory& to) {
  ike::state_dict first, second;
  *first.add_owned("b", dtype::uint8, shape{1}) = std::byte{2};
  *first.add_owned("a", dtype::uint8, shape{1}) = std::byte{1};
  first.set_metadata("format", "pt");
  *second.add_owned("c", dtype::uint8, shape{1}) = std::byte{3};
  second.add_owned("none", dtype::float32, shape{0});
  ike::save(second, to.path() / "model-00002-of-00002.safetensors");
  ike::save(first, to.path() / "model-00001-of-00002.safetensors");
}

constexpr const char* head = R"({"metadata": {"total_size": 3}, "weight_map": {)";
constexpr const char* whole = R"(
    "a": "model-00001-of-00002.safetensors", "b": "model-00001-of-00002.safetensors",
    "c": "model-00002-of-00002.safetensors", "none": "model-00002-of-00002.safetensors")";

}  // namespace

TEST_CASE("a state in several files is loaded by its index") {
  const scratch_directory scratch;
  write_shards(scratch);
  const ike::state_dict all = ike::load_shards(
      scratch.write("model.safetensors.index.json", std::string(head) + whole + "}}"));
  REQUIRE(all.size() == 4);
  CHECK(all[0].name == "b");
  CHECK(all[3].name == "none");
  for (const auto& [name, value] : {std::pair{"a", 1}, {"b", 2}, {"c", 3}})
    CHECK(std::to_integer<int>(all.at(name).bytes[0]) == value);
  CHECK(*all.find_metadata("format") == "pt");
}

TEST_CASE("an index that its files contradict is refused") {
  const scratch_directory scratch;
  write_shards(scratch);
  const auto why = [&](const std::string& index) {
    const std::string path = scratch.write("index.json", index);
    return message_of<ike::io_error>([&] { ike::load_shards(path); });
  };
  const auto of_map = [&](const std::string& entries) { return why(head + entries + "}}"); };
  const auto contains = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  CHECK(of_map(whole).empty());
  CHECK(contains(of_map(std::string(whole) + R"(, "d": "model-00002-of-00002.safetensors")"),
                 "model-00002-of-00002.safetensors: expected the tensor \"d\", got none"));
  CHECK(contains(of_map(R"("c": "model-00002-of-00002.safetensors")"),
                 "the index does not have the tensor \"none\" in this file"));
  CHECK(contains(of_map(R"("c": "model-00002-of-00002.safetensors", "none": "x")"),
                 "the index does not have the tensor \"none\" in this file"));
  CHECK(contains(of_map(R"("c": "missing")"), "cannot open"));
  for (const char* file : {"\"\"", "\"..\"", "\"../w\"", "\"/etc/passwd\"", R"("a\u0000b")"})
    CHECK_MESSAGE(contains(of_map(std::string("\"c\": ") + file),
                           "tensor \"c\": expected the name of a file in the same directory, got"),
                  file);
  CHECK(contains(of_map("\"c\": 3"), "in the same directory, got number"));
  for (const std::string text : {"", "{", "[]", "{}", R"({"weight_map": []})"})
    CHECK_MESSAGE(contains(why(text), "index.json: expected a JSON object with a \"weight_map\""),
                  text);
  CHECK(contains(why(std::string(100000, '[')), "expected a JSON object"));
  CHECK(why(R"({"weight_map": {}})").empty());
}
