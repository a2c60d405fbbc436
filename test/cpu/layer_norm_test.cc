#include "ikebana/cpu/layer_norm.hpp"

#include <utility>
#include <vector>

#include "support.hpp"

using namespace cpu_test;
namespace cpu = ikebana::cpu;

namespace {

struct sizes {
  dim_t batch, channels, inner = 1, groups = 1;
};
constexpr sizes all_sizes[] = {{1, 1, 2, 1},   {3, 4, 7, 2},   {2, 6, 1, 3}, {2, 2, 131, 1},
                               {70, 5, 1, 1},  {37, 6, 1, 2},  {0, 4, 3, 2}, {3, 4, 0, 2},
                               {2, 3, 16, 3},  {5, 83, 1, 1},  {2, 4, 1, 4}, {37, 13, 1, 1},
                               {21, 27, 1, 1}, {18, 16, 1, 1}, {5, 6, 9, 2}, {4, 5, 33, 5}};

/// In double, element by element, from the definition.
struct reference {
  std::vector<double> y, dx, dgamma, dbeta, variance;
};

/// Unless `centered` is set, the root mean square norm.
template <class T>
reference compute(const sizes& s, bool centered, double eps, const guarded<T>& x,
                  const guarded<T>& dy, const T* gamma, const T* beta) {
  const dim_t each = s.channels / s.groups, n = each * s.inner, total = s.batch * s.groups * n;
  reference r;
  r.y.resize(static_cast<std::size_t>(total));
  r.dx = r.y;
  r.dgamma.resize(static_cast<std::size_t>(s.channels));
  r.dbeta = r.dgamma;
  for (dim_t row = 0; row < s.batch * s.groups && n > 0; ++row) {
    const auto channel = [&](dim_t i) { return row % s.groups * each + i / s.inner; };
    const auto weight = [&](dim_t i) {
      return gamma != nullptr ? static_cast<double>(gamma[channel(i)]) : 1;
    };
    const auto of = [&](const guarded<T>& a, dim_t i) {
      return static_cast<double>(a[row * n + i]);
    };
    const double count = static_cast<double>(n);
    double mean = 0, variance = 0, total_dy = 0, total_x = 0;
    for (dim_t i = 0; i < n && centered; ++i) mean += of(x, i) / count;
    for (dim_t i = 0; i < n; ++i) variance += std::pow(of(x, i) - mean, 2) / count;
    const double invstd = 1 / std::sqrt(variance + eps);
    const auto normal = [&](dim_t i) { return (of(x, i) - mean) * invstd; };
    for (dim_t i = 0; i < n; ++i) {
      total_dy += of(dy, i) * weight(i);
      total_x += of(dy, i) * weight(i) * normal(i);
    }
    if (!centered) total_dy = 0;
    for (dim_t i = 0; i < n; ++i) {
      const auto at = static_cast<std::size_t>(row * n + i);
      const auto c = static_cast<std::size_t>(channel(i));
      r.y[at] = normal(i) * weight(i) + (beta != nullptr ? static_cast<double>(beta[c]) : 0);
      r.dx[at] = invstd * (of(dy, i) * weight(i) - total_dy / count - normal(i) * total_x / count);
      r.dgamma[c] += of(dy, i) * normal(i);
      r.dbeta[c] += of(dy, i);
    }
    r.variance.push_back(n > 1 ? variance * count / (count - 1) : 0);
  }
  return r;
}

template <class T>
void add_one(std::vector<T>& x) {
  for (T& v : x) v += 1;
}

}  // namespace

TEST_CASE_TEMPLATE("group norm and layer norm are what their definition says", T, float, double) {
  generator r(61);
  for_each_set([&] {
    for (const sizes s : all_sizes)
      for (bool affine : {false, true}) {
        INFO("batch " << s.batch << " channels " << s.channels << " inner " << s.inner << " groups "
                      << s.groups << " affine " << affine);
        const dim_t n = s.batch * s.channels * s.inner, rows = s.batch * s.groups;
        // A mean far from zero, where a one-pass variance would fail.
        guarded<T> x(n, r);
        for (dim_t i = 0; i < n; ++i) x[i] += T(10);
        const guarded<T> gamma(s.channels, r), beta(s.channels, r), dy(n, r);
        const T* weight = affine ? gamma.data() : nullptr;
        const T* offset = affine ? beta.data() : nullptr;
        const double eps = 1e-3;
        const reference expected = compute<T>(s, true, eps, x, dy, weight, offset);
        reference added = expected;
        add_one(added.dgamma);
        add_one(added.dbeta);
        // A group without inner elements is also a row of layer norm.
        for (bool as_rows : {false, true}) {
          if (as_rows && s.inner != 1) continue;
          guarded<T> y(n), mean(rows), invstd(rows), variance(rows);
          guarded<T> dx(n), dgamma(s.channels, T(1)), dbeta(s.channels, T(1));
          const auto backward = [&](bool accumulate) {
            if (as_rows)
              cpu::layer_norm_backward<T>(rows, s.channels / s.groups, s.groups, x.data(),
                                          dy.data(), weight, mean.data(), invstd.data(), dx.data(),
                                          dgamma.data(), dbeta.data(), accumulate);
            else
              cpu::group_norm_backward<T>(s.batch, s.channels, s.inner, s.groups, x.data(),
                                          dy.data(), weight, mean.data(), invstd.data(), dx.data(),
                                          dgamma.data(), dbeta.data(), accumulate);
          };
          if (as_rows)
            cpu::layer_norm_forward<T>(rows, s.channels / s.groups, s.groups, x.data(), weight,
                                       offset, T(eps), y.data(), mean.data(), invstd.data());
          else
            cpu::group_norm_forward<T>(s.batch, s.channels, s.inner, s.groups, x.data(), weight,
                                       offset, T(eps), y.data(), mean.data(), invstd.data(),
                                       variance.data());
          CHECK(all_close(y, expected.y, rounding<T> * 1000));
          if (!as_rows && s.inner > 0) CHECK(all_close(variance, expected.variance, 1e-4));
          backward(true);
          CHECK(all_close(dx, expected.dx, rounding<T> * 4000));
          CHECK(all_close(dgamma, added.dgamma, rounding<T> * 4000));
          CHECK(all_close(dbeta, added.dbeta, rounding<T> * 100));
          backward(false);
          CHECK(all_close(dgamma, expected.dgamma, rounding<T> * 4000));
          CHECK(all_close(dbeta, expected.dbeta, rounding<T> * 100));
          for (const auto* g : {&y, &mean, &invstd, &variance, &dx, &dgamma, &dbeta})
            CHECK(g->intact());
        }
      }
  });
}

