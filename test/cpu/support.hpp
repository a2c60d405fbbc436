#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/dispatch.hpp"

/// What the kernels' tests share: every instruction set in turn, guarded arrays, random numbers.
namespace cpu_test {

using ikebana::dim_t;

/// Runs f once for each instruction set of this machine, the scalar one first, and restores the
/// active one.
template <class F>
void for_each_set(F f) {
  using ikebana::cpu::instruction_set;
  const instruction_set before = ikebana::cpu::active_instruction_set();
  for (const instruction_set s : ikebana::cpu::instruction_sets) {
    if (!ikebana::cpu::supports(s)) continue;
    ikebana::cpu::set_instruction_set(s);
    INFO("instruction set " << std::string(ikebana::cpu::name(s)));
    f();
  }
  ikebana::cpu::set_instruction_set(before);
}

/// A linear congruential generator: the same numbers everywhere.
class generator {
 public:
  explicit generator(std::uint64_t seed) : state_{seed} { INFO("seed " << seed); }
  std::uint32_t word() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::uint32_t>(state_ >> 32);
  }
  /// In [-1, 1).
  double number() { return static_cast<double>(word()) * 0x1p-31 - 1; }
  dim_t below(dim_t n) { return static_cast<dim_t>(word()) % n; }

 private:
  std::uint64_t state_;
};

/// n elements at an address that is a multiple of sizeof(T) and of no more, between guards that
/// must not change.
template <class T>
class guarded {
 public:
  explicit guarded(dim_t n, T value = T(0), dim_t shift = 1)
      : size_{n},
        shift_{guard_size + shift},
        all_(static_cast<std::size_t>(n + 2 * guard_size + shift), guard_value) {
    for (dim_t i = 0; i < n; ++i) data()[i] = value;
  }
  guarded(dim_t n, generator& r, double scale = 1, dim_t shift = 1) : guarded(n, T(0), shift) {
    for (dim_t i = 0; i < n; ++i) data()[i] = static_cast<T>(r.number() * scale);
  }
  T* data() { return all_.data() + shift_; }
  const T* data() const { return all_.data() + shift_; }
  T& operator[](dim_t i) { return data()[i]; }
  const T& operator[](dim_t i) const { return data()[i]; }
  dim_t size() const { return size_; }
  /// Whether nothing outside the n elements was written.
  bool intact() const {
    for (std::size_t i = 0; i < all_.size(); ++i) {
      const auto at = static_cast<dim_t>(i) - shift_;
      if ((at < 0 || at >= size_) && all_[i] != guard_value) return false;
    }
    return true;
  }

 private:
  static constexpr dim_t guard_size = 64;
  static constexpr T guard_value = T(77);
  dim_t size_, shift_;
  std::vector<T> all_;
};

/// |got - expected| <= tolerance * max(1, |expected|), or both not-a-number, or equal infinities.
inline bool close(double got, double expected, double tolerance) {
  if (std::isnan(expected)) return std::isnan(got);
  if (std::isinf(expected)) return got == expected;
  const double size = std::fabs(expected) > 1 ? std::fabs(expected) : 1;
  return std::fabs(got - expected) <= tolerance * size;
}

template <class T>
inline constexpr double rounding = sizeof(T) == 4 ? 0x1p-23 : 0x1p-52;

/// The largest error of `got` against `expected` in the measure of `close`.
template <class T, class U>
bool all_close(const guarded<T>& got, const std::vector<U>& expected, double tolerance) {
  for (dim_t i = 0; i < got.size(); ++i)
    if (!close(static_cast<double>(got[i]),
               static_cast<double>(expected[static_cast<std::size_t>(i)]), tolerance)) {
      MESSAGE("element " << i << ": got " << got[i] << ", expected "
                         << expected[static_cast<std::size_t>(i)]);
      return false;
    }
  return true;
}

}  // namespace cpu_test
