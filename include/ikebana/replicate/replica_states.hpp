#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "ikebana/core/span_of.hpp"
#include "ikebana/replicate/parameter_groups.hpp"
#include "ikebana/replicate/process_group.hpp"
#include "ikebana/replicate/utils/broadcast_coalesced.hpp"
#include "ikebana/replicate/utils/verify_parameters.hpp"

namespace ikebana::detail {

/// Broadcasts the parameters and persistent buffers of one rank, except what the policy ignores.
template <class Policy, class Model, process_group Group>
void broadcast_states(Model& m, Group& group, int from) {
  if constexpr (parameter_groups<Policy>::ignores_any)
    broadcast_some_states(m, group, {.src = from}, [](std::string_view path, bool is_persistent) {
      return is_persistent && !parameter_groups<Policy>::is_ignored(path);
    });
  else
    broadcast_coalesced(group, {.src = from}, m.parameters(), m.persistent_buffers());
}

/// Compares the ranks' models, except what the policy ignores.
template <class Policy, class Model, process_group Group>
void verify_states(const Model& m, Group& group, std::string_view who) {
  if constexpr (parameter_groups<Policy>::ignores_any) {
    std::vector<parameter_identity> compared;
    const auto& p = m.current_program();
    for (std::size_t i = 0; i < p.all_parameters().size() + p.all_buffers().size(); ++i)
      if (const auto one = identify_parameter(m, i);
          !parameter_groups<Policy>::is_ignored(one.path.view()))
        compared.push_back(one);
    verify_parameters(span_of(compared), group, who);
  } else {
    verify_parameters(m, group, who);
  }
}

}  // namespace ikebana::detail
