#pragma once

#include <cstddef>

#include "ikebana/compose/frozen.hpp"
#include "ikebana/compose/replace_leaves.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/module/path_pattern.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/sync_batch_norm.hpp"

namespace ikebana {

namespace detail {

template <std::size_t Spatial, dim_t C, class... Options>
constexpr auto synchronised(const batch_norm<Spatial, C, Options...>& norm) {
  return sync_batch_norm<Spatial, C, Options...>{norm};
}

/// Replaces the batch norms that Choice covers.
template <class Choice>
struct synchronise_leaf {
  template <std::size_t L, class Leaf>
  static constexpr auto replace(const Leaf& leaf) {
    if constexpr (
        Choice::frozen[L] && !requires { Leaf::exchanges_with_replicas; } &&
        requires { synchronised(leaf); })
      return synchronised(leaf);
    else
      return leaf;
  }
};

}  // namespace detail

/// A network whose batch norms are sync_batch_norms with their options, below the modules that
/// match a pattern: `convert_sync_batch_norm<"backbone">(net)`; without a pattern, in the whole of
/// it. Paths, initial values and state dicts stay the same (torch.nn.SyncBatchNorm's
/// convert_sync_batchnorm). In a pattern, `*` stands for any characters; one that matches nothing
/// is a compile error. A constant expression.
template <detail::literal... Patterns, any_module M>
requires(detail::all_are_modules<
         M, detail::pattern_list<Patterns...>>) constexpr auto convert_sync_batch_norm(const M&
                                                                                           net) {
  // Without patterns, those that none covers are all.
  return detail::replace_leaves<detail::synchronise_leaf<
      detail::freezing<M, detail::pattern_list<Patterns...>, (sizeof...(Patterns) > 0)>>>(net);
}
template <detail::literal... Patterns, any_module M>
auto convert_sync_batch_norm(const M&) ->
    typename detail::find_module_refusal<M, detail::pattern_list<Patterns...>>::type;

}  // namespace ikebana
