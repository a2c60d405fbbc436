#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "ikebana/core/bfloat16.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/core/float16.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/core/text.hpp"
#include "ikebana/io/file.hpp"
#include "ikebana/io/posix_file.hpp"

// Arrays in NumPy's format (numpy/lib/format.py: a magic string, a version, the length of a header,
// the header as a Python dictionary, the elements).
namespace ikebana {

namespace detail {

static_assert(std::endian::native == std::endian::little,
              "ikebana: .npy files are read and written on little-endian machines");

struct npy_content {
  shape extents;
  char kind;          ///< 'f', 'i', 'u', 'b', or 'V' for bfloat16.
  std::size_t width;  ///< In bytes.
  bool fortran_order;
  std::string_view bytes;
};

/// Reads the few forms of a Python dictionary that NumPy writes.
template <class>
class basic_npy_header {
 public:
  basic_npy_header(const std::string& path, std::string_view text) : path_{path}, text_{text} {}

  void parse(npy_content& content) {
    bool has_descr = false, has_order = false, has_shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string_view key = quoted();
      expect(':');
      if (key == "descr" && !has_descr) {
        has_descr = true;
        descr(content);
      } else if (key == "fortran_order" && !has_order) {
        has_order = true;
        content.fortran_order = boolean();
      } else if (key == "shape" && !has_shape) {
        has_shape = true;
        extents(content);
      } else {
        fail();
      }
      if (!accept(',') && !ends_with_brace()) fail();
    }
    skip();
    if (at_ != text_.size() || !has_descr || !has_order || !has_shape) fail();
  }

 private:
  [[noreturn]] void fail() const {
    fail_io(path_, "is no .npy file that NumPy writes: its header is " + in_quotes(text_, 100));
  }
  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool accept(char c) {
    skip();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail();
  }
  bool ends_with_brace() {
    skip();
    return at_ < text_.size() && text_[at_] == '}';
  }
  std::string_view quoted() {
    skip();
    if (at_ == text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) fail();
    const std::size_t end = text_.find(text_[at_], at_ + 1);
    if (end == std::string_view::npos) fail();
    const std::string_view word = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return word;
  }
  bool boolean() {
    skip();
    for (const bool value : {false, true}) {
      const std::string_view word = value ? "True" : "False";
      if (text_.substr(at_, word.size()) != word) continue;
      at_ += word.size();
      return value;
    }
    fail();
  }
  void descr(npy_content& content) {
    skip();
    if (at_ < text_.size() && text_[at_] == '[')
      fail_io(path_, "holds records; only arrays of numbers are read");
    const std::string_view word = quoted();
    for (const std::string_view known :
         {"<f2", "<f4", "<f8", "<i1", "<i2", "<i4", "<i8", "<u1", "<u2", "<u4", "<b1", "<V2"})
      if (word.size() == 3 && word.substr(1) == known.substr(1) &&
          (word[0] == '<' || (word[0] == '|' && (word[2] == '1' || word[1] == 'V')))) {
        content.kind = word[1];
        content.width = static_cast<std::size_t>(word[2] - '0');
        return;
      }
    fail_io(path_, "holds elements of the type " + in_quotes(word) +
                       "; little-endian numbers of f2, f4, f8, i1 to i8, u1 to u4, b1 and V2 "
                       "(bfloat16) are read");
  }
  void extents(npy_content& content) {
    expect('(');
    dim_t size = 1;
    while (!accept(')')) {
      skip();
      dim_t extent = 0;
      const std::size_t first = at_;
      for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
        extent = 10 * extent + (text_[at_] - '0');
        if (extent > shape::max_elements) fail_io(path_, "has an extent above 2^56");
      }
      if (at_ == first) fail();
      if (content.extents.rank() == shape::max_rank)
        fail_io(path_, "has more than " + std::to_string(shape::max_rank) + " dimensions");
      content.extents.push_back(extent);
      if (extent != 0 &&
          (__builtin_mul_overflow(size, extent, &size) || size > shape::max_elements))
        fail_io(path_, "has more than 2^56 elements");
      if (!accept(',') && !(skip(), at_ < text_.size() && text_[at_] == ')')) fail();
    }
  }

