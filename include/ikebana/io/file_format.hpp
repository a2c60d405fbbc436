#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "ikebana/io/file.hpp"

namespace ikebana::detail {

/// Names the format of a file by its first bytes, for the message that it is not the expected one;
/// empty if they do not tell.
template <class = void>
std::string describe_format(std::string_view begin) {
  struct format {
    std::string_view magic, name;
  };
  using namespace std::string_view_literals;
  constexpr auto convert =
      ": in Python, safetensors.torch.save_file(torch.load(\"model\"), \"model.safetensors\") "
      "makes one";
  if (begin.empty()) return "an empty file";
  if (begin.starts_with("PK\x03\x04"sv))
    return "a zip archive, as torch.save writes (.pt, .pth), which load_torch reads";
  if (begin.size() > 1 && begin[0] == '\x80' && begin[1] >= 2 && begin[1] <= 5)
    return std::string("a pickle, as torch.save wrote before PyTorch 1.6") + convert;
  if (begin.starts_with("version https://git-lfs"sv))
    return "a pointer of Git LFS: `git lfs pull` brings the file itself";
  for (const format& f :
       {format{"\x89HDF\r\n"sv, "an HDF5 file"}, format{"GGUF"sv, "a GGUF file"},
        format{"\x93NUMPY"sv, "a NumPy array (.npy)"}, format{"\x1f\x8b"sv, "a gzip archive"},
        format{"BZh"sv, "a bzip2 archive"}, format{"\x28\xb5\x2f\xfd"sv, "a Zstandard archive"}})
    if (begin.starts_with(f.magic)) return std::string(f.name);
  for (const char c : begin) {
    const auto u = static_cast<unsigned char>(c);
    if ((u < 0x20 && c != '\t' && c != '\n' && c != '\r') || u == 0x7f || u >= 0xf5) return {};
  }
  begin.remove_prefix(std::min(begin.find_first_not_of(" \t\r\n"), begin.size()));
  return "a text file that begins with " + in_quotes(begin.substr(0, begin.find_first_of("\r\n")));
}

}  // namespace ikebana::detail
