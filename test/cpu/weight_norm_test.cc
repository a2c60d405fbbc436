#include "ikebana/cpu/weight_norm.hpp"

#include <cstring>

#include "support.hpp"

using namespace cpu_test;
namespace cpu = ikebana::cpu;

namespace {

struct sizes {
  dim_t outer, channels, inner;
  dim_t size() const { return outer * channels * inner; }
};
constexpr sizes all_sizes[] = {{1, 1, 1}, {1, 5, 37}, {7, 3, 1}, {3, 5, 9}, {2, 3, 131}, {1, 0, 3}};

/// The slope of `loss` at `at`, by central differences.
template <class Loss>
double slope(const Loss& loss, double& at) {
  const double kept = at, h = 1e-6;
  at = kept + h;
  const double above = loss();
  at = kept - h;
  const double below = loss();
  at = kept;
  return (above - below) / (2 * h);
}

}  // namespace

TEST_CASE_TEMPLATE("weight norm scales each channel to its length", T, float, double) {
  generator r(71);
  for_each_set([&] {
    for (const sizes s : all_sizes) {
      INFO("outer " << s.outer << " channels " << s.channels << " inner " << s.inner);
      const guarded<T> v(s.size(), r), g(s.channels, r);
      guarded<T> norms(s.channels), w(s.size()), same(s.size());
      cpu::channel_norms<T>(s.outer, s.channels, s.inner, v.data(), norms.data());
      cpu::weight_norm_forward<T>(s.outer, s.channels, s.inner, v.data(), g.data(), norms.data(),
                                  w.data());
      std::vector<double> squares(static_cast<std::size_t>(s.channels));
      const auto channel = [&](dim_t i) { return i / s.inner % s.channels; };
      for (dim_t i = 0; i < s.size(); ++i)
        squares[static_cast<std::size_t>(channel(i))] += std::pow(static_cast<double>(v[i]), 2);
      for (dim_t i = 0; i < s.size(); ++i)
        CHECK(close(static_cast<double>(w[i]),
                    static_cast<double>(v[i]) * static_cast<double>(g[channel(i)]) /
                        std::sqrt(squares[static_cast<std::size_t>(channel(i))]),
                    rounding<T> * 4));
      for (const auto* a : {&norms, &w}) CHECK(a->intact());
      // Normalising to its own length changes no bit.
      cpu::weight_norm_forward<T>(s.outer, s.channels, s.inner, v.data(), norms.data(),
                                  norms.data(), same.data());
      for (dim_t i = 0; i < s.size(); ++i) CHECK(same[i] == v[i]);
    }
  });
}

TEST_CASE("weight norm's gradients agree with finite differences") {
  generator r(72);
  for_each_set([&] {
    for (const sizes s : {sizes{1, 3, 5}, sizes{2, 2, 9}, sizes{3, 4, 1}}) {
      guarded<double> v(s.size(), r), g(s.channels, r);
      const guarded<double> dw(s.size(), r);
      guarded<double> norms(s.channels), w(s.size()), dv(s.size(), 1.0), dg(s.channels, 1.0);
      const auto loss = [&] {
        cpu::channel_norms<double>(s.outer, s.channels, s.inner, v.data(), norms.data());
        cpu::weight_norm_forward<double>(s.outer, s.channels, s.inner, v.data(), g.data(),
                                         norms.data(), w.data());
        double sum = 0;
        for (dim_t i = 0; i < s.size(); ++i) sum += w[i] * dw[i];
        return sum;
      };
      loss();
      cpu::weight_norm_backward<double>(s.outer, s.channels, s.inner, v.data(), g.data(),
                                        norms.data(), dw.data(), dv.data(), dg.data(), true);
      for (dim_t i = 0; i < s.size(); ++i) CHECK(close(dv[i], 1 + slope(loss, v[i]), 1e-6));
      for (dim_t c = 0; c < s.channels; ++c) CHECK(close(dg[c], 1 + slope(loss, g[c]), 1e-6));
      for (const auto* a : {&dv, &dg}) CHECK(a->intact());
    }
  });
}

TEST_CASE_TEMPLATE("a power iteration is two products and two divisions", T, float, double) {
  generator r(73);
  for_each_set([&] {
    for (const sizes s : all_sizes) {
      INFO("outer " << s.outer << " channels " << s.channels << " inner " << s.inner);
      const dim_t rest = s.outer * s.inner;
      const guarded<T> w(s.size(), r);
      guarded<T> u(s.channels, r), v(rest);
      std::vector<double> eu(static_cast<std::size_t>(s.channels)),
          ev(static_cast<std::size_t>(rest));
      const auto each = [&](auto f) {
        for (dim_t o = 0; o < s.outer; ++o)
          for (dim_t c = 0; c < s.channels; ++c)
            for (dim_t i = 0; i < s.inner; ++i)
              f(static_cast<double>(w[(o * s.channels + c) * s.inner + i]),
                static_cast<std::size_t>(c), static_cast<std::size_t>(o * s.inner + i));
      };
      const auto normalize = [](std::vector<double>& x) {
        double squares = 0;
        for (double e : x) squares += e * e;
        for (double& e : x) e /= std::max(std::sqrt(squares), 1e-12);
      };
      each([&](double e, std::size_t c, std::size_t k) {
        ev[k] += e * static_cast<double>(u[static_cast<dim_t>(c)]);
      });
      normalize(ev);
      each([&](double e, std::size_t c, std::size_t k) { eu[c] += e * ev[k]; });
      normalize(eu);
      cpu::power_iteration<T>(s.outer, s.channels, s.inner, w.data(), T(1e-12), u.data(), v.data());
      CHECK(all_close(u, eu, rounding<T> * 100));
      CHECK(all_close(v, ev, rounding<T> * 100));
      double sigma = 0;
      each([&](double e, std::size_t c, std::size_t k) { sigma += e * eu[c] * ev[k]; });
      CHECK(close(static_cast<double>(cpu::spectral_sigma<T>(s.outer, s.channels, s.inner, w.data(),
                                                             u.data(), v.data())),
                  sigma, rounding<T> * 200));
      for (const auto* a : {&u, &v}) CHECK(a->intact());
    }
  });
}

TEST_CASE("spectral norm's gradient agrees with finite differences") {
  generator r(74);
  for_each_set([&] {
    for (const sizes s : {sizes{1, 3, 5}, sizes{2, 2, 9}, sizes{3, 4, 1}}) {
      guarded<double> w(s.size(), r);
      guarded<double> u(s.channels, r), v(s.outer * s.inner, r), y(s.size());
      cpu::power_iteration<double>(s.outer, s.channels, s.inner, w.data(), 1e-12, u.data(),
                                   v.data());
      const guarded<double> dy(s.size(), r);
      double sigma = 0;
      const auto loss = [&] {
        sigma =
            cpu::spectral_sigma<double>(s.outer, s.channels, s.inner, w.data(), u.data(), v.data());
        cpu::spectral_norm_forward<double>(s.size(), w.data(), sigma, y.data());
        double sum = 0;
        for (dim_t i = 0; i < s.size(); ++i) sum += y[i] * dy[i];
        return sum;
      };
      loss();
      guarded<double> dw(s.size(), 1.0);
      cpu::spectral_norm_backward<double>(s.outer, s.channels, s.inner, w.data(), u.data(),
                                          v.data(), sigma, dy.data(), dw.data(), true);
      for (dim_t i = 0; i < s.size(); ++i) CHECK(close(dw[i], 1 + slope(loss, w[i]), 1e-6));
      CHECK(dw.intact());
    }
  });
}
