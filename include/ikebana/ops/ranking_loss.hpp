#pragma once

#include <cstddef>
#include <string_view>
#include <type_traits>

#include "ikebana/core/tensor.hpp"
#include "ikebana/module/graph_loss.hpp"
#include "ikebana/module/loss_reduction.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/ops/elementwise.hpp"
#include "ikebana/ops/elementwise_loss.hpp"
#include "ikebana/ops/reduction.hpp"
#include "ikebana/ops/similarity.hpp"

// Losses of several outputs that rank or embed, with PyTorch's formulas, options and defaults. Each
// is a function of symbols, for train_step and within graphs, and of tensors. Nothing is broadcast.
namespace ikebana {

namespace ops {

/// max(0, margin - y (a - b)).
struct margin_ranking_formula {
  static constexpr std::string_view kind = "margin_ranking_loss";
  static constexpr std::size_t inputs = 3;
  static constexpr const char* shapes =
      "margin_ranking_loss expects two scores and a target of one shape, got {input} and {other}";
  double margin = 0;
  constexpr bool operator==(const margin_ranking_formula&) const = default;

  template <class T>
  T at(const T (&x)[inputs], T (&slopes)[inputs]) const {
    const T by = x[0] - x[1], z = static_cast<T>(margin) - x[2] * by;
    const T on = z >= 0 ? T{1} : T{0};
    slopes[0] = -on * x[2];
    slopes[1] = on * x[2];
    slopes[2] = -on * by;
    return z > 0 ? z : on * z;
  }
};

/// 1 - x of targets 1, max(0, x - margin) of targets -1.
struct cosine_embedding_formula {
  static constexpr std::string_view kind = "cosine_embedding_loss";
  static constexpr std::size_t inputs = 2;
  static constexpr const char* shapes =
      "cosine_embedding_loss expects a target for each pair, {input}, got {other}";
  double margin = 0;
  constexpr bool operator==(const cosine_embedding_formula&) const = default;

  template <class T>
  T at(const T (&x)[inputs], T (&slopes)[inputs]) const {
    const T above = x[0] - static_cast<T>(margin);
    const bool similar = x[1] == 1, other = x[1] == -1 && above >= 0;
    slopes[0] = similar ? T{-1} : other ? T{1} : T{0};
    slopes[1] = T{0};
    return similar ? 1 - x[0] : other ? above : T{0};
  }
};

/// max(0, margin + positive - negative) of distances; with swap, the negative's lesser one from the
/// anchor and from the positive.
struct triplet_formula {
  static constexpr std::string_view kind = "triplet_margin_loss";
  static constexpr std::size_t inputs = 3;
  static constexpr const char* shapes =
      "triplet_margin_loss expects distances of one shape, got {input} and {other}";
  double margin = 1;
  bool swap = false;
  constexpr bool operator==(const triplet_formula&) const = default;

  template <class T>
  T at(const T (&x)[inputs], T (&slopes)[inputs]) const {
    const bool from_positive = swap && x[2] < x[1];
    const T z = static_cast<T>(margin) + x[0] - (from_positive ? x[2] : x[1]);
    const T on = z >= 0 ? T{1} : T{0}, half = swap && x[1] == x[2] ? on / 2 : on;
    slopes[0] = on;
    slopes[1] = from_positive ? T{0} : -half;
    slopes[2] = from_positive || half != on ? -half : T{0};
    return z > 0 ? z : on * z;
  }
};

}  // namespace ops

/// max(0, margin - y (a - b)) of two scores and targets y of 1 (a is to be the higher) or -1:
/// torch.nn.MarginRankingLoss. O(elements).
struct margin_ranking_loss {
  double margin = 0;
  ikebana::reduction reduction = ikebana::reduction::mean;

  constexpr bool operator==(const margin_ranking_loss&) const = default;

