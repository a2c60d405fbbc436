#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "ikebana/model/gradient_check.hpp"
#include "ikebana/model/state.hpp"

// Checks shared by the tests of all compositions.

using names = std::vector<std::string>;

inline constexpr ikebana::shape in{3, 4};

/// The paths of a model's parameters and buffers.
template <class Model>
names paths(const Model& m) {
  names found;
  for (const auto& e : ikebana::get_state_dict(m)) found.push_back(e.name);
  return found;
}

/// For an input of the shape `in`.
template <class M>
void check_gradients(const M& m) {
  const auto r = ikebana::gradient_check(m, ikebana::uniform<double, in>(ikebana::seed{11}));
  CHECK_MESSAGE(r.largest < 1e-7, r.where);
}
