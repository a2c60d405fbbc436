#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>

#include "ikebana/core/language.hpp"

namespace ikebana::detail {

/// A version number of a model's parameters. It is never used twice in a process and hardly ever in
/// two, since stamps are stored in buffers that can be copied elsewhere. Never 0.
inline std::uint64_t new_parameter_stamp() {
  static std::atomic<std::uint64_t> last{[] {
    std::timespec now{};
    std::timespec_get(&now, TIME_UTC);
    return static_cast<std::uint64_t>(now.tv_sec) << 32 ^ static_cast<std::uint64_t>(now.tv_nsec)
                                                              << 20;
  }()};
  const std::uint64_t stamp = ++last;
  return stamp != 0 ? stamp : new_parameter_stamp();
}

}  // namespace ikebana::detail
