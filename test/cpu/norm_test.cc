#include "ikebana/cpu/norm.hpp"

#include "ikebana/cpu/elementwise.hpp"
#include "support.hpp"

using namespace cpu_test;
namespace cpu = ikebana::cpu;

namespace {

struct sizes {
  dim_t batch, channels, inner;
};
constexpr sizes all_sizes[] = {{1, 1, 2},  {2, 3, 1}, {4, 5, 7},  {3, 2, 64}, {2, 3, 131},
                               {5, 1, 16}, {2, 0, 4}, {9, 6, 49}, {4, 21, 9}, {3, 19, 30}};

}  // namespace

TEST_CASE_TEMPLATE("batch norm normalizes by the batch and moves the running statistics", T, float,
                   double) {
  generator r(51);
  for_each_set([&] {
    for (const sizes s : all_sizes)
      for (bool affine : {false, true}) {
        INFO("batch " << s.batch << " channels " << s.channels << " inner " << s.inner << " affine "
                      << affine);
        const dim_t n = s.batch * s.channels * s.inner;
        // A mean far from zero, where a one-pass variance would fail.
        guarded<T> x(n, r);
        for (dim_t i = 0; i < n; ++i) x[i] += T(10);
        const guarded<T> gamma(s.channels, r), beta(s.channels, r);
        guarded<T> y(n), mean(s.channels), invstd(s.channels), running_mean(s.channels, r),
            running_var(s.channels, T(1));
        std::vector<double> ey(static_cast<std::size_t>(n)), em, ev;
        const double eps = 1e-3, momentum = 0.1;
        const auto count = static_cast<double>(s.batch * s.inner);
        const auto at = [&](dim_t b, dim_t c, dim_t i) {
          return (b * s.channels + c) * s.inner + i;
        };
        for (dim_t c = 0; c < s.channels; ++c) {
          // If T is double, a sum in double would be no more accurate than what is tested.
          long double total = 0;
          for (dim_t b = 0; b < s.batch; ++b)
            for (dim_t i = 0; i < s.inner; ++i) total += x[at(b, c, i)];
          const auto m = static_cast<double>(total / static_cast<long double>(count));
          double v = 0;
          for (dim_t b = 0; b < s.batch; ++b)
            for (dim_t i = 0; i < s.inner; ++i)
              v += std::pow(static_cast<double>(x[at(b, c, i)]) - m, 2);
          for (dim_t b = 0; b < s.batch; ++b)
            for (dim_t i = 0; i < s.inner; ++i)
              ey[static_cast<std::size_t>(at(b, c, i))] =
                  (static_cast<double>(x[at(b, c, i)]) - m) / std::sqrt(v / count + eps) *
                      (affine ? static_cast<double>(gamma[c]) : 1) +
                  (affine ? static_cast<double>(beta[c]) : 0);
          em.push_back((1 - momentum) * static_cast<double>(running_mean[c]) + momentum * m);
          ev.push_back((1 - momentum) * 1 + momentum * v / (count - 1));
        }
        cpu::batch_norm_forward_train(
            s.batch, s.channels, s.inner, x.data(), affine ? gamma.data() : nullptr,
            affine ? beta.data() : nullptr, T(eps), y.data(), mean.data(), invstd.data(),
            running_mean.data(), running_var.data(), T(momentum));
        CHECK(all_close(y, ey, rounding<T> * 400));
        CHECK(all_close(running_mean, em, rounding<T> * 8));
        CHECK(all_close(running_var, ev, rounding<T> * 50));
        for (const auto* g : {&y, &mean, &invstd, &running_mean, &running_var}) CHECK(g->intact());

        guarded<T> z(n);
        cpu::batch_norm_forward_eval(s.batch, s.channels, s.inner, x.data(),
                                     affine ? gamma.data() : nullptr,
                                     affine ? beta.data() : nullptr, T(eps), running_mean.data(),
                                     running_var.data(), z.data());
        std::vector<double> ez(static_cast<std::size_t>(n));
        for (dim_t b = 0; b < s.batch; ++b)
          for (dim_t c = 0; c < s.channels; ++c)
            for (dim_t i = 0; i < s.inner; ++i)
              ez[static_cast<std::size_t>(at(b, c, i))] =
                  (static_cast<double>(x[at(b, c, i)]) - static_cast<double>(running_mean[c])) /
                      std::sqrt(static_cast<double>(running_var[c]) + eps) *
                      (affine ? static_cast<double>(gamma[c]) : 1) +
                  (affine ? static_cast<double>(beta[c]) : 0);
        CHECK(all_close(z, ez, rounding<T> * 16));
        CHECK(z.intact());
      }
  });
}

