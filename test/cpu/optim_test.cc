#include "ikebana/cpu/optim.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "ikebana/cpu/optim_rules.hpp"
#include "support.hpp"

using namespace cpu_test;
namespace cpu = ikebana::cpu;

TEST_CASE("one less a power is what std::pow gives, however many steps") {
  for (const double beta : {0.0, 0.5, 0.9, 0.999, 0.999999})
    for (const std::int64_t step :
         {1, 2, 3, 10, 37, 1000, 65535, 65536, 1'000'003, 1'000'000'007}) {
      INFO("beta " << beta << " step " << step);
      const double expected = 1 - std::pow(beta, static_cast<double>(step));
      CHECK(cpu::one_less_power(beta, step) == doctest::Approx(expected).epsilon(1e-9));
    }
}

TEST_CASE_TEMPLATE("sgd follows its formula through several steps", T, float, double) {
  generator r(41);
  for_each_set([&] {
    for (int variant = 0; variant < 8; ++variant)
      for (dim_t n : {0, 1, 7, 16, 33, 131, 1100}) {
        INFO("variant " << variant << " n " << n);
        const double lr = 0.1, momentum = variant & 1 ? 0.9 : 0,
                     dampening = variant == 1 ? 0.25 : 0, decay = variant & 2 ? 0.01 : 0;
        const bool nesterov = variant == 5, maximize = (variant & 4) != 0;
        guarded<T> p(n, r), b(n);
        std::vector<double> ep, eb(static_cast<std::size_t>(n));
        for (dim_t i = 0; i < n; ++i) ep.push_back(static_cast<double>(p[i]));
        for (int step = 0; step < 4; ++step) {
          const guarded<T> g(n, r);
          for (std::size_t i = 0; i < ep.size(); ++i) {
            double d =
                static_cast<double>(g[static_cast<dim_t>(i)]) * (maximize ? -1 : 1) + decay * ep[i];
            if (momentum != 0) {
              eb[i] = step == 0 ? d : momentum * eb[i] + (1 - dampening) * d;
              d = nesterov ? d + momentum * eb[i] : eb[i];
            }
            ep[i] -= lr * d;
          }
          cpu::sgd_step(n, p.data(), g.data(), momentum != 0 ? b.data() : nullptr, T(lr),
                        T(momentum), T(dampening), T(decay), nesterov, step == 0, maximize);
        }
        CHECK(all_close(p, ep, rounding<T> * 16));
        CHECK(p.intact());
        CHECK(b.intact());
      }
  });
}

TEST_CASE_TEMPLATE("adam, adamw and amsgrad follow their formulas through several steps", T, float,
                   double) {
  generator r(42);
  for_each_set([&] {
    for (int variant = 0; variant < 8; ++variant)
      for (dim_t n : {0, 1, 7, 16, 33}) {
        INFO("variant " << variant << " n " << n);
        const bool amsgrad = variant & 1, decoupled = variant & 2, maximize = variant & 4;
        const double lr = 0.01, beta1 = 0.9, beta2 = 0.999, eps = 1e-8,
                     decay = variant == 0 ? 0 : 0.1;
        guarded<T> p(n, r), m(n), v(n), vmax(n);
        std::vector<double> ep, em(static_cast<std::size_t>(n)), ev = em, ex = em;
        for (dim_t i = 0; i < n; ++i) ep.push_back(static_cast<double>(p[i]));
        for (int step = 1; step <= 5; ++step) {
          const guarded<T> g(n, r);
          for (std::size_t i = 0; i < ep.size(); ++i) {
            double d = static_cast<double>(g[static_cast<dim_t>(i)]) * (maximize ? -1 : 1);
            if (decoupled)
              ep[i] *= 1 - lr * decay;
            else
              d += decay * ep[i];
            em[i] = beta1 * em[i] + (1 - beta1) * d;
            ev[i] = beta2 * ev[i] + (1 - beta2) * d * d;
            ex[i] = std::max(ex[i], ev[i]);
            const double size =
                std::sqrt(amsgrad ? ex[i] : ev[i]) / std::sqrt(1 - std::pow(beta2, step)) + eps;
            ep[i] -= lr / (1 - std::pow(beta1, step)) * em[i] / size;
          }
          cpu::adam_step(n, p.data(), g.data(), m.data(), v.data(), amsgrad ? vmax.data() : nullptr,
                         lr, beta1, beta2, eps, decay, decoupled, step, maximize);
        }
        CHECK(all_close(p, ep, rounding<T> * 32));
        CHECK(p.intact());
        CHECK(m.intact());
        CHECK(v.intact());
        CHECK(vmax.intact());
      }
  });
}

TEST_CASE_TEMPLATE("a factor of the gradients is that of gradients scaled before", T, float,
                   double) {
  generator r(43);
  for_each_set([&] {
    const dim_t n = 67;
    const guarded<T> g(n, r);
    guarded<T> scaled(n), p(n, r), q = p, m(n), v(n), k(n), u(n);
    for (dim_t i = 0; i < n; ++i) scaled[i] = g[i] * T(0.25);
    for (int step = 1; step <= 3; ++step) {
      cpu::adam_step(n, p.data(), scaled.data(), m.data(), v.data(), static_cast<T*>(nullptr), 0.01,
                     0.9, 0.999, 1e-8, 0.1, true, step, true);
      cpu::adam_step(n, q.data(), g.data(), k.data(), u.data(), static_cast<T*>(nullptr), 0.01, 0.9,
                     0.999, 1e-8, 0.1, true, step, true, 0.25);
    }
    for (dim_t i = 0; i < n; ++i) CHECK(p[i] == q[i]);
    cpu::sgd_step(n, p.data(), scaled.data(), m.data(), T(0.1), T(0.9), T(0), T(0.01), true, false,
                  true);
    cpu::sgd_step(n, q.data(), g.data(), k.data(), T(0.1), T(0.9), T(0), T(0.01), true, false, true,
                  T(0.25));
    for (dim_t i = 0; i < n; ++i) CHECK(p[i] == q[i]);
  });
}

TEST_CASE("adam with moments of 0, of infinity and of denormals divides as it should") {
  for_each_set([] {
    constexpr float inf = std::numeric_limits<float>::infinity();
    std::vector<float> p(20, 1.0f), g(20, 0.0f), m(20, 0.5f),
        v{0.0f, inf, 1e-42f, 1.0f, 1e38f, 1e-30f};
    v.resize(20, 0.25f);
    cpu::adam_step<float>(20, p.data(), g.data(), m.data(), v.data(), nullptr, 0.05, 0.5, 0.5, 1e-8,
                          0, false, 1, false);
    for (std::size_t i = 0; i < p.size(); ++i) {
      INFO("element " << i);
      // m and v were halved, and their corrections are 0.5.
      const double size = std::sqrt(static_cast<double>(v[i]) / 0.5) + 1e-8;
      CHECK(close(static_cast<double>(p[i]), 1 - 0.05 * 0.5 / size, 1e-6));
    }
  });
}

TEST_CASE_TEMPLATE("infinite parameters that do not decay stay as they are", T, float, double) {
  constexpr T inf = std::numeric_limits<T>::infinity();
  for_each_set([&] {
    for (dim_t n : {1, 19}) {
      for (const T momentum : {T(0), T(0.5)}) {
        std::vector<T> p(static_cast<std::size_t>(n), -inf), g(p.size(), T(2)), b(p.size());
        cpu::sgd_step<T>(n, p.data(), g.data(), b.data(), T(0.1), momentum, T(0), T(0), false, true,
                         false);
        CHECK(p == std::vector<T>(p.size(), -inf));
      }
      std::vector<T> p(static_cast<std::size_t>(n), inf), g(p.size(), T(2)), m(p.size()), v = m;
      cpu::adam_step<T>(n, p.data(), g.data(), m.data(), v.data(), nullptr, 0.1, 0.5, 0.75, 1e-8, 0,
                        false, 1, false);
      CHECK(p == std::vector<T>(p.size(), inf));
      CHECK(m == std::vector<T>(p.size(), T(1)));
      CHECK(v == m);
      cpu::optimizer_arrays<T> a{
          .n = n, .params = p.data(), .grads = g.data(), .state = {v.data()}};
      a.factor[0] = T(0.125);
      cpu::adagrad_step<T>(a);
      CHECK(p == std::vector<T>(p.size(), inf));
      CHECK(v == std::vector<T>(p.size(), T(5)));
    }
  });
}

TEST_CASE("long arrays are updated as their parts are, at every step") {
  const dim_t n = 20'011, part = 1000;
  generator r(77);
  const guarded<float> p(n, r), g(n, r);
  for_each_set([&] {
    guarded<float> whole = p, whole_m(n), whole_v(n), parts = p, parts_m(n), parts_v(n);
    for (std::int64_t step = 1; step <= 3; ++step) {
      const auto update = [&](dim_t from, dim_t count, auto& params, auto& m, auto& v) {
        cpu::adam_step<float>(count, params.data() + from, g.data() + from, m.data() + from,
                              v.data() + from, nullptr, 1e-3, 0.9, 0.999, 1e-8, 0.01, true, step,
                              false);
      };
      update(0, n, whole, whole_m, whole_v);
      for (dim_t i = 0; i < n; i += part)
        update(i, n - i < part ? n - i : part, parts, parts_m, parts_v);
    }
    bool same = true;
    for (dim_t i = 0; i < n; ++i)
      same = same && whole[i] == parts[i] && whole_m[i] == parts_m[i] && whole_v[i] == parts_v[i];
    CHECK(same);
    CHECK(whole.intact());
  });
}
