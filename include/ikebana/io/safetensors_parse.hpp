#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "ikebana/core/dtype.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/io/file.hpp"
#include "ikebana/io/safetensors_header.hpp"
#include "ikebana/io/safetensors_sax.hpp"
#include "ikebana/model/state/name_index.hpp"
#include "ikebana/model/state_dict.hpp"

namespace ikebana::detail {

/// An index of the names of a range. Throws io_error if two are the same. O(n log n) comparisons.
template <class Range, class NameOf>
name_index index_distinct(const std::string& where, const Range& range, NameOf name_of) {
  name_index index;
  const std::size_t twice = index.assign(range.size(), name_of);
  if (twice != name_index::none)
    fail_io(where, "expected distinct keys, got " + in_quotes(name_of(twice), 200) + " twice");
  return index;
}

/// Parses "[10, lazy]" into a shape; returns false if it is malformed.
inline bool parse_extents(std::string_view rest, shape& extents) {
  if (rest.size() < 2 || rest.front() != '[' || rest.back() != ']') return false;
  rest = rest.substr(1, rest.size() - 2);
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(", "), rest.size());
    const std::string_view one = rest.substr(0, comma);
    if (extents.rank() == shape::max_rank || comma + 2 == rest.size()) return false;
    dim_t d = lazy;
    if (one != "lazy") {
      const auto [end, failed] = std::from_chars(one.data(), one.data() + one.size(), d);
      if (failed != std::errc{} || end != one.data() + one.size() || d < 0) return false;
    }
    extents.push_back(d);
    rest = rest.substr(std::min(comma + 2, rest.size()));
  }
  return true;
}

/// Turns the notes about uninitialized tensors into marks on their records, which `index` finds by
/// name. Throws io_error.
inline void mark_uninitialized(const std::string& where, safetensors_header& header,
                               const name_index& index) {
  const auto name_of = [&](std::size_t i) -> std::string_view { return header.records[i].name; };
  std::erase_if(header.metadata, [&](const auto& note) {
    if (!note.first.starts_with(uninitialized_note)) return false;
    const std::string_view name = std::string_view{note.first}.substr(uninitialized_note.size());
    const std::size_t i = index.find(name, name_of);
    if (i == name_index::none)
      fail_io(where, "expected the tensor " + in_quotes(name, 200) +
                         ", which __metadata__ says is uninitialized, got none");
    safetensors_record& r = header.records[i];
    shape extents;
    if (!(r.extents == shape{0}) || !parse_extents(note.second, extents))
      fail_io(where, "tensor " + in_quotes(name, 200) +
                         ": expected the shape [0] and extents as \"[10, lazy]\" of what is "
                         "uninitialized, got " +
                         describe(r.type, r.extents) + " and " + in_quotes(note.second, 200));
    r.extents = extents;
    r.uninitialized = true;
    return true;
  });
}

/// Parses a header and checks it against the `data_size` bytes that follow it: every tensor has the
/// bytes of its shape, and together they cover the data without overlaps or holes. Throws io_error.
inline safetensors_header parse_safetensors_header(const std::string& where,
                                                   std::string_view header,
                                                   std::uint64_t data_size) {
  if (header.empty() || header.front() != '{')
    fail_io(where, "expected a JSON object as header, got " + in_quotes(header, 20));
  safetensors_sax sax(where);
  nlohmann::json::sax_parse(header.begin(), header.end(), &sax);
  safetensors_header parsed = sax.take();

  const name_index index =
      index_distinct(where, parsed.records,
                     [&](std::size_t i) -> std::string_view { return parsed.records[i].name; });
  index_distinct(where, parsed.metadata,
                 [&](std::size_t i) -> std::string_view { return parsed.metadata[i].first; });

  const auto fail = [&where](const safetensors_record& r, const std::string& what) {
    fail_io(where, "tensor " + in_quotes(r.name, 200) + ": " + what);
  };
  const auto range = [](const safetensors_record& r) {
    return "[" + std::to_string(r.begin) + ", " + std::to_string(r.end) + "]";
  };
  std::vector<const safetensors_record*> by_offset;
  by_offset.reserve(parsed.records.size());
  for (const safetensors_record& r : parsed.records) {
    if (r.begin > r.end || r.end > data_size)
      fail(r, "expected data_offsets within the " + std::to_string(data_size) +
                  " bytes of data, got " + range(r));
    const dim_t size = checked_byte_size(r.type, r.extents);
    if (size < 0) fail(r, "expected a size below 2^63 bytes, got " + describe(r.type, r.extents));
    const safetensors_type& stored = safetensors_types[r.stored];
    const std::uint64_t bytes = static_cast<std::uint64_t>(size) / size_of(r.type) * stored.size;
    if (bytes != r.end - r.begin)
      fail(r, "expected " + std::to_string(bytes) + " bytes for " + std::string(stored.name) + ' ' +
                  text<200>{}.append(r.extents).c_str() + ", got data_offsets " + range(r));
    by_offset.push_back(&r);
  }
  std::sort(by_offset.begin(), by_offset.end(),
            [](const safetensors_record* a, const safetensors_record* b) {
              return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
            });
  std::uint64_t reached = 0;
  for (const safetensors_record* r : by_offset) {
    if (r->begin != reached)
      fail(*r, (r->begin < reached ? "overlaps another tensor: " : "leaves a hole before it: ") +
                   ("expected data_offsets from " + std::to_string(reached)) + ", got " +
                   range(*r));
    reached = r->end;
  }
  if (reached != data_size)
    fail_io(where, "expected " + std::to_string(reached) + " bytes of data, got " +
                       std::to_string(data_size - reached) + " more after the last tensor");
  mark_uninitialized(where, parsed, index);
  return parsed;
}

}  // namespace ikebana::detail