TEST_CASE("batch norm's gradients agree with finite differences") {
  generator r(52);
  for_each_set([&] {
    for (const sizes s : {sizes{2, 2, 5}, sizes{3, 1, 17}, sizes{4, 3, 1}})
      for (bool through_batch : {true, false}) {
        const dim_t n = s.batch * s.channels * s.inner;
        guarded<double> x(n, r), gamma(s.channels, r), beta(s.channels, r);
        const guarded<double> dy(n, r), fixed_mean(s.channels, r), fixed_var(s.channels, 0.7);
        const double eps = 1e-2;
        guarded<double> y(n), mean(s.channels), invstd(s.channels);
        const auto forward = [&] {
          if (through_batch)
            cpu::batch_norm_forward_train<double>(
                s.batch, s.channels, s.inner, x.data(), gamma.data(), beta.data(), eps, y.data(),
                mean.data(), invstd.data(), nullptr, nullptr, 0.1);
          else
            cpu::batch_norm_forward_eval<double>(s.batch, s.channels, s.inner, x.data(),
                                                 gamma.data(), beta.data(), eps, fixed_mean.data(),
                                                 fixed_var.data(), y.data());
          double loss = 0;
          for (dim_t i = 0; i < n; ++i) loss += y[i] * dy[i];
          return loss;
        };
        forward();
        guarded<double> dx(n), dgamma(s.channels, 1.0), dbeta(s.channels, 1.0);
        if (through_batch)
          cpu::batch_norm_backward<double>(s.batch, s.channels, s.inner, x.data(), dy.data(),
                                           gamma.data(), mean.data(), invstd.data(), dx.data(),
                                           dgamma.data(), dbeta.data(), true);
        else
          cpu::batch_norm_backward_eval<double>(
              s.batch, s.channels, s.inner, x.data(), dy.data(), gamma.data(), eps,
              fixed_mean.data(), fixed_var.data(), dx.data(), dgamma.data(), dbeta.data(), true);
        const auto slope = [&](double& at) {
          const double kept = at, h = 1e-5;
          at = kept + h;
          const double above = forward();
          at = kept - h;
          const double below = forward();
          at = kept;
          return (above - below) / (2 * h);
        };
        for (dim_t i = 0; i < n; ++i) CHECK(close(dx[i], slope(x[i]), 1e-7));
        for (dim_t c = 0; c < s.channels; ++c) {
          CHECK(close(dgamma[c], 1 + slope(gamma[c]), 1e-7));
          CHECK(close(dbeta[c], 1 + slope(beta[c]), 1e-7));
        }
        for (const auto* g : {&dx, &dgamma, &dbeta}) CHECK(g->intact());
      }
  });
}

TEST_CASE("batch norm with an activation is batch norm and then that, not-a-number included") {
  using cpu::activation;
  struct kind {
    activation function;
    void (*alone)(dim_t, const float*, float*);
  };
  generator r(53);
  for (const sizes s : {sizes{3, 2, 37}, sizes{9, 19, 1}, sizes{2, 3, 5000}}) {
    const dim_t n = s.batch * s.channels * s.inner;
    guarded<float> x(n, r);
    x[n / 2] = std::nanf("");
    const guarded<float> gamma(s.channels, r), beta(s.channels, r), mean(s.channels, r),
        var(s.channels, 0.7f);
    for_each_set([&] {
      guarded<float> plain(n), y(n), saved(s.channels), invstd(s.channels);
      const auto run = [&](bool train, activation f, float* to) {
        if (train)
          cpu::batch_norm_forward_train<float>(s.batch, s.channels, s.inner, x.data(), gamma.data(),
                                               beta.data(), 1e-5f, to, saved.data(), invstd.data(),
                                               nullptr, nullptr, 0.1f, f);
        else
          cpu::batch_norm_forward_eval<float>(s.batch, s.channels, s.inner, x.data(), gamma.data(),
                                              beta.data(), 1e-5f, mean.data(), var.data(), to, f);
      };
      for (const kind& k : {kind{activation::relu, cpu::relu_forward<float>},
                            kind{activation::tanh, cpu::tanh_forward<float>},
                            kind{activation::sigmoid, cpu::sigmoid_forward<float>},
                            kind{activation::silu, cpu::silu_forward<float>},
                            kind{activation::gelu, cpu::gelu_forward<float>},
                            kind{activation::gelu_tanh, cpu::gelu_tanh_forward<float>}})
        for (bool train : {false, true}) {
          run(train, activation::none, plain.data());
          run(train, k.function, y.data());
          k.alone(n, plain.data(), plain.data());
          bool same = true;
          for (dim_t i = 0; i < n; ++i)
            same &= std::isnan(plain[i]) ? std::isnan(y[i]) : y[i] == plain[i];
          CHECK(same);
          CHECK(y.intact());
        }
    });
  }
}
