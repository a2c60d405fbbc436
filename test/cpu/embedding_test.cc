#include "ikebana/cpu/embedding.hpp"

#include "support.hpp"

using namespace cpu_test;
namespace cpu = ikebana::cpu;

TEST_CASE_TEMPLATE("rows come from a table by index, and gradients go back to it", T, float,
                   double) {
  generator r(91);
  for (dim_t width : {0, 1, 5, 8, 16, 37})
    for (dim_t n : {0, 1, 23})
      for (dim_t skipped : {-1, 2})
        for (bool by_frequency : {false, true})
          for (bool accumulate : {false, true}) {
            constexpr dim_t rows = 6;
            const guarded<T> table(rows * width, r), dy(n * width, r), before(rows * width, r);
            std::vector<std::int64_t> index;
            std::vector<double> frequency(rows), gathered, gradient;
            for (dim_t i = 0; i < n; ++i) index.push_back(r.below(rows));
            for (std::int64_t i : index) ++frequency[static_cast<std::size_t>(i)];
            for (dim_t i = 0; i < rows * width; ++i)
              gradient.push_back(accumulate ? static_cast<double>(before[i]) : 0);
            for (dim_t i = 0; i < n; ++i) {
              const std::int64_t row = index[static_cast<std::size_t>(i)];
              for (dim_t j = 0; j < width; ++j) {
                gathered.push_back(static_cast<double>(table[row * width + j]));
                if (row != skipped)
                  gradient[static_cast<std::size_t>(row * width + j)] +=
                      static_cast<double>(dy[i * width + j]) /
                      (by_frequency ? frequency[static_cast<std::size_t>(row)] : 1);
              }
            }
            for_each_set([&] {
              guarded<T> y(n * width), dw(before);
              guarded<std::int32_t> counts(rows, -5);
              cpu::gather_rows<T>(n, width, index.data(), table.data(), y.data());
              cpu::scatter_rows<T>(n, width, index.data(), dy.data(), rows, skipped,
                                   by_frequency ? counts.data() : nullptr, dw.data(), accumulate);
              CHECK(all_close(y, gathered, 0));
              CHECK(all_close(dw, gradient, rounding<T> * 16));
              CHECK(y.intact());
              CHECK(dw.intact());
              CHECK(counts.intact());
            });
          }
}
