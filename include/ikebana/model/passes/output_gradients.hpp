#pragma once

#include <array>
#include <cstddef>
#include <tuple>
#include <type_traits>

#include "ikebana/core/tensor.hpp"
#include "ikebana/module/shape_list.hpp"

namespace ikebana {

/// Stands for the gradient of an output that the loss does not depend on:
/// `backward(std::tuple{gradient, no_gradient})`. Parameters that affect only such outputs have no
/// gradient.
struct no_gradient_t {};
inline constexpr no_gradient_t no_gradient{};

namespace detail {

/// Gradients of a model's outputs as shapes and plain pointers.
template <class T, std::size_t Outputs>
struct output_gradients {
  shape_list shapes{};
  std::array<const T*, Outputs> data{};
  std::array<bool, Outputs> given{};

  template <class... G>
  static output_gradients of(const G&... g) {
    output_gradients list;
    std::size_t i = 0;
    (list.set(i++, g), ...);
    return list;
  }
  template <class... G>
  static output_gradients of(const std::tuple<G...>& g) {
    return std::apply([](const auto&... each) { return of(each...); }, g);
  }

 private:
  void set(std::size_t, no_gradient_t) { shapes.push_back({}); }
  template <class G>
  void set(std::size_t i, const G& gradient) {
    shapes.push_back(gradient.extents());
    given[i] = true;
    data[i] = gradient.data();
  }
};

}  // namespace detail
}  // namespace ikebana
