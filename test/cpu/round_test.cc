#include "ikebana/cpu/round.hpp"

#include <cstring>
#include <limits>
#include <vector>

#include "ikebana/core/bfloat16.hpp"
#include "ikebana/core/float16.hpp"
#include "support.hpp"

using namespace cpu_test;
namespace cpu = ikebana::cpu;
using ikebana::number_format;

namespace {

/// One number at a time.
double rounded(number_format p, double x) {
  switch (p) {
    case number_format::full:
      return x;
    case number_format::float32:
      return static_cast<double>(static_cast<float>(x));
    case number_format::bfloat16:
      return static_cast<double>(float(ikebana::bfloat16(static_cast<float>(x))));
    case number_format::float16:
      return static_cast<double>(float(ikebana::float16(static_cast<float>(x))));
  }
  return 0;
}

constexpr number_format all[] = {number_format::full, number_format::float32,
                                 number_format::bfloat16, number_format::float16};

/// Numbers of all magnitudes: ties, subnormals, infinities, NaN.
template <class T>
guarded<T> numbers(dim_t n, generator& r) {
  guarded<T> x(n);
  for (dim_t i = 0; i < n; ++i) {
    std::uint32_t bits = r.word();
    if (i % 3 == 0) bits = (bits & 0x8FFFFFFFu) | 0x30000000u;  // In the range of float16.
    if (i % 3 == 1) bits = (bits & 0x87FFFFFFu) | 0x40000000u;
    if (i % 5 == 0) bits = (bits & 0xFFFF0000u) | 0x8000u;  // Ties.
    if (i % 7 == 0) bits = (bits & 0xFFFFE000u) | 0x1000u;
    if (i % 50 == 3) bits |= 0x7F800000u;
    if (i % 50 == 4) bits = (bits & 0x80000000u) | 0x7F800000u;
    if (i % 50 == 6) bits &= 0x80000000u;
    float f;
    std::memcpy(&f, &bits, sizeof f);
    x[i] = static_cast<T>(f);
    if (sizeof(T) == 8 && i % 2 == 0) x[i] *= static_cast<T>(1.0 + 1e-9);
  }
  return x;
}

template <class T>
bool same(T a, double b) {
  return std::isnan(b) ? std::isnan(a)
                       : static_cast<double>(a) == b && std::signbit(a) == std::signbit(b);
}

}  // namespace

TEST_CASE_TEMPLATE("arrays are rounded as single numbers are, in place and not", T, float, double) {
  generator r(41);
  for_each_set([&] {
    for (number_format p : all)
      for (dim_t n : {0, 1, 7, 8, 17, 255, 256, 300, 2000}) {
        INFO("precision " << static_cast<int>(p) << " n " << n);
        guarded<T> x = numbers<T>(n, r);
        guarded<T> y(n);
        cpu::round_to(n, p, x.data(), y.data());
        const guarded<T> before = x;
        cpu::round_to(n, p, x.data(), x.data());
        bool right = true;
        for (dim_t i = 0; i < n; ++i) {
          const auto expected = rounded(p, static_cast<double>(before[i]));
          right = right && same(y[i], expected) && same(x[i], expected);
        }
        CHECK(right);
        CHECK(x.intact());
        CHECK(y.intact());
      }
  });
}

TEST_CASE_TEMPLATE("a sum is rounded before and after it is made", T, float, double) {
  generator r(42);
  for_each_set([&] {
    for (number_format p : all)
      for (number_format q : all)
        for (bool add : {false, true})
          for (dim_t n : {0, 1, 19, 513, 1100}) {
            INFO("precisions " << static_cast<int>(p) << " " << static_cast<int>(q) << " add "
                               << add << " n " << n);
            const guarded<T> x(n, r, 3.0);
            guarded<T> y(n, r, 2.0);
            const guarded<T> before = y;
            cpu::add_rounded(n, p, x.data(), q, add, y.data());
            bool right = true;
            for (dim_t i = 0; i < n; ++i) {
              const T one = static_cast<T>(rounded(p, static_cast<double>(x[i])));
              const T sum = add ? before[i] + one : one;
              right = right && same(y[i], rounded(q, static_cast<double>(sum)));
            }
            CHECK(right);
            CHECK(y.intact());
          }
  });
}

