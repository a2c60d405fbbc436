#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "ikebana/core/dtype.hpp"
#include "ikebana/core/text.hpp"
#include "ikebana/io/file.hpp"
#include "ikebana/io/safetensors_header.hpp"
#include "ikebana/model/state_dict.hpp"

namespace ikebana::detail {

/// A header, padded with spaces to a multiple of 8 bytes, and the order of the entries' data.
struct safetensors_layout {
  std::string header;
  std::vector<std::size_t> order;
};

/// Lays out a file as the format's reference writer does: wider elements first, so that each tensor
/// is aligned to its elements. Throws io_error for names that the format cannot represent.
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
  for (std::size_t width : {8u, 4u, 2u, 1u}) {
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
    out += safetensors_types[static_cast<std::size_t>(e.type)].name;
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
