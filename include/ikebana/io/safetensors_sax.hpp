#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "ikebana/core/dtype.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/io/file.hpp"
#include "ikebana/io/safetensors_header.hpp"

namespace ikebana::detail {

/// Consumes the header event by event, so that only the structure that the format defines is ever
/// built, and repeated keys are detected. Throws io_error.
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
    // The parser reports non-negative numbers as unsigned.
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
    const auto* found = std::find_if(safetensors_types.begin(), safetensors_types.end(),
                                     [&s](const safetensors_type& t) { return t.name == s; });
    if (found == safetensors_types.end())
      fail(
          "expected a dtype of F64, F32, F16, BF16, I64, I32, I16, I8, U32, U16, U8 or BOOL, got " +
          in_quotes(s));
    record().type = found->type;
    record().stored = static_cast<std::size_t>(found - safetensors_types.begin());
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

}  // namespace ikebana::detail
