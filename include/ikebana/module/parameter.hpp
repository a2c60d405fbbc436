#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "ikebana/core/dtype.hpp"
#include "ikebana/core/random.hpp"
#include "ikebana/core/shape.hpp"

namespace ikebana {

/// How a parameter comes into being.
struct initializer {
  enum class kind : std::uint8_t { constant, uniform };
  kind what = kind::constant;
  double value = 0;

  static constexpr initializer constant(double v) { return {kind::constant, v}; }

  /// Uniform in [-bound, bound).
  static constexpr initializer uniform(double bound) { return {kind::uniform, bound}; }

  /// Uniform in [-1/sqrt(fan_in), 1/sqrt(fan_in)): what PyTorch's linear and convolution modules
  /// draw weights from (kaiming-uniform with a = sqrt(5); He et al., Delving Deep into Rectifiers,
  /// 2015) and biases. 0 where fan_in is 0.
  static constexpr initializer kaiming_uniform(dim_t fan_in) {
    return {kind::uniform, -static_cast<double>(fan_in)};
  }

  /// Writes n initial values. The bits depend on the stream alone.
  template <class T>
  void fill(const random_stream& stream, T* x, dim_t n) const {
    if (what == kind::constant) {
      for (dim_t i = 0; i < n; ++i) x[i] = static_cast<T>(value);
    } else {
      const double bound = value < 0 ? 1 / std::sqrt(-value) : value;
      fill_uniform(stream, static_cast<T>(bound), x, n);
    }
  }
};

/// A parameter as a module describes it. `name` is a literal: "weight".
struct parameter_spec {
  const char* name = nullptr;
  shape extents{};
  initializer init{};
};

/// A buffer: state that is not trained (running statistics, counters). Saved with the parameters.
struct buffer_spec {
  const char* name = nullptr;
  shape extents{};
  dtype type = dtype::float32;
  bool follows_model =
      true;  ///< The element type is the model's; `type` is for those that are not.
  double value = 0;
};

/// Memory that a module's forward leaves for its backward, besides inputs and outputs.
struct saved_spec {
  std::size_t element_size = 0;  ///< In bytes; 0 for the size of the model's element type.
  shape extents{};
};

}  // namespace ikebana