  const std::string& path_;
  std::string_view text_;
  std::size_t at_ = 0;
};

/// Parses and checks the bytes of a .npy file. Throws io_error.
template <class = void>
npy_content parse_npy(const std::string& path, std::string_view file) {
  const auto at = [file](std::size_t i) { return static_cast<unsigned char>(file[i]); };
  if (file.substr(0, 6) != std::string_view("\x93NUMPY", 6))
    fail_io(path, file.substr(0, 2) == "PK" ? "is a .npz archive, which load_npz reads"
                                            : "expected a .npy file, got " + in_quotes(file, 6));
  if (file.size() < 10 || at(6) < 1 || at(6) > 3 || (at(6) > 1 && file.size() < 12))
    fail_io(path, "expected version 1, 2 or 3 of the .npy format");
  std::size_t length = at(8) | std::size_t{at(9)} << 8, start = 10;
  if (at(6) > 1) {
    length |= std::size_t{at(10)} << 16 | std::size_t{at(11)} << 24;
    start = 12;
  }
  if (file.size() - start < length) fail_io(path, "ends within its header");
  npy_content content{};
  basic_npy_header<void>(path, file.substr(start, length)).parse(content);
  content.bytes = file.substr(start + length);
  const std::size_t expected = static_cast<std::size_t>(content.extents.numel()) * content.width;
  if (content.bytes.size() != expected)
    fail_io(path, "expected " + std::to_string(expected) + " bytes for " +
                      text<200>{}.append(content.extents).c_str() + ", got " +
                      std::to_string(content.bytes.size()));
  return content;
}

/// Element number i as a T. Whole numbers that T cannot hold throw io_error.
template <class T, class Stored>
T npy_element(const std::string& path, const npy_content& content, std::size_t i) {
  Stored stored;
  std::memcpy(&stored, content.bytes.data() + i * sizeof stored, sizeof stored);
  if constexpr (std::is_same_v<Stored, float16> || std::is_same_v<Stored, bfloat16>) {
    return static_cast<T>(static_cast<float>(stored));
  } else if constexpr (std::is_integral_v<T>) {
    const auto value = static_cast<T>(stored);
    if (static_cast<Stored>(value) != stored || (value < T{}) != (stored < Stored{}))
      fail_io(path, "element " + std::to_string(i) + ", " + std::to_string(stored) +
                        ", is not a number of the type asked for");
    return value;
  } else {
    return static_cast<T>(stored);
  }
}

template <class T, class Stored>
void copy_npy(const std::string& path, const npy_content& content, T* to) {
  const shape& s = content.extents;
  const dim_t n = s.numel();
  if (!content.fortran_order) {
    for (dim_t i = 0; i < n; ++i)
      to[i] = npy_element<T, Stored>(path, content, static_cast<std::size_t>(i));
    return;
  }
  // The first index varies fastest in the file, the last one in the tensor.
  std::array<dim_t, shape::max_rank> index{};
  std::array<dim_t, shape::max_rank> stride{};
  dim_t step = 1;
  for (std::size_t d = s.rank(); d-- > 0; step *= s[d]) stride[d] = step;
  dim_t place = 0;
  for (dim_t i = 0; i < n; ++i) {
    to[place] = npy_element<T, Stored>(path, content, static_cast<std::size_t>(i));
    for (std::size_t d = 0; d < s.rank(); ++d) {
      place += stride[d];
      if (++index[d] < s[d]) break;
      place -= stride[d] * s[d];
      index[d] = 0;
    }
  }
}

