#include "ikebana/cpu/recurrent.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include "support.hpp"

using namespace cpu_test;
namespace cpu = ikebana::cpu;

namespace {

double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }

/// Rows of `width` elements with a gap between them, which nothing may write.
template <class T>
struct matrix {
  dim_t width, step;
  guarded<T> all;
  matrix(dim_t m, dim_t width_, generator& r) : width{width_}, step{width_ + 3}, all(m * step, r) {
    for (dim_t i = 0; i < m * step; ++i)
      if (i % step >= width) all[i] = T(55);
  }
  cpu::rows_of<T> rows() { return {all.data(), step}; }
  cpu::rows_of<const T> rows() const { return {all.data(), step}; }
  double at(dim_t b, dim_t i) const { return static_cast<double>(all[b * step + i]); }
  bool gaps_intact() const {
    for (dim_t i = 0; i < all.size(); ++i)
      if (i % step >= width && all[i] != T(55)) return false;
    return all.intact();
  }
};

constexpr dim_t widths[] = {1, 3, 7, 8, 16, 17, 33};
constexpr dim_t sequences = 3;

/// Calls f(n, b, i) for every width and element.
template <class F>
void each_element(dim_t n, F f) {
  for (dim_t b = 0; b < sequences; ++b)
    for (dim_t i = 0; i < n; ++i) f(b, i);
}

}  // namespace

TEST_CASE_TEMPLATE("the gates of a simple recurrent step", T, float, double) {
  generator r(61);
  for_each_set([&] {
    for (dim_t n : widths)
      for (bool rectified : {false, true}) {
        const matrix<T> sums(sequences, n, r), dy(sequences, n, r), dh(sequences, n, r);
        matrix<T> gates = sums, h(sequences, n, r), d(sequences, n, r);
        cpu::rnn_gates<T>(sequences, n, rectified, gates.rows(), h.rows());
        const matrix<T>& kept = gates;
        cpu::rnn_gates_backward<T>(sequences, n, rectified, kept.rows(), dh.rows(), dy.rows(),
                                   d.rows());
        each_element(n, [&](dim_t b, dim_t i) {
          const double x = sums.at(b, i), y = rectified ? (x > 0 ? x : 0) : std::tanh(x);
          const double slope = rectified ? (x > 0 ? 1 : 0) : 1 - y * y;
          CHECK(close(h.at(b, i), y, 8 * rounding<T>));
          CHECK(h.at(b, i) == gates.at(b, i));
          CHECK(close(d.at(b, i), (dh.at(b, i) + dy.at(b, i)) * slope, 16 * rounding<T>));
        });
        for (const auto* x : {&gates, &h, &d}) CHECK(x->gaps_intact());
        cpu::rnn_gates_backward<T>(sequences, n, true, kept.rows(), dh.rows(), {}, d.rows());
        each_element(n, [&](dim_t b, dim_t i) {
          CHECK(d.at(b, i) == (gates.at(b, i) > 0 ? dh.at(b, i) : 0));
        });
      }
  });
}

TEST_CASE_TEMPLATE("the gates of a long short-term memory", T, float, double) {
  generator r(62);
  for_each_set([&] {
    for (dim_t n : widths) {
      const matrix<T> sums(sequences, 4 * n, r), c(sequences, n, r), dh(sequences, n, r),
          dy(sequences, n, r), dc(sequences, n, r);
      matrix<T> gates = sums, cell = c, c_before(sequences, n, r), tanh_c = c_before, h = c_before,
                dcell = dc, d(sequences, 4 * n, r);
      cpu::lstm_gates<T>(sequences, n, gates.rows(), cell.rows(), c_before.rows(), tanh_c.rows(),
                         h.rows());
      const matrix<T>&kept = gates, &kept_c = c_before, &kept_tanh = tanh_c;
      cpu::lstm_gates_backward<T>(sequences, n, kept.rows(), kept_c.rows(), kept_tanh.rows(),
                                  dh.rows(), dy.rows(), dcell.rows(), d.rows());
      each_element(n, [&](dim_t b, dim_t i) {
        const double in = sigmoid_of(sums.at(b, i)), forget = sigmoid_of(sums.at(b, n + i)),
                     fresh = std::tanh(sums.at(b, 2 * n + i)),
                     out = sigmoid_of(sums.at(b, 3 * n + i)), before = c.at(b, i);
        const double now = forget * before + in * fresh, y = std::tanh(now);
        const double tolerance = 16 * rounding<T>;
        CHECK(close(cell.at(b, i), now, tolerance));
        CHECK(close(h.at(b, i), out * y, tolerance));
        CHECK(close(tanh_c.at(b, i), y, tolerance));
        CHECK(c_before.at(b, i) == before);
        const double dout = dh.at(b, i) + dy.at(b, i);
        const double dnow = dc.at(b, i) + dout * out * (1 - y * y);
        CHECK(close(d.at(b, i), dnow * fresh * in * (1 - in), tolerance));
        CHECK(close(d.at(b, n + i), dnow * before * forget * (1 - forget), tolerance));
        CHECK(close(d.at(b, 2 * n + i), dnow * in * (1 - fresh * fresh), tolerance));
        CHECK(close(d.at(b, 3 * n + i), dout * y * out * (1 - out), tolerance));
        CHECK(close(dcell.at(b, i), dnow * forget, tolerance));
      });
      for (const auto* x : {&gates, &cell, &c_before, &tanh_c, &h, &dcell, &d})
        CHECK(x->gaps_intact());
    }
  });
}

