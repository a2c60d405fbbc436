#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numbers>
#include <type_traits>
#include <vector>

#include "ikebana/core/error.hpp"
#include "ikebana/core/random.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/core/tensor.hpp"

// Initial values of tensors: the functions of torch.nn.init, by their names without the underscore.
// Each writes to a tensor or a view: `init::orthogonal(model["fc.weight"_s], seed{1})`. The values
// depend on the seed and the shape alone, and are not PyTorch's numbers, but of its distributions.
// fan_in is the product of all extents but the first, fan_out of all but the second, as of weights
// [out, in, ...]. None allocates unless it says so.

namespace ikebana::init {

/// What follows a layer, for its gain.
enum class nonlinearity : unsigned char { linear, conv, sigmoid, tanh, relu, leaky_relu, selu };

/// The factor by which a standard deviation is scaled to keep the variance through a nonlinearity,
/// as torch.nn.init.calculate_gain. `slope` is that of leaky_relu.
inline double calculate_gain(nonlinearity f, double slope = 0.01) {
  switch (f) {
    case nonlinearity::tanh:
      return 5.0 / 3;
    case nonlinearity::relu:
      return std::numbers::sqrt2;
    case nonlinearity::leaky_relu:
      return std::sqrt(2 / (1 + slope * slope));
    case nonlinearity::selu:
      return 0.75;
    default:
      return 1;
  }
}

/// Which number of connections kaiming_uniform and kaiming_normal keep the variance of.
enum class fan : unsigned char { in, out };

namespace detail {

template <tensor_like X>
using element_of = typename std::remove_cvref_t<X>::value_type;

inline random_stream stream_of(seed s, std::uint64_t step = 0) {
  return {s, hash_path("init", s.path), step};
}

inline void refuse_rank(const char* what, const shape& s) {
  throw_error(shape_error(diagnostic{what, 0, 0, s}));
}

struct fans {
  double in, out;
};
/// Throws shape_error for fewer than two dimensions.
inline fans fans_of(const shape& s) {
  if (s.rank() < 2)
    refuse_rank("fan_in and fan_out need a tensor of at least 2 dimensions, got {input}", s);
  double field = 1;
  for (std::size_t i = 2; i < s.rank(); ++i) field *= static_cast<double>(s[i]);
  return {static_cast<double>(s[1]) * field, static_cast<double>(s[0]) * field};
}

/// gain / sqrt(n), or 0 if there are no connections.
inline double deviation(double gain, double n) { return n > 0 ? gain / std::sqrt(n) : 0; }

/// The y with erf(y) = x, for -1 < x < 1: a polynomial (Giles, Approximating the erfinv function,
/// 2010) and two steps of Newton's.
inline double inverse_erf(double x) {
  double w = -std::log((1 - x) * (1 + x)), p;
  if (w < 5) {
    w -= 2.5;
    p = 2.81022636e-08;
    for (double c : {3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503,
                     -0.00417768164, 0.246640727, 1.50140941})
      p = p * w + c;
  } else {
    w = std::sqrt(w) - 3;
    p = -0.000200214257;
    for (double c : {0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613,
                     0.00943887047, 1.00167406, 2.83297682})
      p = p * w + c;
  }
  double y = p * x;
  for (int i = 0; i < 2; ++i) {
    const double slope = 2 * std::numbers::inv_sqrtpi * std::exp(-y * y);
    if (slope > 0) y -= (std::erf(y) - x) / slope;
  }
  return y;
}

/// A matrix with `rows` rows of `columns` elements whose columns, or rows if there are fewer of
/// them, are orthonormal: Gram and Schmidt, twice for rounding, on normal numbers, whose result is
/// uniform among such matrices.
inline std::vector<double> orthonormal(seed s, std::size_t rows, std::size_t columns) {
  const std::size_t count = std::min(rows, columns), length = std::max(rows, columns);
  std::vector<double> v(count * length);
  fill_normal(stream_of(s), 0, 1, v.data(), static_cast<dim_t>(v.size()));
  for (std::size_t k = 0; k < count; ++k) {
    double* const x = v.data() + k * length;
    for (int pass = 0; pass < 2; ++pass)
      for (std::size_t j = 0; j < k; ++j) {
        const double* const e = v.data() + j * length;
        double dot = 0;
        for (std::size_t i = 0; i < length; ++i) dot += x[i] * e[i];
        for (std::size_t i = 0; i < length; ++i) x[i] -= dot * e[i];
      }
    double squares = 0;
    for (std::size_t i = 0; i < length; ++i) squares += x[i] * x[i];
    for (std::size_t i = 0; i < length; ++i) x[i] /= std::sqrt(squares);
  }
  if (rows <= columns) return v;
  std::vector<double> transposed(v.size());
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j) transposed[i * columns + j] = v[j * length + i];
  return transposed;
}

}  // namespace detail

