#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iosfwd>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "ikebana/core/dependent.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/core/tensor.hpp"

// Tensors as text, as PyTorch 1.13's torch/_tensor_str.py prints them.

namespace ikebana {

/// When numbers are printed in scientific notation.
enum class sci_mode : unsigned char { automatic, always, never };

/// How tensors are printed: the options of torch.set_printoptions, with its defaults.
struct print_options {
  int precision = 4;       ///< Digits after the decimal point.
  dim_t threshold = 1000;  ///< A tensor of more elements is shortened to its edges.
  dim_t edgeitems = 3;     ///< Elements at each edge of each dimension of a shortened tensor.
  int linewidth = 80;      ///< Characters per line, for wrapping rows.
  ikebana::sci_mode sci_mode = ikebana::sci_mode::automatic;
};

namespace detail {

/// Formats all elements of a tensor with the same precision and width.
template <class T>
class element_format {
 public:
  element_format(const std::vector<T>& shown, const print_options& o) : precision_{o.precision} {
    if constexpr (std::is_integral_v<T>) {
      for (const T& x : shown) width_ = std::max(width_, text(x).size());
    } else {
      std::vector<dependent<double, T>> values;
      for (const T& x : shown) values.push_back(static_cast<double>(x));
      choose(values, o);
    }
  }

  std::size_t width() const { return width_; }

  std::string operator()(const T& x) const {
    std::string s;
    if constexpr (std::is_integral_v<T>)
      s = text(x);
    else
      s = text(static_cast<double>(x));
    return s.size() < width_ ? s.insert(0, width_ - s.size(), ' ') : s;
  }

 private:
  enum class notation : unsigned char { whole, fixed, scientific };

  void choose(const std::vector<dependent<double, T>>& shown, const print_options& o) {
    double least = 0, most = 0;
    bool whole = true, any = false;
    for (double x : shown) {
      if (!std::isfinite(x) || x == 0) continue;
      least = any ? std::min(least, std::fabs(x)) : std::fabs(x);
      most = std::max(most, std::fabs(x));
      whole = whole && x == std::ceil(x);
      any = true;
    }
    notation_ = whole ? notation::whole : notation::fixed;
    if (!any) return;
    if (most / least > 1000 || most > 1e8 || (!whole && least < 1e-4))
      notation_ = notation::scientific;
    for (double x : shown)
      if (std::isfinite(x) && x != 0) width_ = std::max(width_, text(x).size());
    // As in PyTorch, the width is that of the automatic notation.
    if (o.sci_mode == sci_mode::always) notation_ = notation::scientific;
    if (o.sci_mode == sci_mode::never && notation_ == notation::scientific)
      notation_ = whole ? notation::whole : notation::fixed;
  }

  std::string text(double x) const {
    if (std::isnan(x)) return "nan";
    if (std::isinf(x)) return x > 0 ? "inf" : "-inf";
    // The largest double has 309 digits before the point.
    std::string s(static_cast<std::size_t>(320 + precision_), '\0');
    const int n =
        notation_ == notation::scientific ? std::snprintf(s.data(), s.size(), "%.*e", precision_, x)
        : notation_ == notation::whole    ? std::snprintf(s.data(), s.size(), "%.0f.", x)
                                       : std::snprintf(s.data(), s.size(), "%.*f", precision_, x);
    s.resize(static_cast<std::size_t>(n));
    return s;
  }
  template <class I>
  requires std::is_integral_v<I>
  static std::string text(I x) {
    if constexpr (std::is_same_v<I, bool>)
      return x ? "True" : "False";
    else
      return std::to_string(x);
  }

  notation notation_ = notation::fixed;
  int precision_;
  std::size_t width_ = 1;
};

/// Prints the elements of one tensor.
template <class T>
class tensor_printer {
 public:
  tensor_printer(const T* data, const shape& extents, const print_options& o)
      : data_{data},
        extents_{extents},
        options_{o},
        edge_{extents.numel() > o.threshold ? std::max<dim_t>(o.edgeitems, 0) : -1},
        format_{shown(), o} {}

  std::string print(std::size_t indent) const {
    return extents_.numel() == 0 ? "[]" : print(0, 0, indent);
  }

 private:
  bool is_cut(dim_t extent) const { return edge_ >= 0 && extent > 2 * edge_; }

  /// Calls f for the shown indices of a dimension, and gap() where others are left out.
  template <class F, class G>
  void for_each_shown(dim_t extent, F&& f, G&& gap) const {
    if (!is_cut(extent)) {
      for (dim_t i = 0; i < extent; ++i) f(i);
      return;
    }
    for (dim_t i = 0; i < edge_; ++i) f(i);
    gap();
    for (dim_t i = extent - edge_; i < extent; ++i) f(i);
  }

