#include "ikebana/cpu/attention.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "ikebana/core/random.hpp"
#include "ikebana/cpu/attention/weights.hpp"
#include "support.hpp"

using namespace cpu_test;
namespace cpu = ikebana::cpu;

namespace {

/// n bools at an unaligned address.
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

/// Attention of every head by plain loops; operands are (batch, rows, heads * width) without gaps.
struct plain_attention {
  cpu::attention_sizes n;
  std::vector<double> out, dq, dk, dv, dadded;

  template <class T>
  plain_attention(const cpu::attention_sizes& sizes, const guarded<T>& q, const guarded<T>& k,
                  const guarded<T>& v, const cpu::attention_masks<T>& m,
                  const cpu::attention_dropout& dropped, const guarded<T>& dout)
      : n{sizes},
        out(count(n.queries)),
        dq(count(n.queries)),
        dk(count(n.keys)),
        dv(count(n.keys)),
        dadded(at(n.queries * n.keys * (m.for_each_head ? n.batch * n.heads : 1))) {
    const double scale = 1 / std::sqrt(static_cast<double>(n.width));
    for (dim_t b = 0; b < n.batch; ++b)
      for (dim_t h = 0; h < n.heads; ++h)
        for (dim_t i = 0; i < n.queries; ++i) {
          const dim_t row = (b * n.heads + h) * n.queries + i;
          const dim_t mask_at = (m.for_each_head ? row : i) * n.keys;
          std::vector<double> w(at(n.keys)), kept(at(n.keys)), d(at(n.keys));
          double total = 0, mean = 0;
          for (dim_t j = 0; j < n.keys; ++j) {
            if ((m.ignored != nullptr && m.ignored[mask_at + j]) || (m.causal && j > i) ||
                (m.ignored_keys != nullptr && m.ignored_keys[b * n.keys + j]))
              continue;
            double score = m.added == nullptr ? 0 : static_cast<double>(m.added[mask_at + j]);
            for (dim_t c = 0; c < n.width; ++c)
              score += scale * of(q, n.queries, b, h, i, c) * of(k, n.keys, b, h, j, c);
            total += w[at(j)] = std::exp(score);
          }
          for (dim_t j = 0; j < n.keys; ++j) {
            const auto element = static_cast<std::uint64_t>(row * n.keys + j);
            const auto word = dropped.stream.words(static_cast<std::uint32_t>(element / 4));
            kept[at(j)] = dropped.p == 0                           ? 1
                          : word[element % 4] < dropped.p * 0x1p32 ? 0
                                                                   : 1 / (1 - dropped.p);
            if (total > 0) w[at(j)] /= total;
            for (dim_t c = 0; c < n.width; ++c) {
              out[place(n.queries, b, h, i, c)] +=
                  w[at(j)] * kept[at(j)] * of(v, n.keys, b, h, j, c);
              d[at(j)] += kept[at(j)] * of(dout, n.queries, b, h, i, c) * of(v, n.keys, b, h, j, c);
              dv[place(n.keys, b, h, j, c)] +=
                  w[at(j)] * kept[at(j)] * of(dout, n.queries, b, h, i, c);
            }
            mean += w[at(j)] * d[at(j)];
          }
          for (dim_t j = 0; j < n.keys; ++j) {
            const double slope = w[at(j)] * (d[at(j)] - mean);
            dadded[at(mask_at + j)] += slope;
            for (dim_t c = 0; c < n.width; ++c) {
              dq[place(n.queries, b, h, i, c)] += scale * slope * of(k, n.keys, b, h, j, c);
              dk[place(n.keys, b, h, j, c)] += scale * slope * of(q, n.queries, b, h, i, c);
            }
          }
        }
  }

  static std::size_t at(dim_t i) { return static_cast<std::size_t>(i); }
  std::size_t count(dim_t rows) const { return at(n.batch * rows * n.heads * n.width); }
  std::size_t place(dim_t rows, dim_t b, dim_t h, dim_t i, dim_t c) const {
    return at(((b * rows + i) * n.heads + h) * n.width + c);
  }
  template <class T>
  double of(const guarded<T>& x, dim_t rows, dim_t b, dim_t h, dim_t i, dim_t c) const {
    return static_cast<double>(x[static_cast<dim_t>(place(rows, b, h, i, c))]);
  }
};

/// The same by the kernels.
template <class T>
struct fused_attention {
  cpu::attention_sizes n;
  guarded<T> out, normalizers, dq, dk, dv, scratch;