/// All elements are `value`. O(elements).
template <tensor_like X>
void constant(X&& x, double value) {
  for (auto& e : x) e = static_cast<detail::element_of<X>>(value);
}
template <tensor_like X>
void ones(X&& x) {
  constant(x, 1);
}
template <tensor_like X>
void zeros(X&& x) {
  constant(x, 0);
}

/// Uniform in [a, b). O(elements).
template <tensor_like X>
void uniform(X&& x, seed s, double a = 0, double b = 1) {
  using T = detail::element_of<X>;
  const dim_t n = x.extents().numel();
  fill_uniform(detail::stream_of(s), T{1}, x.data(), n);
  const double half = (b - a) / 2, middle = a + half;
  for (auto& e : x) e = static_cast<T>(middle + half * static_cast<double>(e));
}

/// Normal with this mean and standard deviation. O(elements).
template <tensor_like X>
void normal(X&& x, seed s, double mean = 0, double std = 1) {
  fill_normal(detail::stream_of(s), mean, std, x.data(), x.extents().numel());
}

/// Normal within [a, b], as if drawn until it is. O(elements).
template <tensor_like X>
void trunc_normal(X&& x, seed s, double mean = 0, double std = 1, double a = -2, double b = 2) {
  using T = detail::element_of<X>;
  const auto from = [&](double bound) {
    return std::erf((bound - mean) / std / std::numbers::sqrt2);
  };
  const double low = from(a), high = from(b);
  const random_stream stream = detail::stream_of(s);
  dim_t i = 0;
  for (auto& e : x) {
    double u;
    const auto w = stream.words(static_cast<std::uint32_t>(i++));
    // In (-1, 1).
    u = signed_unit(w[0], w[1]) + 0x1p-53;
    const double y = detail::inverse_erf(low + (high - low) * (0.5 + 0.5 * u));
    e = static_cast<T>(std::clamp(mean + std * std::numbers::sqrt2 * y, a, b));
  }
}

/// The identity matrix, with zeros where it is not square. Throws shape_error unless x is a matrix.
template <tensor_like X>
void eye(X&& x) {
  const shape s = x.extents();
  if (s.rank() != 2) detail::refuse_rank("eye needs a matrix, got {input}", s);
  zeros(x);
  for (dim_t i = 0; i < std::min(s[0], s[1]); ++i)
    x.data()[i * s[1] + i] = detail::element_of<X>(1);
}

/// A convolution's weights [out, in / groups, ...] of 1 to 3 spatial dimensions that copy as many
/// channels as possible to the output, within each group. Throws shape_error unless x is such a
/// tensor and groups divides its first extent.
template <tensor_like X>
void dirac(X&& x, dim_t groups = 1) {
  const shape s = x.extents();
  if (s.rank() < 3 || s.rank() > 5)
    detail::refuse_rank("dirac needs a convolution's weights of 3 to 5 dimensions, got {input}", s);
  if (groups < 1 || s[0] % groups != 0)
    throw_error(shape_error(
        diagnostic{"dirac: the first extent of {input} is not a multiple of {expected} groups",
                   groups, 0, s}));
  zeros(x);
  dim_t field = 1, centre = 0;
  for (std::size_t i = 2; i < s.rank(); ++i) {
    centre = centre * s[i] + s[i] / 2;
    field *= s[i];
  }
  const dim_t out = s[0] / groups;
  for (dim_t g = 0; g < groups; ++g)
    for (dim_t i = 0; i < std::min(out, s[1]); ++i)
      x.data()[((g * out + i) * s[1] + i) * field + centre] = detail::element_of<X>(1);
}