TEST_CASE_TEMPLATE("float16 is narrowed and widened", T, float, double) {
  generator r(43);
  for_each_set([&] {
    for (dim_t n : {0, 1, 8, 17, 255, 256, 300, 2000}) {
      INFO("n " << n);
      const guarded<T> x = numbers<T>(n, r);
      guarded<std::uint16_t> narrow(n);
      cpu::to_fp16(n, x.data(), narrow.data());
      guarded<T> wide(n);
      cpu::from_fp16(n, narrow.data(), wide.data());
      bool right = true;
      for (dim_t i = 0; i < n; ++i) {
        const ikebana::float16 expected(static_cast<float>(x[i]));
        right = right && narrow[i] == expected.bits &&
                same(wide[i], static_cast<double>(float(expected)));
      }
      CHECK(right);
      CHECK(narrow.intact());
      CHECK(wide.intact());
    }
    std::vector<std::uint16_t> every(0x10000);
    for (std::size_t b = 0; b < every.size(); ++b) every[b] = static_cast<std::uint16_t>(b);
    std::vector<T> wide(every.size());
    cpu::from_fp16(static_cast<dim_t>(every.size()), every.data(), wide.data());
    bool right = true;
    for (std::size_t b = 0; b < every.size(); ++b)
      right =
          right && same(wide[b], static_cast<double>(float(ikebana::float16::from_bits(every[b]))));
    CHECK(right);
  });
}

TEST_CASE_TEMPLATE("float and double are converted", T, float, double) {
  generator r(44);
  for_each_set([&] {
    for (dim_t n : {0, 1, 33, 300}) {
      const guarded<T> x(n, r, 5.0);
      guarded<float> f(n);
      guarded<double> d(n);
      guarded<T> back(n), again(n);
      cpu::to_float(n, x.data(), f.data());
      cpu::to_double(n, x.data(), d.data());
      cpu::from_float(n, f.data(), back.data());
      cpu::from_double(n, d.data(), again.data());
      bool right = true;
      for (dim_t i = 0; i < n; ++i)
        right = right && f[i] == static_cast<float>(x[i]) && d[i] == static_cast<double>(x[i]) &&
                back[i] == static_cast<T>(f[i]) && again[i] == x[i];
      CHECK(right);
      CHECK((f.intact() && d.intact() && back.intact() && again.intact()));
    }
  });
}

TEST_CASE_TEMPLATE("numbers are scaled, and one that is not finite is found anywhere", T, float,
                   double) {
  generator r(45);
  for_each_set([&] {
    for (dim_t n : {0, 1, 15, 16, 33, 300}) {
      guarded<T> x(n, r, 5.0);
      const guarded<T> before = x;
      CHECK(cpu::scale_finite(n, T(0.25), x.data()));
      bool right = true;
      for (dim_t i = 0; i < n; ++i) right = right && x[i] == before[i] * T(0.25);
      CHECK(right);
      CHECK(x.intact());
      for (const T bad : {std::numeric_limits<T>::infinity(), -std::numeric_limits<T>::infinity(),
                          std::numeric_limits<T>::quiet_NaN()})
        for (dim_t i = 0; i < n; i += 7) {
          guarded<T> y = before;
          y[i] = bad;
          right = right && !cpu::scale_finite(n, T(1), y.data());
        }
      CHECK(right);
      guarded<T> large(n, std::numeric_limits<T>::max());
      CHECK(cpu::scale_finite(n, T(2), large.data()));  // They were finite before.
    }
  });
}
