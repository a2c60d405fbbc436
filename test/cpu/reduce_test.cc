#include "ikebana/cpu/reduce.hpp"

#include "support.hpp"

using namespace cpu_test;
namespace cpu = ikebana::cpu;

TEST_CASE_TEMPLATE("sums, dot products and norms, with every tail", T, float, double) {
  generator r(21);
  for_each_set([&] {
    for (dim_t n : {0, 1, 2, 7, 15, 16, 17, 63, 64, 65, 127, 1000}) {
      INFO("n " << n);
      const guarded<T> x(n, r), y(n, r, 1, 3);
      double sum = 0, dot = 0, squares = 0, apart = 0;
      for (dim_t i = 0; i < n; ++i) {
        const auto a = static_cast<double>(x[i]), b = static_cast<double>(y[i]);
        sum += a;
        dot += a * b;
        squares += a * a;
        apart += (a - b) * (a - b);
      }
      const double tolerance = rounding<T> * 30;
      CHECK(close(static_cast<double>(cpu::sum(n, x.data())), sum, tolerance));
      CHECK(close(static_cast<double>(cpu::dot(n, x.data(), y.data())), dot, tolerance));
      CHECK(close(static_cast<double>(cpu::squared_norm(n, x.data())), squares, tolerance));
      CHECK(close(
          static_cast<double>(cpu::mse(n, x.data(), y.data(), static_cast<T*>(nullptr), T(1))),
          apart, tolerance));

      guarded<T> dx(n);
      CHECK(close(static_cast<double>(cpu::mse(n, x.data(), y.data(), dx.data(), T(0.5))), apart,
                  tolerance));
      std::vector<double> expected;
      for (dim_t i = 0; i < n; ++i)
        expected.push_back((static_cast<double>(x[i]) - static_cast<double>(y[i])) / 2);
      CHECK(all_close(dx, expected, rounding<T>));
      CHECK(dx.intact());
    }
  });
}

TEST_CASE_TEMPLATE("column sums overwrite or accumulate", T, float, double) {
  generator r(22);
  for_each_set([&] {
    // Many rows without a gap are joined first.
    for (dim_t m : {0, 1, 2, 5, 32, 521})
      for (dim_t n : {0, 1, 8, 10, 17, 40})
        for (bool accumulate : {false, true}) {
          const dim_t ld = m > 32 ? n : n + 3;
          INFO("m " << m << " n " << n << " accumulate " << accumulate);
          const guarded<T> x(m * ld, r);
          guarded<T> out(n, T(2));
          std::vector<double> expected(static_cast<std::size_t>(n), accumulate ? 2 : 0);
          for (dim_t i = 0; i < m; ++i)
            for (dim_t j = 0; j < n; ++j)
              expected[static_cast<std::size_t>(j)] += static_cast<double>(x[i * ld + j]);
          cpu::column_sums(m, n, x.data(), ld, out.data(), accumulate);
          CHECK(all_close(out, expected, rounding<T> * (m > 32 ? 200 : 10)));
          CHECK(out.intact());
        }
  });
}

TEST_CASE_TEMPLATE("sums have the same bits at every alignment", T, float, double) {
  for_each_set([] {
    // The last one has three blocks.
    for (dim_t n : {777, 2048, 2051, 2111, 9000}) {
      INFO("n " << n);
      struct sums {
        T sum, dot, apart, last;
        bool operator==(const sums&) const = default;
      } first{};
      for (dim_t shift = 0; shift < 17; ++shift) {
        INFO("shift " << shift);
        generator r(23);
        const guarded<T> x(n, r, 1, shift), y(n, r, 1, shift % 3);
        guarded<T> dx(n, T(0), shift % 5);
        const T apart = cpu::mse(n, x.data(), y.data(), dx.data(), T(0.5));
        const sums all{cpu::sum(n, x.data()), cpu::dot(n, x.data(), y.data()), apart, dx[n - 1]};
        if (shift == 0) first = all;
        CHECK(all == first);
        CHECK(dx.intact());
        bool is_difference = true;
        for (dim_t i = 0; i < n; ++i) is_difference &= dx[i] == (x[i] - y[i]) * T(0.5);
        CHECK(is_difference);
      }
    }
  });
}
