#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/model/state_dict.hpp"
#include "leaf_run.hpp"
#include "test/support/tested_sets.hpp"

/// PyTorch's recorded values of a family (test/data/README.md), as float or double.
template <class T>
const ikebana::state_dict& recorded(std::string_view family);
extern template const ikebana::state_dict& recorded<float>(std::string_view);
extern template const ikebana::state_dict& recorded<double>(std::string_view);

/// Records that a case of a family is being compared.
void compares(std::string_view family, const std::string& name);

/// The names of a family's cases that start with one of `prefixes` and have not been compared yet.
std::set<std::string> not_compared(std::string_view family,
                                   const std::vector<std::string>& prefixes);

template <class T>
constexpr double tolerance = std::is_same_v<T, float> ? 1e-5 : 1e-12;

/// |a - b| <= tolerance max|b|, the maximum over the tensor, plus a tenth of the tolerance.
template <class T>
void check_close(const T* a, const ikebana::state_dict::entry& b, const std::string& what);
extern template void check_close<float>(const float*, const ikebana::state_dict::entry&,
                                        const std::string&);
extern template void check_close<double>(const double*, const ikebana::state_dict::entry&,
                                         const std::string&);

/// Calls f on every instruction set that is tested.
template <class F>
void for_each_instruction_set(F&& f) {
  const ikebana::cpu::instruction_set before = ikebana::cpu::active_instruction_set();
  for (const auto s : ikebana::cpu::instruction_sets) {
    if (!is_tested(s)) continue;
    ikebana::cpu::set_instruction_set(s);
    f(std::string{" on "} + ikebana::cpu::name(s));
  }
  ikebana::cpu::set_instruction_set(before);
}

void copy_bytes(void* to, const ikebana::state_dict::entry& from);

/// Runs what the makers make as PyTorch ran the case.
void compare_runs(const std::string& name, bool training, const make_leaf_run<float>& single,
                  const make_leaf_run<double>& twice);

/// Runs m as PyTorch ran the case, in float and double, on every instruction set.
template <class M>
void compare(const std::string& name, const M& m, bool training = true) {
  compare_runs(name, training, leaf_run_maker<float>(m), leaf_run_maker<double>(m));
}
