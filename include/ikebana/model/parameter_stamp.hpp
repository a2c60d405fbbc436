#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>

namespace ikebana::detail {

/// A number that stands for what the parameters of a model are: never given twice, and, as it
/// stands in buffers, which may be carried about, hardly in two processes. Never 0.
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
