#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "ikebana/core/dtype.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/core/text.hpp"
#include "ikebana/io/file.hpp"
#include "ikebana/model/state_dict.hpp"

namespace ikebana::detail {

/// The longest header that the format's own reader accepts.
inline constexpr std::uint64_t safetensors_header_limit = 100'000'000;

/// What the format calls each dtype, in the order of the enumeration.
inline constexpr std::array<std::string_view, 5> safetensors_dtypes{"F32", "F64", "I64", "I32",
                                                                    "U8"};

/// A tensor that is not there yet stands in the file as one of shape [0], and in __metadata__ as
/// this and its name, with its extents: "[10, lazy]".
inline constexpr std::string_view uninitialized_note = "ikebana.uninitialized:";

/// One tensor of the header; [begin, end) counts from the end of the header.
struct safetensors_record {
  std::string name;
  dtype type = dtype::float32;
  shape extents{};
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  bool uninitialized = false;
};

struct safetensors_header {
  std::vector<safetensors_record> records;
  std::vector<std::pair<std::string, std::string>> metadata;
};

/// Takes the header event by event, so that nothing but the format's own structure is ever built,
/// and repeated keys are seen. Throws io_error.
class safetensors_sax {
 public:
  using json = nlohmann::json;

  explicit safetensors_sax(const std::string& where) : where_{where} {}

  safetensors_header take() { return std::move(header_); }

  bool null() { reject("null"); }
  bool boolean(bool) { reject("a boolean"); }
  bool binary(json::binary_t&) { reject("binary data"); }
  bool number_float(json::number_float_t, const std::string& text) { reject(text); }
  bool number_integer(json::number_integer_t n) {
    // Non-negative numbers arrive as unsigned.
    reject(std::to_string(n));
  }
  bool number_unsigned(json::number_unsigned_t n) {
    if (level_ != level::numbers) reject(std::to_string(n));
    if (field_ == field::extents) {
      if (record().extents.rank() == shape::max_rank)
        fail("expected a rank of at most " + std::to_string(shape::max_rank) + ", got more");
      if (n > static_cast<std::uint64_t>(std::numeric_limits<dim_t>::max()))
        fail("expected extents below 2^63, got " + std::to_string(n));
      record().extents.push_back(static_cast<dim_t>(n));
    } else {
      if (offsets_ == 2) fail("expected two data_offsets, got more");
      (offsets_++ == 0 ? record().begin : record().end) = n;
    }
    return true;
  }

  bool string(std::string& s) {
    if (level_ == level::metadata) {
      header_.metadata.emplace_back(key_, std::move(s));
      return true;
    }
    if (level_ != level::tensor || field_ != field::type) reject("the string " + in_quotes(s));
    const auto* found = std::find(safetensors_dtypes.begin(), safetensors_dtypes.end(), s);
    if (found == safetensors_dtypes.end())
      fail("expected a dtype of F32, F64, I64, I32 or U8, got " + in_quotes(s));
    record().type = static_cast<dtype>(found - safetensors_dtypes.begin());
    return true;
  }

  bool start_object(std::size_t) {
    if (level_ == level::outside) {
      level_ = level::file;
    } else if (level_ == level::file && in_metadata_) {
      level_ = level::metadata;
    } else if (level_ == level::file) {
      level_ = level::tensor;
      header_.records.push_back({.name = key_});
      seen_ = {};
      offsets_ = 0;
    } else {
      reject("an object");
    }
    return true;
  }

  bool end_object() {
    if (level_ == level::tensor) {
      for (std::size_t i = 0; i < seen_.size(); ++i)
        if (!seen_[i]) fail("expected " + std::string(field_names[i]) + ", got none");
    }
    level_ = level_ == level::file ? level::outside : level::file;
    return true;
  }

