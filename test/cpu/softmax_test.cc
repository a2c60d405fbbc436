#include "ikebana/cpu/softmax.hpp"

#include <algorithm>
#include <limits>

#include "support.hpp"

using namespace cpu_test;
namespace cpu = ikebana::cpu;

TEST_CASE_TEMPLATE("softmax and its logarithm, forward and backward, along any dimension", T, float,
                   double) {
  generator r(61);
  struct sizes {
    dim_t outer, n, inner;
  };
  for_each_set([&] {
    for (const sizes s :
         {sizes{3, 1, 1}, sizes{5, 10, 1}, sizes{37, 10, 1}, sizes{2, 16, 1}, sizes{18, 21, 1},
          sizes{3, 33, 1}, sizes{1, 100, 1}, sizes{6, 83, 1}, sizes{2, 5, 3}, sizes{2, 4, 17},
          sizes{1, 2, 15}, sizes{1, 3, 40}, sizes{0, 3, 1}, sizes{2, 0, 1}, sizes{2, 3, 0},
          sizes{3, 1030, 1}, sizes{7, 301, 1}}) {
      INFO("outer " << s.outer << " n " << s.n << " inner " << s.inner);
      const dim_t size = s.outer * s.n * s.inner;
      const guarded<T> x(size, r, 30), dy(size, r);
      std::vector<double> ey(static_cast<std::size_t>(size)), el = ey, edx = ey, edl = ey;
      for (dim_t o = 0; o < s.outer; ++o)
        for (dim_t j = 0; j < s.inner; ++j) {
          const auto at = [&](dim_t i) { return (o * s.n + i) * s.inner + j; };
          double most = -1e30, total = 0, weighted = 0, dtotal = 0;
          for (dim_t i = 0; i < s.n; ++i) most = std::max(most, static_cast<double>(x[at(i)]));
          for (dim_t i = 0; i < s.n; ++i) total += std::exp(static_cast<double>(x[at(i)]) - most);
          for (dim_t i = 0; i < s.n; ++i) {
            const auto k = static_cast<std::size_t>(at(i));
            el[k] = static_cast<double>(x[at(i)]) - most - std::log(total);
            ey[k] = std::exp(el[k]);
            weighted += ey[k] * static_cast<double>(dy[at(i)]);
            dtotal += static_cast<double>(dy[at(i)]);
          }
          for (dim_t i = 0; i < s.n; ++i) {
            const auto k = static_cast<std::size_t>(at(i));
            edx[k] = ey[k] * (static_cast<double>(dy[at(i)]) - weighted);
            edl[k] = static_cast<double>(dy[at(i)]) - ey[k] * dtotal;
          }
        }
      guarded<T> y(size), l(size), dx(size), dl(size);
      cpu::softmax_forward(s.outer, s.n, s.inner, x.data(), y.data());
      cpu::log_softmax_forward(s.outer, s.n, s.inner, x.data(), l.data());
      cpu::softmax_backward(s.outer, s.n, s.inner, y.data(), dy.data(), dx.data());
      cpu::log_softmax_backward(s.outer, s.n, s.inner, l.data(), dy.data(), dl.data());
      const double tolerance = rounding<T> * 64;
      CHECK(all_close(y, ey, tolerance));
      CHECK(all_close(l, el, tolerance));
      CHECK(all_close(dx, edx, tolerance));
      CHECK(all_close(dl, edl, tolerance * 4));
      for (const auto* g : {&y, &l, &dx, &dl}) CHECK(g->intact());

      guarded<T> in_place = x;
      cpu::softmax_forward(s.outer, s.n, s.inner, in_place.data(), in_place.data());
      CHECK(all_close(in_place, ey, tolerance));
      guarded<T> log_in_place = x;
      cpu::log_softmax_forward(s.outer, s.n, s.inner, log_in_place.data(), log_in_place.data());
      CHECK(all_close(log_in_place, el, tolerance));

      // A row is the same to the bit alone as among others, whatever threads share them.
      guarded<T> alone(size), log_alone(size);
      for (dim_t o = 0, at = 0; o < s.outer; ++o, at += s.n * s.inner) {
        cpu::softmax_forward(1, s.n, s.inner, x.data() + at, alone.data() + at);
        cpu::log_softmax_forward(1, s.n, s.inner, x.data() + at, log_alone.data() + at);
      }
      CHECK(std::equal(alone.data(), alone.data() + size, y.data()));
      CHECK(std::equal(log_alone.data(), log_alone.data() + size, l.data()));
    }
  });
}

