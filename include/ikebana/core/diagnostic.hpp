#pragma once

#include <cstddef>
#include <string_view>

#include "ikebana/core/shape.hpp"
#include "ikebana/core/text.hpp"

namespace ikebana {

/// A path of a module or parameter in its network: `block1.conv2`.
using path_text = text<128>;

/// The whole of a diagnostic in one sentence.
using sentence = text<320>;

/// What is wrong with a shape, as a value: the same for the compiler (a static check prints it) and
/// for run time (a `shape_error` carries it). `what` is a sentence with the place-holders
/// {expected}, {got}, {input} and {other}: `diagnostic{"linear expects in_features = {expected},
/// got {got} (input {input})", 10, 12, in}`. It must have static storage duration (a literal). An
/// empty `what` means that all is well.
struct diagnostic {
  const char* what = "";
  dim_t expected = 0;
  dim_t got = 0;
  shape input{};
  shape other{};
  path_text path{};

  // Not by a null pointer: under -fsanitize=undefined, g++ takes that question for no constant.
  constexpr bool ok() const { return *what == '\0'; }

  /// The sentence, with the path of the module before it.
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
