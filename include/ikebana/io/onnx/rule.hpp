#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "ikebana/io/onnx_builder.hpp"

namespace ikebana::detail {

/// What the rules of all kinds share. A rule writes the nodes of one call of a module, operators of
/// opset 17: https://github.com/onnx/onnx/blob/v1.12.0/docs/Operators.md
struct onnx_rule {
  using step = onnx_step;
  using integers = step::integers;
  using strings = step::strings;
  using attributes = step::attributes;

  struct rule {
    std::string_view kind;
    void (*write)(step&);
  };

  static constexpr std::int64_t one = 1;
  static constexpr std::int64_t last = std::numeric_limits<std::int64_t>::max();

  /// The kind without its number of dimensions: conv2d is a conv.
  static std::string_view family(std::string_view kind) {
    const std::size_t n = kind.size();
    return n > 2 && kind[n - 1] == 'd' && kind[n - 2] >= '1' && kind[n - 2] <= '3'
               ? kind.substr(0, n - 2)
               : kind;
  }
  /// The number of dimensions in the kind. Unbatched inputs are refused.
  static std::size_t spatial(step& s) {
    const std::string_view kind = s.call().kind;
    const auto n = static_cast<std::size_t>(kind[kind.size() - 2] - '0');
    if (s.in_shape().rank() != n + 2) s.refuse(" of an input without a batch");
    return n;
  }
  static integers twice(const integers& sides) {
    integers both = sides;
    both.insert(both.end(), sides.begin(), sides.end());
    return both;
  }
  /// `before` and `after` are of the last dimensions.
  static std::string padded(step& s, const integers& before, const integers& after,
                            std::string_view mode, const std::string& value) {
    integers sides(2 * step::at(s.rank()), 0);
    const std::size_t first = step::at(s.rank()) - before.size();
    for (std::size_t d = 0; d < before.size(); ++d) {
      sides[first + d] = before[d];
      sides[step::at(s.rank()) + first + d] = after[d];
    }
    return s.node("Pad", {s.in(), s.ints(sides), value}, {{"mode", mode}});
  }
};

}  // namespace ikebana::detail
