#include "ikebana/train/metrics.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>

namespace ike = ikebana;
using ike::dynamic;
using ike::shape;

namespace {
const auto scores = ike::tensor_of<float, shape{4, 3}>({1, 5, 2,  //
                                                        7, 0, 0,  //
                                                        1, 1, 1,  // equal: the first
                                                        -3, -2, -1});
const auto labels = ike::tensor_of<std::int64_t, shape{4}>({1, 0, 2, 2});
}  // namespace

TEST_CASE("argmax takes the first of the greatest") {
  const double x[] = {1, 3, 2, 3};
  CHECK(ike::argmax(x, 4) == 1);
  CHECK(ike::argmax(x, 1) == 0);
}

TEST_CASE("accuracy is the share of rows whose greatest is at the label") {
  CHECK(ike::accuracy(scores, labels) == 0.75);
  CHECK(ike::accuracy(ike::tensor<float, shape{0, 3}>{}, ike::tensor<std::int64_t, shape{0}>{}) ==
        0);
  CHECK_THROWS_WITH_AS(ike::accuracy(scores, ike::tensor<std::int64_t, shape{3}>{}),
                       "accuracy expects scores [N, classes] and labels [N], got [4, 3] and [3]",
                       ike::shape_error);
}

TEST_CASE("a confusion matrix counts by true and predicted class, over batches") {
  ike::confusion_matrix m{3};
  CHECK(m.accuracy() == 0);
  m.add(scores, labels);
  m.add(scores.view(), labels.view());
  CHECK(m.count(1, 1) == 2);
  CHECK(m.count(2, 0) == 2);
  CHECK(m.count(2, 2) == 2);
  CHECK(m.count(0, 2) == 0);
  CHECK(m.total() == 8);
  CHECK(m.correct() == 6);
  CHECK(m.accuracy() == 0.75);
  CHECK(ike::to_string(m) ==
        "     |   0   1   2\n"
        "------------------\n"
        "   0 |   2   .   .\n"
        "   1 |   .   2   .\n"
        "   2 |   2   .   2\n");
}

TEST_CASE("what does not fit a confusion matrix is refused before anything is counted") {
  ike::confusion_matrix m{3};
  auto bad = labels;
  bad[3] = 3;
  CHECK_THROWS_WITH_AS(m.add(scores, bad), "label 3 of sample 3 is not one of 3 classes",
                       ike::error);
  bad[3] = -100;
  CHECK_THROWS_AS(m.add(scores, bad), ike::error);
  CHECK_THROWS_AS(m.add(ike::tensor<float, shape{4, 2}>{}, labels), ike::shape_error);
  CHECK_THROWS_AS(m.add(scores, ike::tensor<std::int64_t, shape{3}>{}), ike::shape_error);
  CHECK(m.total() == 0);
}