  bool key(std::string& k) {
    if (level_ == level::file) {
      key_ = std::move(k);
      in_metadata_ = key_ == "__metadata__";
      if (in_metadata_ && std::exchange(metadata_seen_, true)) fail("appears twice");
    } else if (level_ == level::metadata) {
      key_ = std::move(k);
    } else {
      const auto* found = std::find(field_names.begin(), field_names.end(), k);
      if (found == field_names.end())
        fail("expected dtype, shape and data_offsets, got the key " + in_quotes(k));
      const auto i = static_cast<std::size_t>(found - field_names.begin());
      if (std::exchange(seen_[i], true)) fail(k + " appears twice");
      field_ = static_cast<field>(i);
    }
    return true;
  }

  bool start_array(std::size_t) {
    if (level_ != level::tensor || field_ == field::type) reject("an array");
    level_ = level::numbers;
    return true;
  }

  bool end_array() {
    if (field_ == field::offsets && offsets_ != 2)
      fail("expected two data_offsets, got " + std::to_string(offsets_));
    level_ = level::tensor;
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const json::exception& e) {
    fail_io(where_, std::string("expected a header in JSON, got: ") + e.what());
  }

 private:
  enum class level { outside, file, metadata, tensor, numbers };
  enum class field : std::size_t { type, extents, offsets };
  static constexpr std::array<std::string_view, 3> field_names{"dtype", "shape", "data_offsets"};

  safetensors_record& record() { return header_.records.back(); }

  [[noreturn]] void fail(const std::string& what) const {
    fail_io(where_, "tensor " + in_quotes(key_, 200) + ": " + what);
  }

  [[noreturn]] void reject(const std::string& got) const {
    switch (level_) {
      case level::outside:
        fail_io(where_, "expected a JSON object as header, got " + got);
      case level::metadata:
        fail_io(where_, "__metadata__ " + in_quotes(key_, 200) + ": expected a string, got " + got);
      case level::file:
        fail("expected an object, got " + got);
      case level::tensor:
      case level::numbers:
        break;
    }
    const std::string name(field_names[static_cast<std::size_t>(field_)]);
    fail(field_ == field::type ? "expected a string as dtype, got " + got
                               : "expected non-negative integers in " + name + ", got " + got);
  }

  const std::string& where_;
  safetensors_header header_;
  level level_ = level::outside;
  field field_ = field::type;
  std::string key_;
  bool in_metadata_ = false;
  bool metadata_seen_ = false;
  std::array<bool, 3> seen_{};
  int offsets_ = 0;
};

/// Throws io_error if two of the names are the same.
template <class Range, class Name>
void check_distinct(const std::string& where, const Range& range, Name name) {
  std::vector<std::string_view> names;
  names.reserve(range.size());
  for (const auto& x : range) names.push_back(name(x));
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end())
    fail_io(where, "expected distinct keys, got " + in_quotes(*twice, 200) + " twice");
}

/// "[10, lazy]" as a shape, or false.
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

/// Turns the notes about tensors that are not there into marks on their records. Throws io_error.
inline void mark_uninitialized(const std::string& where, safetensors_header& header) {
  std::erase_if(header.metadata, [&](const auto& note) {
    if (!note.first.starts_with(uninitialized_note)) return false;
    const std::string_view name = std::string_view{note.first}.substr(uninitialized_note.size());
    for (safetensors_record& r : header.records) {
      if (r.name != name) continue;
      shape extents;
      if (!(r.extents == shape{0}) || !parse_extents(note.second, extents))
        fail_io(where, "tensor " + in_quotes(name, 200) +
                           ": expected the shape [0] and extents as \"[10, lazy]\" of what is "
                           "uninitialized, got " +
                           describe(r.type, r.extents) + " and " + in_quotes(note.second, 200));
      r.extents = extents;
      r.uninitialized = true;
      return true;
    }
    fail_io(where, "expected the tensor " + in_quotes(name, 200) +
                       ", which __metadata__ says is uninitialized, got none");
  });
}

