#pragma once

#include "ikebana/module/symbol.hpp"
#include "ikebana/ops/elementwise.hpp"
#include "ikebana/ops/reduction.hpp"

// Formulas of norms and distances along one dimension.
namespace ikebana {

/// x / max(norm(x), eps): torch.nn.functional.normalize.
template <dim_t Dim = 1, symbolic X>
constexpr auto normalize(const X& x, double p = 2, double eps = 1e-12) {
  return x / clamp(norm<Dim>(x, p, keepdim), eps);
}

/// a b / max(|a| |b|, eps): torch.nn.functional.cosine_similarity.
template <dim_t Dim = 1, symbolic A, symbolic B>
constexpr auto cosine_similarity(const A& a, const B& b, double eps = 1e-8) {
  return sum<Dim>(a * b) * rsqrt(clamp(sum<Dim>(square(a)) * sum<Dim>(square(b)), eps * eps));
}

/// norm(a - b + eps) of the last dimension: torch.nn.functional.pairwise_distance.
template <symbolic A, symbolic B>
constexpr auto pairwise_distance(const A& a, const B& b, double p = 2, double eps = 1e-6) {
  return norm<-1>(a - b + eps, p);
}

}  // namespace ikebana