  fused_attention(const cpu::attention_sizes& sizes, const guarded<T>& q, const guarded<T>& k,
                  const guarded<T>& v, const cpu::attention_masks<T>& m,
                  const cpu::attention_dropout& dropped, const guarded<T>& dout, T* dadded)
      : n{sizes},
        out(q.size(), T(8)),
        normalizers(n.batch * n.heads * 2 * n.queries),
        dq{dout},
        dk(k.size(), T(8)),
        dv(k.size(), T(8)),
        scratch(cpu::attention_scratch(n), std::numeric_limits<T>::quiet_NaN()) {
    const auto qo = operand(q.data(), n.queries), ko = operand(k.data(), n.keys),
               vo = operand(v.data(), n.keys);
    cpu::attention_forward<T>(n, qo, ko, vo, m, dropped, operand(out.data(), n.queries),
                              normalizers.data(), scratch.data());
    cpu::attention_backward<T>(n, qo, ko, vo, m, dropped, operand(out.data(), n.queries),
                               normalizers.data(), operand(dq.data(), n.queries),
                               operand(dk.data(), n.keys), operand(dv.data(), n.keys), dadded,
                               scratch.data());
    for (const auto* x : {&out, &normalizers, &dq, &dk, &dv, &scratch}) CHECK(x->intact());
  }
  template <class U>
  cpu::attention_operand<U> operand(U* data, dim_t rows) const {
    return {data, n.heads * n.width, rows * n.heads * n.width};
  }
};

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

TEST_CASE_TEMPLATE("attention that hands out its weights is softmax(q k^T / sqrt(width)) v", T,
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
        cpu::attention_weights_forward<T>(n, qo, ko, vo, masks, {}, weights.data(), oo, mean.data(),
                                          true, static_cast<T*>(nullptr));
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
        // Nothing was written between the rows.
        for (dim_t row = 0; row < n.batch * n.queries; ++row)
          for (dim_t d = embed; d < ld; ++d) CHECK(out[row * ld + d] == T(9));
      }
  });
}

TEST_CASE_TEMPLATE("fused attention: every mask, odd sizes, sizes of one and of many blocks", T,
                   float, double) {
  generator r(83);
  // batch, heads, queries, keys, width
  const cpu::attention_sizes all[] = {{2, 3, 5, 7, 4},    {1, 1, 1, 1, 1},   {2, 1, 0, 3, 2},
                                      {1, 2, 3, 0, 2},    {0, 2, 3, 4, 2},   {1, 2, 33, 65, 7},
                                      {2, 1, 17, 64, 16}, {1, 1, 70, 40, 9}, {1, 1, 131, 67, 34}};
  for (const auto& n : all)
    for (int which = 0; which<16; which += n.queries> 32 ? 5 : 1) {
      INFO("queries " << n.queries << " keys " << n.keys << " masks " << which);
      const dim_t area = n.queries * n.keys, e = n.heads * n.width;
      const bool each = which == 3 || which == 9;
      const dim_t masked = each ? n.batch * n.heads * area : area;
      const guarded<T> q(n.batch * n.queries * e, r, 2), k(n.batch * n.keys * e, r, 2),
          v(n.batch * n.keys * e, r, 2), dout(n.batch * n.queries * e, r, 2), added(masked, r, 2);
      const flags ignored(masked, r, 3), padding(n.batch * n.keys, r, 4);
      cpu::attention_masks<T> m;
      m.for_each_head = each;
      if ((which & 1) != 0) m.added = added.data();
      if ((which & 2) != 0) m.ignored = ignored.data();
      if ((which & 4) != 0) m.ignored_keys = padding.data();
      m.causal = (which & 8) != 0;
      cpu::attention_dropout dropped;
      if (which % 3 == 1) dropped = {0.4, ikebana::random_stream(ikebana::seed{7}, 11, 2)};
      const plain_attention expected(n, q, k, v, m, dropped, dout);
      for_each_set([&] {
        guarded<T> dadded(masked, T(5));
        const fused_attention<T> got(n, q, k, v, m, dropped, dout, dadded.data());
        CHECK(all_close(got.out, expected.out, rounding<T> * 64));
        CHECK(all_close(got.dq, expected.dq, rounding<T> * 512));
        CHECK(all_close(got.dk, expected.dk, rounding<T> * 512));
        CHECK(all_close(got.dv, expected.dv, rounding<T> * 512));
        CHECK(all_close(dadded, expected.dadded, rounding<T> * 512));
        const fused_attention<T> alone(n, q, k, v, m, dropped, dout, nullptr);
        CHECK(all_close(alone.dk, expected.dk, rounding<T> * 512));
      });
    }
}

TEST_CASE_TEMPLATE("a query's attention does not depend on the others", T, float, double) {
  generator r(84);
  const dim_t keys = 70, width = 5;
  const guarded<T> q(40 * width, r, 2), k(keys * width, r, 2), v(keys * width, r, 2),
      d(40 * width, r);
  for_each_set([&] {
    const fused_attention<T> all({1, 1, 40, keys, width}, q, k, v, {}, {}, d, nullptr);
    for (dim_t i : {0, 17, 39}) {
      guarded<T> one(width), done(width);
      for (dim_t c = 0; c < width; ++c) one[c] = q[i * width + c];
      const fused_attention<T> alone({1, 1, 1, keys, width}, one, k, v, {}, {}, done, nullptr);
      for (dim_t c = 0; c < width; ++c) CHECK(alone.out[c] == all.out[i * width + c]);
    }
  });
}

