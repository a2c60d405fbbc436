#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "ikebana/core/dtype.hpp"
#include "ikebana/core/random.hpp"
#include "ikebana/core/shape.hpp"

namespace ikebana {

/// How a parameter or a buffer comes into being. The bits depend on the stream and the extents
/// alone, but for those of normal numbers, which take logarithms and cosines from the standard
/// library.
struct initializer {
  enum class kind : std::uint8_t { constant, uniform, uniform_sqrt, normal, unit_normal };
  kind what = kind::constant;
  double value = 0;  ///< The constant, the bound, its inverse square, or the mean.
  double deviation = 1;
  dim_t zero_row = -1;

  static constexpr initializer constant(double v) { return {kind::constant, v}; }

  /// Uniform in [-bound, bound).
  static constexpr initializer uniform(double bound) { return {kind::uniform, bound}; }

  /// Uniform in [-1/sqrt(fan_in), 1/sqrt(fan_in)): what PyTorch's linear and convolution modules
  /// draw weights from (kaiming-uniform with a = sqrt(5); He et al., Delving Deep into Rectifiers,
  /// 2015) and biases. 0 where fan_in is 0.
  static constexpr initializer kaiming_uniform(dim_t fan_in) {
    return {kind::uniform_sqrt, static_cast<double>(fan_in)};
  }

  /// Uniform in [-b, b), b = sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio, Understanding the
  /// difficulty of training deep feedforward neural networks, 2010).
  static constexpr initializer xavier_uniform(dim_t fan_in, dim_t fan_out) {
    return {kind::uniform_sqrt, static_cast<double>(fan_in + fan_out) / 6};
  }

  /// Normal with this mean and standard deviation.
  static constexpr initializer normal(double mean, double deviation) {
    return {kind::normal, mean, deviation};
  }

  /// Standard normal, then divided by the 2-norm of all.
  static constexpr initializer unit_normal() { return {kind::unit_normal}; }

  /// The same with zeros in row `row` of a matrix.
  constexpr initializer with_zero_row(dim_t row) const {
    initializer i = *this;
    i.zero_row = row;
    return i;
  }

  /// Writes the initial values of an array of these extents. O(elements); does not allocate.
  template <class T>
  void fill(const random_stream& stream, T* x, const shape& extents) const {
    const dim_t n = extents.numel();
    switch (what) {
      case kind::constant:
        for (dim_t i = 0; i < n; ++i) x[i] = static_cast<T>(value);
        break;
      case kind::uniform:
        fill_uniform(stream, static_cast<T>(value), x, n);
        break;
      case kind::uniform_sqrt:
        fill_uniform(stream, static_cast<T>(value > 0 ? 1 / std::sqrt(value) : 0), x, n);
        break;
      case kind::normal:
        fill_normal(stream, value, deviation, x, n);
        break;
      case kind::unit_normal: {
        fill_normal(stream, 0, 1, x, n);
        double squares = 0;
        for (dim_t i = 0; i < n; ++i)
          squares += static_cast<double>(x[i]) * static_cast<double>(x[i]);
        if (squares > 0)
          for (dim_t i = 0; i < n; ++i)
            x[i] = static_cast<T>(static_cast<double>(x[i]) / std::sqrt(squares));
        break;
      }
    }
    if (zero_row >= 0 && extents.rank() > 0 && extents.back() > 0 && zero_row < n / extents.back())
      for (dim_t i = 0; i < extents.back(); ++i) x[zero_row * extents.back() + i] = T{0};
  }
};

/// A parameter as a module describes it. `name` is a literal: "weight".
struct parameter_spec {
  const char* name = nullptr;
  shape extents{};
  initializer init{};
  /// The name that keys its random numbers, where that is not its own.
  const char* drawn_as = "";
};

/// A buffer: state that is not trained (running statistics, counters). Saved with the parameters if
/// it is persistent.
struct buffer_spec {
  const char* name = nullptr;
  shape extents{};
  dtype type = dtype::float32;
  bool follows_model =
      true;  ///< The element type is the model's; `type` is for those that are not.
  initializer init{};
  bool persistent = true;
};

/// Memory that a module's forward leaves for its backward, besides inputs and outputs.
struct saved_spec {
  std::size_t element_size = 0;  ///< In bytes; 0 for the size of the model's element type.
  shape extents{};
};

}  // namespace ikebana
