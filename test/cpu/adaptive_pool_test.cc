#include "ikebana/cpu/adaptive_pool.hpp"

#include <limits>

#include "support.hpp"

using namespace cpu_test;
namespace cpu = ikebana::cpu;

namespace {

dim_t volume(const std::array<dim_t, 3>& e) { return e[0] * e[1] * e[2]; }

}  // namespace

TEST_CASE_TEMPLATE("adaptive pooling covers the input with windows of almost equal size", T, float,
                   double) {
  generator r(84);
  const cpu::adaptive_pool_geometry adaptive[] = {
      {3, {1, 7, 9}, {1, 3, 4}},  {2, {1, 5, 5}, {1, 7, 8}},  {2, {3, 5, 20}, {2, 5, 20}},
      {2, {1, 7, 7}, {1, 1, 1}},  {1, {4, 9, 70}, {1, 1, 1}}, {2, {1, 3, 101}, {1, 1, 3}},
      {2, {1, 6, 33}, {1, 2, 1}}, {0, {1, 4, 4}, {1, 2, 2}},  {2, {1, 4, 4}, {1, 0, 2}},
      {2, {5, 4, 3}, {3, 2, 2}},  {37, {1, 7, 7}, {1, 3, 3}}, {18, {2, 5, 6}, {1, 3, 4}},
  };
  for (const cpu::adaptive_pool_geometry& g : adaptive) {
    const dim_t nx = g.planes * volume(g.in), ny = g.planes * volume(g.out);
    guarded<T> x(nx, r);
    for (dim_t i = 0; i < nx; ++i) x[i] = std::round(x[i] * T(4));
    const guarded<T> dy(ny, r);
    std::vector<double> mean(static_cast<std::size_t>(ny)), most(mean),
        dmean(static_cast<std::size_t>(nx)), dmost(dmean);
    std::vector<std::int32_t> places(static_cast<std::size_t>(ny));
    const auto ceil_of = [](dim_t a, dim_t b) { return a / b + (a % b != 0); };
    dim_t o = 0;
    for (dim_t plane = 0; plane < g.planes; ++plane)
      for (dim_t oz = 0; oz < g.out[0]; ++oz)
        for (dim_t oy = 0; oy < g.out[1]; ++oy)
          for (dim_t ox = 0; ox < g.out[2]; ++ox, ++o) {
            const dim_t place[] = {oz, oy, ox};
            dim_t begin[3], end[3], size = 1;
            for (std::size_t d = 0; d < 3; ++d) {
              begin[d] = place[d] * g.in[d] / g.out[d];
              end[d] = ceil_of((place[d] + 1) * g.in[d], g.out[d]);
              size *= end[d] - begin[d];
            }
            double total = 0, best = -1e9;
            dim_t best_at = 0;
            for (dim_t iz = begin[0]; iz < end[0]; ++iz)
              for (dim_t iy = begin[1]; iy < end[1]; ++iy)
                for (dim_t ix = begin[2]; ix < end[2]; ++ix) {
                  const dim_t at = (iz * g.in[1] + iy) * g.in[2] + ix;
                  const auto v = static_cast<double>(x[plane * volume(g.in) + at]);
                  total += v;
                  if (v > best) {
                    best = v;
                    best_at = at;
                  }
                  dmean[static_cast<std::size_t>(plane * volume(g.in) + at)] +=
                      static_cast<double>(dy[o]) / static_cast<double>(size);
                }
            const auto k = static_cast<std::size_t>(o);
            mean[k] = total / static_cast<double>(size);
            most[k] = best;
            places[k] = static_cast<std::int32_t>(best_at);
            dmost[static_cast<std::size_t>(plane * volume(g.in) + best_at)] +=
                static_cast<double>(dy[o]);
          }
    for_each_set([&] {
      guarded<T> y(ny), z(ny), dx(nx, std::numeric_limits<T>::quiet_NaN()), dz(dx);
      guarded<std::int32_t> indices(ny);
      cpu::adaptive_avg_pool_forward(g, x.data(), y.data());
      cpu::adaptive_avg_pool_backward(g, dy.data(), dx.data());
      cpu::adaptive_max_pool_forward(g, x.data(), z.data(), indices.data());
      cpu::adaptive_max_pool_backward(g, dy.data(), indices.data(), dz.data());
      CHECK(all_close(y, mean, rounding<T> * 16));
      CHECK(all_close(dx, dmean, rounding<T> * 16));
      CHECK(all_close(z, most, 0));
      CHECK(all_close(indices, places, 0));
      CHECK(all_close(dz, dmost, rounding<T> * 16));
      for (const auto* a : {&y, &z, &dx, &dz}) CHECK(a->intact());
      CHECK(indices.intact());
    });
  }
}
