#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <tuple>

#include "ikebana/ikebana.hpp"
#include "ikebana/io/onnx.hpp"
#include "test/support/load_recorded.hpp"
#include "test/support/scratch.hpp"

namespace onnx_checks {

/// Numbers between -1 and 1 that JavaScript computes alike.
template <class T, ikebana::shape S>
ikebana::tensor<T, S> pattern(int first) {
  ikebana::tensor<T, S> x;
  for (ikebana::dim_t i = 0; i < x.extents().numel(); ++i)
    x.data()[i] = static_cast<T>(static_cast<double>((37 * i + first) % 101) / 50 - 1);
  return x;
}
template <ikebana::shape S>
ikebana::tensor<std::int64_t, S> indices(std::int64_t limit) {
  ikebana::tensor<std::int64_t, S> x;
  for (ikebana::dim_t i = 0; i < x.extents().numel(); ++i) x.data()[i] = (4 * i + 1) % limit;
  return x;
}

/// The outputs of a call.
template <class... V>
auto as_tuple(const std::tuple<V...>& y) {
  return y;
}
template <class V>
auto as_tuple(const V& y) {
  return std::tuple<V>(y);
}

/// Compares outputs with those that ONNX Runtime computed.
template <class Model, class... X>
void check_values(const std::string& name, Model& m, const X&... x) {
  const ikebana::state_dict recorded = load_recorded("onnx/values");
  const auto y = as_tuple(m(x...));
  std::size_t output = 0;
  const auto compare = [&](const auto& got) {
    const ikebana::state_dict::entry& e = recorded.at(name + '.' + std::to_string(output++));
    INFO(e.name);
    REQUIRE(e.extents == got.extents());
    const auto* const expected = reinterpret_cast<const double*>(e.bytes.data());
    for (ikebana::dim_t i = 0; i < got.extents().numel(); ++i) {
      CAPTURE(i);
      CHECK(static_cast<double>(got.data()[i]) == doctest::Approx(expected[i]).epsilon(2e-5));
    }
  };
  std::apply([&](const auto&... each) { (compare(each), ...); }, y);
}

template <class Model, class... X>
void check_export(const std::string& name, Model& m, const X&... x) {
  INFO(name);
  m.eval();
  const scratch_directory scratch;
  const std::string file = name + ".onnx";
  ikebana::save_onnx(m, scratch.path() / file);
  if (std::getenv("IKEBANA_RECORD_ONNX") != nullptr) {
    std::filesystem::copy_file(scratch.path() / file, "test/data/onnx/" + file,
                               std::filesystem::copy_options::overwrite_existing);
    return;
  }
  CHECK(bytes_of(scratch.path() / file) == bytes_of("test/data/onnx/" + file));
  check_values(name, m, x...);
}

}  // namespace onnx_checks
