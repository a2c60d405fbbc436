#pragma once

#include <cstddef>

#include "ikebana/model/model.hpp"
#include "ikebana/model/plan/memory_plan.hpp"

namespace ikebana {

namespace detail {

template <class Model>
inline constexpr dim_t workspace_of = -1;

template <class E, class M, shape... In>
inline constexpr dim_t workspace_of<model<E, M, In...>> = [] {
  shape_list in{In...};
  for (std::size_t i = 0; i < in.size(); ++i)
    for (std::size_t d = 0; d < in[i].rank(); ++d)
      if (in[i][d] < 0) in[i][d] = 1;
  return plan_memory<element_of<E>>(lower<sizes_of<M>(sizeof...(In))>(M{}, in), sizeof...(In))
      .bytes;
}();

}  // namespace detail

/// The bytes of workspace that a training step of this model type needs, as a constant expression;
/// if an extent is dynamic, for one sample. `model.workspace_bytes()` is what a model holds at run
/// time.
template <class Model>
inline constexpr dim_t workspace_bytes = detail::workspace_of<Model>;

}  // namespace ikebana
