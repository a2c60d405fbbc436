#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "ikebana/core/shape.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/core/text.hpp"
#include "ikebana/io/file.hpp"

namespace ikebana {

namespace detail {

struct idx_content {
  shape extents;
  std::string_view bytes;
};

/// Parses and checks the bytes of an IDX file. Throws io_error.
template <class = void>
idx_content parse_idx(const std::string& path, std::string_view file) {
  const auto at = [file](std::size_t i) { return static_cast<unsigned char>(file[i]); };
  if (file.size() >= 2 && at(0) == 0x1f && at(1) == 0x8b)
    fail_io(path, "is compressed; unpack it first: gunzip " + path);
  if (file.size() < 4 || at(0) != 0 || at(1) != 0)
    fail_io(path,
            "expected an IDX file (two zero bytes, a type, a rank), got " + in_quotes(file, 4));
  if (at(2) != 0x08)
    fail_io(path, "expected elements of type 8 (unsigned bytes), got " + std::to_string(at(2)));
  const std::size_t rank = at(3);
  if (rank < 1 || rank > 4)
    fail_io(path, "expected a rank from 1 to 4, got " + std::to_string(rank));
  const std::size_t start = 4 + 4 * rank;
  if (file.size() < start)
    fail_io(path, "expected " + std::to_string(start) + " bytes of header, got " +
                      std::to_string(file.size()));
  shape extents;
  dim_t size = 1;
  bool empty = false;
  for (std::size_t i = 4; i < start; i += 4) {
    const std::uint32_t d = std::uint32_t{at(i)} << 24 | std::uint32_t{at(i + 1)} << 16 |
                            std::uint32_t{at(i + 2)} << 8 | std::uint32_t{at(i + 3)};
    extents.push_back(d);
    empty = empty || d == 0;
    // Divided by 8, so that the bytes of a tensor (at most 8 per element) can also be counted.
    if (d != 0 && size > std::numeric_limits<dim_t>::max() / 8 / dim_t{d})
      fail_io(path, "expected a size below 2^60, got more");
    if (d != 0) size *= dim_t{d};
  }
  const std::string_view bytes = file.substr(start);
  const std::size_t expected = empty ? 0 : static_cast<std::size_t>(size);
  if (bytes.size() != expected)
    fail_io(path, "expected " + std::to_string(expected) + " bytes for " +
                      text<200>{}.append(extents).c_str() + ", got " +
                      std::to_string(bytes.size()));
  return {extents, bytes};
}

template <class T, shape S>
tensor<T, S> idx_elements(const idx_content& content, const shape& extents) {
  tensor<T, S> out(extents);
  T* to = out.data();
  for (char c : content.bytes) *to++ = static_cast<T>(static_cast<unsigned char>(c));
  return out;
}

template <std::size_t Rank>
constexpr shape all_dynamic() {
  shape s;
  for (std::size_t i = 0; i < Rank; ++i) s.push_back(dynamic);
  return s;
}

}  // namespace detail

/// Reads unsigned bytes in MNIST's IDX format (http://yann.lecun.com/exdb/mnist/) as numbers from 0
/// to 255, without scaling: `read_idx<float, 3>("train-images-idx3-ubyte")`,
/// `read_idx<std::int64_t, 1>("train-labels-idx1-ubyte")`. Throws io_error for another rank or
/// type, and for a file that is too short, too long or compressed. Allocates; O(bytes).
template <class T, std::size_t Rank>
requires(Rank >= 1 && Rank <= 4) tensor < T, detail::all_dynamic<Rank>()
> read_idx(const std::string& path) {
  const std::string file = detail::read_file(path);
  const detail::idx_content content = detail::parse_idx(path, file);
  if (content.extents.rank() != Rank)
    detail::fail_io(path, "expected rank " + std::to_string(Rank) + ", got " +
                              text<200>{}.append(content.extents).c_str());
  return detail::idx_elements<T, detail::all_dynamic<Rank>()>(content, content.extents);
}

/// read_idx for samples of a known shape, [samples, Sample...]: `read_idx_samples<float, shape{1,
/// 28, 28}>(path)`. Extents of 1 may be missing in the file or in Sample. Throws io_error as
/// read_idx does, and for samples of another shape.
template <class T, shape Sample>
auto read_idx_samples(const std::string& path) {
  static_assert(Sample.is_static() && Sample.rank() < shape::max_rank);
  constexpr shape batch = [] {
    shape s{dynamic};
    for (dim_t d : Sample) s.push_back(d);
    return s;
  }();
  const auto without_ones = [](const shape& s, std::size_t first) {
    shape kept;
    for (std::size_t i = first; i < s.rank(); ++i)
      if (s[i] != 1) kept.push_back(s[i]);
    return kept;
  };
  const std::string file = detail::read_file(path);
  const detail::idx_content content = detail::parse_idx(path, file);
  if (without_ones(Sample, 0) != without_ones(content.extents, 1))
    detail::fail_io(path, std::string("expected samples of ") + text<200>{}.append(Sample).c_str() +
                              ", got " + text<200>{}.append(content.extents).c_str());
  return detail::idx_elements<T, batch>(content, batch.with(0, content.extents.front()));
}

}  // namespace ikebana
