#include "benchmarks/peaks.hpp"

#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "ikebana/core/aligned_buffer.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace bench {
namespace {

/// Does its work `times` times; the caller knows the operations or bytes of each.
using loop = void (*)(std::int64_t times, std::byte* data, std::size_t bytes);

/// CPU time, which excludes other load on the machine.
double now() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double seconds_of(loop f, std::int64_t times, std::byte* data, std::size_t bytes) {
  const double begin = now();
  f(times, data, bytes);
  return now() - begin;
}

/// Repetitions per second, the best of several measurements of a few milliseconds: a limit is what
/// was reached without disturbance.
double rate(loop f, std::byte* data = nullptr, std::size_t bytes = 0) {
  std::int64_t times = 1;
  double least = seconds_of(f, times, data, bytes);
  for (; least < 2e-3; times *= 2) least = seconds_of(f, times * 2, data, bytes);
  for (int i = 0; i < 8; ++i) least = std::min(least, seconds_of(f, times, data, bytes));
  return static_cast<double>(times) / least;
}

#if defined(__x86_64__)

// Twelve accumulators hide the latency of the multiply-add of every instruction set and fit its
// registers. The loop is long, since its own instructions use the same ports.
#define BENCH_ACCUMULATE(LOAD, STEP)                                                             \
  auto a0 = LOAD, a1 = LOAD, a2 = LOAD, a3 = LOAD, a4 = LOAD, a5 = LOAD, a6 = LOAD, a7 = LOAD,   \
       a8 = LOAD, a9 = LOAD, aa = LOAD, ab = LOAD, x = LOAD, y = LOAD;                           \
  asm volatile("" : "+v"(x), "+v"(y));                                                           \
  for (std::int64_t i = 0; i < times; ++i) _Pragma("GCC unroll 8") for (int j = 0; j < 8; ++j) { \
      STEP(a0), STEP(a1), STEP(a2), STEP(a3), STEP(a4), STEP(a5);                                \
      STEP(a6), STEP(a7), STEP(a8), STEP(a9), STEP(aa), STEP(ab);                                \
      asm volatile("" : "+v"(a0), "+v"(a1), "+v"(a2), "+v"(a3), "+v"(a4), "+v"(a5));             \
      asm volatile("" : "+v"(a6), "+v"(a7), "+v"(a8), "+v"(a9), "+v"(aa), "+v"(ab));             \
    }

constexpr double accumulated = 8 * 12;  // Products per repetition.

#define BENCH_F32_128(a) a = _mm_add_ps(a, _mm_mul_ps(x, y))
#define BENCH_F64_128(a) a = _mm_add_pd(a, _mm_mul_pd(x, y))
#define BENCH_F32_256(a) a = _mm256_fmadd_ps(x, y, a)
#define BENCH_F64_256(a) a = _mm256_fmadd_pd(x, y, a)
#define BENCH_F32_512(a) a = _mm512_fmadd_ps(x, y, a)
#define BENCH_F64_512(a) a = _mm512_fmadd_pd(x, y, a)
#define BENCH_INT8_512(a) a = _mm512_dpbusd_epi32(a, x, y)
#define BENCH_F32_1(a) a = a + x * y

void scalar_f32(std::int64_t times, std::byte*, std::size_t) { BENCH_ACCUMULATE(0.F, BENCH_F32_1) }
void scalar_f64(std::int64_t times, std::byte*, std::size_t) { BENCH_ACCUMULATE(0.0, BENCH_F32_1) }
void sse_f32(std::int64_t times, std::byte*, std::size_t) {
  BENCH_ACCUMULATE(_mm_setzero_ps(), BENCH_F32_128)
}
void sse_f64(std::int64_t times, std::byte*, std::size_t) {
  BENCH_ACCUMULATE(_mm_setzero_pd(), BENCH_F64_128)
}
[[gnu::target("avx2,fma")]] void avx2_f32(std::int64_t times, std::byte*, std::size_t) {
  BENCH_ACCUMULATE(_mm256_setzero_ps(), BENCH_F32_256)
}
[[gnu::target("avx2,fma")]] void avx2_f64(std::int64_t times, std::byte*, std::size_t) {
  BENCH_ACCUMULATE(_mm256_setzero_pd(), BENCH_F64_256)
}
[[gnu::target("avx512f")]] void avx512_f32(std::int64_t times, std::byte*, std::size_t) {
  BENCH_ACCUMULATE(_mm512_setzero_ps(), BENCH_F32_512)
}
[[gnu::target("avx512f")]] void avx512_f64(std::int64_t times, std::byte*, std::size_t) {
  BENCH_ACCUMULATE(_mm512_setzero_pd(), BENCH_F64_512)
}
[[gnu::target("avx512f,avx512vnni")]] void avx512_int8(std::int64_t times, std::byte*,
                                                       std::size_t) {
  BENCH_ACCUMULATE(_mm512_setzero_si512(), BENCH_INT8_512)
}
[[gnu::target("avx512f,avx512bf16")]] void avx512_bf16(std::int64_t times, std::byte*,
                                                       std::size_t) {
  __m512 a[12] = {};
  __m512bh x = _mm512_cvtne2ps_pbh(_mm512_setzero_ps(), _mm512_setzero_ps());
  asm volatile("" : "+v"(x));
  for (std::int64_t i = 0; i < times; ++i)
#pragma GCC unroll 12
    for (int j = 0; j < 12; ++j) {
      a[j] = _mm512_dpbf16_ps(a[j], x, x);
      asm volatile("" : "+v"(a[j]));
    }
}

// Tiles of 16 rows of 64 bytes: four products of two by two tiles, as in a kernel, including loads.
struct alignas(64) tile_configuration {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t bytes_a_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// g++'s tile intrinsics do not declare how much memory they read.
#define BENCH_TILES(PRODUCT)                           \
  const tile_configuration configuration;              \
  alignas(64) static std::byte tiles[4 * 1024];        \
  asm volatile("" : : "r"(&configuration) : "memory"); \
  _tile_loadconfig(&configuration);                    \
  for (std::int64_t i = 0; i < times; ++i) {           \
    _tile_loadd(4, tiles, 64);                         \
    _tile_loadd(5, tiles + 1024, 64);                  \
    _tile_loadd(6, tiles + 2048, 64);                  \
    _tile_loadd(7, tiles + 3072, 64);                  \
    PRODUCT(0, 4, 6);                                  \
    PRODUCT(1, 4, 7);                                  \
    PRODUCT(2, 5, 6);                                  \
    PRODUCT(3, 5, 7);                                  \
  }                                                    \
  _tile_release();

[[gnu::target("amx-tile,amx-bf16")]] void amx_bf16(std::int64_t times, std::byte*, std::size_t) {
  BENCH_TILES(_tile_dpbf16ps)
}
[[gnu::target("amx-tile,amx-int8")]] void amx_int8(std::int64_t times, std::byte*, std::size_t) {
  BENCH_TILES(_tile_dpbusd)
}

struct cpuid_leaf_7 {
  unsigned a = 0, b = 0, c = 0, d = 0, a1 = 0;
  cpuid_leaf_7() {
    unsigned unused_b, unused_c, unused_d;
    __get_cpuid_count(7, 0, &a, &b, &c, &d);
    __get_cpuid_count(7, 1, &a1, &unused_b, &unused_c, &unused_d);
  }
  bool vnni() const { return c >> 11 & 1; }
  bool bf16() const { return a1 >> 5 & 1; }
  /// Whether there are tiles, and the kernel permits this process to use them.
  bool amx() const {
    constexpr int request_permission = 0x1023, tile_data = 18;
    return (d >> 24 & 1) != 0 && syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
  }
};

// Eight loads at a time keep both load ports busy.
#define BENCH_READ(VECTOR, LOAD, OR, ZERO)                                                        \
  VECTOR a = ZERO, b = ZERO, c = ZERO, d = ZERO;                                                  \
  for (std::int64_t i = 0; i < times; ++i)                                                        \
    for (std::size_t j = 0; j < bytes; j += 8 * sizeof(VECTOR)) {                                 \
      const auto* p = reinterpret_cast<const VECTOR*>(data + j);                                  \
      a = OR(a, LOAD(p)), b = OR(b, LOAD(p + 1)), c = OR(c, LOAD(p + 2)), d = OR(d, LOAD(p + 3)); \
      a = OR(a, LOAD(p + 4)), b = OR(b, LOAD(p + 5)), c = OR(c, LOAD(p + 6));                     \
      d = OR(d, LOAD(p + 7));                                                                     \
      asm volatile("" : "+v"(a), "+v"(b), "+v"(c), "+v"(d));                                      \
    }

// From the first half of the data to the second.
#define BENCH_COPY(VECTOR, LOAD, STORE)                                   \
  for (std::int64_t i = 0; i < times; ++i)                                \
    for (std::size_t j = 0; j < bytes / 2; j += 4 * sizeof(VECTOR)) {     \
      const auto* from = reinterpret_cast<const VECTOR*>(data + j);       \
      auto* to = reinterpret_cast<VECTOR*>(data + bytes / 2 + j);         \
      VECTOR a = LOAD(from), b = LOAD(from + 1), c = LOAD(from + 2);      \
      VECTOR d = LOAD(from + 3);                                          \
      asm volatile("" : "+v"(a), "+v"(b), "+v"(c), "+v"(d));              \
      STORE(to, a), STORE(to + 1, b), STORE(to + 2, c), STORE(to + 3, d); \
    }

void sse_read(std::int64_t times, std::byte* data, std::size_t bytes) {
  BENCH_READ(__m128i, _mm_load_si128, _mm_or_si128, _mm_setzero_si128())
}
void sse_copy(std::int64_t times, std::byte* data, std::size_t bytes) {
  BENCH_COPY(__m128i, _mm_load_si128, _mm_store_si128)
}
[[gnu::target("avx2")]] void avx2_read(std::int64_t times, std::byte* data, std::size_t bytes) {
  BENCH_READ(__m256i, _mm256_load_si256, _mm256_or_si256, _mm256_setzero_si256())
}
[[gnu::target("avx2")]] void avx2_copy(std::int64_t times, std::byte* data, std::size_t bytes) {
  BENCH_COPY(__m256i, _mm256_load_si256, _mm256_store_si256)
}
[[gnu::target("avx512f")]] void avx512_read(std::int64_t times, std::byte* data,
                                            std::size_t bytes) {
  BENCH_READ(__m512i, _mm512_load_si512, _mm512_or_si512, _mm512_setzero_si512())
}
[[gnu::target("avx512f")]] void avx512_copy(std::int64_t times, std::byte* data,
                                            std::size_t bytes) {
  BENCH_COPY(__m512i, _mm512_load_si512, _mm512_store_si512)
}

bool is_wide(std::string_view set) {
  return (set.starts_with("avx512") || set.starts_with("amx")) && __builtin_cpu_supports("avx512f");
}
bool is_avx2(std::string_view set) {
  return set == "avx2" && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

loop reader(std::string_view set) {
  return is_wide(set) ? avx512_read : is_avx2(set) ? avx2_read : sse_read;
}
loop copier(std::string_view set) {
  return is_wide(set) ? avx512_copy : is_avx2(set) ? avx2_copy : sse_copy;
}

#else

// Compiler vectors: on AArch64, they become NEON multiply-adds.
using float4 = float __attribute__((vector_size(16)));
using double2 = double __attribute__((vector_size(16)));
using bytes16 = std::uint64_t __attribute__((vector_size(16)));

template <class V>
void multiply_add(std::int64_t times, std::byte*, std::size_t) {
  V a[12] = {}, x = {}, y = {};
  asm volatile("" : "+w"(x), "+w"(y));
  for (std::int64_t i = 0; i < times; ++i)
#pragma GCC unroll 12
    for (int j = 0; j < 12; ++j) {
      a[j] += x * y;
      asm volatile("" : "+w"(a[j]));
    }
}
void read_vectors(std::int64_t times, std::byte* data, std::size_t bytes) {
  bytes16 a = {}, b = {};
  for (std::int64_t i = 0; i < times; ++i)
    for (std::size_t j = 0; j < bytes; j += 64) {
      const auto* p = reinterpret_cast<const bytes16*>(data + j);
      a |= p[0] | p[1], b |= p[2] | p[3];
      asm volatile("" : "+w"(a), "+w"(b));
    }
}
void copy_vectors(std::int64_t times, std::byte* data, std::size_t bytes) {
  for (std::int64_t i = 0; i < times; ++i)
    for (std::size_t j = 0; j < bytes / 2; j += 32) {
      const auto* from = reinterpret_cast<const bytes16*>(data + j);
      auto* to = reinterpret_cast<bytes16*>(data + bytes / 2 + j);
      bytes16 a = from[0], b = from[1];
      asm volatile("" : "+w"(a), "+w"(b));
      to[0] = a, to[1] = b;
    }
}
loop reader(std::string_view) { return read_vectors; }
loop copier(std::string_view) { return copy_vectors; }

#endif

/// The data caches of this core, from L1 on.
std::vector<memory_level> caches() {
  std::vector<memory_level> levels;
  for (const auto& cache : benchmark::CPUInfo::Get().caches)
    if (cache.type != "Instruction")
      levels.push_back(
          {.name = "L" + std::to_string(cache.level), .size = static_cast<double>(cache.size)});
  std::sort(levels.begin(), levels.end(),
            [](const auto& a, const auto& b) { return a.size < b.size; });
  levels.push_back({.name = "memory", .size = std::numeric_limits<double>::infinity()});
  return levels;
}

}  // namespace

peak_loop operations_loop(std::string_view set, number n) {
#if defined(__x86_64__)
  const bool is_float = n == number::f32;
  if (n == number::int8 || n == number::bf16) {
    static const cpuid_leaf_7 has;
    static const bool has_tiles = has.amx();
    if (!is_wide(set)) return {};
    // Four tile products: 16 x 16 x 32 of bf16, or 16 x 16 x 64 of int8.
    if (has_tiles)
      return n == number::bf16 ? peak_loop{amx_bf16, 4 * 16 * 16 * 32 * 2.0}
                               : peak_loop{amx_int8, 4 * 16 * 16 * 64 * 2.0};
    if (n == number::bf16 && has.bf16()) return {avx512_bf16, 12 * 32 * 2};
    if (n == number::int8 && has.vnni()) return {avx512_int8, accumulated * 64 * 2};
    return {};
  }
  const auto loop_of = [&](loop f32, loop f64, double floats) {
    return peak_loop{is_float ? f32 : f64, accumulated * 2 * (is_float ? floats : floats / 2)};
  };
  if (is_wide(set)) return loop_of(avx512_f32, avx512_f64, 16);
  if (is_avx2(set)) return loop_of(avx2_f32, avx2_f64, 8);
  if (set.starts_with("sse")) return loop_of(sse_f32, sse_f64, 4);
  if (set == "scalar") return {is_float ? scalar_f32 : scalar_f64, accumulated * 2};
  return {};
#else
  constexpr double accumulators = 12;
  if (set == "scalar" && n == number::f32) return {multiply_add<float>, accumulators * 2};
  if (set == "scalar" && n == number::f64) return {multiply_add<double>, accumulators * 2};
  if (n == number::f32) return {multiply_add<float4>, accumulators * 2 * 4};
  if (n == number::f64) return {multiply_add<double2>, accumulators * 2 * 2};
  return {};
#endif
}

double measure_operations(std::string_view set, number n) {
  const peak_loop p = operations_loop(set, n);
  return p.run == nullptr ? 0 : rate(p.run) * p.operations;
}

std::vector<memory_level> measure_memory(std::string_view set) {
  std::vector<memory_level> levels = caches();
  for (std::size_t i = 0; i < levels.size(); ++i) {
    // Half of a cache surely fits into it; for a large one, four times the previous level.
    const bool last = i + 1 == levels.size();
    const double before = i == 0 ? 0 : levels[i - 1].size;
    double bytes = last ? std::min(4 * before, 256e6) : levels[i].size / 2;
    if (i == 0 && last) bytes = 64e6;
    if (!last && i > 0) bytes = std::min(bytes, 4 * before);
    const auto size = static_cast<std::size_t>(bytes) / 1024 * 1024;
    ikebana::aligned_buffer<std::byte> data(size);
    levels[i].read = rate(reader(set), data.data(), size) * static_cast<double>(size);
    levels[i].copy = rate(copier(set), data.data(), size) * static_cast<double>(size);
  }
  return levels;
}

peaks measure_peaks(std::string_view set) {
  peaks result;
  for (const number n : {number::f32, number::f64, number::bf16, number::int8})
    result.operations[static_cast<int>(n)] = measure_operations(set, n);
  result.levels = measure_memory(set);
  return result;
}

double peaks::seconds(double work, number n, double bytes_read, double bytes_written,
                      double held) const {
  double least = of(n) > 0 ? work / of(n) : 0;
  const double bytes = bytes_read + bytes_written;
  for (const memory_level& level : levels)
    if (held <= level.size) {
      // Copying covers equally many read and written bytes; the rest is only read.
      const double copied = 2 * std::min(bytes_read, bytes_written);
      least = std::max(least, copied / level.copy + (bytes - copied) / level.read);
      break;
    }
  return least;
}

}  // namespace bench
