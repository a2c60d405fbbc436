#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/core/shape_error.hpp"
#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/cpu/norm.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/parameter.hpp"
#include "ikebana/module/replica_exchange.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/detail/spatial.hpp"

namespace ikebana {

namespace detail {

/// The sum of f(x[i]) in double.
template <class T, class F>
double sum_of(dim_t n, const T* x, const F& f) {
  // Several sums, since additions that depend on each other wait for one another.
  double sums[4]{};
  dim_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (int k = 0; k < 4; ++k) sums[k] += f(static_cast<double>(x[i + k]));
  for (; i < n; ++i) sums[0] += f(static_cast<double>(x[i]));
  return sums[0] + sums[1] + (sums[2] + sums[3]);
}

inline void sum_over_replicas(std::span<double> values) {
  if (replica_exchange* const all = replica_exchange::current(); all != nullptr) all->sum(values);
}

}  // namespace detail

/// batch_norm whose statistics, in training, are those of the batches of all replicas together:
/// PyTorch's SyncBatchNorm. Outputs, gradients and running statistics are, to rounding, those of a
/// batch_norm that gets the whole batch; parts may differ in size, and be empty. In evaluation, and
/// without `replicate`, it is a batch_norm. Parameters, buffers and options are the same, so that a
/// state dict fits both; convert_sync_batch_norm
/// (<ikebana/replicate/convert_sync_batch_norm.hpp>) replaces the batch norms of a network. Made of
/// a batch_norm: `sync_batch_norm2d<8>{{.momentum = 0.2}}`.
///
/// A forward in training sums 2 C + 1 numbers over the replicas in two exchanges, and a backward
/// that gives an input gradient 2 C in one; every rank must make these calls, so that `join` and
/// `invariant` refuse it. Throws shape_error on every rank, before anything has changed, if all
/// batches together have one element per channel, and communication_error. O(elements); no
/// allocation.
template <std::size_t Spatial, dim_t C, class... Options>
struct sync_batch_norm : batch_norm<Spatial, C, Options...> {
  using local = batch_norm<Spatial, C, Options...>;
  using local::is_affine;
  using local::tracks;

  static constexpr std::string_view kind =
      detail::joined<"sync_batch_norm", detail::digit<Spatial>, "d">;
  static constexpr bool exchanges_with_replicas = true;

  /// What a batch has too few of, others may have.
  constexpr diagnostic check(const shape_list&, bool) const { return {}; }

  template <shape Input>
  constexpr auto become() const {
    return sync_batch_norm<Spatial, Input[1], Options...>{local::template become<Input>()};
  }

  /// Mean and biased variance, those of the gradients' sums, and what is summed.
  constexpr std::array<saved_spec, 5> saved(const shape_list& in) const {
    const dim_t channels = in[0][1];
    const saved_spec each{0, shape{channels}};
    return {each, each, each, each,
            saved_spec{sizeof(double), shape{channels < 0 ? channels : 2 * channels + 1}}};
  }

  template <class T>
  void forward(const context<T>& c) const {
    if (!uses_batch(c)) return local::forward(c);
    const sizes n(c.input_shape());
    T *const mean = c.template saved<T>(0), *const variance = c.template saved<T>(1);
    double* const sums = c.template saved<double>(4);
    double& count = sums[n.channels];
    sum_planes(n, c.input(), sums, [](double x, dim_t) { return x; });
    count = static_cast<double>(n.batch * n.inner);
    detail::sum_over_replicas({sums, static_cast<std::size_t>(n.channels + 1)});
    const double all = count;
    if (all == 1)
      throw_error(shape_error(diagnostic{
          says<" expects more than 1 value per channel when training, got {got} on all ranks "
               "together (input {input})">,
          2, 1, c.input_shape()}));
    T factor{};
    if constexpr (tracks) {
      const std::int64_t batches = ++*c.template buffer<std::int64_t>(2);
      factor = static_cast<T>(this->momentum ? *this->momentum : 1 / static_cast<double>(batches));
    }
    if (all == 0) return;
    double* const means = sums + n.channels;
    for (dim_t k = n.channels; k-- > 0;) means[k] = sums[k] / all;
    for (dim_t k = 0; k < n.channels; ++k) mean[k] = static_cast<T>(means[k]);
    sum_planes(n, c.input(), sums,
               [means](double x, dim_t k) { return (x - means[k]) * (x - means[k]); });
    detail::sum_over_replicas({sums, static_cast<std::size_t>(n.channels)});
    for (dim_t k = 0; k < n.channels; ++k) {
      variance[k] = static_cast<T>(sums[k] / all);
      if constexpr (tracks) {
        T *const m = c.buffer(0) + k, *const v = c.buffer(1) + k;
        *m += factor * (mean[k] - *m);
        *v += factor * (static_cast<T>(sums[k] / (all - 1)) - *v);
      }
    }
    sums[2 * n.channels] = all;
    if (n.batch * n.inner > 0)
      cpu::batch_norm_forward_eval<T>(n.batch, n.channels, n.inner, c.input(), weight(c), bias(c),
                                      static_cast<T>(this->eps), mean, variance, c.output(),
                                      c.function());
  }

