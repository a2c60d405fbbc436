#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "ikebana/core/shape.hpp"
#include "ikebana/model/plan/layout.hpp"
#include "ikebana/module/gradient_rows.hpp"
#include "ikebana/module/lowering.hpp"
#include "ikebana/replicate/buckets/buckets.hpp"
#include "ikebana/replicate/buckets/delayed_reduction.hpp"
#include "ikebana/replicate/buckets/row_reduction.hpp"
#include "ikebana/replicate/parameter_groups.hpp"

namespace ikebana {

namespace detail {

/// The parameters of a model in the order of the flat gradient buffer.
template <program_sizes N>
constexpr std::array<bucket_parameter, N.parameters> bucket_parameters(
    const program<N>& p, const parameter_layout<N>& layout) {
  std::array<std::size_t, N.parameters> order{};
  for (std::size_t i = 0; i < N.parameters; ++i) {
    std::size_t j = i;
    for (; j > 0 && layout.offsets[order[j - 1]] > layout.offsets[i]; --j) order[j] = order[j - 1];
    order[j] = i;
  }
  std::array<bucket_parameter, N.parameters> out{};
  for (std::size_t i = 0; i < N.parameters; ++i)
    out[i] = {p.path(p.parameters[order[i]]), p.parameters[order[i]].spec.extents,
              layout.offsets[order[i]], p.parameters[order[i]].spec.rows_in >= 0};
  return out;
}

/// The buckets of a model with the given layout: cut between parameters, in the order of the
/// buffer, as the policy says.
template <class T, class Policy, program_sizes N>
constexpr named_bucket_plan<N.parameters> buckets_of(const program<N>& p,
                                                     const parameter_layout<N>& layout) {
  using groups = parameter_groups<Policy>;
  const auto parameters = bucket_parameters(p, layout);
  std::array<dim_t, N.parameters> ends{};
  for (std::size_t i = 0; i < N.parameters; ++i)
    ends[i] = (i + 1 < N.parameters ? parameters[i + 1].begin : layout.parameter_elements) *
              static_cast<dim_t>(sizeof(T));
  std::array<bucket_range, N.parameters> buckets{};
  const std::size_t count = plan_grouped_buckets(
      ends,
      [&](std::size_t i) {
        return parameters[i].sparse ? -1 : groups::group_of(parameters[i].path.view());
      },
      [](std::size_t g) { return groups::caps[g]; }, buckets);
  return {{buckets, count}, parameters};
}

/// The gradients that the policy delays, in the order of the buffer.
template <class Policy, program_sizes N>
std::vector<element_range> delayed_of(const program<N>& p, const parameter_layout<N>& layout) {
  using groups = parameter_groups<Policy>;
  std::vector<element_range> pieces;
  if constexpr (groups::delays_any)
    for (const bucket_parameter& parameter : bucket_parameters(p, layout))
      if (!parameter.sparse && groups::is_delayed(parameter.path.view()) &&
          !groups::is_ignored(parameter.path.view()))
        pieces.push_back({parameter.begin, parameter.extents.numel()});
  return pieces;
}

/// The parameters of a model whose gradients are rows, with their groups; without those that the
/// policy ignores. Of those that it delays, group 0.
template <class Policy, class Model>
std::vector<row_parameter> row_parameters_of(const Model& model) {
  using groups = parameter_groups<Policy>;
  std::vector<row_parameter> out;
  for (const bucket_parameter& p : bucket_parameters(model.current_program(), model.layout())) {
    const int group = groups::is_delayed(p.path.view()) ? 0 : groups::group_of(p.path.view());
    if (!p.sparse || p.extents.numel() == 0 || group < 0 || groups::is_ignored(p.path.view()))
      continue;
    for (const gradient_rows& r : model.gradient_rows())
      if (r.begin == p.begin && r.end() > r.begin)
        out.push_back({r, static_cast<std::size_t>(group)});
  }
  return out;
}

}  // namespace detail

/// The buckets into which `replicate<Policy>` cuts the gradients of a model of this type, as a
/// constant: for models whose parameters' extents are all static.
template <class Policy, class Model>
constexpr auto bucket_plan_of() {
  using value_type = typename Model::value_type;
  constexpr const auto& p = Model::lowered();
  constexpr bool known = [] {
    const auto lowered = Model::lowered();
    for (const program_parameter& parameter : lowered.all_parameters())
      if (!parameter.spec.extents.is_static()) return false;
    return true;
  }();
  static_assert(known,
                "ikebana: bucket_plan_of needs a model whose parameters' extents are all known to "
                "the compiler; ask the replicated model for its bucket_plan()");
  if constexpr (known) return detail::buckets_of<value_type, Policy>(p, lay_out<value_type>(p));
}

}  // namespace ikebana