TEST_CASE_TEMPLATE("rms norm is what its definition says", T, float, double) {
  generator r(62);
  for_each_set([&] {
    for (const sizes s : {sizes{1, 1}, {3, 5}, {70, 7}, {41, 30}, {2, 131}, {0, 3}, {3, 0}})
      for (bool affine : {false, true}) {
        const dim_t rows = s.batch, n = s.channels;
        INFO("rows " << rows << " n " << n << " affine " << affine);
        const guarded<T> x(rows * n, r), dy(rows * n, r), gamma(n, r);
        const T* weight = affine ? gamma.data() : nullptr;
        const double eps = 1e-3;
        // As channels of one element.
        const reference expected =
            compute<T>(sizes{rows, n, 1, 1}, false, eps, x, dy, weight, nullptr);
        guarded<T> y(rows * n), invrms(rows), dx(rows * n), dgamma(n, T(1));
        cpu::rms_norm_forward<T>(rows, n, x.data(), weight, T(eps), y.data(), invrms.data());
        CHECK(all_close(y, expected.y, rounding<T> * 50));
        cpu::rms_norm_backward<T>(rows, n, x.data(), dy.data(), weight, invrms.data(), dx.data(),
                                  dgamma.data(), false);
        CHECK(all_close(dx, expected.dx, rounding<T> * 1000));
        CHECK(all_close(dgamma, expected.dgamma, rounding<T> * 200));
        for (const auto* g : {&y, &invrms, &dx, &dgamma}) CHECK(g->intact());
      }
  });
}

TEST_CASE("the gradient of a norm may be written over the one it is given") {
  generator r(63);
  for_each_set([&] {
    const guarded<float> x(74 * 6, r), gamma(6, r);
    guarded<float> dy(74 * 6, r), y(74 * 6), mean(74), invstd(74), dx(74 * 6);
    guarded<float> dgamma(6), dbeta(6), dgamma2(6), dbeta2(6);
    cpu::layer_norm_forward<float>(74, 6, 1, x.data(), gamma.data(), nullptr, 1e-5f, y.data(),
                                   mean.data(), invstd.data());
    cpu::layer_norm_backward<float>(74, 6, 1, x.data(), dy.data(), gamma.data(), mean.data(),
                                    invstd.data(), dx.data(), dgamma.data(), dbeta.data(), false);
    cpu::layer_norm_backward<float>(74, 6, 1, x.data(), dy.data(), gamma.data(), mean.data(),
                                    invstd.data(), dy.data(), dgamma2.data(), dbeta2.data(), false);
    for (dim_t i = 0; i < 74 * 6; ++i) CHECK(dx[i] == dy[i]);
    for (dim_t i = 0; i < 6; ++i) CHECK(dgamma[i] == dgamma2[i]);
    for (dim_t i = 0; i < 6; ++i) CHECK(dbeta[i] == dbeta2[i]);
  });
}

TEST_CASE_TEMPLATE("a norm of a sum is the norm of what was added before", T, float, double) {
  generator r(64);
  for_each_set([&] {
    for (const sizes s : {sizes{1, 1}, {3, 5}, {37, 64}, {5, 331}, {2, 5000}}) {
      const dim_t rows = s.batch, n = s.channels, all = rows * n;
      INFO("rows " << rows << " n " << n);
      const guarded<T> x(all, r), residual(all, r), gamma(n, r), beta(n, r);
      guarded<T> added(all), total(all), y(all), expected(all), mean(rows), invstd(rows);
      for (dim_t i = 0; i < all; ++i) added[i] = x[i] + residual[i];
      const auto same = [&] {
        bool equal = true;
        for (dim_t i = 0; i < all; ++i)
          equal = equal && y[i] == expected[i] && total[i] == added[i];
        CHECK(equal);
        for (const auto* g : {&total, &y, &mean, &invstd}) CHECK(g->intact());
      };
      cpu::layer_norm_forward<T>(rows, n, 1, added.data(), gamma.data(), beta.data(), T(1e-5),
                                 expected.data(), mean.data(), invstd.data());
      cpu::add_layer_norm_forward<T>(rows, n, x.data(), residual.data(), total.data(), gamma.data(),
                                     beta.data(), T(1e-5), y.data(), mean.data(), invstd.data());
      same();
      cpu::rms_norm_forward<T>(rows, n, added.data(), gamma.data(), T(1e-5), expected.data(),
                               invstd.data());
      cpu::add_rms_norm_forward<T>(rows, n, x.data(), residual.data(), total.data(), gamma.data(),
                                   T(1e-5), y.data(), invstd.data());
      same();

      // A row's result does not depend on the other rows.
      const dim_t last = (rows - 1) * n;
      cpu::rms_norm_forward<T>(1, n, added.data() + last, gamma.data(), T(1e-5), y.data() + last,
                               invstd.data());
      same();
    }
  });
}
