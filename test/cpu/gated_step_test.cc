#include "ikebana/cpu/gated_step.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ikebana/cpu/causal_step.hpp"
#include "support.hpp"

using namespace cpu_test;
namespace cpu = ikebana::cpu;

TEST_CASE_TEMPLATE("a step of one sequence through an lstm", T, float, double) {
  generator r(81);
  const double tolerance = sizeof(T) == 4 ? 1e-5 : 1e-13;
  const auto logistic = [](double x) { return 1 / (1 + std::exp(-x)); };
  for_each_set([&] {
    for (const dim_t hidden : {1, 3, 4, 7, 8, 9, 15, 16, 17, 24, 31, 64})
      for (const dim_t in : {1, 2, 5, 64}) {
        const bool has_bias = in != 5;
        const guarded<T> w(4 * hidden * in, r), u(4 * hidden * hidden, r), x(in, r),
            bias_ih(4 * hidden, r), bias_hh(4 * hidden, r);
        guarded<T> h(hidden, r), c(hidden, r), gates(4 * hidden), h_before(hidden),
            c_before(hidden), tanh_c(hidden), y(hidden), h_after(hidden), c_after(hidden),
            packed(cpu::gated_step_size(4, in, hidden));
        cpu::pack_gated_step<T>(4, in, hidden, w.data(), u.data(),
                                has_bias ? bias_ih.data() : nullptr,
                                has_bias ? bias_hh.data() : nullptr, packed.data());
        for (int step = 0; step < 2; ++step) {
          const guarded<T> h0 = h, c0 = c;
          cpu::run_lstm_step<T>({in, hidden, packed.data(), x.data(), h.data(), c.data(),
                                 gates.data(), h_before.data(), c_before.data(), tanh_c.data(),
                                 y.data(), h_after.data(), c_after.data()});
          for (dim_t j = 0; j < hidden; ++j) {
            double sums[4];
            for (dim_t g = 0; g < 4; ++g) {
              const dim_t i = g * hidden + j;
              sums[g] =
                  has_bias ? static_cast<double>(bias_ih[i]) + static_cast<double>(bias_hh[i]) : 0;
              for (dim_t p = 0; p < in; ++p)
                sums[g] += static_cast<double>(w[i * in + p]) * static_cast<double>(x[p]);
              for (dim_t p = 0; p < hidden; ++p)
                sums[g] += static_cast<double>(u[i * hidden + p]) * static_cast<double>(h0[p]);
              sums[g] = g == 2 ? std::tanh(sums[g]) : logistic(sums[g]);
              CHECK(std::abs(static_cast<double>(gates[i]) - sums[g]) < tolerance);
            }
            const double now = sums[1] * static_cast<double>(c0[j]) + sums[0] * sums[2];
            CHECK(std::abs(static_cast<double>(c[j]) - now) < tolerance);
            CHECK(std::abs(static_cast<double>(tanh_c[j]) - std::tanh(now)) < tolerance);
            CHECK(std::abs(static_cast<double>(h[j]) - sums[3] * std::tanh(now)) < tolerance);
            CHECK(y[j] == h[j]);
            CHECK(h_after[j] == h[j]);
            CHECK(c_after[j] == c[j]);
            CHECK(h_before[j] == h0[j]);
            CHECK(c_before[j] == c0[j]);
          }
        }
        for (const guarded<T>* each :
             {&h, &c, &gates, &h_before, &c_before, &tanh_c, &y, &h_after, &c_after, &packed})
          CHECK(each->intact());
      }
  });
}

