#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/io/csv.hpp"
#include "ikebana/io/file.hpp"

namespace ikebana {

/// Options of parse_table and read_table.
struct table_options {
  char delimiter = ',';
  /// Fields that stand for a missing value, apart from empty ones.
  std::vector<std::string> missing = {"NA", "N/A", "?", "null"};
};

/// What stands for a missing number.
template <class T>
struct missing_as {
  T value;
};
template <class T>
missing_as(T) -> missing_as<T>;

/// Text values as numbers: names[labels[i]] is the value in row i; -1 where it is missing.
struct categories {
  tensor<std::int64_t, shape{dynamic}> labels;
  std::vector<std::string> names;
};

/// A CSV file with a header, whose columns hold numbers or text. A column is read as what it is
/// asked for, by name:
///
///     auto people = read_table("people.csv");
///     auto x = people.matrix<float>({"age", "height"}, missing_as{0.f});  // [rows, 2]
///     auto city = people.one_hot<float>("city");                          // [rows, cities]
///     auto t = people.categories("species");                              // labels and names
///
/// Errors are io_error with file, line, column and the offending text. Each function allocates its
/// result; O(rows) for each column.
///
/// A template, so that it is compiled only where it is used.
template <class>
class basic_text_table {
 public:
  dim_t rows() const { return rows_; }
  const std::vector<std::string>& columns() const { return columns_; }

  /// The field at this row of a column, without quotes and surrounding blanks.
  const std::string& text(dim_t row, std::string_view column) const {
    return field(row, index(column));
  }
  bool is_missing(dim_t row, std::string_view column) const {
    return missing(field(row, index(column)));
  }

  /// A column of numbers, [rows]. Throws io_error for a field that is not a number, or is missing.
  template <class T>
  tensor<T, shape{dynamic}> numbers(std::string_view column) const {
    return read<T>(column, nullptr);
  }
  /// A column of numbers, [rows], with `otherwise` where one is missing.
  template <class T>
  tensor<T, shape{dynamic}> numbers(std::string_view column, missing_as<T> otherwise) const {
    return read<T>(column, &otherwise.value);
  }

  /// Columns of numbers, [rows, columns], with the errors of `numbers`.
  template <class T>
  tensor<T, shape{dynamic, dynamic}> matrix(std::initializer_list<std::string_view> names) const {
    return read_all<T>(names, nullptr);
  }
  template <class T>
  tensor<T, shape{dynamic, dynamic}> matrix(std::initializer_list<std::string_view> names,
                                            missing_as<T> otherwise) const {
    return read_all<T>(names, &otherwise.value);
  }

  /// A column of text as labels 0, 1, ... of its values in alphabetical order.
  ikebana::categories categories(std::string_view column) const {
    const std::size_t c = index(column);
    std::vector<std::string> names;
    for (dim_t r = 0; r < rows_; ++r)
      if (!missing(field(r, c))) names.push_back(field(r, c));
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return categories(column, names);
  }

  /// A column of text as indices of `names`, those of another file or of a model. Throws io_error
  /// for a value that is not among them.
  ikebana::categories categories(std::string_view column,
                                 const std::vector<std::string>& names) const {
    const std::size_t c = index(column);
    std::vector<std::pair<std::string_view, std::int64_t>> sorted;
    for (std::size_t i = 0; i < names.size(); ++i)
      sorted.emplace_back(names[i], static_cast<std::int64_t>(i));
    std::sort(sorted.begin(), sorted.end());
    tensor<std::int64_t, shape{dynamic}> labels(shape{rows_});
    for (dim_t r = 0; r < rows_; ++r) {
      const std::string& value = field(r, c);
      if (missing(value)) {
        labels[r] = -1;
        continue;
      }
      const auto found = std::lower_bound(sorted.begin(), sorted.end(),
                                          std::pair(std::string_view(value), std::int64_t{0}));
      if (found == sorted.end() || found->first != value) fail(r, c, "not one of the categories");
      labels[r] = found->second;
    }
    return {std::move(labels), names};
  }

  /// A column of text as [rows, categories], 1 at the row's category and 0 elsewhere; 0 everywhere
  /// where it is missing.
  template <class T>
  tensor<T, shape{dynamic, dynamic}> one_hot(std::string_view column) const {
    return spread<T>(categories(column));
  }
  template <class T>
  tensor<T, shape{dynamic, dynamic}> one_hot(std::string_view column,
                                             const std::vector<std::string>& names) const {
    return spread<T>(categories(column, names));
  }

