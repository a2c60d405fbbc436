#pragma once

#include <cmath>
#include <cstddef>
#include <string_view>

#include "ikebana/core/tensor.hpp"
#include "ikebana/module/graph_loss.hpp"
#include "ikebana/module/loss_reduction.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/ops/elementwise_loss.hpp"

namespace ikebana {

namespace ops {

struct gaussian_nll_formula {
  static constexpr std::string_view kind = "gaussian_nll_loss";
  static constexpr std::size_t inputs = 3;
  static constexpr const char* shapes =
      "gaussian_nll_loss expects means, variances and targets of one shape, got {input} and "
      "{other}";
  bool full = false;
  double eps = 1e-6;
  constexpr bool operator==(const gaussian_nll_formula&) const = default;

  template <class T>
  T at(const T (&x)[inputs], T (&slopes)[inputs]) const {
    const auto least = static_cast<T>(eps);
    const T v = x[1] < least ? least : x[1], d = x[0] - x[2];
    slopes[0] = d / v;
    slopes[1] = (1 - d * d / v) / (2 * v);
    slopes[2] = -slopes[0];
    const T l = (std::log(v) + d * d / v) / 2;
    return full ? l + static_cast<T>(0.91893853320467274178) : l;  // log(2 pi) / 2
  }
};

}  // namespace ops

/// The negative log-likelihood of targets t under normal distributions of these means and
/// variances, the two outputs of a network: (log v + (mean - t)^2 / v) / 2, with `full` and log(2
/// pi) / 2 (Nix and Weigend, Estimating the mean and variance of the target probability
/// distribution, 1994): torch.nn.GaussianNLLLoss, whose arguments are (mean, t, v). Variances below
/// eps count as eps, without effect on the gradient. All have one shape; expand repeats a variance.
/// O(elements).
struct gaussian_nll_loss {
  bool full = false;
  double eps = 1e-6;
  ikebana::reduction reduction = ikebana::reduction::mean;

  constexpr bool operator==(const gaussian_nll_loss&) const = default;

  template <symbolic Mean, symbolic Variance, symbolic Target>
  constexpr auto operator()(const Mean& mean, const Variance& v, const Target& t) const {
    return apply(ops::elementwise_loss<ops::gaussian_nll_formula>{{full, eps}, reduction}, mean, v,
                 t);
  }
  template <tensor_like... X>
  auto operator()(const X&... x) const {
    return detail::loss_of_tensors(*this, x...);
  }
};

}  // namespace ikebana
