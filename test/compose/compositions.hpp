#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "ikebana/model/gradient_check.hpp"
#include "ikebana/model/state.hpp"

// Checks shared by the tests of all compositions.

using path_names = std::vector<std::string>;

inline constexpr ikebana::shape three_by_four{3, 4};

/// The paths of a model's parameters and buffers.
template <class Model>
path_names paths(const Model& m) {
  path_names found;
  for (const auto& e : ikebana::get_state_dict(m)) found.push_back(e.name);
  return found;
}

/// For an input of three by four.
template <class M>
void check_gradients(const M& m) {
  const auto r =
      ikebana::gradient_check(m, ikebana::uniform<double, three_by_four>(ikebana::seed{11}));
  CHECK_MESSAGE(r.largest < 1e-7, r.where);
}
