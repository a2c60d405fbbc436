#include "ikebana/cpu/optim_rules.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "support.hpp"

using namespace cpu_test;
namespace cpu = ikebana::cpu;

namespace {

double sign(double x) { return static_cast<double>(x > 0) - static_cast<double>(x < 0); }

/// Several steps of a kernel beside rule(p, g, state): the new parameter, with the state changed in
/// place.
template <class T, class Rule>
void check(void (*kernel)(const cpu::optimizer_arrays<T>&), int arrays, std::vector<double> factors,
           Rule rule) {
  for (dim_t n : {0, 1, 7, 16, 33, 131, 1100}) {
    INFO("n " << n);
    generator r(47);
    guarded<T> p(n, r);
    guarded<T> state[] = {guarded<T>(n), guarded<T>(n), guarded<T>(n)};
    std::vector<double> ep;
    std::vector<std::vector<double>> es(3, std::vector<double>(static_cast<std::size_t>(n)));
    for (dim_t i = 0; i < n; ++i) ep.push_back(static_cast<double>(p[i]));
    for (int step = 0; step < 4; ++step) {
      const guarded<T> g(n, r);
      cpu::optimizer_arrays<T> a{.n = n, .params = p.data(), .grads = g.data()};
      for (int k = 0; k < arrays; ++k) a.state[k] = state[k].data();
      a.gradient_scale = T(0.5);
      a.weight_decay = T(0.125);
      std::copy(factors.begin(), factors.end(), a.factor);
      kernel(a);
      for (std::size_t i = 0; i < ep.size(); ++i) {
        double* s[] = {&es[0][i], &es[1][i], &es[2][i]};
        ep[i] = rule(ep[i], 0.5 * static_cast<double>(g[static_cast<dim_t>(i)]) + 0.125 * ep[i], s);
      }
    }
    CHECK(all_close(p, ep, rounding<T> * 64));
    CHECK(p.intact());
    for (int k = 0; k < arrays; ++k) {
      CHECK(all_close(state[k], es[static_cast<std::size_t>(k)], rounding<T> * 64));
      CHECK(state[k].intact());
    }
  }
}

}  // namespace

TEST_CASE_TEMPLATE("rmsprop, adagrad and adadelta follow their formulas", T, float, double) {
  for_each_set([&] {
    for (int arrays : {1, 2, 3}) {
      INFO("arrays " << arrays);
      check<T>(cpu::rmsprop_step<T>, arrays, {0.125, 0.75, 0.25, 0.5, 0.875},
               [=](double p, double g, double** s) {
                 *s[0] = 0.75 * *s[0] + 0.25 * g * g;
                 double variance = *s[0];
                 if (arrays == 3) {
                   *s[2] = 0.75 * *s[2] + 0.25 * g;
                   variance -= *s[2] * *s[2];
                 }
                 double d = g / (std::sqrt(variance) + 0.5);
                 if (arrays > 1) d = *s[1] = 0.875 * *s[1] + d;
                 return p - 0.125 * d;
               });
    }
    check<T>(cpu::adagrad_step<T>, 1, {0.125, 0.5}, [](double p, double g, double** s) {
      *s[0] += g * g;
      return p - 0.125 * g / (std::sqrt(*s[0]) + 0.5);
    });
    check<T>(cpu::adadelta_step<T>, 2, {0.5, 0.75, 0.25, 0.0625},
             [](double p, double g, double** s) {
               *s[0] = 0.75 * *s[0] + 0.25 * g * g;
               const double d = std::sqrt(*s[1] + 0.0625) / std::sqrt(*s[0] + 0.0625) * g;
               *s[1] = 0.75 * *s[1] + 0.25 * d * d;
               return p - 0.5 * d;
             });
  });
}

TEST_CASE_TEMPLATE("adamax, nadam, radam and lion follow their formulas", T, float, double) {
  for_each_set([&] {
    check<T>(cpu::adamax_step<T>, 2, {0.125, 0.75, 0.25, 0.875, 0.5},
             [](double p, double g, double** s) {
               *s[0] = 0.75 * *s[0] + 0.25 * g;
               *s[1] = std::max(0.875 * *s[1], std::abs(g) + 0.5);
               return p - 0.125 * *s[0] / *s[1];
             });
    for (const double root : {0.0, 1.5}) {
      INFO("root " << root);
      check<T>(cpu::mixed_adam_step<T>, 2, {0.125, 0.25, root, 0.75, 0.25, 0.875, 0.125, 0.5, 0.75},
               [=](double p, double g, double** s) {
                 *s[0] = 0.75 * *s[0] + 0.25 * g;
                 *s[1] = 0.875 * *s[1] + 0.125 * g * g;
                 const double d = 0.125 * g + 0.25 * *s[0];
                 return 0.75 * p - (root == 0 ? d : d / (root * std::sqrt(*s[1]) + 0.5));
               });
    }
    check<T>(cpu::lion_step<T>, 1, {0.125, 0.875, 0.75, 0.25, 0.5, 0.5},
             [](double p, double g, double** s) {
               const double u = sign(0.75 * *s[0] + 0.25 * g);
               *s[0] = 0.5 * *s[0] + 0.5 * g;
               return 0.875 * p - 0.125 * u;
             });
  });
}

TEST_CASE_TEMPLATE("asgd and rprop follow their formulas", T, float, double) {
  for_each_set([&] {
    for (const double mu : {1.0, 0.25}) {
      INFO("mu " << mu);
      check<T>(cpu::asgd_step<T>, 1, {0.125, 0.75, mu}, [=](double p, double g, double** s) {
        const double next = 0.75 * p - 0.125 * g;
        *s[0] = mu == 1 ? next : *s[0] + (next - *s[0]) * mu;
        return next;
      });
    }
    check<T>(cpu::rprop_step<T>, 2, {0.5, 2, 0.0625, 0.25}, [](double p, double g, double** s) {
      const double agreement = g * *s[0];
      *s[1] = std::clamp(*s[1] * (agreement > 0 ? 2 : agreement < 0 ? 0.5 : 1), 0.0625, 0.25);
      *s[0] = agreement < 0 ? 0 : g;
      return p - sign(*s[0]) * *s[1];
    });
  });
}

TEST_CASE_TEMPLATE("lamb and adafactor find their updates by their formulas", T, float, double) {
  for_each_set([&] {
    check<T>(cpu::lamb_step<T>, 3, {1.5, 0.75, 0.75, 0.25, 0.875, 0.125, 0.5, 0.25},
             [](double p, double g, double** s) {
               *s[0] = 0.75 * *s[0] + 0.25 * g;
               *s[1] = 0.875 * *s[1] + 0.125 * g * g;
               *s[2] = 1.5 * *s[0] / (0.75 * std::sqrt(*s[1]) + 0.5) + 0.25 * p;
               return p;
             });
    check<T>(cpu::square_means_step<T>, 1, {0.75, 0.25}, [](double p, double g, double** s) {
      *s[0] = 0.75 * *s[0] + 0.25 * g * g;
      return p;
    });
    check<T>(cpu::adafactor_step<T>, 2, {0.5, 0.125}, [](double p, double g, double** s) {
      *s[1] = g / std::sqrt(std::max(0.5 * *s[0], 0.125));
      return p;
    });
  });
}
