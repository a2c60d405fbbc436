#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>

#include "recorded.hpp"

/// The cases of test/data/layers_<area>.py: modules with several inputs and outputs.

/// The names of an area's cases that start with `prefix` and have not been compared yet.
std::set<std::string> layers_not_compared(const std::string& area, const std::string& prefix = "");

/// Runs what the makers make as PyTorch ran the case.
void compare_layer_runs(const std::string& area, const std::string& name, bool training,
                        const make_leaf_run<float>& single, const make_leaf_run<double>& twice);

/// Runs m as PyTorch ran the area's case, in float and double, on every instruction set.
template <class M>
void compare_layer(const std::string& area, const std::string& name, const M& m,
                   bool training = true) {
  compare_layer_runs(area, name, training, leaf_run_maker<float>(m), leaf_run_maker<double>(m));
}
