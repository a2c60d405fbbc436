#include "ikebana/cpu/attention.hpp"

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "support.hpp"

using namespace cpu_test;
namespace cpu = ikebana::cpu;

namespace {

/// n bools at an address that is a multiple of nothing.
class flags {
 public:
  flags(dim_t n, generator& r, dim_t of) : data_{new bool[static_cast<std::size_t>(n + 1)]} {
    for (dim_t i = 0; i < n; ++i) data()[i] = r.below(of) == 0;
  }
  bool* data() { return data_.get() + 1; }
  const bool* data() const { return data_.get() + 1; }
  bool operator[](dim_t i) const { return data()[i]; }

 private:
  std::unique_ptr<bool[]> data_;
};

template <class T>
std::vector<double> expected_softmax(dim_t rows, dim_t n, const guarded<T>& x, const T* added,
                                     const bool* ignored, const bool* ignored_keys, bool causal) {
  std::vector<double> y(static_cast<std::size_t>(rows * n));
  for (dim_t r = 0; r < rows; ++r) {
    const auto is_ignored = [&](dim_t i) {
      return (ignored != nullptr && ignored[r * n + i]) ||
             (ignored_keys != nullptr && ignored_keys[i]) || (causal && i > r);
    };
    const auto score = [&](dim_t i) {
      return static_cast<double>(added == nullptr ? x[r * n + i] : x[r * n + i] + added[r * n + i]);
    };
    double most = -1e30, total = 0;
    for (dim_t i = 0; i < n; ++i)
      if (!is_ignored(i)) most = std::max(most, score(i));
    for (dim_t i = 0; i < n; ++i)
      if (!is_ignored(i)) total += std::exp(score(i) - most);
    for (dim_t i = 0; i < n; ++i)
      if (!is_ignored(i))
        y[static_cast<std::size_t>(r * n + i)] = std::exp(score(i) - most) / total;
  }
  return y;
}

}  // namespace

TEST_CASE_TEMPLATE("masked softmax: every mask, odd tails, rows that ignore every key", T, float,
                   double) {
  generator r(81);
  for_each_set([&] {
    for (dim_t rows : {0, 1, 3, 7})
      for (dim_t n : {1, 2, 5, 8, 16, 17, 37})
        for (int which = 0; which < 16; ++which) {
          INFO("rows " << rows << " columns " << n << " masks " << which);
          const guarded<T> x(rows * n, r, 4), added(rows * n, r, 2);
          const flags ignored(rows * n, r, 3), ignored_keys(n, r, 3);
          const T* a = (which & 1) != 0 ? added.data() : nullptr;
          const bool* i = (which & 2) != 0 ? ignored.data() : nullptr;
          const bool* k = (which & 4) != 0 ? ignored_keys.data() : nullptr;
          const bool causal = (which & 8) != 0;
          const auto expected = expected_softmax(rows, n, x, a, i, k, causal);
          guarded<T> y = x;
          cpu::masked_softmax(rows, n, y.data(), a, i, k, causal);
          CHECK(all_close(y, expected, rounding<T> * 64));
          CHECK(y.intact());
        }
  });
}

TEST_CASE_TEMPLATE("masked softmax of infinities and of what is not a number", T, float, double) {
  for_each_set([] {
    const T inf = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
    std::vector<T> x{-inf, -inf, -inf}, y{-inf, nan, -inf}, z{T(0), -inf, T(0)};
    cpu::masked_softmax<T>(1, 3, x.data(), nullptr, nullptr, nullptr, false);
    CHECK(x == std::vector<T>{0, 0, 0});
    cpu::masked_softmax<T>(1, 3, y.data(), nullptr, nullptr, nullptr, false);
    for (T v : y) CHECK(std::isnan(v));
    cpu::masked_softmax<T>(1, 3, z.data(), nullptr, nullptr, nullptr, false);
    CHECK(z == std::vector<T>{T(0.5), T(0), T(0.5)});
  });
}

TEST_CASE_TEMPLATE("attention is softmax(q k^T / sqrt(width)) v, wherever its operands lie", T,
                   float, double) {
  generator r(82);
  for_each_set([&] {
    for (bool batch_first : {false, true})
      for (dim_t keys : {0, 1, 6, 19}) {
        const cpu::attention_sizes n{2, 3, 5, keys, 4};
        INFO("keys " << keys << " batch first " << batch_first);
        const dim_t embed = n.heads * n.width, ld = embed + 3;
        const guarded<T> q(n.batch * n.queries * ld, r, 2), k(n.batch * keys * ld, r, 2),
            v(n.batch * keys * ld, r, 2);
        const flags padding(n.batch * keys, r, 4);
        guarded<T> weights(n.batch * n.heads * n.queries * keys), mean(n.batch * n.queries * keys),
            out(n.batch * n.queries * ld, T(9));
        const auto operand = [&](auto* data, dim_t length) {
          return cpu::attention_operand<std::remove_pointer_t<decltype(data)>>{
              data, batch_first ? ld : n.batch * ld, batch_first ? length * ld : ld};
        };
        cpu::attention_masks<T> masks;
        masks.ignored_keys = padding.data();
        const auto ko = operand(k.data(), keys), vo = operand(v.data(), keys),
                   qo = operand(q.data(), n.queries);
        const auto oo = operand(out.data(), n.queries);
        cpu::attention_forward<T>(n, qo, ko, vo, masks, {}, weights.data(), oo, mean.data(),
                                  static_cast<T*>(nullptr));
        CHECK(weights.intact());
        CHECK(mean.intact());
        CHECK(out.intact());
        double worst = 0;
        std::vector<double> expected_mean(static_cast<std::size_t>(mean.size()));
        for (dim_t b = 0; b < n.batch; ++b)
          for (dim_t h = 0; h < n.heads; ++h)
            for (dim_t i = 0; i < n.queries; ++i) {
              std::vector<double> w(static_cast<std::size_t>(keys));
              double total = 0;
              for (dim_t j = 0; j < keys; ++j) {
                double score = 0;
                for (dim_t d = 0; d < n.width; ++d)
                  score +=
                      static_cast<double>(qo.data[b * qo.batch + i * qo.row + h * n.width + d]) *
                      static_cast<double>(ko.data[b * ko.batch + j * ko.row + h * n.width + d]);
                w[static_cast<std::size_t>(j)] =
                    padding[b * keys + j] ? 0 : std::exp(score / std::sqrt(4.0));
                total += w[static_cast<std::size_t>(j)];
              }
              for (dim_t d = 0; d < n.width; ++d) {
                double sum = 0;
                for (dim_t j = 0; j < keys; ++j)
                  if (total > 0)
                    sum +=
                        w[static_cast<std::size_t>(j)] / total *
                        static_cast<double>(vo.data[b * vo.batch + j * vo.row + h * n.width + d]);
                worst = std::max(
                    worst,
                    std::abs(sum - static_cast<double>(
                                       oo.data[b * oo.batch + i * oo.row + h * n.width + d])));
              }
              for (dim_t j = 0; j < keys; ++j)
                if (total > 0)
                  expected_mean[static_cast<std::size_t>((b * n.queries + i) * keys + j)] +=
                      w[static_cast<std::size_t>(j)] / total / 3;
            }
        CHECK(worst < rounding<T> * 256);
        CHECK(all_close(mean, expected_mean, rounding<T> * 256));
        // Between the rows nothing was written.
        for (dim_t row = 0; row < n.batch * n.queries; ++row)
          for (dim_t d = embed; d < ld; ++d) CHECK(out[row * ld + d] == T(9));
      }
  });
}
