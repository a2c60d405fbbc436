#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/io/file.hpp"

namespace ikebana {

/// Options of parse_csv and read_csv.
struct csv_options {
  char delimiter = ',';
  /// Whether the first row contains the names of the columns.
  bool header = false;
};

/// The numbers of a file as [rows, columns], and the names of its columns (empty without a header).
template <class T>
struct csv_table {
  tensor<T, shape{dynamic, dynamic}> values;
  std::vector<std::string> columns;
};

namespace detail {

/// Iterates over the fields of a text. Fields may be quoted with double quotes; surrounding blanks
/// are ignored; rows end with LF or CRLF. Throws io_error with line and column.
///
/// A template, so that it is compiled only where it is used.
template <class>
class basic_csv_cursor {
 public:
  basic_csv_cursor(const std::string& path, std::string_view text, char delimiter)
      : path_{path}, text_{text}, delimiter_{delimiter} {
    if (delimiter == '"' || delimiter == '\n' || delimiter == '\r')
      fail_io(path, "a quote or the end of a line cannot be the delimiter");
    if (text_.substr(0, 3) == "\xEF\xBB\xBF") at_ = 3;
  }

  /// Whether another row starts here. Blank lines are allowed only at the end.
  bool start_row() {
    std::size_t i = at_;
    while (i < text_.size() && is_blank(text_[i])) ++i;
    if (i < text_.size() && text_[i] != '\n') {
      column_ = 0;
      row_line_ = line_;
      return true;
    }
    while (i < text_.size() && (is_blank(text_[i]) || text_[i] == '\n')) ++i;
    if (i < text_.size()) fail_io(path_, "line " + std::to_string(line_) + ": blank");
    return false;
  }

  /// The next field of the row, without its quotes. Afterwards row_ended() tells whether it was the
  /// last.
  std::string_view next() {
    ++column_;
    skip_blanks();
    std::string_view field;
    if (at_ < text_.size() && text_[at_] == '"') {
      const std::size_t first = ++at_;
      for (;; ++at_) {
        if (at_ == text_.size()) fail("a quote is not closed", text_.substr(first - 1));
        if (text_[at_] == '\n') ++line_;
        if (text_[at_] != '"') continue;
        if (at_ + 1 == text_.size() || text_[at_ + 1] != '"') break;
        ++at_;
      }
      field = text_.substr(first, at_++ - first);
      skip_blanks();
      if (at_ < text_.size() && text_[at_] != delimiter_ && text_[at_] != '\n')
        fail("text after a closing quote",
             text_.substr(at_, text_.find_first_of("\r\n", at_) - at_));
    } else {
      const std::size_t first = at_;
      while (at_ < text_.size() && text_[at_] != delimiter_ && text_[at_] != '\n') ++at_;
      std::size_t last = at_;
      while (last > first && is_blank(text_[last - 1])) --last;
      field = text_.substr(first, last - first);
    }
    row_ended_ = at_ == text_.size() || text_[at_] == '\n';
    if (row_ended_ && at_ < text_.size()) ++line_;
    if (at_ < text_.size()) ++at_;
    return field;
  }

  bool row_ended() const { return row_ended_; }
  /// The line on which the row starts, counted from 1.
  dim_t line() const { return row_line_; }
  /// The number of the last field returned, counted from 1.
  dim_t column() const { return column_; }

  [[noreturn]] void fail(const std::string& what, std::string_view found) const {
    fail_io(path_, "line " + std::to_string(row_line_) + ", column " + std::to_string(column_) +
                       ": " + what + ", got " + in_quotes(found, 40));
  }
  [[noreturn]] void fail_count(dim_t expected) const {
    fail_io(path_, "line " + std::to_string(row_line_) + ", column " + std::to_string(column_) +
                       ": expected " + std::to_string(expected) + " fields, got " +
                       std::to_string(column_));
  }

 private:
  bool is_blank(char c) const { return c != delimiter_ && (c == ' ' || c == '\t' || c == '\r'); }
  void skip_blanks() {
    while (at_ < text_.size() && is_blank(text_[at_])) ++at_;
  }

