#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "ikebana/core/bfloat16.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/float16.hpp"
#include "ikebana/io/file.hpp"
#include "ikebana/io/npy.hpp"
#include "ikebana/io/posix_file.hpp"
#include "ikebana/io/zip.hpp"
#include "ikebana/model/state_dict.hpp"

// Several arrays in a zip archive of .npy files, as numpy.savez writes them.
namespace ikebana {

namespace detail {

template <class T, class Stored>
void add_npz(state_dict& dict, const std::string& where, std::string_view name,
             const npy_content& content) {
  std::byte* const to = dict.add_owned(name, dtype_of<T>, content.extents);
  if (to != nullptr) copy_npy<T, Stored>(where, content, reinterpret_cast<T*>(to));
}

template <class = void>
void add_npz(state_dict& dict, const std::string& where, std::string_view name,
             const npy_content& c) {
  const auto is = [&](char kind, std::size_t width) { return c.kind == kind && c.width == width; };
  if (is('V', 2)) return add_npz<float, bfloat16>(dict, where, name, c);
  if (is('f', 2)) return add_npz<float, float16>(dict, where, name, c);
  if (is('f', 4)) return add_npz<float, float>(dict, where, name, c);
  if (is('f', 8)) return add_npz<double, double>(dict, where, name, c);
  if (is('i', 1)) return add_npz<std::int32_t, std::int8_t>(dict, where, name, c);
  if (is('i', 2)) return add_npz<std::int32_t, std::int16_t>(dict, where, name, c);
  if (is('i', 4)) return add_npz<std::int32_t, std::int32_t>(dict, where, name, c);
  if (is('i', 8)) return add_npz<std::int64_t, std::int64_t>(dict, where, name, c);
  if (is('u', 2)) return add_npz<std::int32_t, std::uint16_t>(dict, where, name, c);
  if (is('u', 4)) return add_npz<std::int64_t, std::uint32_t>(dict, where, name, c);
  add_npz<std::uint8_t, std::uint8_t>(dict, where, name, c);
}

template <class = void>
state_dict parse_npz(const std::string& path, std::string_view archive) {
  constexpr std::string_view suffix = ".npy";
  state_dict dict;
  for (const zip_file& file : read_zip(path, archive)) {
    if (!file.name.ends_with(suffix))
      fail_io(path, "has the file " + in_quotes(file.name) + "; expected .npy files alone");
    const std::string where = path + ": " + std::string(file.name);
    if (crc32(file.bytes) != file.crc) fail_io(where, "its checksum differs: the file is damaged");
    const std::string_view name = file.name.substr(0, file.name.size() - suffix.size());
    if (name == state_dict::folded_note) {
      dict.set_folded(true);
      continue;
    }
    if (dict.contains(name)) fail_io(where, "is there twice");
    add_npz(dict, where, name, parse_npy(where, file.bytes));
  }
  return dict;
}

}  // namespace detail

/// Reads the arrays of a .npz file that numpy.savez wrote, by name: `load_npz("data.npz").at("x")
/// .view<float, shape{dynamic, 3}>()`. float16 and bfloat16 are read as float, other whole numbers
/// as the next larger of std::int32_t and std::int64_t, bool as std::uint8_t. Throws io_error for a
/// file that is damaged, compressed (numpy.savez_compressed) or holds anything else. Allocates the
/// file and the arrays; O(bytes).
inline state_dict load_npz(const std::filesystem::path& path) {
  const std::string archive = detail::read_file(path.string());
  return detail::parse_npz(path.string(), archive);
}

/// Writes a dict as a .npz file: `numpy.load("state.npz")["fc.weight"]`. That norms or scalings are
/// folded into it is one more array, "ikebana.folded"; other notes are left out. The file appears
/// completely or not at all. Throws io_error, and state_error for an entry without elements.
/// O(bytes).
inline void save_npz(const state_dict& dict, const std::filesystem::path& path) {
  for (const auto& e : dict)
    if (e.uninitialized)
      throw state_error(e.name + ": has no elements, for its module is still lazy");
  detail::atomic_file file(path);
  detail::zip_writer zip(
      [&file](std::string_view text) { file.write(std::as_bytes(std::span(text))); });
  for (const auto& e : dict) {
    std::string bytes = detail::npy_header(e.type, e.extents);
    bytes.append(reinterpret_cast<const char*>(e.bytes.data()), e.bytes.size());
    zip.add(e.name + ".npy", bytes);
  }
  if (dict.is_folded())
    zip.add(std::string(state_dict::folded_note) + ".npy",
            detail::npy_header(dtype::uint8, {}) + '\1');
  zip.finish();
  file.commit();
}

}  // namespace ikebana
