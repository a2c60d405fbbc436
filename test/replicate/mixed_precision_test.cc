#include "ikebana/replicate/mixed_precision.hpp"

#include <doctest/doctest.h>

#include "ikebana/replicate/launch.hpp"
#include "test/replicate/mixed_precision_checks.hpp"

using namespace mixed_precision_checks;
using ike::threads;

TEST_CASE("Computing, reducing and accumulating in smaller types, 1 to 4 ranks") {
  for (int ranks : {1, 2, 3, 4})
    ike::launch(threads{ranks}, [](ike::process_group auto& group) { all_checks<float>(group); });
}

TEST_CASE("The same in double, where float is a smaller type") {
  for (int ranks : {1, 3})
    ike::launch(threads{ranks}, [](ike::process_group auto& group) {
      computes_and_reduces<double, float, bfloat16, float>(group);
      mixes_precisions<double, float16>(group);
    });
}