/// What comes before the elements.
template <class = void>
std::string npy_header(dtype type, const shape& s) {
  const std::size_t size = size_of(type);
  std::string header = "{'descr': '";
  header += size == 1 || type == dtype::bfloat16 ? '|' : '<';
  switch (type) {
    case dtype::float32:
    case dtype::float64:
    case dtype::float16:
      header += 'f';
      break;
    case dtype::uint8:
      header += 'u';
      break;
    case dtype::bfloat16:
      header += 'V';  // NumPy has no such type; ml_dtypes writes it so.
      break;
    case dtype::int64:
    case dtype::int32:
    case dtype::int8:
      header += 'i';
  }
  header += static_cast<char>('0' + size);
  header += "', 'fortran_order': False, 'shape': (";
  for (std::size_t i = 0; i < s.rank(); ++i)
    header += std::to_string(s[i]) + (s.rank() == 1 ? "," : i + 1 < s.rank() ? ", " : "");
  header += "), }";
  // The elements begin at a multiple of 64, as NumPy's do.
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  std::string start("\x93NUMPY\x01\x00", 8);
  start += static_cast<char>(header.size() & 0xff);
  start += static_cast<char>(header.size() >> 8);
  return start + header;
}

}  // namespace detail

/// Reads an array that NumPy saved (numpy.save), in C or Fortran order: `load_npy<float,
/// shape{dynamic, 3}>("x.npy")`. Floating types, and elements of two bytes without a type, which
/// are bfloat16, are converted to T if that is one, whole numbers to any T that can hold them.
/// Throws io_error for a file that is damaged or holds anything else, and for floating numbers
/// where T is a whole one; shape_error for another shape. Allocates; O(bytes).
template <class T, shape S>
tensor<T, S> load_npy(const std::string& path) {
  static_assert(has_dtype<T>, "ikebana: load_npy reads float, double and whole numbers");
  const std::string file = detail::read_file(path);
  const detail::npy_content content = detail::parse_npy(path, file);
  if (!compatible(S, content.extents))
    throw shape_error(
        diagnostic{"load_npy expects {input}, got {other}", 0, 0, S, content.extents});
  const bool is_floating = content.kind == 'f' || content.kind == 'V';
  if (is_floating && std::is_integral_v<T>)
    detail::fail_io(path, "holds floating-point numbers; whole numbers are asked for");
  tensor<T, S> out(content.extents);
  const auto copy = [&]<class Stored>(std::type_identity<Stored>) {
    detail::copy_npy<T, Stored>(path, content, out.data());
  };
  if (is_floating) {
    if constexpr (std::is_floating_point_v<T>) {
      if (content.kind == 'V') return copy(std::type_identity<bfloat16>{}), out;
      if (content.width == 2) copy(std::type_identity<float16>{});
      if (content.width == 4) copy(std::type_identity<float>{});
      if (content.width == 8) copy(std::type_identity<double>{});
    }
  } else if (content.kind == 'i') {
    if (content.width == 1) copy(std::type_identity<std::int8_t>{});
    if (content.width == 2) copy(std::type_identity<std::int16_t>{});
    if (content.width == 4) copy(std::type_identity<std::int32_t>{});
    if (content.width == 8) copy(std::type_identity<std::int64_t>{});
  } else {
    if (content.width == 1) copy(std::type_identity<std::uint8_t>{});
    if (content.width == 2) copy(std::type_identity<std::uint16_t>{});
    if (content.width == 4) copy(std::type_identity<std::uint32_t>{});
  }
  return out;
}

/// Writes a tensor as numpy.load reads it. The file appears completely or not at all. Throws
/// io_error. O(bytes).
template <tensor_like X>
void save_npy(const std::filesystem::path& path, const X& x) {
  using T = typename X::value_type;
  static_assert(has_dtype<T>, "ikebana: save_npy writes float, double and whole numbers");
  const shape s = x.extents();
  const std::string start = detail::npy_header(dtype_of<T>, s);
  detail::atomic_file file(path);
  file.write(std::as_bytes(std::span(start)));
  file.write(std::as_bytes(std::span(x.data(), static_cast<std::size_t>(s.numel()))));
  file.commit();
}

}  // namespace ikebana