TEST_CASE("the gradients of a softmax that is saturated are in float what they are in double") {
  // Scores of 3e3 and 5e6, and inputs with an offset of 1e4, on which the gradients hardly depend.
  struct {
    double factor, offset;
  } const cases[] = {{55, 0}, {2236, 0}, {1, 1e4}};
  const auto widened = [](const guarded<float>& x) {
    guarded<double> y(x.size());
    for (dim_t i = 0; i < x.size(); ++i) y[i] = static_cast<double>(x[i]);
    return y;
  };
  for (const auto& of : cases)
    for (const int which : {0, 1, 2, 3}) {
      const dim_t keys = which % 2 == 0 ? 19 : 150;
      const double p = which < 2 ? 0 : 0.3;
      INFO("factor " << of.factor << " offset " << of.offset << " keys " << keys << " p " << p);
      const cpu::attention_dropout dropped{p, ikebana::random_stream(ikebana::seed{3}, 5, 1)};
      generator r(85);
      const cpu::attention_sizes n{1, 2, 37, keys, 16};
      const dim_t e = n.heads * n.width;
      guarded<float> q(n.queries * e, r, 2), k(keys * e, r, 2), v(keys * e, r, 2);
      const guarded<float> d(n.queries * e, r);
      for (auto* x : {&q, &k, &v})
        for (dim_t i = 0; i < x->size(); ++i)
          (*x)[i] = static_cast<float>(static_cast<double>((*x)[i]) * (x == &v ? 1 : of.factor) +
                                       of.offset);
      for_each_set([&] {
        const fused_attention<double> exact(n, widened(q), widened(k), widened(v), {}, dropped,
                                            widened(d), nullptr);
        const fused_attention<float> got(n, q, k, v, {}, dropped, d, nullptr);
        const auto check = [](const guarded<float>& a, const guarded<double>& b) {
          double most = 0, apart = 0;
          for (dim_t i = 0; i < a.size(); ++i) {
            most = std::max(most, std::abs(b[i]));
            const double x = std::abs(static_cast<double>(a[i]) - b[i]);
            apart = x <= apart ? apart : x;
          }
          // PyTorch's accuracy. Backward by dO.O and the log-sum-exp has errors of 1e-3 to 1e3.
          CHECK(apart <= 1e-3 * most + 2e-5);
        };
        check(got.dq, exact.dq);
        check(got.dk, exact.dk);
        check(got.dv, exact.dv);
      });
    }
}

TEST_CASE_TEMPLATE("fused attention of infinities and of what is not a number", T, float, double) {
  const T inf = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
  for_each_set([&] {
    guarded<T> q(3, T(1)), k(3, T(0)), v(3), d(3, T(1)), added(9);
    for (dim_t i = 0; i < 3; ++i) v[i] = static_cast<T>(i + 1);
    // Every score -infinity; one NaN; one ignored.
    const T rows[] = {-inf, -inf, -inf, -inf, nan, -inf, T(0), -inf, T(0)};
    for (dim_t i = 0; i < 9; ++i) added[i] = rows[i];
    cpu::attention_masks<T> m;
    m.added = added.data();
    const fused_attention<T> got({1, 1, 3, 3, 1}, q, k, v, m, {}, d, nullptr);
    CHECK(got.out[0] == T(0));
    CHECK(std::isnan(got.out[1]));
    CHECK(got.out[2] == T(2));
    CHECK(got.normalizers[0] == inf);
    CHECK(got.normalizers[3] == T(0));
    CHECK(got.dq[0] == T(0));
    CHECK(std::isnan(got.dq[1]));
    CHECK_FALSE(std::isnan(got.dq[2]));
    // Weights far below the largest are 0, not slow subnormals.
    for (dim_t i = 0; i < 9; ++i) added[i] = static_cast<T>(i % 3) * T(-400);
    const fused_attention<T> steep({1, 1, 3, 3, 1}, q, k, v, m, {}, d, nullptr);
    for (dim_t i = 0; i < 3; ++i) CHECK(steep.out[i] == doctest::Approx(1));
    // An ignored key may contain anything.
    bool ignored[3] = {false, true, false};
    cpu::attention_masks<T> keys;
    keys.ignored_keys = ignored;
    k[1] = nan;
    const fused_attention<T> masked({1, 1, 3, 3, 1}, q, k, v, keys, {}, d, nullptr);
    for (dim_t i = 0; i < 3; ++i) CHECK(masked.out[i] == T(2));
  });
}

TEST_CASE("fused attention wants no more scratch for longer sequences") {
  CHECK(cpu::attention_scratch({1, 1, 128, 128, 64}) ==
        cpu::attention_scratch({9, 9, 5000, 7000, 64}));
  CHECK(cpu::attention_scratch({1, 1, 5, 5, 4}) < cpu::attention_scratch({1, 1, 128, 5, 4}));
}