/// Parses a header and checks it against the `data_size` bytes that follow it: every tensor has the
/// bytes of its shape, and together they are all of the data, with no overlap and no hole.
/// Throws io_error.
inline safetensors_header parse_safetensors_header(const std::string& where,
                                                   std::string_view header,
                                                   std::uint64_t data_size) {
  if (header.empty() || header.front() != '{')
    fail_io(where, "expected a JSON object as header, got " + in_quotes(header, 20));
  safetensors_sax sax(where);
  nlohmann::json::sax_parse(header.begin(), header.end(), &sax);
  safetensors_header parsed = sax.take();

  check_distinct(where, parsed.records,
                 [](const safetensors_record& r) -> std::string_view { return r.name; });
  check_distinct(where, parsed.metadata,
                 [](const auto& note) -> std::string_view { return note.first; });

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
    if (static_cast<std::uint64_t>(size) != r.end - r.begin)
      fail(r, "expected " + std::to_string(size) + " bytes for " + describe(r.type, r.extents) +
                  ", got data_offsets " + range(r));
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
  mark_uninitialized(where, parsed);
  return parsed;
}

/// A header, padded with spaces to a multiple of 8 bytes, and the order of the entries' data.
struct safetensors_layout {
  std::string header;
  std::vector<std::size_t> order;
};

/// Lays out a file as the format's own writer does: wider elements first, so that each tensor is
/// aligned to its elements. Throws io_error for names that the format cannot hold.
inline safetensors_layout lay_out_safetensors(const std::string& where, const state_dict& dict) {
  using nlohmann::json;
  const auto json_string = [&where](const std::string& s) {
    try {
      return json(s).dump();
    } catch (const json::exception&) {
      fail_io(where, "expected names in UTF-8, got " + in_quotes(s, 200));
    }
  };
  safetensors_layout layout;
  std::vector<std::uint64_t> begins(dict.size());
  std::uint64_t reached = 0;
  for (std::size_t width : {8u, 4u, 1u}) {
    for (std::size_t i = 0; i < dict.size(); ++i) {
      if (size_of(dict[i].type) != width) continue;
      begins[i] = reached;
      reached += dict[i].bytes.size();
      layout.order.push_back(i);
    }
  }
  std::string& out = layout.header;
  const auto separate = [&out] {
    if (out.back() != '{' && out.back() != '[') out += ',';
  };
  out = "{";
  std::vector<std::pair<std::string, std::string>> notes(dict.metadata().begin(),
                                                         dict.metadata().end());
  for (const state_dict::entry& e : dict)
    if (e.uninitialized)
      notes.emplace_back(std::string(uninitialized_note) + e.name,
                         text<200>{}.append(e.extents).c_str());
  if (!notes.empty()) {
    out += "\"__metadata__\":{";
    for (const auto& [key, value] : notes) {
      separate();
      out += json_string(key) + ':' + json_string(value);
    }
    out += '}';
  }
  for (std::size_t i = 0; i < dict.size(); ++i) {
    const state_dict::entry& e = dict[i];
    if (e.name == "__metadata__") fail_io(where, "no tensor can be named __metadata__");
    separate();
    out += json_string(e.name) + ":{\"dtype\":\"";
    out += safetensors_dtypes[static_cast<std::size_t>(e.type)];
    out += "\",\"shape\":[";
    for (dim_t d : e.uninitialized ? shape{0} : e.extents) {
      separate();
      out += std::to_string(d);
    }
    out += "],\"data_offsets\":[" + std::to_string(begins[i]) + ',' +
           std::to_string(begins[i] + e.bytes.size()) + "]}";
  }
  out += '}';
  out.resize((out.size() + 7) / 8 * 8, ' ');
  if (out.size() > safetensors_header_limit)
    fail_io(where, "expected names for a header of at most " +
                       std::to_string(safetensors_header_limit) + " bytes, got " +
                       std::to_string(out.size()));
  return layout;
}

}  // namespace ikebana::detail
