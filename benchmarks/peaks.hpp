#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bench {

/// The type of a product's operands.
enum class number : unsigned char { f32, f64, bf16, int8 };

constexpr std::string_view name(number n) {
  constexpr std::string_view names[] = {"float", "double", "bf16", "int8"};
  return names[static_cast<int>(n)];
}

/// A cache, or the memory after the last one.
struct memory_level {
  std::string name;
  double size = 0;  ///< Bytes; infinite for memory.
  double read = 0;  ///< Bytes per second.
  double copy = 0;  ///< Bytes read and written per second, in equal parts.
};

/// Limits of one core, measured on it.
struct peaks {
  double operations[4] = {};  ///< Per second, by `number`; 0 if unsupported.
  std::vector<memory_level> levels;

  double of(number n) const { return operations[static_cast<int>(n)]; }

  /// The minimal seconds for this many operations and bytes, if the bytes come from the smallest
  /// level that holds the arrays. 0 if nothing is known.
  double seconds(double work, number n, double bytes_read, double bytes_written, double held) const;
};

/// A loop of independent multiply-adds (two operations each) on registers.
struct peak_loop {
  void (*run)(std::int64_t times, std::byte*, std::size_t) = nullptr;
  double operations = 0;  ///< Per repetition.
};

/// For the instruction set of this name: scalar, sse42, avx2, avx512, neon, or one with such a
/// prefix. Without a run if this machine has no such products.
peak_loop operations_loop(std::string_view set, number n);

/// Operations per second; 0 if unsupported.
double measure_operations(std::string_view set, number n);

/// With the widest loads of the instruction set.
std::vector<memory_level> measure_memory(std::string_view set);

peaks measure_peaks(std::string_view set);

}  // namespace bench
