#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "ikebana/io/file.hpp"
#include "ikebana/io/posix_file.hpp"
#include "ikebana/io/safetensors.hpp"
#include "ikebana/io/safetensors_header.hpp"
#include "ikebana/model/state_dict.hpp"

namespace ikebana {

namespace detail {

/// The file of each tensor, from the text of an index. Throws io_error, also for a file that is not
/// in the directory of the index.
inline std::map<std::string, std::string> parse_shard_index(const std::string& where,
                                                            std::string_view text) {
  using nlohmann::json;
  const json index = json::parse(text.begin(), text.end(), nullptr, false);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
    fail_io(where, "expected a JSON object with a \"weight_map\" from tensors to files, got " +
                       in_quotes(text));
  std::map<std::string, std::string> files;
  for (const auto& [name, file] : index["weight_map"].items()) {
    const std::string path = file.is_string() ? file.get<std::string>() : std::string();
    if (path.empty() || path == "." || path == ".." ||
        path.find_first_of(std::string_view("/\0", 2)) != std::string::npos)
      fail_io(where, "tensor " + in_quotes(name, 200) +
                         ": expected the name of a file in the same directory, got " +
                         (file.is_string() ? in_quotes(path) : std::string(file.type_name())));
    files.emplace(name, path);
  }
  return files;
}

}  // namespace detail

/// Loads a state that is divided among several safetensors files, from their index, as the
/// libraries of Hugging Face write it: `load_shards("model.safetensors.index.json")`. Tensors are
/// in the order of the names of their files, then in that of each file. Throws io_error unless each
/// file has exactly the tensors that the index says. O(bytes); holds one file in addition.
inline state_dict load_shards(const std::filesystem::path& index) {
  const detail::input_file file(index);
  if (file.size() > detail::safetensors_header_limit)
    detail::fail_io(file.path(), "expected an index of at most " +
                                     std::to_string(detail::safetensors_header_limit) +
                                     " bytes, got " + std::to_string(file.size()));
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span{text}));
  const auto files = detail::parse_shard_index(file.path(), text);
  std::set<std::string> shards;
  for (const auto& [name, shard] : files) shards.insert(shard);

  state_dict all;
  for (const std::string& shard : shards) {
    const std::filesystem::path path = index.parent_path() / shard;
    const state_dict part = load(path);
    for (const state_dict::entry& e : part) {
      const auto expected = files.find(e.name);
      if (expected == files.end() || expected->second != shard)
        detail::fail_io(path.string(), "the index does not have the tensor " +
                                           detail::in_quotes(e.name, 200) + " in this file");
      if (e.uninitialized) {
        all.add_uninitialized(e.name, e.type, e.extents);
        continue;
      }
      std::byte* const to = all.add_owned(e.name, e.type, e.extents);
      std::copy(e.bytes.begin(), e.bytes.end(), to);
    }
    for (const auto& [key, value] : part.metadata()) all.set_metadata(key, value);
  }
  for (const auto& [name, shard] : files)
    if (!all.contains(name))
      detail::fail_io((index.parent_path() / shard).string(),
                      "expected the tensor " + detail::in_quotes(name, 200) + ", got none");
  return all;
}

}  // namespace ikebana