TEST_CASE_TEMPLATE("the gates of a gated recurrent unit", T, float, double) {
  generator r(63);
  for_each_set([&] {
    for (dim_t n : widths) {
      const matrix<T> sums(sequences, 3 * n, r), from_h(sequences, 3 * n, r),
          before(sequences, n, r), dy(sequences, n, r), dlater(sequences, n, r);
      matrix<T> gates = sums, inner(sequences, n, r), h = before, dh = dlater,
                d(sequences, 3 * n, r), dfrom_h = d, y = before;
      cpu::gru_gates<T>(sequences, n, gates.rows(), from_h.rows(), inner.rows(), before.rows(),
                        h.rows(), y.rows());
      const matrix<T>&kept = gates, &kept_inner = inner;
      cpu::gru_gates_backward<T>(sequences, n, kept.rows(), kept_inner.rows(), before.rows(),
                                 dh.rows(), dy.rows(), d.rows(), dfrom_h.rows());
      each_element(n, [&](dim_t b, dim_t i) {
        const double reset = sigmoid_of(sums.at(b, i) + from_h.at(b, i)),
                     keep = sigmoid_of(sums.at(b, n + i) + from_h.at(b, n + i)),
                     part = from_h.at(b, 2 * n + i),
                     fresh = std::tanh(sums.at(b, 2 * n + i) + reset * part);
        const double tolerance = 16 * rounding<T>;
        CHECK(close(h.at(b, i), (1 - keep) * fresh + keep * before.at(b, i), tolerance));
        CHECK(y.at(b, i) == h.at(b, i));
        CHECK(inner.at(b, i) == part);
        const double down = dlater.at(b, i) + dy.at(b, i);
        const double dfresh = down * (1 - keep) * (1 - fresh * fresh);
        const double dreset = dfresh * part * reset * (1 - reset);
        const double dkeep = down * (before.at(b, i) - fresh) * keep * (1 - keep);
        CHECK(close(d.at(b, i), dreset, tolerance));
        CHECK(close(d.at(b, n + i), dkeep, tolerance));
        CHECK(close(d.at(b, 2 * n + i), dfresh, tolerance));
        CHECK(close(dfrom_h.at(b, i), dreset, tolerance));
        CHECK(close(dfrom_h.at(b, n + i), dkeep, tolerance));
        CHECK(close(dfrom_h.at(b, 2 * n + i), dfresh * reset, tolerance));
        CHECK(close(dh.at(b, i), down * keep, tolerance));
      });
      for (const auto* x : {&gates, &inner, &h, &y, &dh, &d, &dfrom_h}) CHECK(x->gaps_intact());
    }
  });
}

TEST_CASE_TEMPLATE("the product by packed recurrent weights", T, float, double) {
  generator r(65);
  for_each_set([&] {
    for (dim_t m : {0, 1, 2, 5, 13})
      for (dim_t n : {1, 4, 12, 17, 64, 68, 100})
        for (dim_t k : {0, 1, 2, 5, 16, 19}) {
          INFO("m " << m << " n " << n << " k " << k);
          const matrix<T> x(m, k, r), to(m, n, r);
          const guarded<T> w(n * k, r), bias(n, r);
          guarded<T> packed(cpu::packed_recurrent_size(n, k), T(99));
          cpu::pack_recurrent<T>(n, k, w.data(), packed.data());
          CHECK(packed.intact());
          matrix<T> added = to, written = to;
          cpu::recurrent_product<T>(m, n, k, packed.data(), bias.data(), x.rows(), added.rows(),
                                    true);
          cpu::recurrent_product<T>(m, n, k, packed.data(), nullptr, x.rows(), written.rows(),
                                    false);
          bool right = true;
          for (dim_t b = 0; b < m; ++b)
            for (dim_t i = 0; i < n; ++i) {
              double sum = 0;
              for (dim_t p = 0; p < k; ++p) sum += x.at(b, p) * static_cast<double>(w[i * k + p]);
              right = right && close(written.at(b, i), sum, 16 * rounding<T>) &&
                      close(added.at(b, i), sum + to.at(b, i) + static_cast<double>(bias[i]),
                            16 * rounding<T>);
            }
          CHECK(right);
          CHECK(added.gaps_intact());
          CHECK(written.gaps_intact());
        }
  });
}

