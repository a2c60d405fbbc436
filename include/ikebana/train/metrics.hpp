#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ikebana/core/dependent.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/module/refusal.hpp"

namespace ikebana {

/// The index of the largest of n numbers, and of equal ones the first. n >= 1.
template <class T>
constexpr dim_t argmax(const T* x, dim_t n) {
  dim_t best = 0;
  for (dim_t i = 1; i < n; ++i)
    if (x[i] > x[best]) best = i;
  return best;
}

/// Counts of predicted against true classes over any number of batches. Rows are the true classes,
/// columns the predicted ones.
///
/// A template, so that it is compiled only where it is used.
template <class X>
class basic_confusion_matrix {
 public:
  /// Allocates classes^2 counts.
  explicit basic_confusion_matrix(dim_t classes)
      : classes_{classes}, counts_(static_cast<std::size_t>(classes * classes), 0) {}

  /// Adds a batch: scores [N, classes], labels [N]. Throws shape_error, or error for a label that
  /// is no class, before anything is counted. No allocation; O(N * classes).
  template <tensor_like Scores, tensor_like Labels>
  void add(const Scores& scores, const Labels& labels) {
    const shape s = scores.extents();
    const shape l = labels.extents();
    if (s.rank() != 2 || l.rank() != 1 || s[0] != l[0] || s[1] != classes_)
      throw shape_error(diagnostic{
          "a confusion matrix of {expected} classes expects scores [N, {expected}] and labels "
          "[N], got {input} and {other}",
          classes_, 0, s, l});
    for (dim_t i = 0; i < l[0]; ++i)
      if (labels.data()[i] < 0 || labels.data()[i] >= classes_)
        throw error("label " + std::to_string(labels.data()[i]) + " of sample " +
                    std::to_string(i) + " is not one of " + std::to_string(classes_) + " classes");
    for (dim_t i = 0; i < l[0]; ++i) {
      const dim_t predicted = argmax(scores.data() + i * classes_, classes_);
      ++counts_[static_cast<std::size_t>(labels.data()[i] * classes_ + predicted)];
    }
  }

  dim_t classes() const { return classes_; }
  std::int64_t count(dim_t truth, dim_t predicted) const {
    return counts_[static_cast<std::size_t>(truth * classes_ + predicted)];
  }
  std::int64_t total() const {
    std::int64_t n = 0;
    for (std::int64_t c : counts_) n += c;
    return n;
  }
  std::int64_t correct() const {
    std::int64_t n = 0;
    for (dim_t i = 0; i < classes_; ++i) n += count(i, i);
    return n;
  }
  /// The fraction of samples on the diagonal, between 0 and 1; 0 if there are none.
  double accuracy() const {
    const std::int64_t n = total();
    return n == 0 ? 0 : static_cast<double>(correct()) / static_cast<double>(n);
  }
  /// Of the samples predicted as this class, the fraction that is; 0 if none was. O(classes).
  double precision(dim_t c) const {
    std::int64_t predicted = 0;
    for (dim_t i = 0; i < classes_; ++i) predicted += count(i, c);
    return predicted == 0 ? 0 : static_cast<double>(count(c, c)) / static_cast<double>(predicted);
  }
  /// Of the samples of this class, the fraction predicted as it; 0 if there are none. O(classes).
  double recall(dim_t c) const {
    std::int64_t true_ones = 0;
    for (dim_t i = 0; i < classes_; ++i) true_ones += count(c, i);
    return true_ones == 0 ? 0 : static_cast<double>(count(c, c)) / static_cast<double>(true_ones);
  }
  /// The harmonic mean of precision and recall; 0 if both are. O(classes).
  double f1(dim_t c) const {
    const double p = precision(c), r = recall(c);
    return p + r == 0 ? 0 : 2 * p * r / (p + r);
  }
  /// The mean of f1 over the classes (scikit-learn's f1_score of average="macro"). O(classes^2).
  double macro_f1() const {
    double sum = 0;
    for (dim_t i = 0; i < classes_; ++i) sum += f1(i);
    return classes_ == 0 ? 0 : sum / static_cast<double>(classes_);
  }

