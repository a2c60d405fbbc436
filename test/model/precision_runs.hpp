#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <vector>

#include "ikebana/core/bfloat16.hpp"
#include "ikebana/core/random.hpp"
#include "ikebana/core/tensor.hpp"

/// Shared by the tests of precision<bf16>.
namespace precision_test {

namespace ike = ikebana;

inline float rounded(float x) { return ike::bfloat16(x); }

template <class Numbers>
bool same_bits(const Numbers& a, const Numbers& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0;
}

/// A forward and a backward: outputs and gradients of the parameters.
struct results {
  std::vector<float> output, gradients;
};
template <class Model, class... X>
results run(Model& model, const X&... x) {
  model.zero_grad();
  const auto outputs = [&] {
    if constexpr (Model::output_count == 1)
      return std::tuple(model(x...));
    else
      return model(x...);
  }();
  results r;
  const auto gradient = [&](const auto& y) {
    using view = std::remove_cvref_t<decltype(y)>;
    r.output.insert(r.output.end(), y.data(), y.data() + y.size());
    return ike::uniform<float, view::static_shape>(ike::seed{9});
  };
  const auto gradients =
      std::apply([&](const auto&... y) { return std::tuple{gradient(y)...}; }, outputs);
  if constexpr (Model::output_count == 1)
    model.backward(std::get<0>(gradients));
  else
    model.backward(gradients);
  r.gradients.assign(model.gradients().begin(), model.gradients().end());
  return r;
}

inline double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double most = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    most = std::fmax(most, std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
    size = std::fmax(size, std::fabs(static_cast<double>(b[i])));
  }
  return most / size;
}

}  // namespace precision_test
