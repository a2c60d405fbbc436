#include "ikebana/train/metrics.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <string>

#include "ikebana/nn/loss.hpp"

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

TEST_CASE("precision, recall and F1 of classes") {
  ike::confusion_matrix m{3};
  CHECK(m.precision(0) == 0);
  CHECK(m.macro_f1() == 0);
  m.add(scores, labels);  // true 0: 1 right; true 1: 1 right; true 2: 1 right, 1 taken for 0
  CHECK(m.precision(0) == 0.5);
  CHECK(m.recall(0) == 1);
  CHECK(m.precision(2) == 1);
  CHECK(m.recall(2) == 0.5);
  CHECK(m.f1(2) == doctest::Approx(2. / 3));
  CHECK(m.f1(1) == 1);
  CHECK(m.macro_f1() == doctest::Approx((2. / 3 + 1 + 2. / 3) / 3));
}

TEST_CASE("top-k accuracy counts labels among the k largest scores") {
  CHECK(ike::top_k_accuracy(scores, labels, 1) == 1);  // equal scores are not larger
  const auto others = ike::tensor_of<std::int64_t, shape{4}>({2, 1, 0, 0});
  CHECK(ike::top_k_accuracy(scores, others, 1) == 0.25);
  CHECK(ike::top_k_accuracy(scores, others, 2) == 0.75);
  CHECK(ike::top_k_accuracy(scores, others, 3) == 1);
  const auto bad = ike::tensor_of<std::int64_t, shape{4}>({2, 1, 3, 0});
  CHECK_THROWS_AS(ike::top_k_accuracy(scores, bad, 1), ike::error);
  CHECK_THROWS_AS(ike::top_k_accuracy(scores, ike::tensor<std::int64_t, shape{3}>{}, 1),
                  ike::shape_error);
}

TEST_CASE("the area under the ROC curve counts pairs in order") {
  // The example of scikit-learn's documentation.
  CHECK(ike::roc_auc(ike::tensor_of<double, shape{4}>({0.1, 0.4, 0.35, 0.8}),
                     ike::tensor_of<std::int64_t, shape{4}>({0, 0, 1, 1})) == 0.75);
  CHECK(ike::roc_auc(ike::tensor_of<float, shape{4, 1}>({1, 1, 1, 1}),
                     ike::tensor_of<float, shape{4, 1}>({0, 1, 1, 0})) == 0.5);
  CHECK(ike::roc_auc(ike::tensor_of<float, shape{3}>({3, 2, 1}),
                     ike::tensor_of<float, shape{3}>({0, 0, 1})) == 0);
  const auto two = ike::tensor_of<float, shape{2}>({1, 2});
  CHECK_THROWS_WITH_AS(ike::roc_auc(two, ike::tensor_of<float, shape{2}>({1, 1})),
                       "roc_auc needs samples of both labels", ike::error);
  CHECK_THROWS_AS(ike::roc_auc(two, ike::tensor_of<float, shape{2}>({0, 2})), ike::error);
  CHECK_THROWS_AS(ike::roc_auc(two, ike::tensor_of<float, shape{3}>({0, 1, 1})), ike::shape_error);
  CHECK_THROWS_AS(
      ike::roc_auc(ike::tensor_of<double, shape{2}>({1, std::numeric_limits<double>::quiet_NaN()}),
                   ike::tensor_of<float, shape{2}>({0, 1})),
      ike::error);
}

TEST_CASE("the coefficient of determination") {
  // The example of scikit-learn's documentation.
  const auto t = ike::tensor_of<double, shape{4}>({3, -0.5, 2, 7});
  const auto y = ike::tensor_of<double, shape{4}>({2.5, 0, 2, 8});
  CHECK(ike::r2_score(y, t) == doctest::Approx(0.9486081370449679).epsilon(1e-14));
  CHECK(ike::r2_score(t, t) == 1);
  const auto level = ike::ones<double, shape{4}>();
  CHECK(ike::r2_score(level, level) == 1);
  CHECK(ike::r2_score(t, level) == 0);
  CHECK_THROWS_AS(ike::r2_score(t, ike::ones<double, shape{3}>()), ike::shape_error);
}

TEST_CASE("a running mean weighs what it is given") {
  ike::running_mean mean;
  CHECK(mean.value() == 0);
  mean.add(1, 30);
  mean.add(4, 10);
  CHECK(mean.value() == 1.75);
  CHECK(mean.weight() == 40);
  mean.reset();
  mean.add(2);
  CHECK(mean.value() == 2);
}

TEST_CASE("the perplexity of equally likely tokens is their number") {
  const double loss =
      ike::cross_entropy{}(ike::zeros<double, shape{2, 7}>(), ike::zeros<std::int64_t, shape{2}>());
  CHECK(ike::perplexity(loss) == doctest::Approx(7));
}