TEST_CASE_TEMPLATE("a row of a recurrent product has the same bits alone and among others", T,
                   float, double) {
  generator r(66);
  for_each_set([&] {
    for (const dim_t n : {3, 84})
      for (const dim_t k : {1, 2, 5, 21})
        for (const bool adds : {false, true}) {
          const guarded<T> w(n * k, r), bias(n, r);
          guarded<T> packed(cpu::packed_recurrent_size(n, k), T(99));
          cpu::pack_recurrent<T>(n, k, w.data(), packed.data());
          const matrix<T> x(16, k, r);
          matrix<T> alone(16, n, r);
          const matrix<T> before = alone;
          for (dim_t b = 0; b < 16; ++b)
            cpu::recurrent_product<T>(1, n, k, packed.data(), bias.data(), x.rows().from(b),
                                      alone.rows().from(b), adds);
          for (dim_t m = 2; m <= 16; ++m) {
            INFO("m " << m << " n " << n << " k " << k << " adds " << adds);
            matrix<T> all = before;
            cpu::recurrent_product<T>(m, n, k, packed.data(), bias.data(), x.rows(), all.rows(),
                                      adds);
            bool same = true;
            for (dim_t b = 0; b < m; ++b)
              for (dim_t i = 0; i < n; ++i) same = same && all.at(b, i) == alone.at(b, i);
            CHECK(same);
          }
        }
  });
}

TEST_CASE_TEMPLATE("recurrent gates of infinities and of what is not a number", T, float, double) {
  const T inf = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
  for_each_set([&] {
    // One unit per column: i, f, g, o at their limits; then one of them NaN.
    std::vector<T> gates{inf, -inf, nan, -inf, inf, T(0), inf, -inf, T(0), inf, inf, T(0)};
    std::vector<T> c{T(2), T(3), T(4)}, before(3), tanh_c(3), h(3), y(3);
    cpu::lstm_gates<T>(1, 3, {gates.data(), 12}, {c.data(), 3}, {before.data(), 3},
                       {tanh_c.data(), 3}, {h.data(), 3}, {y.data(), 3});
    CHECK(close(static_cast<double>(c[0]), 1, rounding<T>));  // sigmoid(inf) tanh(inf)
    CHECK(close(static_cast<double>(c[1]), 3, rounding<T>));  // Unchanged.
    CHECK(std::isnan(c[2]));
    CHECK(h[1] == doctest::Approx(std::tanh(3.0)));
    CHECK(std::isnan(h[2]));
    CHECK(y[1] == h[1]);
    std::vector<T> sums{nan, -inf, T(1)}, state(3);
    cpu::rnn_gates<T>(1, 3, true, {sums.data(), 3}, {state.data(), 3});
    CHECK(std::isnan(state[0]));
    CHECK(state[1] == T(0));
    CHECK(state[2] == T(1));
  });
}

TEST_CASE_TEMPLATE("rows are copied or added", T, float, double) {
  generator r(64);
  for_each_set([&] {
    for (dim_t n : widths) {
      const matrix<T> from(sequences, n, r), to(sequences, n, r);
      matrix<T> copied = to, added = to;
      cpu::move_rows<T>(sequences, n, from.rows(), copied.rows());
      cpu::move_rows<T>(sequences, n, from.rows(), added.rows(), true);
      each_element(n, [&](dim_t b, dim_t i) {
        CHECK(copied.at(b, i) == from.at(b, i));
        CHECK(close(added.at(b, i), from.at(b, i) + to.at(b, i), 2 * rounding<T>));
      });
      for (const auto* x : {&copied, &added}) CHECK(x->gaps_intact());
    }
  });
  cpu::move_rows<T>(0, 5, {}, {});
}
