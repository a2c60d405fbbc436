#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

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
template <class>
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

 private:
  dim_t classes_;
  std::vector<std::int64_t> counts_;
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
    -> detail::misuse::accuracy_takes_scores_before_labels<>;

}  // namespace ikebana