/// Uniform in +-gain sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio, Understanding the difficulty
/// of training deep feedforward neural networks, 2010). Throws shape_error for fewer than two
/// dimensions.
template <tensor_like X>
void xavier_uniform(X&& x, seed s, double gain = 1) {
  const auto f = detail::fans_of(x.extents());
  const double bound =
      std::numbers::sqrt3 * detail::deviation(gain * std::numbers::sqrt2, f.in + f.out);
  uniform(x, s, -bound, bound);
}

/// Normal with standard deviation gain sqrt(2 / (fan_in + fan_out)); otherwise as xavier_uniform.
template <tensor_like X>
void xavier_normal(X&& x, seed s, double gain = 1) {
  const auto f = detail::fans_of(x.extents());
  normal(x, s, 0, detail::deviation(gain * std::numbers::sqrt2, f.in + f.out));
}

/// Options of kaiming_uniform and kaiming_normal: PyTorch's, with its defaults.
struct kaiming_options {
  double a = 0;  ///< The slope of leaky_relu.
  fan mode = fan::in;
  init::nonlinearity nonlinearity = init::nonlinearity::leaky_relu;
};

/// Uniform in +-gain sqrt(3 / fan) (He et al., Delving Deep into Rectifiers, 2015). Throws
/// shape_error for fewer than two dimensions.
template <tensor_like X>
void kaiming_uniform(X&& x, seed s, const kaiming_options& o = {}) {
  const auto f = detail::fans_of(x.extents());
  const double bound = std::numbers::sqrt3 * detail::deviation(calculate_gain(o.nonlinearity, o.a),
                                                               o.mode == fan::in ? f.in : f.out);
  uniform(x, s, -bound, bound);
}

/// Normal with standard deviation gain / sqrt(fan); otherwise as kaiming_uniform.
template <tensor_like X>
void kaiming_normal(X&& x, seed s, const kaiming_options& o = {}) {
  const auto f = detail::fans_of(x.extents());
  normal(x, s, 0,
         detail::deviation(calculate_gain(o.nonlinearity, o.a), o.mode == fan::in ? f.in : f.out));
}

/// A matrix with orthonormal rows or columns, whichever are fewer, times gain; all extents but the
/// first are its columns (Saxe et al., Exact solutions to the nonlinear dynamics of learning in
/// deep linear neural networks, 2014). Throws shape_error for fewer than two dimensions. Allocates
/// twice the size of x in double; O(elements * min(rows, columns)).
template <tensor_like X>
void orthogonal(X&& x, seed s, double gain = 1) {
  const shape extents = x.extents();
  if (extents.rank() < 2)
    detail::refuse_rank("orthogonal needs a tensor of at least 2 dimensions, got {input}", extents);
  const dim_t n = extents.numel();
  if (n == 0) return;
  const auto rows = static_cast<std::size_t>(extents[0]),
             columns = static_cast<std::size_t>(n / extents[0]);
  const std::vector<double> q = detail::orthonormal(s, rows, columns);
  for (std::size_t i = 0; i < q.size(); ++i)
    x.data()[i] = static_cast<detail::element_of<X>>(gain * q[i]);
}

/// A matrix of normal numbers with mean 0 in which `sparsity` of each column, rounded up, is 0
/// (Martens, Deep learning via Hessian-free optimization, 2010). Throws shape_error unless x is a
/// matrix, error unless sparsity is in [0, 1]. Allocates a column of numbers.
template <tensor_like X>
void sparse(X&& x, seed s, double sparsity, double std = 0.01) {
  const shape extents = x.extents();
  if (extents.rank() != 2) detail::refuse_rank("sparse needs a matrix, got {input}", extents);
  if (!(sparsity >= 0 && sparsity <= 1))
    throw_error(error("sparse: the sparsity is not in [0, 1]"));
  normal(x, s, 0, std);
  const dim_t rows = extents[0], columns = extents[1];
  const auto zeros = static_cast<dim_t>(std::ceil(sparsity * static_cast<double>(rows)));
  std::vector<dim_t> order(static_cast<std::size_t>(rows));
  for (dim_t j = 0; j < columns; ++j) {
    shuffle(detail::stream_of(s, static_cast<std::uint64_t>(j) + 1), order.data(), rows);
    for (dim_t i = 0; i < zeros; ++i)
      x.data()[order[static_cast<std::size_t>(i)] * columns + j] = detail::element_of<X>(0);
  }
}

}  // namespace ikebana::init
