#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "ikebana/core/bfloat16.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/core/float16.hpp"
#include "ikebana/io/file.hpp"
#include "ikebana/io/file_format.hpp"
#include "ikebana/io/posix_file.hpp"
#include "ikebana/io/safetensors_header.hpp"
#include "ikebana/io/safetensors_layout.hpp"
#include "ikebana/io/safetensors_parse.hpp"
#include "ikebana/model/state/state_comparison.hpp"
#include "ikebana/model/state_dict.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/refusal.hpp"

namespace ikebana {

static_assert(std::endian::native == std::endian::little,
              "ikebana: safetensors files are little-endian, and so must this machine be");

namespace detail {

/// Widens the elements of a tensor that were read to the end of its memory, in place.
inline void widen(const safetensors_record& r, std::byte* data, std::size_t bytes) {
  const safetensors_type& stored = safetensors_types[r.stored];
  const std::size_t n = bytes / stored.size;
  const std::byte* from = data + n * size_of(r.type) - bytes;
  if (stored.name == "F16") convert<float, float16>(data, from, n);
  if (stored.name == "BF16") convert<float, bfloat16>(data, from, n);
  if (stored.name == "I16") convert<std::int32_t, std::int16_t>(data, from, n);
  if (stored.name == "I8") convert<std::int32_t, std::int8_t>(data, from, n);
  if (stored.name == "U16") convert<std::int32_t, std::uint16_t>(data, from, n);
  if (stored.name == "U32") convert<std::int64_t, std::uint32_t>(data, from, n);
}

/// Reads a file through `read(offset, span)` after its header has been validated. Allocations are
/// bounded by four times `size`. `as_stored`: types that have a dtype are not widened.
template <class Read>
state_dict read_safetensors(const std::string& where, std::uint64_t size, Read&& read,
                            bool as_stored = false) {
  const auto refuse = [&](const std::string& otherwise) {
    std::string begin(static_cast<std::size_t>(std::min<std::uint64_t>(size, 64)), '\0');
    read(std::uint64_t{0}, std::as_writable_bytes(std::span{begin}));
    const std::string format = describe_format(begin);
    fail_io(where, format.empty() ? otherwise : "expected a safetensors file, got " + format);
  };
  if (size < 8)
    refuse("expected at least the 8 bytes of a safetensors length, got " + std::to_string(size));
  std::uint64_t length = 0;
  read(std::uint64_t{0}, std::as_writable_bytes(std::span{&length, 1}));
  if (length > safetensors_header_limit)
    refuse("expected a safetensors header of at most " + std::to_string(safetensors_header_limit) +
           " bytes, got a length of " + std::to_string(length));
  if (length > size - 8)
    fail_io(where, "expected a header of " + std::to_string(length) + " bytes, got " +
                       std::to_string(size - 8) + " bytes after its length");
  std::string header(static_cast<std::size_t>(length), '\0');
  read(std::uint64_t{8}, std::as_writable_bytes(std::span{header}));

  safetensors_header parsed = parse_safetensors_header(where, header, size - 8 - length);
  state_dict dict;
  for (const safetensors_record& r : parsed.records) {
    if (r.uninitialized) {
      dict.add_uninitialized(r.name, r.type, r.extents);
      continue;
    }
    const bool is_kept = as_stored && r.stored <= static_cast<std::size_t>(dtype::int8);
    std::byte* data =
        dict.add_owned(r.name, is_kept ? static_cast<dtype>(r.stored) : r.type, r.extents);
    const auto bytes = static_cast<std::size_t>(r.end - r.begin);
    if (bytes == 0) continue;
    read(8 + length + r.begin, std::span{data + dict[dict.size() - 1].bytes.size() - bytes, bytes});
    if (!is_kept) widen(r, data, bytes);
  }
  dict.set_metadata(std::move(parsed.metadata));
  return dict;
}

}  // namespace detail

/// Writes a dict as a safetensors file (https://github.com/huggingface/safetensors), which PyTorch
/// can read. The file appears completely or not at all: on any failure, io_error names the path and
/// the reason, and an existing file is unchanged (if only the last step fails, syncing the
/// directory, the new file is in place). Names keep their order in the header. Uninitialized
/// entries are stored without elements and noted in __metadata__. O(bytes).
inline void save(const state_dict& dict, const std::filesystem::path& path) {
  const detail::safetensors_layout layout = detail::lay_out_safetensors(path.string(), dict);
  detail::atomic_file file(path);
  const auto length = static_cast<std::uint64_t>(layout.header.size());
  file.write(std::as_bytes(std::span{&length, 1}));
  file.write(std::as_bytes(std::span{layout.header}));
  for (std::size_t i : layout.order) file.write(dict[i].bytes);
  file.commit();
}

namespace detail::misuse {

IKEBANA_MISUSE(save_takes_the_state_of_an_initialized_model_and_a_path,
               "save takes the state of an initialized model and a path: "
               "save(get_state_dict(model), path)");
IKEBANA_MISUSE(load_takes_a_path,
               "load takes a path and returns a state: load_state_dict(model, load(path))");

}  // namespace detail::misuse

namespace detail {

template <class A>
concept path_like = std::is_convertible_v<const A&, std::filesystem::path>;
template <class A>
concept state_like = std::is_base_of_v<state_dict, A>;
template <class A>
concept module_or_model = any_module<A> || requires {
  typename A::module_type;
};

template <class A, class... B>
constexpr bool refuses_save() {
  return module_or_model<A> || (path_like<A> && (state_like<B> || ...)) ||
         (state_like<A> && sizeof...(B) == 0);
}

}  // namespace detail

template <class... A>
requires(detail::refuses_save<A...>()) auto save(const A&...)
    -> decltype(detail::refuse_for<
                detail::misuse::save_takes_the_state_of_an_initialized_model_and_a_path, A...>());

template <class Model>
requires(detail::module_or_model<Model>) auto load(Model&, const std::filesystem::path&)
    -> decltype(detail::refuse_for<detail::misuse::load_takes_a_path, Model>());

/// Reads a safetensors file into a dict that owns its memory. Nothing in the file is trusted: a
/// violation of the format, or a type without a dtype, is an io_error that names the file, the
/// tensor, and what was expected and found. Allocates one copy of the data.
inline state_dict load(const std::filesystem::path& path) {
  const detail::input_file file(path);
  return detail::read_safetensors(
      file.path(), file.size(),
      [&file](std::uint64_t offset, std::span<std::byte> out) { file.read(offset, out); });
}

namespace detail {

/// load() that keeps numbers of 16 bits and bytes as they are.
inline state_dict load_as_stored(const std::filesystem::path& path) {
  const input_file file(path);
  return read_safetensors(
      file.path(), file.size(),
      [&file](std::uint64_t offset, std::span<std::byte> out) { file.read(offset, out); }, true);
}

}  // namespace detail

/// load() from memory: the bytes of a safetensors file. `where` replaces the path in errors.
inline state_dict parse_safetensors(std::span<const std::byte> bytes,
                                    const std::string& where = "memory") {
  return detail::read_safetensors(
      where, bytes.size(), [bytes](std::uint64_t offset, std::span<std::byte> out) {
        if (!out.empty())
          std::memcpy(out.data(), bytes.data() + static_cast<std::size_t>(offset), out.size());
      });
}

}  // namespace ikebana
