#pragma once

#include <cstddef>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/module/lowering.hpp"
#include "ikebana/module/module.hpp"

namespace ikebana::detail {

/// Checks inputs of the shapes `given` for a module resolved for the shapes `declared`.
template <any_module M>
constexpr diagnostic check_inputs(const M& m, const shape_list& declared, const shape_list& given) {
  if (given.size() != declared.size())
    return {"the model takes {expected} inputs, got {got}", static_cast<dim_t>(declared.size()),
            static_cast<dim_t>(given.size())};
  shape_list assumed = given;
  bool same_ranks = true;
  for (std::size_t i = 0; i < given.size(); ++i)
    same_ranks = same_ranks && given[i].rank() == declared[i].rank();
  if (same_ranks)
    for (std::size_t i = 0; i < given.size(); ++i)
      for (std::size_t d = 0; d < given[i].rank(); ++d)
        if (assumed[i][d] < 0) assumed[i][d] = declared[i][d];
  // The module is checked first, since its sentence contains the path.
  const inferred made = infer(m, assumed);
  if (!made.ok()) return made.error;
  for (std::size_t i = 0; i < given.size(); ++i)
    if (!compatible(declared[i], given[i]))
      return {"the model expects an input {input}, got {other}", 0, 0, declared[i], given[i]};
  return {};
}

inline bool all_compatible(const shape_list& declared, const shape_list& given) {
  if (declared.size() != given.size()) return false;
  for (std::size_t i = 0; i < given.size(); ++i)
    if (!compatible(declared[i], given[i])) return false;
  return true;
}

inline bool same(const shape_list& a, const shape_list& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!(a[i] == b[i])) return false;
  return true;
}

}  // namespace ikebana::detail
