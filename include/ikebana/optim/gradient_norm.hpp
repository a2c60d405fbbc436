#pragma once

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <limits>
#include <span>

#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/targets.hpp"
#include "ikebana/cpu/reduce.hpp"
#include "ikebana/model/parameter_shards.hpp"
#include "ikebana/module/gradient_rows.hpp"

namespace ikebana::detail {

/// The sum of |x|^p or, for p = infinity, the largest |x|; parts are combined by + or max.
template <class T>
double power_sum(std::span<const T> x, double p) {
  if (p == 2) return cpu::squared_norm<T>(static_cast<dim_t>(x.size()), x.data());
  double sum = 0;
  if (std::isinf(p)) {
    for (T v : x) {
      const double a = std::fabs(static_cast<double>(v));
      if (std::isnan(a)) return a;
      sum = a > sum ? a : sum;
    }
  } else {
    for (T v : x) sum += std::pow(std::fabs(static_cast<double>(v)), p);
  }
  return sum;
}

IKEBANA_CPU_BEGIN_SMALL
/// The norm of all gradients, of which `rows` have few that are not zero. If ranks share the
/// optimizer's work, each has its own part and `shards` combines them; otherwise `shards` is null.
template <class T>
double gradient_norm(std::span<const T> gradients, parameter_shards<T>* shards, double p,
                     std::span<const gradient_rows> rows = {}) {
  double all = 0;
  if (shards != nullptr) {
    bool undefined = false;
    for (const parameter_range& r : shards->ranges()) {
      const double part = power_sum<T>(
          gradients.subspan(static_cast<std::size_t>(r.begin), static_cast<std::size_t>(r.size())),
          p);
      if (!std::isinf(p))
        all += part;
      else if (std::isnan(part))
        undefined = true;
      else
        all = part > all ? part : all;
    }
    if (std::isinf(p)) {
      all = shards->max(all);
      if (shards->sum(undefined) > 0) all = std::numeric_limits<double>::quiet_NaN();
    } else {
      all = shards->sum(all);
    }
  } else if (rows.empty()) {
    all = power_sum<T>(gradients, p);
  } else {
    for_each_nonzero(rows, 0, static_cast<dim_t>(gradients.size()), [&](dim_t begin, dim_t end) {
      const double part = power_sum<T>(
          gradients.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)),
          p);
      if (!std::isinf(p))
        all += part;
      else if (!(part <= all))  // NaN remains.
        all = std::isnan(all) ? all : part;
    });
  }
  return p == 2 ? std::sqrt(all) : std::isinf(p) ? all : std::pow(all, 1 / p);
}

IKEBANA_CPU_END_SMALL

/// The factor that scales gradients with this norm to at most max_norm, as in
/// torch.nn.utils.clip_grad_norm_: NaN if the norm is NaN.
inline double clip_factor(double norm, double max_norm) {
  const double factor = max_norm / (norm + 1e-6);
  return factor >= 1 ? 1 : factor;
}

[[noreturn, gnu::cold]] inline void refuse_norm(const char* who, double p) {
  char said[256];
  std::snprintf(said, sizeof said,
                "%s: the total norm of order %g of the gradients is not finite, so they cannot be "
                "clipped; without error_if_nonfinite they are scaled by it anyway",
                who, p);
  throw error(said);
}

}  // namespace ikebana::detail