  template <symbolic A, symbolic B, symbolic Y>
  constexpr auto operator()(const A& a, const B& b, const Y& y) const {
    return apply(ops::elementwise_loss<ops::margin_ranking_formula>{{margin}, reduction}, a, b, y);
  }
  template <tensor_like... X>
  auto operator()(const X&... x) const {
    return detail::loss_of_tensors(*this, x...);
  }
};

/// Of pairs (N, D) or (D), the cosine c of each, and targets (N) or (): 1 - c for 1, max(0, c -
/// margin) for -1: torch.nn.CosineEmbeddingLoss. O(elements).
struct cosine_embedding_loss {
  double margin = 0;
  ikebana::reduction reduction = ikebana::reduction::mean;

  constexpr bool operator==(const cosine_embedding_loss&) const = default;

  template <symbolic A, symbolic B, symbolic Y>
  constexpr auto operator()(const A& a, const B& b, const Y& y) const {
    // PyTorch adds 1e-12 to each square here, unlike cosine_similarity.
    const auto c =
        sum<-1>(a * b) * rsqrt((sum<-1>(square(a)) + 1e-12) * (sum<-1>(square(b)) + 1e-12));
    return apply(ops::elementwise_loss<ops::cosine_embedding_formula>{{margin}, reduction}, c, y);
  }
  template <tensor_like... X>
  auto operator()(const X&... x) const {
    return detail::loss_of_tensors(*this, x...);
  }
};

/// Of an anchor, a positive and a negative example (N, D) or (D): max(0, margin + |a - p| - |a -
/// n|), where |x| is the p-norm of x + eps; with `swap` |p - n| counts if it is less than |a - n|
/// (Balntas et al., Learning shallow convolutional feature descriptors with triplet losses, 2016):
/// torch.nn.TripletMarginLoss. All three distances are computed in either case. O(elements).
struct triplet_margin_loss {
  double margin = 1;
  double p = 2;
  double eps = 1e-6;
  bool swap = false;
  ikebana::reduction reduction = ikebana::reduction::mean;

  constexpr bool operator==(const triplet_margin_loss&) const = default;

  template <symbolic A, symbolic P, symbolic N>
  constexpr auto operator()(const A& a, const P& positive, const N& negative) const {
    return apply(ops::elementwise_loss<ops::triplet_formula>{{margin, swap}, reduction},
                 pairwise_distance(a, positive, p, eps), pairwise_distance(a, negative, p, eps),
                 pairwise_distance(positive, negative, p, eps));
  }
  template <tensor_like... X>
  auto operator()(const X&... x) const {
    return detail::loss_of_tensors(*this, x...);
  }
};

/// Options of triplet_margin_with_distance_loss.
struct triplet_options {
  double margin = 1;
  bool swap = false;
  ikebana::reduction reduction = ikebana::reduction::mean;

  constexpr bool operator==(const triplet_options&) const = default;
};

namespace ops {

template <class Distance>
struct triplet_loss_of_distance {
  Distance distance{};
  triplet_options options{};

  constexpr bool operator==(const triplet_loss_of_distance& other) const
      requires(std::is_empty_v<Distance>) {
    return options == other.options;
  }

  template <symbolic A, symbolic P, symbolic N>
  constexpr auto operator()(const A& a, const P& positive, const N& negative) const {
    return apply(
        elementwise_loss<triplet_formula>{{options.margin, options.swap}, options.reduction},
        distance(a, positive), distance(a, negative), distance(positive, negative));
  }
  template <tensor_like... X>
  auto operator()(const X&... x) const {
    return detail::loss_of_tensors(*this, x...);
  }
};

}  // namespace ops

/// triplet_margin_loss with a distance of one's own, a function of two symbols that gives one
/// number for each example: torch.nn.TripletMarginWithDistanceLoss. `auto loss =
/// triplet_margin_with_distance_loss([](auto a, auto b) { return 1 - cosine_similarity(a, b); },
/// {.margin = 0.5});`
template <class Distance>
constexpr auto triplet_margin_with_distance_loss(const Distance& distance,
                                                 const triplet_options& options = {}) {
  return ops::triplet_loss_of_distance<Distance>{distance, options};
}

}  // namespace ikebana
