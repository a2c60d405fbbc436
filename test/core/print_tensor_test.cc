#include "ikebana/core/print_tensor.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <sstream>
#include <string>

#include "test/support/load_recorded.hpp"

using namespace ikebana;

namespace {

const state_dict& recorded() {
  static const state_dict all = load_recorded("printed");
  return all;
}

std::string expected(const std::string& key) {
  const auto bytes = recorded().at(key).bytes;
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// A recorded tensor as text.
template <class T, shape S>
std::string printed(const std::string& name, const print_options& options = {}) {
  return to_string(recorded().at(name + "/tensor").view<T, S>(), options);
}

template <class T, shape S>
void check(const std::string& name) {
  CAPTURE(name);
  CHECK(printed<T, S>(name) == expected(name + "/default"));
}

void check_options(const std::string& option, const print_options& options) {
  CAPTURE(option);
  CHECK(printed<float, shape{4}>("fractions", options) == expected("fractions/" + option));
  CHECK(printed<float, shape{3}>("wide", options) == expected("wide/" + option));
  CHECK(printed<float, shape{2}>("large_whole", options) == expected("large_whole/" + option));
  CHECK(printed<float, shape{5}>("not_finite", options) == expected("not_finite/" + option));
  CHECK(printed<float, shape{30}>("wrapped", options) == expected("wrapped/" + option));
  CHECK(printed<std::int64_t, shape{4, 6}>("integers", options) == expected("integers/" + option));
}

}  // namespace

TEST_CASE("tensors are printed as PyTorch prints them") {
  check<float, shape{}>("scalar");
  check<float, shape{4}>("whole");
  check<float, shape{4}>("fractions");
  check<float, shape{2, 3}>("zeros");
  check<float, shape{5}>("not_finite");
  check<float, shape{4}>("not_finite_fractions");
  check<float, shape{2}>("nothing_finite");
  check<float, shape{3}>("large");
  check<float, shape{3}>("wide");
  check<float, shape{2}>("small");
  check<float, shape{2}>("large_whole");
  check<double, shape{3, 4}>("rows");
  check<float, shape{dynamic}>("wrapped");
  check<double, shape{2, dynamic, 17}>("wrapped_deep");
  check<float, shape{2, 1, 2, 3}>("deep");
}

TEST_CASE("tensors of integers are printed as PyTorch prints them") {
  check<std::int64_t, shape{4, 6}>("integers");
  check<std::int32_t, shape{3}>("int32");
  check<std::uint8_t, shape{52}>("bytes");
  check<std::int64_t, shape{2}>("huge_integers");
}

TEST_CASE("truth values are printed as PyTorch prints them") {
  CHECK(to_string(tensor_of<bool, shape{3}>({true, false, true})) ==
        "tensor([ True, False,  True])");
  CHECK(to_string(tensor<bool, shape{}>()) == "tensor(False)");
  CHECK(to_string(tensor<bool, shape{0, 2}>()) == "tensor([], size=(0, 2), dtype=bool)");
}

TEST_CASE("a tensor of many elements is shortened to its edges") {
  check<float, shape{1001}>("shortened");
  check<float, shape{40, 30}>("shortened_matrix");
  check<std::int64_t, shape{7, 2, 80}>("shortened_deep");
  check<double, shape{1000, 2}>("shortened_rows");
}

TEST_CASE(
    "empty tensors are printed with their shape, and long ones with their type on a new line") {
  check<float, shape{0}>("empty");
  check<double, shape{dynamic, 3}>("empty_rows");
  check<std::int64_t, shape{2, 0}>("empty_columns");
  check<double, shape{15}>("suffix_on_a_new_line");
}

TEST_CASE("the options of printing are PyTorch's") {
  check_options("short", {.precision = 2, .threshold = 10, .edgeitems = 2});
  check_options("wide", {.precision = 6, .linewidth = 120});
  check_options("scientific", {.sci_mode = sci_mode::always});
  check_options("plain", {.sci_mode = sci_mode::never});
}

TEST_CASE("tensors, views and shapes go into streams") {
  auto t = tensor_of<float, shape{2, 2}>({1, 2, 3, 4});
  std::ostringstream out;
  out << t << '\n'
      << t.view() << '\n'
      << t.extents() << ' ' << shape{dynamic, lazy, 3} << ' ' << shape{};
  CHECK(out.str() ==
        "tensor([[1., 2.],\n        [3., 4.]])\ntensor([[1., 2.],\n        [3., 4.]])\n[2, 2] "
        "[dynamic, lazy, 3] []");
}
