#pragma once

#include <cstddef>
#include <string_view>

#include "ikebana/core/shape.hpp"
#include "ikebana/core/text.hpp"

namespace ikebana {

/// The path of a module or parameter in its network: `block1.conv2`.
using path_text = text<512>;

/// A complete diagnostic as one sentence.
using sentence = text<768>;

/// What is wrong with a shape, as a value. The compiler prints it (static check), and at run time a
/// `shape_error` carries it. `what` is a sentence with the placeholders {expected}, {got}, {input}
/// and {other}: `diagnostic{"linear expects in_features = {expected}, got {got} (input {input})",
/// 10, 12, in}`. {number} prints `got` as a number and not as an extent (-1 is not `dynamic`).
/// `what` must have static storage duration (a literal). If it is empty, nothing is wrong.
struct diagnostic {
  const char* what = "";
  dim_t expected = 0;
  dim_t got = 0;
  shape input{};
  shape other{};
  path_text path{};

  // Not a null pointer: under -fsanitize=undefined, g++ rejects that comparison in a constant
  // expression.
  constexpr bool ok() const { return *what == '\0'; }

  /// The sentence, prefixed with the path of the module.
  [[gnu::cold]] constexpr sentence message() const {
    sentence out;
    if (!path.empty()) out.append(path.view()).append(": ");
    if (ok()) return out;
    std::string_view rest = what;
    while (!rest.empty()) {
      std::size_t open = rest.find('{');
      out.append(rest.substr(0, open));
      if (open == std::string_view::npos) break;
      std::size_t close = rest.find('}', open);
      std::string_view name = rest.substr(open + 1, close - open - 1);
      if (name == "expected")
        out.append(expected);
      else if (name == "got")
        out.append(got);
      else if (name == "number")
        out.append_number(got);
      else if (name == "input")
        out.append(input);
      else if (name == "other")
        out.append(other);
      else
        out.append(rest.substr(open, close - open + 1));
      if (close == std::string_view::npos) break;
      rest = rest.substr(close + 1);
    }
    return out;
  }
};

}  // namespace ikebana
