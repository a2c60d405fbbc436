#pragma once

#include <array>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

#include "ikebana/core/shape.hpp"

namespace ikebana {

/// Collects the options of a module as text in PyTorch's format: `in_features=10, out_features=1,
/// bias=true`.
class description {
 public:
  /// `unknown` stands for a `dynamic` extent; fractions have `digits` significant digits, of which
  /// 17 are exact.
  explicit description(std::string_view unknown = "dynamic", int digits = 6)
      : unknown_{unknown}, digits_{digits} {}

  description& add(std::string_view option, dim_t value) {
    begin(option);
    if (value == lazy)
      text_ += "lazy";
    else if (value == dynamic)
      text_ += unknown_;
    else
      text_ += std::to_string(value);
    return *this;
  }
  description& add(std::string_view option, bool value) {
    begin(option) += value ? "true" : "false";
    return *this;
  }
  description& add(std::string_view option, double value) {
    begin(option);
    write(value);
    return *this;
  }
  description& add(std::string_view option, std::string_view value) {
    begin(option) += value;
    return *this;
  }
  /// (3, 5), or 3 if all values are equal. Not a std::span, whose constructors cost every other
  /// call of `add` a hundred instantiations.
  template <class V, std::size_t N>
  description& add(std::string_view option, const std::array<V, N>& values) {
    bool equal = true;
    for (V v : values) equal = equal && v == values[0];
    if (equal && !values.empty()) return add(option, values[0]);
    begin(option) += '(';
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i != 0) text_ += ", ";
      write(values[i]);
    }
    text_ += ')';
    return *this;
  }

  const std::string& text() const { return text_; }

 private:
  void write(dim_t value) { text_ += std::to_string(value); }
  void write(double value) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.*g", digits_, value);
    text_ += digits;
  }
  std::string& begin(std::string_view option) {
    if (!text_.empty()) text_ += ", ";
    return (text_ += option) += '=';
  }
  std::string_view unknown_;
  int digits_;
  std::string text_;
};

}  // namespace ikebana