TEST_CASE_TEMPLATE("softmax of huge and of masked values", T, float, double) {
  for_each_set([] {
    const T inf = std::numeric_limits<T>::infinity(), huge = std::numeric_limits<T>::max() / 4;
    std::vector<T> x{huge, T(0), -inf, huge}, y(4);
    cpu::softmax_forward<T>(1, 4, 1, x.data(), y.data());
    CHECK(y[0] == T(0.5));
    CHECK(y[1] == T(0));
    CHECK(y[2] == T(0));
    CHECK(y[3] == T(0.5));
    // Around the least normal number of float.
    for (T power = T(-90); power < T(-86); power += T(0.03125)) {
      x = {power, T(0)};
      cpu::softmax_forward<T>(1, 2, 1, x.data(), y.data());
      const double exact = std::exp(static_cast<double>(power));
      CHECK(std::abs(static_cast<double>(y[0]) - exact) <= 0x1p-126 + exact * rounding<T> * 16);
    }
    x[1] = std::numeric_limits<T>::quiet_NaN();
    cpu::softmax_forward<T>(1, 4, 1, x.data(), y.data());
    for (T v : y) CHECK(std::isnan(v));
  });
}

TEST_CASE_TEMPLATE("cross entropy: loss, gradient, smoothing and ignored rows", T, float, double) {
  generator r(62);
  for_each_set([&] {
    for (dim_t rows : {0, 1, 5})
      for (dim_t classes : {1, 2, 10, 16, 37})
        for (double smoothing : {0.0, 0.1}) {
          INFO("rows " << rows << " classes " << classes << " smoothing " << smoothing);
          const guarded<T> x(rows * classes, r, 5);
          std::vector<std::int64_t> target;
          for (dim_t i = 0; i < rows; ++i) target.push_back(i == 2 ? -100 : r.below(classes));
          double loss = 0;
          std::vector<double> expected(static_cast<std::size_t>(rows * classes));
          for (dim_t i = 0; i < rows; ++i) {
            const std::int64_t t = target[static_cast<std::size_t>(i)];
            if (t < 0) continue;
            double most = -1e30, total = 0;
            for (dim_t c = 0; c < classes; ++c)
              most = std::max(most, static_cast<double>(x[i * classes + c]));
            for (dim_t c = 0; c < classes; ++c)
              total += std::exp(static_cast<double>(x[i * classes + c]) - most);
            for (dim_t c = 0; c < classes; ++c) {
              const double lp = static_cast<double>(x[i * classes + c]) - most - std::log(total);
              const double weight =
                  (c == t ? 1 - smoothing : 0) + smoothing / static_cast<double>(classes);
              loss -= weight * lp;
              expected[static_cast<std::size_t>(i * classes + c)] = 0.25 * (std::exp(lp) - weight);
            }
          }
          T sum = 1;
          std::int64_t counted = -1;
          guarded<T> d(rows * classes, T(9));
          cpu::cross_entropy(rows, classes, x.data(), target.data(), T(smoothing),
                             std::int64_t{-100}, &sum, &counted, d.data(), T(0.25));
          CHECK(close(static_cast<double>(sum), loss, rounding<T> * 32));
          CHECK(counted == (rows > 2 ? rows - 1 : rows));
          CHECK(counted == cpu::count_targets(rows, target.data(), -100));
          CHECK(all_close(d, expected, rounding<T> * 8));
          CHECK(d.intact());

          T alone = 1;
          cpu::cross_entropy(rows, classes, x.data(), target.data(), T(smoothing),
                             std::int64_t{-100}, &alone, &counted, static_cast<T*>(nullptr), T(1));
          CHECK(alone == sum);
          guarded<T> in_place = x;
          cpu::cross_entropy(rows, classes, in_place.data(), target.data(), T(smoothing),
                             std::int64_t{-100}, &sum, &counted, in_place.data(), T(0.25));
          CHECK(all_close(in_place, expected, rounding<T> * 8));
        }
  });
}
