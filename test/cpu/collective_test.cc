#include "ikebana/cpu/collective.hpp"

#include <cstring>
#include <limits>

#include "ikebana/cpu/round.hpp"
#include "support.hpp"

using namespace cpu_test;
namespace cpu = ikebana::cpu;

namespace {

/// Rounds to nearest even, arithmetically.
std::uint16_t bf16_reference(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  if (std::isnan(x)) return static_cast<std::uint16_t>(((bits >> 16) & 0x8000u) | 0x7FC0u);
  const std::uint32_t low = bits & 0xFFFFu;
  std::uint32_t high = bits >> 16;
  if (low > 0x8000u || (low == 0x8000u && (high & 1u) != 0)) ++high;
  return static_cast<std::uint16_t>(high);
}
float widened(std::uint16_t b) {
  const std::uint32_t bits = std::uint32_t{b} << 16;
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

}  // namespace

TEST_CASE_TEMPLATE("a slice becomes its average on every rank, and nothing else changes", T, float,
                   double) {
  generator r(31);
  for_each_set([&] {
    for (int world : {1, 2, 3, 5})
      for (dim_t offset : {0, 1, 7})
        for (dim_t n : {0, 1, 15, 16, 33, 100}) {
          INFO("world " << world << " offset " << offset << " n " << n);
          const dim_t total = offset + n + 9;
          std::vector<guarded<T>> ranks;
          for (int k = 0; k < world; ++k) ranks.emplace_back(total, r, 1.0, dim_t{k});
          const std::vector<guarded<T>> before = ranks;
          std::vector<T*> pointers;
          for (auto& x : ranks) pointers.push_back(x.data());
          const T scale = T(1) / static_cast<T>(world);
          cpu::average_slice(n, pointers.data(), world, offset, scale);
          bool right = true;
          for (dim_t i = 0; i < total; ++i) {
            T s = before[0][i];
            for (std::size_t k = 1; k < before.size(); ++k) s += before[k][i];
            for (std::size_t k = 0; k < before.size(); ++k)
              right = right &&
                      ranks[k][i] == (i >= offset && i < offset + n ? s * scale : before[k][i]);
          }
          CHECK(right);
          for (const auto& x : ranks) CHECK(x.intact());
        }
  });
}

TEST_CASE_TEMPLATE("bfloat16 rounds to nearest even and back", T, float, double) {
  generator r(32);
  for_each_set([&] {
    for (dim_t n : {0, 1, 8, 17, 255, 256, 300, 2000}) {
      INFO("n " << n);
      guarded<T> x(n);
      for (dim_t i = 0; i < n; ++i) {
        std::uint32_t bits = r.word();
        if (i % 5 == 0) bits = (bits & 0xFFFF0000u) | 0x8000u;
        if (i % 50 == 3) bits |= 0x7F800000u;
        float f;
        std::memcpy(&f, &bits, sizeof f);
        x[i] = static_cast<T>(f);
      }
      guarded<std::uint16_t> narrow(n);
      cpu::to_bf16(n, x.data(), narrow.data());
      guarded<T> wide(n);
      cpu::from_bf16(n, narrow.data(), wide.data());
      const guarded<T> before = x;
      cpu::round_to(n, ikebana::number_format::bfloat16, x.data(), x.data());
      bool right = true;
      for (dim_t i = 0; i < n; ++i) {
        const std::uint16_t expected = bf16_reference(static_cast<float>(before[i]));
        const auto value = static_cast<double>(widened(expected));
        right = right && narrow[i] == expected && close(static_cast<double>(wide[i]), value, 0) &&
                close(static_cast<double>(x[i]), value, 0);
      }
      CHECK(right);
      CHECK(narrow.intact());
      CHECK(wide.intact());
      CHECK(x.intact());
    }
  });
}
