#include "ikebana/cpu/recurrent.hpp"

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

/// f(n, b, i) for every width and element.
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
                d(sequences, 3 * n, r), dfrom_h = d;
      cpu::gru_gates<T>(sequences, n, gates.rows(), from_h.rows(), inner.rows(), h.rows());
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
      for (const auto* x : {&gates, &inner, &h, &dh, &d, &dfrom_h}) CHECK(x->gaps_intact());
    }
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
