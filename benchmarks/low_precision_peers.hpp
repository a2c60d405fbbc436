#pragma once

#include <cstdint>

#include "benchmarks/contest.hpp"

namespace bench {

/// result = a b, row-major, of bfloat16 numbers.
struct bf16_problem {
  dim_t m, n, k;
  const std::uint16_t *a = nullptr, *b = nullptr;
  float* result = nullptr;
};

/// result = a b, exact.
struct int8_problem {
  dim_t m, n, k;
  const std::uint8_t* a = nullptr;
  const std::int8_t* b = nullptr;
  std::int32_t* result = nullptr;
};

using low_precision_peer = peer<bf16_problem, int8_problem>;

low_precision_peer onednn_low_precision();

}  // namespace bench
