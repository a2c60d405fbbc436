#pragma once

#include <doctest/doctest.h>

#include <type_traits>

#include "ikebana/replicate/launch.hpp"

/// check(group) on 1 to `most` threads. Its result is the number of failures on its rank.
template <class Check>
void on_threads(const Check& check, int most = 4) {
  for (int ranks = 1; ranks <= most; ++ranks) {
    CAPTURE(ranks);
    const ikebana::threads world{ranks};
    if constexpr (std::is_void_v<std::invoke_result_t<const Check&, ikebana::thread_group&>>)
      ikebana::launch(world, [&](ikebana::thread_group& group) { check(group); });
    else
      for (const int wrong : ikebana::launch(world, check)) CHECK(wrong == 0);
  }
}