 private:
  dim_t classes_;
  std::vector<detail::dependent<std::int64_t, X>> counts_;
};
using confusion_matrix = basic_confusion_matrix<void>;

/// The matrix as a table, with true classes as rows and predicted ones as columns. Allocates.
template <class = void>
std::string to_string(const confusion_matrix& m) {
  std::size_t width = 4;
  for (dim_t i = 0; i < m.classes(); ++i)
    for (dim_t j = 0; j < m.classes(); ++j) {
      const std::size_t digits = std::to_string(m.count(i, j)).size() + 1;
      width = digits > width ? digits : width;
    }
  const auto cell = [&](const std::string& s) { return std::string(width - s.size(), ' ') + s; };
  std::string out = cell("") + " |";
  for (dim_t j = 0; j < m.classes(); ++j) out += cell(std::to_string(j));
  out += "\n" + std::string(width + 2 + width * static_cast<std::size_t>(m.classes()), '-') + "\n";
  for (dim_t i = 0; i < m.classes(); ++i) {
    out += cell(std::to_string(i)) + " |";
    for (dim_t j = 0; j < m.classes(); ++j)
      out += cell(m.count(i, j) == 0 ? "." : std::to_string(m.count(i, j)));
    out += '\n';
  }
  return out;
}

/// The fraction of rows of scores [N, classes] whose largest element is at the label; 0 for N = 0.
/// Throws shape_error. No allocation; O(N * classes).
template <tensor_like Scores, tensor_like Labels>
requires(!std::is_integral_v<typename Scores::value_type>) double accuracy(const Scores& scores,
                                                                           const Labels& labels) {
  const shape s = scores.extents();
  if (s.rank() != 2 || labels.extents().rank() != 1 || s[0] != labels.extents()[0])
    throw shape_error(
        diagnostic{"accuracy expects scores [N, classes] and labels [N], got {input} and {other}",
                   0, 0, s, labels.extents()});
  if (s[0] == 0 || s[1] == 0) return 0;
  dim_t correct = 0;
  for (dim_t i = 0; i < s[0]; ++i)
    correct += argmax(scores.data() + i * s[1], s[1]) == labels.data()[i];
  return static_cast<double>(correct) / static_cast<double>(s[0]);
}

namespace detail::misuse {
IKEBANA_MISUSE(accuracy_takes_scores_before_labels,
               "accuracy takes scores [N, classes] before labels [N]: accuracy(model(x), labels)");
}
template <tensor_like Scores, tensor_like Labels>
requires std::is_integral_v<typename Scores::value_type>
auto accuracy(const Scores&, const Labels&)
    -> decltype(detail::refuse_for<detail::misuse::accuracy_takes_scores_before_labels, Scores>());

/// The fraction of rows of scores [N, classes] in which fewer than k classes have a larger score
/// than the label's; 0 for N = 0. Throws shape_error, or error for a label that is no class. No
/// allocation; O(N * classes).
template <tensor_like Scores, tensor_like Labels>
double top_k_accuracy(const Scores& scores, const Labels& labels, dim_t k) {
  const shape s = scores.extents();
  if (s.rank() != 2 || labels.extents().rank() != 1 || s[0] != labels.extents()[0])
    throw shape_error(diagnostic{
        "top_k_accuracy expects scores [N, classes] and labels [N], got {input} and {other}", 0, 0,
        s, labels.extents()});
  dim_t correct = 0;
  for (dim_t i = 0; i < s[0]; ++i) {
    const auto* const row = scores.data() + i * s[1];
    const auto label = static_cast<dim_t>(labels.data()[i]);
    if (label < 0 || label >= s[1])
      throw error("label " + std::to_string(label) + " of sample " + std::to_string(i) +
                  " is not one of " + std::to_string(s[1]) + " classes");
    dim_t larger = 0;
    for (dim_t c = 0; c < s[1]; ++c) larger += row[c] > row[label];
    correct += larger < k;
  }
  return s[0] == 0 ? 0 : static_cast<double>(correct) / static_cast<double>(s[0]);
}

/// The area under the receiver operating characteristic: the probability that a sample of label 1
/// has a larger score than one of label 0, equal scores counted half (Hanley and McNeil, The
/// Meaning and Use of the Area under a ROC Curve, 1982). scores and labels have equal numbers of
/// elements; labels are 0 or 1. Throws shape_error, or error for other labels or if one of the
/// classes is missing. Allocates; O(N log N).
template <tensor_like Scores, tensor_like Labels>
double roc_auc(const Scores& scores, const Labels& labels) {
  const dim_t n = scores.extents().numel();
  if (labels.extents().numel() != n)
    throw shape_error(diagnostic{"roc_auc expects a label for each score, got {input} and {other}",
                                 0, 0, scores.extents(), labels.extents()});
  std::vector<std::pair<detail::dependent<double, Scores>, bool>> sorted;
  sorted.reserve(static_cast<std::size_t>(n));
  double positive = 0;
  for (dim_t i = 0; i < n; ++i) {
    const auto label = labels.data()[i];
    if (!(label == 0 || label == 1))
      throw error("roc_auc takes the labels 0 and 1, got " + std::to_string(label));
    const bool is_one = label == 1;
    positive += is_one;
    sorted.emplace_back(static_cast<double>(scores.data()[i]), is_one);
  }
  const double negative = static_cast<double>(n) - positive;
  if (positive == 0 || negative == 0) throw error("roc_auc needs samples of both labels");
  std::sort(sorted.begin(), sorted.end());
  // Ranks of equal scores are their mean.
  double ranks = 0;
  for (std::size_t i = 0, j = 0; i < sorted.size(); i = j) {
    double ones = 0;
    for (j = i; j < sorted.size() && sorted[j].first == sorted[i].first; ++j)
      ones += sorted[j].second;
    if (j == i) throw error("roc_auc got a score that is not a number");
    ranks += ones * (static_cast<double>(i + j + 1) / 2);
  }
  return (ranks - positive * (positive + 1) / 2) / (positive * negative);
}

/// The coefficient of determination: 1 - sum (y - t)^2 / sum (t - mean t)^2. 1 is exact, 0 as good
/// as the mean; where all targets are equal, 1 or 0, as in scikit-learn. Throws shape_error if the
/// numbers of elements differ. No allocation; O(elements).
template <tensor_like Y, tensor_like Target>
double r2_score(const Y& y, const Target& t) {
  const dim_t n = y.extents().numel();
  if (t.extents().numel() != n)
    throw shape_error(
        diagnostic{"r2_score expects a target for each output, got {input} and "
                   "{other}",
                   0, 0, y.extents(), t.extents()});
  double mean = 0, residual = 0, total = 0;
  for (dim_t i = 0; i < n; ++i) mean += static_cast<double>(t.data()[i]);
  mean /= static_cast<double>(n < 1 ? 1 : n);
  for (dim_t i = 0; i < n; ++i) {
    const auto target = static_cast<double>(t.data()[i]);
    const double error_of = static_cast<double>(y.data()[i]) - target, from_mean = target - mean;
    residual += error_of * error_of;
    total += from_mean * from_mean;
  }
  if (total == 0) return residual == 0 ? 1 : 0;
  return 1 - residual / total;
}

/// e to the mean cross entropy of tokens, as for a language model: the number of equally likely
/// tokens that would be as hard to predict.
inline double perplexity(double mean_cross_entropy) { return std::exp(mean_cross_entropy); }

/// The mean of numbers with weights, such as the losses of batches by their sizes.
class running_mean {
 public:
  /// Adds a value, `weight` times.
  void add(double value, double weight = 1) {
    sum_ += value * weight;
    weight_ += weight;
  }
  /// 0 if nothing was added.
  double value() const { return weight_ == 0 ? 0 : sum_ / weight_; }
  double weight() const { return weight_; }
  void reset() { sum_ = weight_ = 0; }

 private:
  double sum_ = 0, weight_ = 0;
};

}  // namespace ikebana