TEST_CASE_TEMPLATE("a step of one sequence through a gru", T, float, double) {
  generator r(82);
  const double tolerance = sizeof(T) == 4 ? 1e-5 : 1e-13;
  const auto logistic = [](double x) { return 1 / (1 + std::exp(-x)); };
  for_each_set([&] {
    for (const dim_t hidden : {1, 3, 4, 7, 8, 9, 16, 17, 31, 64})
      for (const dim_t in : {1, 2, 5, 64}) {
        const bool has_bias = in != 5;
        const guarded<T> w(3 * hidden * in, r), u(3 * hidden * hidden, r), x(in, r),
            bias_ih(3 * hidden, r), bias_hh(3 * hidden, r);
        guarded<T> h(hidden, r), gates(3 * hidden), h_before(hidden), new_from_h(hidden), y(hidden),
            h_after(hidden), packed(cpu::gated_step_size(3, in, hidden));
        cpu::pack_gated_step<T>(3, in, hidden, w.data(), u.data(),
                                has_bias ? bias_ih.data() : nullptr,
                                has_bias ? bias_hh.data() : nullptr, packed.data());
        for (int step = 0; step < 2; ++step) {
          const guarded<T> h0 = h;
          cpu::run_gru_step<T>({in, hidden, packed.data(), x.data(), h.data(), nullptr,
                                gates.data(), h_before.data(), nullptr, new_from_h.data(), y.data(),
                                h_after.data(), nullptr});
          for (dim_t j = 0; j < hidden; ++j) {
            double of_x[3], of_h[3];
            for (dim_t g = 0; g < 3; ++g) {
              const dim_t i = g * hidden + j;
              of_x[g] = has_bias ? static_cast<double>(bias_ih[i]) : 0;
              of_h[g] = has_bias ? static_cast<double>(bias_hh[i]) : 0;
              for (dim_t p = 0; p < in; ++p)
                of_x[g] += static_cast<double>(w[i * in + p]) * static_cast<double>(x[p]);
              for (dim_t p = 0; p < hidden; ++p)
                of_h[g] += static_cast<double>(u[i * hidden + p]) * static_cast<double>(h0[p]);
            }
            const double reset = logistic(of_x[0] + of_h[0]), update = logistic(of_x[1] + of_h[1]),
                         fresh = std::tanh(of_x[2] + reset * of_h[2]),
                         now = fresh + update * (static_cast<double>(h0[j]) - fresh);
            CHECK(std::abs(static_cast<double>(gates[j]) - reset) < tolerance);
            CHECK(std::abs(static_cast<double>(gates[hidden + j]) - update) < tolerance);
            CHECK(std::abs(static_cast<double>(gates[2 * hidden + j]) - fresh) < tolerance);
            CHECK(std::abs(static_cast<double>(new_from_h[j]) - of_h[2]) < 4 * tolerance);
            CHECK(std::abs(static_cast<double>(h[j]) - now) < tolerance);
            CHECK(y[j] == h[j]);
            CHECK(h_after[j] == h[j]);
            CHECK(h_before[j] == h0[j]);
          }
        }
        for (const guarded<T>* each : {&h, &gates, &h_before, &new_from_h, &y, &h_after, &packed})
          CHECK(each->intact());
      }
  });
}

TEST_CASE_TEMPLATE("a step that no backward follows leaves its state and output alone", T, float,
                   double) {
  generator r(84);
  for_each_set([&] {
    for (const dim_t gates : {3, 4})
      for (const dim_t hidden : {7, 8, 17}) {
        const dim_t in = 3;
        const guarded<T> w(gates * hidden * (in + hidden), r), x(in, r);
        guarded<T> packed(cpu::gated_step_size(gates, in, hidden)), h(hidden, r), c(hidden, r),
            kept(7 * hidden), y(hidden), h_after(hidden), c_after(hidden);
        cpu::pack_gated_step<T>(gates, in, hidden, w.data(), w.data() + gates * hidden * in,
                                nullptr, nullptr, packed.data());
        const auto run = [&](T* first) {
          const cpu::gated_step<T> step{in,
                                        hidden,
                                        packed.data(),
                                        x.data(),
                                        h.data(),
                                        c.data(),
                                        first,
                                        kept.data() + 4 * hidden,
                                        kept.data() + 5 * hidden,
                                        kept.data() + 6 * hidden,
                                        y.data(),
                                        h_after.data(),
                                        c_after.data()};
          gates == 4 ? cpu::run_lstm_step<T>(step) : cpu::run_gru_step<T>(step);
        };
        const guarded<T> h0 = h, c0 = c;
        run(kept.data());
        const guarded<T> h1 = h, c1 = c, y1 = y;
        h = h0;
        c = c0;
        for (dim_t i = 0; i < 7 * hidden; ++i) kept[i] = T{5};
        run(nullptr);
        for (dim_t j = 0; j < hidden; ++j) {
          CHECK(h[j] == h1[j]);
          CHECK(c[j] == c1[j]);
          CHECK(y[j] == y1[j]);
        }
        for (dim_t i = 0; i < 7 * hidden; ++i) CHECK(kept[i] == T{5});
      }
  });
}

