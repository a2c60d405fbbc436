#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bench {

/// What a product's operands are.
enum class number : unsigned char { f32, f64, bf16, int8 };

constexpr std::string_view name(number n) {
  constexpr std::string_view names[] = {"float", "double", "bf16", "int8"};
  return names[static_cast<int>(n)];
}

/// A cache, or the memory after the last one.
struct memory_level {
  std::string name;
  double size = 0;  ///< Bytes; of memory, infinite.
  double read = 0;  ///< Bytes a second.
  double copy = 0;  ///< Bytes read and written a second, where as many are written as read.
};

/// Limits of one core, as measured on it.
struct peaks {
  double operations[4] = {};  ///< A second, for each `number`; 0 where the set has no such product.
  std::vector<memory_level> levels;

  double of(number n) const { return operations[static_cast<int>(n)]; }

  /// The least seconds that so many operations and bytes take, where the bytes come from the
  /// smallest level that holds the arrays. 0 if nothing is known.
  double seconds(double work, number n, double bytes_read, double bytes_written, double held) const;
};

/// A loop of nothing but multiply-adds (two operations): independent ones, from registers.
struct peak_loop {
  void (*run)(std::int64_t times, std::byte*, std::size_t) = nullptr;
  double operations = 0;  ///< Of one time.
};

/// Of the instruction set of this name: scalar, sse42, avx2, avx512, neon, or one that begins so.
/// Without a run where this machine has no such products.
peak_loop operations_loop(std::string_view set, number n);

/// Operations a second; 0 where there are none.
double measure_operations(std::string_view set, number n);

/// By the widest loads that the set has.
std::vector<memory_level> measure_memory(std::string_view set);

peaks measure_peaks(std::string_view set);

}  // namespace bench