  /// See read_table.
  static basic_text_table parse(std::string_view text, const table_options& options,
                                const std::string& path) {
    basic_text_table table;
    table.path_ = path;
    table.missing_ = options.missing;
    detail::csv_cursor cursor(path, text, options.delimiter);
    if (!cursor.start_row()) detail::fail_io(path, "holds no header");
    do table.columns_.push_back(unquoted(cursor.next()));
    while (!cursor.row_ended());
    const dim_t width = cursor.column();
    while (cursor.start_row()) {
      table.lines_.push_back(cursor.line());
      do {
        const std::string_view field = cursor.next();
        if (cursor.column() <= width) table.fields_.push_back(unquoted(field));
      } while (!cursor.row_ended());
      if (cursor.column() != width) cursor.fail_count(width);
      ++table.rows_;
    }
    return table;
  }

 private:
  static std::string unquoted(std::string_view field) {
    std::string text(field);
    for (std::size_t i = 0; (i = text.find("\"\"", i)) != std::string::npos; ++i) text.erase(i, 1);
    return text;
  }

  std::size_t index(std::string_view column) const {
    std::size_t found = columns_.size();
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (columns_[i] != column) continue;
      if (found != columns_.size())
        detail::fail_io(path_, "column " + detail::in_quotes(column) + " occurs twice");
      found = i;
    }
    if (found == columns_.size()) {
      std::string list;
      for (const std::string& name : columns_) list += (list.empty() ? "" : ", ") + name;
      detail::fail_io(path_, "no column is named " + detail::in_quotes(column) + ", only " + list);
    }
    return found;
  }

  const std::string& field(dim_t row, std::size_t column) const {
    if (row < 0 || row >= rows_)
      throw error("row " + std::to_string(row) + " of a table of " + std::to_string(rows_));
    return fields_[static_cast<std::size_t>(row) * columns_.size() + column];
  }

  bool missing(const std::string& value) const {
    return value.empty() || std::find(missing_.begin(), missing_.end(), value) != missing_.end();
  }

  [[noreturn]] void fail(dim_t row, std::size_t column, const std::string& what) const {
    detail::fail_io(path_, "line " + std::to_string(lines_[static_cast<std::size_t>(row)]) +
                               ", column " + detail::in_quotes(columns_[column]) + ": " + what +
                               ", got " + detail::in_quotes(field(row, column), 40));
  }

  template <class T>
  T number(dim_t row, std::size_t column, const T* otherwise) const {
    const std::string& value = field(row, column);
    if (missing(value)) {
      if (otherwise == nullptr) fail(row, column, "a missing value (missing_as{0.f} sets another)");
      return *otherwise;
    }
    T x{};
    if (!detail::parse_number(value, x)) fail(row, column, "expected a number");
    return x;
  }

  template <class T>
  tensor<T, shape{dynamic}> read(std::string_view column, const T* otherwise) const {
    static_assert(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>);
    const std::size_t c = index(column);
    tensor<T, shape{dynamic}> out(shape{rows_});
    for (dim_t r = 0; r < rows_; ++r) out[r] = number<T>(r, c, otherwise);
    return out;
  }

  template <class T>
  tensor<T, shape{dynamic, dynamic}> read_all(std::initializer_list<std::string_view> names,
                                              const T* otherwise) const {
    static_assert(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>);
    const auto width = static_cast<dim_t>(names.size());
    tensor<T, shape{dynamic, dynamic}> out(shape{rows_, width});
    dim_t k = 0;
    for (std::string_view name : names) {
      const std::size_t c = index(name);
      for (dim_t r = 0; r < rows_; ++r) out[r * width + k] = number<T>(r, c, otherwise);
      ++k;
    }
    return out;
  }

  template <class T>
  static tensor<T, shape{dynamic, dynamic}> spread(const ikebana::categories& c) {
    const auto width = static_cast<dim_t>(c.names.size());
    tensor<T, shape{dynamic, dynamic}> out(shape{c.labels.size(), width});
    for (dim_t r = 0; r < c.labels.size(); ++r)
      if (c.labels[r] >= 0) out[r * width + c.labels[r]] = T{1};
    return out;
  }

  std::string path_;
  std::vector<std::string> missing_, columns_, fields_;
  std::vector<dim_t> lines_;
  dim_t rows_ = 0;
};
using text_table = basic_text_table<void>;

/// Parses a CSV text with a header; `path` is its name in errors. See read_table.
template <class = void>
text_table parse_table(std::string_view text, const table_options& options = {},
                       const std::string& path = "memory") {
  return text_table::parse(text, options, path);
}

/// Reads a CSV file with a header, whose columns hold numbers or text, with the syntax of read_csv.
/// Throws io_error with file and line for a row of another length than the header, or a quote that
/// is not closed. Allocates; O(bytes).
template <class = void>
text_table read_table(const std::string& path, const table_options& options = {}) {
  return parse_table(detail::read_file(path), options, path);
}

}  // namespace ikebana
