#pragma once

#include <cstdio>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/plan.hpp"
#include "ikebana/cpu/conv_geometry.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/verbose.hpp"

namespace ikebana::cpu::detail {

/// A line about the plan of a convolution of one group (verbose.hpp).
[[gnu::noinline, gnu::cold]] inline void print_plan(const conv_problem& p,
                                                    conv_algorithm algorithm) {
  constexpr const char* directions[] = {"forward", "data", "weights"};
  const auto wide = [](dim_t n) { return static_cast<long long>(n); };
  char work[48];
  std::snprintf(work, sizeof work, "%lld multiply-adds", wide(cost(algorithm, p)));
  print_plan("conv", name(algorithm), work,
             "%s,f%d,%s %lldx%lldx%lldx%lldx%lld to %lldx%lldx%lldx%lld kernel %lldx%lldx%lld "
             "stride %lldx%lldx%lld",
             name(active_instruction_set()), static_cast<int>(8 * p.element),
             p.is_pass ? "data as forward" : directions[static_cast<int>(p.direction)],
             wide(p.batch), wide(p.inputs), wide(p.in[0]), wide(p.in[1]), wide(p.in[2]),
             wide(p.outputs), wide(p.out[0]), wide(p.out[1]), wide(p.out[2]), wide(p.kernel[0]),
             wide(p.kernel[1]), wide(p.kernel[2]), wide(p.stride[0]), wide(p.stride[1]),
             wide(p.stride[2]));
}

}  // namespace ikebana::cpu::detail
