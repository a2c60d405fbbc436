#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "ikebana/core/shape.hpp"
#include "ikebana/model/passes/gradient_presence.hpp"
#include "ikebana/replicate/buckets/bucket_planner.hpp"
#include "ikebana/replicate/buckets/buckets.hpp"
#include "ikebana/replicate/gradient_bucket.hpp"

namespace ikebana::detail {

/// Turns a plan by order of arrival into buckets that are contiguous slices of one buffer with a
/// fixed layout. Slices end where the parameters of a planned bucket are not adjacent, where groups
/// change, and between reached and unreached parameters, so that what no rank reaches is never
/// sent. `group_of` is negative for parameters in no bucket. Allocates.
template <class T, std::size_t N, class IsReached>
named_bucket_plan<N> rebuilt_buckets(const bucket_assignment& planned,
                                     const gradient_presence& places,
                                     std::span<const bucket_parameter> parameters,
                                     std::span<const int> group_of, const IsReached& is_reached) {
  constexpr auto element = static_cast<dim_t>(sizeof(T));
  std::vector<bucket_range> slices;
  for (std::vector<std::size_t> bucket : planned.buckets) {
    std::sort(bucket.begin(), bucket.end());
    bool is_open = false;
    std::size_t last = 0;
    for (const std::size_t i : bucket) {
      is_open = is_open && i == last + 1 && group_of[i] == group_of[last] &&
                is_reached(i) == is_reached(last);
      last = i;
      if (group_of[i] < 0) continue;
      if (!is_open)
        slices.push_back(
            {places.range(i).begin * element, 0, i, i, static_cast<std::size_t>(group_of[i])});
      is_open = true;
      slices.back().end = places.range(i).end * element;
      slices.back().last_parameter = i;
    }
  }
  std::sort(slices.begin(), slices.end(), [](const bucket_range& a, const bucket_range& b) {
    return a.first_parameter < b.first_parameter;
  });
  std::array<bucket_range, N> ranges{};
  std::copy(slices.begin(), slices.end(), ranges.begin());
  std::array<bucket_parameter, N> all{};
  std::copy(parameters.begin(), parameters.end(), all.begin());
  return {{ranges, slices.size()}, all};
}

}  // namespace ikebana::detail
