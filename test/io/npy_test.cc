#include "ikebana/io/npy.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ikebana/core/random.hpp"
#include "test/support/scratch.hpp"

namespace ike = ikebana;
using ike::dynamic;
using ike::load_npy;
using ike::shape;

namespace {

std::string npy(const std::string& descr, const std::string& extents, std::string_view data,
                bool fortran = false, char version = 1) {
  const std::string header = "{'descr': " + descr +
                             ", 'fortran_order': " + (fortran ? "True" : "False") +
                             ", 'shape': " + extents + ", }  \n";
  std::string file = std::string("\x93NUMPY") + version + '\0';
  file += static_cast<char>(header.size());
  file.append(version == 1 ? 1 : 3, '\0');
  return (file + header).append(data);
}

template <class T>
std::string bytes(std::initializer_list<T> numbers) {
  return {reinterpret_cast<const char*>(numbers.begin()), numbers.size() * sizeof(T)};
}

struct files {
  scratch_directory scratch;

  template <class T, shape S>
  auto read(std::string_view content) {
    return load_npy<T, S>(scratch.write("x.npy", content));
  }
  template <class T = float, shape S = shape{dynamic}>
  std::string why_not(std::string_view content) {
    const std::string path = scratch.write("x.npy", content);
    const std::string said = message_of<ike::error>([&] { load_npy<T, S>(path); });
    return said.starts_with(path + ": ") ? said.substr(path.size() + 2) : said;
  }
};

}  // namespace

TEST_CASE("arrays of each type are read, in C and in Fortran order") {
  files f;
  const auto x =
      f.read<float, shape{dynamic, 3}>(npy("'<f4'", "(2, 3)", bytes<float>({1, 2, 3, 4, 5, 6})));
  CHECK(x.extents() == shape{2, 3});
  CHECK(x(1, 0) == 4);
  const auto turned =
      f.read<double, shape{2, 3}>(npy("'<f8'", "(2, 3)", bytes<double>({1, 4, 2, 5, 3, 6}), true));
  CHECK(std::vector<double>(turned.begin(), turned.end()) == std::vector<double>{1, 2, 3, 4, 5, 6});
  const auto deep =
      f.read<float, shape{2, 1, 2}>(npy("'<f4'", "(2, 1, 2)", bytes<float>({0, 2, 1, 3}), true));
  CHECK(std::vector<float>(deep.begin(), deep.end()) == std::vector<float>{0, 1, 2, 3});
  CHECK(f.read<float, shape{dynamic}>(npy("'<f8'", "(1,)", bytes<double>({0.1})))[0] == 0.1f);
  CHECK(f.read<double, shape{1}>(npy("'<f2'", "(1,)", bytes<std::uint16_t>({0x3e00})))[0] == 1.5);
  for (const char* const bfloat16 : {"'|V2'", "'<V2'"})
    CHECK(f.read<double, shape{2}>(
              npy(bfloat16, "(2,)", bytes<std::uint16_t>({0x3fc0, 0xc000})))[1] == -2);
  CHECK(f.read<std::int64_t, shape{2}>(npy("'|i1'", "(2,)", bytes<std::int8_t>({-1, 7})))[0] == -1);
  CHECK(f.read<float, shape{2}>(npy("'<i2'", "(2,)", bytes<std::int16_t>({-300, 7})))[0] == -300);
  CHECK(f.read<std::uint8_t, shape{1}>(npy("'<i8'", "(1,)", bytes<std::int64_t>({255})))[0] == 255);
  CHECK(f.read<std::int64_t, shape{1}>(
            npy("'<u4'", "(1,)", bytes<std::uint32_t>({4000000000u})))[0] == 4000000000);
  CHECK(f.read<float, shape{2}>(npy("'|b1'", "(2,)", bytes<char>({1, 0})))[0] == 1);
  CHECK(f.read<float, shape{}>(npy("'<f4'", "()", bytes<float>({3})))[0] == 3);
  CHECK(f.read<float, shape{dynamic, 4}>(npy("'<f4'", "(0, 4)", "")).extents() == shape{0, 4});
  CHECK(f.read<float, shape{1}>(npy("'<f4'", "(1,)", bytes<float>({3}), false, 2))[0] == 3);
}

