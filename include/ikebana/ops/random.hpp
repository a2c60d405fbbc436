#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ikebana/core/random.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/ops/constant.hpp"

// Random values of a graph. Each is a module, since it draws by its path: "noise"_m(normal_like{},
// mu). Element i depends on seed, path, step and i alone. O(elements); no allocation.
namespace ikebana {

/// Normal numbers in the shape of the input: torch.randn_like, with mean and deviation.
struct normal_like {
  static constexpr std::string_view kind = "normal_like";
  static constexpr bool is_source = true;
  static constexpr kept keeps = kept::nothing;
  static constexpr bool is_random = true;

  double mean = 0, deviation = 1;

  void describe(description& d) const { d.add("mean", mean).add("deviation", deviation); }

  constexpr inferred infer(const shape& in) const { return in; }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  template <class T>
  void forward(const context<T>& c) const {
    fill_normal(c.random(), mean, deviation, c.output(), c.output_shape().numel());
  }
  template <class T>
  void backward(const context<T>& c) const {
    ops::write_no_gradient(c);
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

/// Uniform numbers in [low, high), in the shape of the input: torch.rand_like.
struct uniform_like {
  static constexpr std::string_view kind = "uniform_like";
  static constexpr bool is_source = true;
  static constexpr kept keeps = kept::nothing;
  static constexpr bool is_random = true;

  double low = 0, high = 1;

  void describe(description& d) const { d.add("low", low).add("high", high); }

  constexpr inferred infer(const shape& in) const { return in; }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  template <class T>
  void forward(const context<T>& c) const {
    T* const y = c.output();
    const dim_t n = c.output_shape().numel();
    // Both numbers are exact, and the sum is rounded once: below `high`, for it is at most
    // high - (high - low) 2^-24 before.
    fill_uniform(c.random(), T{1}, y, n);
    const T scale = static_cast<T>((high - low) / 2), middle = static_cast<T>((high + low) / 2);
    for (dim_t i = 0; i < n; ++i) y[i] = middle + scale * y[i];
  }
  template <class T>
  void backward(const context<T>& c) const {
    ops::write_no_gradient(c);
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

/// 1 with the probability that each element of the input is, else 0: torch.bernoulli. The gradient
/// is 0.
struct bernoulli {
  static constexpr std::string_view kind = "bernoulli";
  static constexpr kept keeps = kept::nothing;
  static constexpr bool is_random = true;

  constexpr inferred infer(const shape& in) const { return in; }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  template <class T>
  void forward(const context<T>& c) const {
    T* const y = c.output();
    const T* const p = c.input();
    const dim_t n = c.output_shape().numel();
    // Four words at a time, one for each element.
    for (dim_t i = 0; i < n; i += 4) {
      const auto w = c.random().words(static_cast<std::uint32_t>(i / 4));
      for (dim_t k = i; k < n && k < i + 4; ++k)
        y[k] = static_cast<double>(w[static_cast<std::size_t>(k - i)]) * 0x1p-32 <
                       static_cast<double>(p[k])
                   ? T{1}
                   : T{};
    }
  }
  template <class T>
  void backward(const context<T>& c) const {
    ops::write_no_gradient(c);
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

}  // namespace ikebana
