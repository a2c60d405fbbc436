#pragma once

#include "ikebana/replicate/policy.hpp"

namespace ikebana {

namespace detail {
struct find_unused_key {};
struct static_graph_key {};
struct skip_unused_key {};
}  // namespace detail

/// Whether a backward may leave parameters out: those of branches that were not chosen (`choose`),
/// or of outputs without a gradient (`no_gradient`). With it, a parameter that some rank reached
/// has the average, to which the others contributed zero, or what they had accumulated; one that no
/// rank reached since the last reduction is left as it is on every rank: absent, if it was. Without
/// it, such a backward throws state_error at its end, on every rank, with the paths. Either way the
/// ranks count, with one int32 for each parameter, sent while backward runs. A network that always
/// reaches every parameter pays nothing, and needs none of this.
template <bool Value>
struct find_unused_parameters {
  using replicate_key = detail::find_unused_key;
  static constexpr bool value = Value;
};

/// Whether every synchronised backward reaches the parameters that the first one reached, rank by
/// rank. Those may then be left out that the first one leaves out, as with find_unused_parameters,
/// but the ranks count only once, and buckets are made anew after it, such that what no rank
/// reaches is never sent. Where a later one differs, it throws state_error at its end, on every
/// rank, with the path of a parameter.
template <bool Value>
struct static_graph {
  using replicate_key = detail::static_graph_key;
  static constexpr bool value = Value;
};

/// Whether buckets are left out of the reduction of whose parameters none was reached by any rank.
/// Then backward begins with waiting for the ranks' counts. Without find_unused_parameters, ranks
/// must reach the same parameters: state_error, before anything has changed, where they do not.
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
