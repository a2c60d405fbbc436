#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <string_view>

#include "ikebana/core/shape.hpp"

namespace ikebana {

/// The seed of all randomness of a model or a loader.
struct seed {
  std::uint64_t value = 0;
  std::uint64_t path = 0xcbf29ce484222325u;  ///< The hash of the path prefix.
  constexpr bool operator==(const seed&) const = default;

  /// The seed of a part of a network: a module initialised alone with `seed{42}.at("encoder.fc1")`
  /// gets the parameters that the module at that path has in a network initialised with `seed{42}`.
  constexpr seed at(std::string_view module_path) const;
};

/// FNV-1a, 64 bits (Fowler, Noll, Vo): the hash of a path. Passing a hash as `basis` continues it,
/// so that a path can be hashed piecewise.
constexpr std::uint64_t hash_path(std::string_view s, std::uint64_t basis = seed{}.path) {
  for (char c : s) {
    basis ^= static_cast<unsigned char>(c);
    basis *= 0x100000001b3u;
  }
  return basis;
}

constexpr seed seed::at(std::string_view module_path) const {
  return {value, hash_path(".", hash_path(module_path, path))};
}

/// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3; SC
/// 2011): four random words from a counter and a key, without state.
struct philox4x32 {
  using counter_type = std::array<std::uint32_t, 4>;
  using key_type = std::array<std::uint32_t, 2>;

  static constexpr std::uint32_t multiplier0 = 0xD2511F53u, multiplier1 = 0xCD9E8D57u;
  static constexpr std::uint32_t weyl0 = 0x9E3779B9u, weyl1 = 0xBB67AE85u;
  static constexpr int rounds = 10;

  static constexpr counter_type generate(counter_type c, key_type k) {
    for (int r = 0; r < rounds; ++r) {
      const std::uint64_t p0 = std::uint64_t{multiplier0} * c[0];
      const std::uint64_t p1 = std::uint64_t{multiplier1} * c[2];
      c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ k[0], static_cast<std::uint32_t>(p1),
           static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ k[1], static_cast<std::uint32_t>(p0)};
      k[0] += weyl0;
      k[1] += weyl1;
    }
    return c;
  }
};

/// A stream of random words addressed by index: the key is seed and stream, the counter is path,
/// step and block. Word i of the stream is word i % 4 of block i / 4, whatever the order of access
/// or the instruction set.
struct random_stream {
  philox4x32::key_type key{};
  std::uint32_t step = 0;
  std::uint64_t path = 0;

  constexpr random_stream() = default;
  /// The counter holds the low 32 bits of the step; the others change the key.
  constexpr random_stream(seed s, std::uint64_t path_hash, std::uint64_t step_ = 0,
                          std::uint32_t stream = 0)
      : key{static_cast<std::uint32_t>(s.value) + stream * 0x85EBCA6Bu,
            (static_cast<std::uint32_t>(s.value >> 32) + stream * 0xC2B2AE35u) ^
                (static_cast<std::uint32_t>(step_ >> 32) * 0x27D4EB2Fu)},
        step{static_cast<std::uint32_t>(step_)},
        path{path_hash} {}

  /// The counter of block `block`; blocks are addressed by 32 bits, so a stream has 2^34 words.
  constexpr philox4x32::counter_type counter(std::uint32_t block) const {
    return {block, step, static_cast<std::uint32_t>(path), static_cast<std::uint32_t>(path >> 32)};
  }
  constexpr philox4x32::counter_type words(std::uint32_t block) const {
    return philox4x32::generate(counter(block), key);
  }
};

/// A uniform number in [-1, 1) from the high bits of random words. It is exact in T, so the same
/// under every compiler flag. A float takes 24 bits of one word, a double 53 bits of two.
constexpr float signed_unit(std::uint32_t word) {
  return static_cast<float>(static_cast<std::int32_t>(word >> 8) - (1 << 23)) * 0x1p-23f;
}
constexpr double signed_unit(std::uint32_t low, std::uint32_t high) {
  const std::uint64_t bits = ((std::uint64_t{high} << 32) | low) >> 11;
  return static_cast<double>(static_cast<std::int64_t>(bits) - (std::int64_t{1} << 52)) * 0x1p-52;
}

/// Fills x[0, n) with uniform numbers in [-bound, bound). Element i depends only on the stream and
/// i.
template <class T>
constexpr void fill_uniform(const random_stream& stream, T bound, T* x, dim_t n) {
  constexpr dim_t per_block = sizeof(T) == 4 ? 4 : 2;
  for (dim_t i = 0; i < n; i += per_block) {
    const auto w = stream.words(static_cast<std::uint32_t>(i / per_block));
    for (dim_t j = 0; j < per_block && i + j < n; ++j) {
      const auto k = static_cast<std::size_t>(j);
      // A single multiplication of exact factors, so that contraction to FMA cannot change the
      // bits.
      if constexpr (sizeof(T) == 4)
        x[i + j] = bound * signed_unit(w[k]);
      else
        x[i + j] = bound * signed_unit(w[2 * k], w[2 * k + 1]);
    }
  }
}

/// Fills x[0, n) with normal numbers by the Box-Muller transform (A Note on the Generation of
/// Random Normal Deviates, 1958), computed in double. Element i depends only on the stream and i.
template <class T>
void fill_normal(const random_stream& stream, double mean, double deviation, T* x, dim_t n) {
  for (dim_t i = 0; i < n; i += 2) {
    const auto w = stream.words(static_cast<std::uint32_t>(i / 2));
    // In (0, 1], so that the logarithm is finite.
    const double u = 0.5 - 0.5 * signed_unit(w[0], w[1]);
    const double v = signed_unit(w[2], w[3]);
    const double radius = deviation * std::sqrt(-2 * std::log(u));
    x[i] = static_cast<T>(mean + radius * std::cos(std::numbers::pi * v));
    if (i + 1 < n) x[i + 1] = static_cast<T>(mean + radius * std::sin(std::numbers::pi * v));
  }
}

/// Fills order[0, n) with a random permutation of 0, ..., n - 1 (Fisher-Yates), drawn from the
/// stream. O(n); no allocation.
template <class Index>
constexpr void shuffle(const random_stream& stream, Index* order, dim_t n) {
  for (dim_t i = 0; i < n; ++i) order[i] = static_cast<Index>(i);
  for (dim_t i = n - 1; i > 0; --i) {
    const auto w = stream.words(static_cast<std::uint32_t>(i));
    const std::uint64_t word = (std::uint64_t{w[1]} << 32) | w[0];
    const auto j = static_cast<dim_t>(word % static_cast<std::uint64_t>(i + 1));
    const Index swapped = order[i];
    order[i] = order[j];
    order[j] = swapped;
  }
}

}  // namespace ikebana
