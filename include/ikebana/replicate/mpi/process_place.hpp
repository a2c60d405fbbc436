#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "ikebana/core/language.hpp"

namespace ikebana::detail {

/// Equal for processes that see each other's ids: a hash of the machine's boot id and the process
/// namespace.
inline std::uint64_t process_place() {
  std::uint64_t h = 0xcbf29ce484222325u;
  const auto take = [&](const char* text, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i)
      h = (h ^ static_cast<unsigned char>(text[i])) * 0x100000001b3u;
  };
  char text[256];
  if (std::FILE* f = std::fopen("/proc/sys/kernel/random/boot_id", "r")) {
    take(text, std::fread(text, 1, sizeof(text), f));
    std::fclose(f);
  }
  if (const ssize_t n = ::readlink("/proc/self/ns/pid", text, sizeof(text)); n > 0)
    take(text, static_cast<std::size_t>(n));
  if (::gethostname(text, sizeof(text)) == 0) take(text, ::strnlen(text, sizeof(text)));
  return h;
}

}  // namespace ikebana::detail