  template <class T>
  void backward(const context<T>& c) const {
    if (!uses_batch(c)) return local::backward(c);
    const sizes n(c.input_shape());
    const T *const mean = c.template saved<T>(0), *const variance = c.template saved<T>(1);
    // The sums of the gradients, and of their products with the normalised inputs.
    T *const products = c.template saved<T>(2), *const plain = c.template saved<T>(3);
    T* const dx = c.input_gradient();
    const T epsilon = static_cast<T>(this->eps);
    if (n.batch * n.inner == 0) {
      cpu::fill<T>(n.channels, products, T{0});
      cpu::fill<T>(n.channels, plain, T{0});
    } else {
      cpu::batch_norm_backward_eval<T>(n.batch, n.channels, n.inner, c.input(), c.output_gradient(),
                                       weight(c), epsilon, mean, variance, dx, products, plain,
                                       false);
    }
    if constexpr (is_affine) {
      add_to(c, n.channels, products, c.parameter_gradient(0));
      add_to(c, n.channels, plain, c.parameter_gradient(1));
    }
    if (dx == nullptr) return;
    double* const sums = c.template saved<double>(4);
    const double all = sums[2 * n.channels];
    for (dim_t k = 0; k < n.channels; ++k) {
      sums[k] = static_cast<double>(products[k]);
      sums[n.channels + k] = static_cast<double>(plain[k]);
    }
    detail::sum_over_replicas({sums, static_cast<std::size_t>(2 * n.channels)});
    const T* x = c.input();
    T* to = dx;
    for (dim_t b = 0; b < n.batch; ++b)
      for (dim_t k = 0; k < n.channels; ++k, x += n.inner, to += n.inner) {
        // dx - weight / deviation (mean of dy + normalised x times the mean of the products).
        const double inverse =
            1 / std::sqrt(static_cast<double>(variance[k]) + static_cast<double>(epsilon));
        const double by =
            inverse * (weight(c) == nullptr ? 1 : static_cast<double>(weight(c)[k])) / all;
        const double slope = by * sums[k] * inverse;
        const T a = static_cast<T>(slope), d = static_cast<T>(by * sums[n.channels + k]);
        for (dim_t i = 0; i < n.inner; ++i) to[i] -= a * (x[i] - mean[k]) + d;
      }
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }

 private:
  template <detail::literal... Text>
  static constexpr const char* says =
      detail::joined<"sync_batch_norm", detail::digit<Spatial>, "d", Text...>;

  using sizes = typename local::sizes;
  using local::bias;
  using local::uses_batch;
  using local::weight;

  template <class T>
  static void add_to(const context<T>& c, dim_t channels, const T* sums, T* gradient) {
    if (gradient == nullptr) return;
    for (dim_t k = 0; k < channels; ++k) gradient[k] = (c.accumulate() ? gradient[k] : 0) + sums[k];
  }
  /// sums[k] = the sum of f(x, k) over channel k.
  template <class T, class F>
  static void sum_planes(const sizes& n, const T* x, double* sums, const F& f) {
    for (dim_t k = 0; k < n.channels; ++k) sums[k] = 0;
    for (dim_t b = 0; b < n.batch; ++b)
      for (dim_t k = 0; k < n.channels; ++k, x += n.inner)
        sums[k] += detail::sum_of(n.inner, x, [&f, k](double v) { return f(v, k); });
  }
};

/// Synchronised batch norm over [N, num_features] or [N, num_features, length].
template <dim_t C, class... Options>
using sync_batch_norm1d = sync_batch_norm<1, C, Options...>;
/// Synchronised batch norm over [N, num_features, height, width].
template <dim_t C, class... Options>
using sync_batch_norm2d = sync_batch_norm<2, C, Options...>;
/// Synchronised batch norm over [N, num_features, depth, height, width].
template <dim_t C, class... Options>
using sync_batch_norm3d = sync_batch_norm<3, C, Options...>;

/// A synchronised batch norm whose num_features come from the first input.
template <class... Options>
using lazy_sync_batch_norm1d = sync_batch_norm<1, lazy, Options...>;
template <class... Options>
using lazy_sync_batch_norm2d = sync_batch_norm<2, lazy, Options...>;
template <class... Options>
using lazy_sync_batch_norm3d = sync_batch_norm<3, lazy, Options...>;

}  // namespace ikebana