  std::vector<T> shown() const {
    std::vector<T> all;
    if (extents_.numel() > 0) collect(all, 0, 0);
    return all;
  }
  void collect(std::vector<T>& to, std::size_t dim, dim_t at) const {
    if (dim == extents_.rank()) {
      to.push_back(data_[at]);
      return;
    }
    for_each_shown(
        extents_[dim], [&](dim_t i) { collect(to, dim + 1, at * extents_[dim] + i); }, [] {});
  }

  std::string print(std::size_t dim, dim_t at, std::size_t indent) const {
    if (dim == extents_.rank()) return format_(data_[at]);
    const bool is_row = dim + 1 == extents_.rank();
    std::vector<dependent<std::string, T>> parts;
    for_each_shown(
        extents_[dim],
        [&](dim_t i) {
          const dim_t next = at * extents_[dim] + i;
          parts.push_back(print(dim + 1, next, indent + 1));
        },
        [&] { parts.push_back(is_row ? " ..." : "..."); });
    // A row is wrapped; slices of n dimensions have n - 1 line breaks between them.
    std::size_t per_line = 1, breaks = extents_.rank() - dim - 1;
    if (is_row) {
      const auto room = static_cast<std::size_t>(options_.linewidth);
      per_line =
          std::max<std::size_t>(1, (room > indent ? room - indent : 0) / (format_.width() + 2));
      breaks = 1;
    }
    std::string s = "[";
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (i > 0) {
        s += ',';
        if (i % per_line == 0)
          s.append(breaks, '\n').append(indent + 1, ' ');
        else
          s += ' ';
      }
      s += parts[i];
    }
    return s += ']';
  }

  const T* data_;
  shape extents_;
  print_options options_;
  dim_t edge_;
  element_format<T> format_;
};

/// Appends ", size=(2, 0)", on a new line if the last one would become too long, and ")".
template <class String>
std::string with_suffixes(String s, const std::vector<String>& suffixes, std::size_t indent,
                          int linewidth) {
  const std::size_t newline = s.rfind('\n');
  std::size_t last = newline == std::string::npos ? s.size() + 2 : s.size() - newline + 1;
  for (const String& suffix : suffixes) {
    if (last + suffix.size() + 2 > static_cast<std::size_t>(linewidth)) {
      s.append(",\n").append(indent, ' ');
      last = indent + suffix.size();
    } else {
      s += ", ";
      last += suffix.size() + 2;
    }
    s += suffix;
  }
  return s += ')';
}

}  // namespace detail

/// A tensor as PyTorch prints it: `tensor([[1., 2.], [3., 4.]])`, one row per line, shortened to
/// its edges if it has more than `threshold` elements. The type is named unless it is float32 or
/// the elements show that it is int64 or bool. Allocates; O(elements printed).
template <tensor_like X>
std::string to_string(const X& x, const print_options& options = {}) {
  using T = typename std::remove_cvref_t<X>::value_type;
  constexpr std::string_view open = "tensor(";
  const shape extents = x.extents();
  std::string s{open};
  s += detail::tensor_printer<T>{x.data(), extents, options}.print(open.size());
  std::vector<detail::dependent<std::string, X>> suffixes;
  if (extents.numel() == 0 && extents.rank() != 1) {
    std::string size = "size=(";
    for (std::size_t i = 0; i < extents.rank(); ++i)
      size += (i == 0 ? "" : ", ") + std::to_string(extents[i]);
    suffixes.push_back(size + ')');
  }
  // Elements show that they are int64 or bool; an empty tensor has none.
  if constexpr (std::is_same_v<T, bool>) {
    if (extents.numel() == 0) suffixes.push_back("dtype=bool");
  } else if constexpr (has_dtype<T> && !std::is_same_v<T, float>)
    if (!std::is_same_v<T, std::int64_t> || extents.numel() == 0)
      suffixes.push_back("dtype=" + std::string(name(dtype_of<T>)));
  return detail::with_suffixes(std::move(s), suffixes, open.size(), options.linewidth);
}

/// Prints a tensor as to_string does. Allocates.
template <tensor_like X, class Traits>
std::basic_ostream<char, Traits>& operator<<(std::basic_ostream<char, Traits>& stream, const X& x) {
  return stream << to_string(x);
}

/// Prints a shape: [dynamic, 3]. Allocates.
template <class Traits>
std::basic_ostream<char, Traits>& operator<<(std::basic_ostream<char, Traits>& stream,
                                             const shape& s) {
  std::string said = "[";
  for (std::size_t i = 0; i < s.rank(); ++i) {
    said += i == 0 ? "" : ", ";
    said += s[i] == dynamic ? "dynamic" : s[i] == lazy ? "lazy" : std::to_string(s[i]);
  }
  return stream << said + ']';
}

}  // namespace ikebana
