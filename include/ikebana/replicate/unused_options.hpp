#pragma once

#include "ikebana/replicate/policy.hpp"

namespace ikebana {

namespace detail {
struct find_unused_key {};
struct static_graph_key {};
struct skip_unused_key {};
}  // namespace detail

/// Whether a backward may leave parameters out: those of branches that were not chosen (`choose`),
/// or of outputs without a gradient (`no_gradient`). If true, a parameter that some rank reached
/// gets the average, to which the others contribute zero or what they had accumulated; one that no
/// rank has reached since the last reduction is unchanged on every rank, and stays absent if it
/// was. If false, such a backward throws state_error at its end, on every rank, with the paths. In
/// both cases the ranks count with one int32 per parameter, sent during backward. A network that
/// always reaches every parameter has no overhead and needs none of this.
template <bool Value>
struct find_unused_parameters {
  using replicate_key = detail::find_unused_key;
  static constexpr bool value = Value;
};

/// Whether every synchronised backward reaches the parameters that the first one reached, rank by
/// rank. The parameters that the first one leaves out may then be left out, as with
/// find_unused_parameters, but the ranks count only once, and buckets are rebuilt afterwards so
/// that what no rank reaches is never sent. A later backward that differs throws state_error at its
/// end, on every rank, with the path of a parameter.
template <bool Value>
struct static_graph {
  using replicate_key = detail::static_graph_key;
  static constexpr bool value = Value;
};

/// Whether buckets whose parameters no rank has reached are left out of the reduction. Backward
/// then starts by waiting for the ranks' counts. Without find_unused_parameters, ranks must reach
/// the same parameters: otherwise state_error, before anything has changed.
template <bool Value>
struct skip_unused {
  using replicate_key = detail::skip_unused_key;
  static constexpr bool value = Value;
};

namespace detail {

template <class Policy>
inline constexpr bool finds_unused =
    policy_option<Policy, find_unused_key, find_unused_parameters<false>>::value;
template <class Policy>
inline constexpr bool has_static_graph =
    policy_option<Policy, static_graph_key, static_graph<false>>::value;
template <class Policy>
inline constexpr bool skips_unused =
    policy_option<Policy, skip_unused_key, skip_unused<false>>::value;

}  // namespace detail
}  // namespace ikebana
