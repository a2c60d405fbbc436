// Uninitialized entries in a safetensors file.

#include <doctest/doctest.h>

#include <cstddef>
#include <fstream>
#include <iterator>
#include <span>
#include <string>

#include "ikebana/io/safetensors.hpp"
#include "ikebana/model/state_dict.hpp"
#include "test/support/scratch.hpp"

namespace ike = ikebana;
using ike::dtype;
using ike::lazy;
using ike::shape;

namespace {

template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const ike::error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

}  // namespace

TEST_CASE("a file keeps the marks, and stays one that other readers read") {
  ike::state_dict dict;
  dict.add_owned("fc2.bias", dtype::float32, shape{2})[3] = std::byte{63};
  dict.add_uninitialized("fc1.weight", dtype::float32, shape{4, lazy});
  dict.add_uninitialized("norm.running_mean", dtype::float64, shape{lazy});
  dict.set_metadata("format", "pt");
  const scratch_directory scratch;
  const auto path = scratch.path() / "lazy.safetensors";
  ike::save(dict, path);

  const ike::state_dict back = ike::load(path);
  REQUIRE(back.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(back[i].name == dict[i].name);
    CHECK(back[i].type == dict[i].type);
    CHECK(back[i].extents == dict[i].extents);
    CHECK(back[i].uninitialized == (i > 0));
    CHECK(back[i].bytes.size() == dict[i].bytes.size());
  }
  CHECK(back[0].bytes[3] == std::byte{63});
  CHECK(back.metadata().size() == 1);  // The marks are not notes.

  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  CHECK(bytes.find(R"("ikebana.uninitialized:fc1.weight":"[4, lazy]")") != std::string::npos);
  CHECK(bytes.find(R"("fc1.weight":{"dtype":"F32","shape":[0],"data_offsets")") !=
        std::string::npos);
}

TEST_CASE("marks that a file has wrong are refused") {
  const auto refused = [](const std::string& note, const std::string& extents) {
    const std::string header = "{\"__metadata__\":{\"ikebana.uninitialized:w\":\"" + note +
                               "\"},\"w\":{\"dtype\":\"F32\",\"shape\":" + extents +
                               ",\"data_offsets\":[0,0]}}";
    std::string bytes(8, '\0');
    bytes[0] = static_cast<char>(header.size());
    bytes += header;
    return message_of([&] {
      ike::parse_safetensors(std::as_bytes(std::span{bytes.data(), bytes.size()}));
    });
  };
  CHECK(refused("[2, lazy]", "[0]") == "nothing was thrown");
  CHECK(refused("[]", "[0]") == "nothing was thrown");
  for (const char* note : {"", "[", "[2", "[2,3]", "[2, ]", "[lazy, -1]", "[x]",
                           "[99999999999999999999]", "[1, 1, 1, 1, 1, 1, 1, 1, 1]"})
    CHECK_MESSAGE(refused(note, "[0]").find("\"w\": expected the shape [0]") != std::string::npos,
                  note);
  CHECK(refused("[2]", "[0,3]").find("got float32 [0, 3] and \"[2]\"") != std::string::npos);
}
