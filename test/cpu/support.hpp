#pragma once

#include <doctest/doctest.h>
#include <sys/mman.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <new>
#include <string>
#include <vector>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "test/support/tested_sets.hpp"

/// Shared by the kernels' tests: every instruction set in turn, guarded arrays, random numbers.
namespace cpu_test {

using ikebana::dim_t;

/// Runs f once per instruction set that is tested, the scalar one first, and restores the active
/// one.
template <class F>
void for_each_set(F f) {
  using ikebana::cpu::instruction_set;
  const instruction_set before = ikebana::cpu::active_instruction_set();
  for (const instruction_set s : ikebana::cpu::instruction_sets) {
    if (!is_tested(s)) continue;
    ikebana::cpu::set_instruction_set(s);
    INFO("instruction set " << std::string(ikebana::cpu::name(s)));
    f();
  }
  ikebana::cpu::set_instruction_set(before);
}

/// Whether a set is tested other than the scalar one, or than that and `other`. Algorithms in
/// lanes need one.
inline bool has_vectors(
    ikebana::cpu::instruction_set other = ikebana::cpu::instruction_set::scalar) {
  bool found = false;
  for_each_set([&] {
    const ikebana::cpu::instruction_set s = ikebana::cpu::active_instruction_set();
    found = found || (s != ikebana::cpu::instruction_set::scalar && s != other);
  });
  return found;
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

/// Memory that ends with a page and is followed by one that must not be accessed; but not if
/// IKEBANA_UNFENCED is set, for an emulator that reads all lanes of a masked load.
template <class T>
struct fenced_allocator {
  using value_type = T;
  fenced_allocator() = default;
  template <class U>
  explicit fenced_allocator(const fenced_allocator<U>&) {}
  bool operator==(const fenced_allocator&) const = default;

  T* allocate(std::size_t n) {
    const std::size_t pages = pages_of(n);
    auto& of_size = unused()[pages];
    char* begin;
    if (!of_size.empty()) {
      begin = of_size.back();
      of_size.pop_back();
    } else {
      void* const all = mmap(nullptr, (pages + 1) * page, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (all == MAP_FAILED) throw std::bad_alloc{};
      begin = static_cast<char*>(all);
      static const bool fenced = std::getenv("IKEBANA_UNFENCED") == nullptr;
      if (fenced && mprotect(begin + pages * page, page, PROT_NONE) != 0) throw std::bad_alloc{};
    }
    return reinterpret_cast<T*>(begin + pages * page - n * sizeof(T));
  }
  void deallocate(T* p, std::size_t n) {
    const std::size_t pages = pages_of(n);
    unused()[pages].push_back(reinterpret_cast<char*>(p + n) - pages * page);
  }

 private:
  static constexpr std::size_t page = 65536;  // A multiple of any processor's.
  static std::size_t pages_of(std::size_t n) { return (n * sizeof(T) + page - 1) / page; }
  /// Kept, by the number of pages: asking the system takes longer than most tests' work.
  static std::map<std::size_t, std::vector<char*>>& unused() {
    static thread_local std::map<std::size_t, std::vector<char*>> all;
    return all;
  }
};

/// n elements at an address that is aligned to sizeof(T) only, after guards that must not change,
/// and before a page that must not be touched, with another guard in between if needed. With
/// `shift`, they start that many elements after a cache line boundary.
template <class T>
class guarded {
 public:
  explicit guarded(dim_t n, T value = T(0), dim_t shift = -1)
      : size_{n},
        all_(static_cast<std::size_t>(guard_size + n + guards_behind(n, shift)), guard_value) {
    for (dim_t i = 0; i < n; ++i) data()[i] = value;
  }
  guarded(dim_t n, generator& r, double scale = 1, dim_t shift = -1) : guarded(n, T(0), shift) {
    for (dim_t i = 0; i < n; ++i) data()[i] = static_cast<T>(r.number() * scale);
  }
  T* data() { return all_.data() + guard_size; }
  const T* data() const { return all_.data() + guard_size; }
  T& operator[](dim_t i) { return data()[i]; }
  const T& operator[](dim_t i) const { return data()[i]; }
  dim_t size() const { return size_; }
  /// Whether nothing outside the n elements was written.
  bool intact() const {
    for (dim_t i = -guard_size; i < static_cast<dim_t>(all_.size()) - guard_size; ++i)
      if ((i < 0 || i >= size_) && data()[i] != guard_value) return false;
    return true;
  }

 private:
  static constexpr dim_t guard_size = 64, line = 64 / static_cast<dim_t>(sizeof(T));
  static constexpr T guard_value = T(77);
  static constexpr dim_t guards_behind(dim_t n, dim_t shift) {
    if (shift < 0) return n % line == 0 ? 1 : 0;
    return (2 * line - n % line - shift % line) % line;
  }
  dim_t size_;
  std::vector<T, fenced_allocator<T>> all_;
};

/// |got - expected| <= tolerance * max(1, |expected|), or both NaN, or equal infinities.
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