TEST_CASE("what is written is NumPy's own file, and is read again") {
  const scratch_directory scratch;
  const std::string path = (scratch.path() / "x.npy").string();
  ike::save_npy(path, ike::tensor_of<float, shape{2, 3}>({1, 2, 3, 4, 5, 6}));
  // numpy.save of numpy.arange(1, 7, dtype=numpy.float32).reshape(2, 3), NumPy 1.24.
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
  header.resize(117, ' ');
  CHECK(bytes_of(path) == std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header + "\n" +
                              bytes<float>({1, 2, 3, 4, 5, 6}));
  CHECK(load_npy<float, shape{2, dynamic}>(path)(1, 2) == 6);
  ike::save_npy(path, ike::tensor_of<std::int64_t, shape{2}>({-5, 1}));
  CHECK(load_npy<std::int64_t, shape{dynamic}>(path)[0] == -5);
  ike::save_npy(path, ike::tensor_of<std::uint8_t, shape{1}>({200}).view());
  CHECK(load_npy<std::uint8_t, shape{1}>(path)[0] == 200);
  ike::save_npy(path, ike::zeros<double, shape{}>());
  CHECK(load_npy<double, shape{}>(path).size() == 1);
  CHECK(scratch.entries() == 1);
}

TEST_CASE("what is wrong with a .npy file is said") {
  files f;
  const std::string three = bytes<float>({1, 2, 3});
  CHECK(f.why_not("not at all") == "expected a .npy file, got \"not at...\"");
  CHECK(f.why_not("PK\3\4").starts_with("is a .npz archive, which load_npz reads"));
  CHECK(f.why_not(npy("'<f4'", "(3,)", three + "x")) == "expected 12 bytes for [3], got 13");
  CHECK(f.why_not(npy("'<f4'", "(4,)", three)) == "expected 16 bytes for [4], got 12");
  CHECK(f.why_not(npy("'>f4'", "(3,)", three)).starts_with("holds elements of the type \">f4\""));
  CHECK(f.why_not(npy("'<c8'", "(3,)", three)).starts_with("holds elements of the type \"<c8\""));
  CHECK(f.why_not(npy("'|V4'", "(3,)", three)).starts_with("holds elements of the type \"|V4\""));
  CHECK(f.why_not<std::int64_t>(npy("'|V2'", "(2,)", three.substr(0, 4))) ==
        "holds floating-point numbers; whole numbers are asked for");
  CHECK(f.why_not(npy("[('a', '<f4')]", "(3,)", three)) ==
        "holds records; only arrays of numbers are read");
  CHECK(f.why_not(npy("'<f4'", "(3", three)).starts_with("is no .npy file that NumPy writes"));
  CHECK(f.why_not(npy("'<f4'", "(-3,)", three)).starts_with("is no .npy file that NumPy writes"));
  CHECK(f.why_not(npy("'<f4'", "(99999999999999999999,)", three)) == "has an extent above 2^56");
  CHECK(f.why_not(npy("'<f4'", "(4294967296, 4294967296)", three)) ==
        "has more than 2^56 elements");
  CHECK(f.why_not(npy("'<f4'", "(1,1,1,1,1,1,1,1,1)", three)) == "has more than 8 dimensions");
  CHECK(f.why_not<std::int64_t>(npy("'<f4'", "(3,)", three)) ==
        "holds floating-point numbers; whole numbers are asked for");
  CHECK(f.why_not<std::uint8_t>(npy("'<i4'", "(1,)", bytes<std::int32_t>({-1}))) ==
        "element 0, -1, is not a number of the type asked for");
  CHECK(f.why_not<std::int32_t>(npy("'<u4'", "(1,)", bytes<std::uint32_t>({3000000000u}))) ==
        "element 0, 3000000000, is not a number of the type asked for");
  CHECK(f.why_not<float, shape{dynamic, 3}>(npy("'<f4'", "(3,)", three)) ==
        "load_npy expects [dynamic, 3], got [3]");
  CHECK_THROWS_AS((load_npy<float, shape{1}>("no such file")), ike::io_error);
}

TEST_CASE("no cut or changed .npy file does harm") {
  const std::string whole = npy("'<f4'", "(2, 3)", bytes<float>({1, 2, 3, 4, 5, 6}));
  for (std::size_t n = 0; n < whole.size(); ++n) {
    CAPTURE(n);
    CHECK_THROWS_AS(ike::detail::parse_npy("f", std::string_view(whole).substr(0, n)),
                    ike::io_error);
  }
  const ike::random_stream stream(ike::seed{1}, 0);
  int refused = 0;
  for (std::uint32_t round = 0; round < 20000; ++round) {
    const auto w = stream.words(round);
    std::string changed = whole;
    changed[w[0] % changed.size()] = static_cast<char>(w[1]);
    if (w[2] % 2 != 0) changed[w[2] % changed.size()] = "()',:0123456789{}TF"[w[3] % 20];
    try {
      const auto content = ike::detail::parse_npy("f", changed);
      CHECK(content.bytes.size() ==
            static_cast<std::size_t>(content.extents.numel()) * content.width);
    } catch (const ike::io_error&) {
      ++refused;
    }
  }
  CHECK(refused > 10000);
}