  const std::string& path_;
  std::string_view text_;
  char delimiter_;
  std::size_t at_ = 0;
  dim_t line_ = 1;
  dim_t row_line_ = 1;
  dim_t column_ = 0;
  bool row_ended_ = false;
};
using csv_cursor = basic_csv_cursor<void>;

/// Whether all of `text` is a number representable in T; if so, stores it in `value`. Independent
/// of the locale.
template <class T>
bool parse_number(std::string_view text, T& value) {
  // from_chars does not accept a leading plus sign.
  if (text.size() > 1 && text[0] == '+' && text[1] != '-' && text[1] != '+') text.remove_prefix(1);
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  if (end != last || text.empty()) return false;
  if constexpr (std::is_floating_point_v<T>) {
    // Underflow gives 0 or a subnormal number; overflow is an error.
    long double wide = 0;
    if (error == std::errc::result_out_of_range &&
        std::from_chars(text.data(), last, wide).ec == std::errc{} && wide < 1 && wide > -1) {
      value = static_cast<T>(wide);
      return true;
    }
  }
  return error == std::errc{};
}

}  // namespace detail

/// Parses the numbers of a CSV text; `path` is its name in errors. See read_csv.
template <class T>
csv_table<T> parse_csv(std::string_view text, const csv_options& options = {},
                       const std::string& path = "memory") {
  static_assert(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>);
  detail::csv_cursor cursor(path, text, options.delimiter);
  std::vector<std::string> names;
  dim_t width = 0;
  if (options.header && cursor.start_row()) {
    do {
      std::string& name = names.emplace_back(cursor.next());
      for (std::size_t i = 0; (i = name.find("\"\"", i)) != std::string::npos; ++i)
        name.erase(i, 1);
    } while (!cursor.row_ended());
    width = cursor.column();
  }
  std::vector<T> values;
  dim_t rows = 0;
  while (cursor.start_row()) {
    do {
      const std::string_view field = cursor.next();
      if (width != 0 && cursor.column() > width) continue;
      T value{};
      if (!detail::parse_number(field, value))
        cursor.fail(rows == 0 && !options.header ? "expected a number (is it a header?)"
                                                 : "expected a number",
                    field);
      values.push_back(value);
    } while (!cursor.row_ended());
    if (width == 0) width = cursor.column();
    if (cursor.column() != width) cursor.fail_count(width);
    ++rows;
  }
  if (rows == 0) detail::fail_io(path, "holds no row of numbers");
  tensor<T, shape{dynamic, dynamic}> table(shape{rows, width});
  std::memcpy(table.data(), values.data(), values.size() * sizeof(T));
  return {std::move(table), std::move(names)};
}

/// Reads a file of numbers, one row per line: `read_csv<float>("digits.csv")`,
/// `read_csv<double>("wine.csv", {.delimiter = ';', .header = true})`. Accepts LF and CRLF, a byte
/// order mark, blanks around fields, double-quoted fields and blank lines at the end. Numbers are
/// read the same in every locale; inf and nan are numbers. Throws io_error with file, line, column
/// and the offending text for a field that is not a number, a missing field, a row of another
/// length, or a file without rows. Allocates; O(bytes).
template <class T>
csv_table<T> read_csv(const std::string& path, const csv_options& options = {}) {
  return parse_csv<T>(detail::read_file(path), options, path);
}

/// Consecutive columns as a tensor of samples: `columns<shape{1, 8, 8}>(table, 0)` takes 64 columns
/// starting at `first` and gives [rows, 1, 8, 8]. Throws shape_error if the table has too few
/// columns. Allocates; copies.
template <shape Sample, class T>
auto columns(const csv_table<T>& table, dim_t first = 0) {
  static_assert(Sample.is_static() && Sample.rank() < shape::max_rank);
  constexpr shape batch = [] {
    shape s{dynamic};
    for (dim_t d : Sample) s.push_back(d);
    return s;
  }();
  constexpr dim_t count = Sample.numel();
  const dim_t rows = table.values.extent(0), width = table.values.extent(1);
  if (first < 0 || count > width || first > width - count)
    throw shape_error(
        diagnostic{"columns expects {expected} columns from the given one on, of a table {input}",
                   count, width, table.values.extents()});
  tensor<T, batch> out(batch.with(0, rows));
  for (dim_t r = 0; r < rows; ++r)
    for (dim_t c = 0; c < count; ++c) out[r * count + c] = table.values[r * width + first + c];
  return out;
}

/// The columns [first, last) as [rows, last - first]. Throws shape_error if the table has too few
/// columns. Allocates; copies.
template <class T>
tensor<T, shape{dynamic, dynamic}> columns(const csv_table<T>& table, dim_t first, dim_t last) {
  const dim_t rows = table.values.extent(0), width = table.values.extent(1);
  if (first < 0 || last < first || last > width)
    throw shape_error(
        diagnostic{"columns expects a range that ends by {expected}, got {number} (table {input})",
                   width, first < 0 || last < first ? first : last, table.values.extents()});
  tensor<T, shape{dynamic, dynamic}> out(shape{rows, last - first});
  T* to = out.data();
  for (dim_t r = 0; r < rows; ++r)
    for (dim_t c = first; c < last; ++c) *to++ = table.values[r * width + c];
  return out;
}

/// The index of the column with this name. Throws io_error unless exactly one column has it.
template <class T>
dim_t column_index(const csv_table<T>& table, std::string_view name) {
  dim_t found = -1;
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    if (table.columns[i] != name) continue;
    if (found >= 0) throw io_error("column " + detail::in_quotes(name) + " occurs twice");
    found = static_cast<dim_t>(i);
  }
  if (found < 0) throw io_error("no column is named " + detail::in_quotes(name));
  return found;
}

/// One column as labels, [rows]. Throws shape_error if there is no such column, and io_error if a
/// number in it is not integral, or so large that T cannot represent its neighbours. Allocates.
template <class T>
tensor<std::int64_t, shape{dynamic}> labels(const csv_table<T>& table, dim_t column) {
  const dim_t rows = table.values.extent(0), width = table.values.extent(1);
  if (column < 0 || column >= width)
    throw shape_error(
        diagnostic{"labels expects a column below {expected}, got {number} (table {input})", width,
                   column, table.values.extents()});
  tensor<std::int64_t, shape{dynamic}> out(shape{rows});
  for (dim_t r = 0; r < rows; ++r) {
    const T value = table.values[r * width + column];
    if constexpr (std::is_floating_point_v<T>) {
      constexpr T most = sizeof(T) == 4 ? T{0x1p24f} : static_cast<T>(0x1p53);
      // Written so that NaN fails, and so that no number out of range is converted.
      if (!(value >= -most && value <= most) ||
          static_cast<T>(static_cast<std::int64_t>(value)) != value)
        throw io_error("row " + std::to_string(r + 1) + ", column " + std::to_string(column + 1) +
                       ": expected an integral label, got " + std::to_string(value));
    }
    out[r] = static_cast<std::int64_t>(value);
  }
  return out;
}

}  // namespace ikebana
