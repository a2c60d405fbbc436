#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>

#include "ikebana/core/error.hpp"

namespace ikebana::detail {

/// Throws io_error: `path: what`.
template <class = void>
[[noreturn]] void fail_io(std::string_view path, std::string_view what) {
  throw io_error(std::string(path) + ": " + std::string(what));
}

/// Throws io_error: `path: what: text of the error number`.
template <class = void>
[[noreturn]] void fail_io(std::string_view path, std::string_view what, int error_number) {
  fail_io(path, std::string(what) + ": " + std::generic_category().message(error_number));
}

/// At most `limit` bytes of text from a file, quoted for a message, with control characters masked.
template <class = void>
std::string in_quotes(std::string_view found, std::size_t limit = 60) {
  std::string out = "\"";
  for (char c : found.substr(0, limit)) {
    const auto u = static_cast<unsigned char>(c);
    out += u < 0x20 || u == 0x7f ? '?' : c;
  }
  return out + (found.size() > limit ? "...\"" : "\"");
}

/// The contents of a file (or of a pipe). Throws io_error.
template <class = void>
std::string read_file(const std::string& path) {
  struct closer {
    void operator()(std::FILE* f) const { std::fclose(f); }
  };
  const std::unique_ptr<std::FILE, closer> file(std::fopen(path.c_str(), "rb"));
  if (!file) fail_io(path, "cannot open", errno);
  std::string bytes;
  std::size_t used = 0;
  for (;;) {
    if (used == bytes.size()) bytes.resize(used == 0 ? std::size_t{1} << 16 : 2 * used);
    errno = 0;
    const std::size_t got = std::fread(bytes.data() + used, 1, bytes.size() - used, file.get());
    used += got;
    if (got != 0) continue;
    if (std::ferror(file.get()) != 0) fail_io(path, "cannot read", errno);
    break;
  }
  bytes.resize(used);
  return bytes;
}

}  // namespace ikebana::detail
