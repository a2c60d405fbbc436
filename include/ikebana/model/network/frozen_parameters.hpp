#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/dependent.hpp"
#include "ikebana/model/parameter_shards.hpp"

namespace ikebana {

/// The elements of a model's parameters that are not trained at the moment
/// (model/requires_grad.hpp), in order. Optimizers leave them and their state as they are.
template <class T>
class frozen_parameters {
 public:
  /// Calls f(begin, end) for the elements of [begin, end) that are trained.
  template <class F>
  void for_each_trained(dim_t begin, dim_t end, F&& f) const {
    for (const parameter_range& r : ranges) {
      if (r.end <= begin) continue;
      if (r.begin >= end) break;
      if (r.begin > begin) f(begin, r.begin);
      begin = r.end;
    }
    if (begin < end) f(begin, end);
  }

  /// Sets the elements of [begin, end) that are pruned to zero.
  void apply_pruning(T* parameters, dim_t begin, dim_t end) const {
    for (auto at = std::lower_bound(pruned.begin(), pruned.end(), begin);
         at != pruned.end() && *at < end; ++at)
      parameters[*at] = T{0};
  }

  // Set by the model.
  std::vector<detail::dependent<parameter_range, T>> ranges;
  std::vector<detail::dependent<unsigned char, T>> are_frozen;  ///< By parameter.
  /// Where leaves write gradients that they cannot leave out.
  aligned_buffer<T> unused;
  /// Elements that are kept at zero (model/prune.hpp), in order.
  std::vector<detail::dependent<dim_t, T>> pruned;
};

}  // namespace ikebana
