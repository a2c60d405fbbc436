#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "ikebana/core/dtype.hpp"
#include "ikebana/core/random.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/targets.hpp"

namespace ikebana {

/// How a parameter or a buffer is initialised. The bits depend only on the stream and the extents,
/// except that normal numbers use the standard library's logarithm and cosine.
struct initializer {
  enum class kind : std::uint8_t {
    constant,
    uniform,
    uniform_sqrt,
    normal,
    unit_normal,
    normal_sqrt
  };
  kind what = kind::constant;
  double value = 0;  ///< The constant, the bound or deviation, its inverse square, or the mean.
  double deviation = 1;
  dim_t zero_row = -1;

  static constexpr initializer constant(double v) { return {kind::constant, v}; }

  /// Uniform in [-bound, bound).
  static constexpr initializer uniform(double bound) { return {kind::uniform, bound}; }

  /// Uniform in [-1/sqrt(fan_in), 1/sqrt(fan_in)): PyTorch's default for the weights
  /// (kaiming-uniform with a = sqrt(5); He et al., Delving Deep into Rectifiers, 2015) and biases
  /// of linear and convolution modules. 0 if fan_in is 0.
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

  /// Normal with the deviation sqrt(2 / (fan_in + fan_out)) (Glorot and Bengio, as above).
  static constexpr initializer xavier_normal(dim_t fan_in, dim_t fan_out) {
    return {kind::normal_sqrt, static_cast<double>(fan_in + fan_out) / 2};
  }

  /// Standard normal, divided by the 2-norm of the whole array.
  static constexpr initializer unit_normal() { return {kind::unit_normal}; }

  /// The same initializer, with zeros in row `row` of a matrix.
  constexpr initializer with_zero_row(dim_t row) const {
    initializer i = *this;
    i.zero_row = row;
    return i;
  }

  /// Writes the initial values of an array with these extents. O(elements); no allocation.
  template <class T>
  void fill(const random_stream& stream, T* x, const shape& extents) const;
};

namespace detail {

/// See initializer::fill; built where it is called.
template <class T>
[[gnu::cold]] void fill_initial_here(const initializer& init, const random_stream& stream, T* x,
                                     const shape& extents) {
  const dim_t n = extents.numel();
  switch (init.what) {
    case initializer::kind::constant:
      for (dim_t i = 0; i < n; ++i) x[i] = static_cast<T>(init.value);
      break;
    case initializer::kind::uniform:
      fill_uniform(stream, static_cast<T>(init.value), x, n);
      break;
    case initializer::kind::uniform_sqrt:
      fill_uniform(stream, static_cast<T>(init.value > 0 ? 1 / std::sqrt(init.value) : 0), x, n);
      break;
    case initializer::kind::normal:
      fill_normal(stream, init.value, init.deviation, x, n);
      break;
    case initializer::kind::normal_sqrt:
      fill_normal(stream, 0, init.value > 0 ? 1 / std::sqrt(init.value) : 0, x, n);
      break;
    case initializer::kind::unit_normal: {
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
  if (init.zero_row >= 0 && extents.rank() > 0 && extents.back() > 0 &&
      init.zero_row < n / extents.back())
    for (dim_t i = 0; i < extents.back(); ++i) x[init.zero_row * extents.back() + i] = T{0};
}
/// The same for a model of T, built with the kernels of T.
template <class T>
[[gnu::cold]] void fill_initial(const initializer& init, const random_stream& stream, T* x,
                                const shape& extents) {
  fill_initial_here(init, stream, x, extents);
}
IKEBANA_CPU_KERNEL(fill_initial)

}  // namespace detail

template <class T>
void initializer::fill(const random_stream& stream, T* x, const shape& extents) const {
  detail::fill_initial(*this, stream, x, extents);
}

/// A parameter as declared by a module. `name` is a literal: "weight".
struct parameter_spec {
  const char* name = nullptr;
  shape extents{};
  initializer init{};
  /// The name that keys its random numbers, if it is not its own.
  const char* drawn_as = "";
  /// The version of the module that added the parameter. States of older versions, or without a
  /// version, may lack it.
  int since = 1;
  /// The leaf's buffer that lists the rows of its gradient (module/gradient_rows.hpp); -1: none.
  int rows_in = -1;
};

/// A buffer: state that is not trained (running statistics, counters). A persistent buffer is part
/// of the state dict.
struct buffer_spec {
  const char* name = nullptr;
  shape extents{};
  dtype type = dtype::float32;
  bool follows_model =
      true;  ///< The element type is the model's; `type` is for those that are not.
  initializer init{};
  bool persistent = true;
  int since = 1;  ///< As of parameter_spec.
  /// Whether it only holds what forward makes of parameters, so that it is no state of a stream.
  bool is_cache = false;
  const char* drawn_as = "";
  bool changes = true;  ///< False for a parameter that is frozen.
};

/// Memory that a module's forward keeps for its backward, besides inputs and outputs.
struct saved_spec {
  std::size_t element_size = 0;  ///< In bytes; 0 for the size of the model's element type.
  shape extents{};
};

}  // namespace ikebana