TEST_CASE_TEMPLATE("gates are exact in both tails", T, float, double) {
  const double of_place = static_cast<double>(std::numeric_limits<T>::epsilon()) / 2;
  for_each_set([&] {
    for (dim_t sum = -104; sum <= 104; ++sum) {
      const T zeros[3]{}, x[1]{}, bias[3] = {static_cast<T>(sum) / 2, T(0.1) * static_cast<T>(sum)};
      guarded<T> packed(cpu::gated_step_size(3, 1, 1)), h(1), gates(3), before(1), from_h(1), y(1),
          after(1);
      cpu::pack_gated_step<T>(3, 1, 1, zeros, zeros, bias, zeros, packed.data());
      cpu::run_gru_step<T>({1, 1, packed.data(), x, h.data(), nullptr, gates.data(), before.data(),
                            nullptr, from_h.data(), y.data(), after.data(), nullptr});
      for (const dim_t g : {0, 1}) {
        const double a = static_cast<double>(bias[g]), e = std::exp(-std::abs(a)),
                     expected = (a < 0 ? e : 1) / (1 + e);
        CHECK(std::abs(static_cast<double>(gates[g]) - expected) <=
              (5 - a / 30) * of_place * expected +
                  static_cast<double>(std::numeric_limits<T>::min()));
      }
    }
  });
}

TEST_CASE_TEMPLATE("a step of one sequence through a causal convolution", T, float, double) {
  generator r(83);
  for_each_set([&] {
    for (const dim_t out : {1, 4, 7, 8, 15, 16, 17, 33})
      for (const dim_t in : {1, 3, 8, 9})
        for (const dim_t taps : {1, 3}) {
          const dim_t dilation = 2, length = (taps - 1) * dilation + 1;
          // From some, the next tap is behind the end of the ring; from one, it is at the end.
          const dim_t first = out % 2 == 1 ? length / 2 : length / 4;
          const guarded<T> weight(out * in * taps, r), bias(out, r), ring(length * in, r);
          guarded<T> y(out), packed(cpu::causal_step_size(in, out, taps));
          const T* const given = in == 3 ? nullptr : bias.data();
          cpu::pack_causal_step<T>(in, out, taps, weight.data(), given, packed.data());
          const cpu::activation function = in == 1   ? cpu::activation::relu
                                           : in == 8 ? cpu::activation::tanh
                                                     : cpu::activation::none;
          cpu::run_causal_step<T>({in, out, taps, length, dilation, first, packed.data(),
                                   ring.data(), y.data(), function});
          for (dim_t j = 0; j < out; ++j) {
            double sum = given == nullptr ? 0 : static_cast<double>(bias[j]);
            for (dim_t i = 0; i < in; ++i)
              for (dim_t k = 0; k < taps; ++k)
                sum += static_cast<double>(weight[(j * in + i) * taps + k]) *
                       static_cast<double>(ring[(first + k * dilation) % length * in + i]);
            if (function == cpu::activation::tanh) sum = std::tanh(sum);
            if (function == cpu::activation::relu) sum = std::max(sum, 0.0);
            CHECK(std::abs(static_cast<double>(y[j]) - sum) < (sizeof(T) == 4 ? 1e-5 : 1e-13));
          }
          CHECK(y.intact());
          CHECK(packed.intact());
        }
  });
}
