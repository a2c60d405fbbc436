#include "ikebana/cpu/pad.hpp"

#include <cstdlib>
#include <vector>

#include "support.hpp"

using namespace cpu_test;
namespace cpu = ikebana::cpu;
using cpu::border;

namespace {

/// Walks from position 0 to `at` in single steps, each as the border mode defines it.
dim_t walked(border b, dim_t at, dim_t extent) {
  const dim_t step = at < 0 ? -1 : 1;
  dim_t place = 0, direction = step;
  for (dim_t i = 0; i < std::abs(at); ++i) {
    const dim_t next = place + direction;
    if (next >= 0 && next < extent) {
      place = next;
    } else if (b == border::reflect) {
      direction = -direction;
      place += extent > 1 ? direction : 0;
    } else if (b == border::circular) {
      place = next < 0 ? extent - 1 : 0;
    }
  }
  return place;
}

cpu::pad_geometry geometry(dim_t planes, std::array<dim_t, 3> in, std::array<dim_t, 3> before,
                           std::array<dim_t, 3> after) {
  return {
      planes,
      in,
      before,
      {in[0] + before[0] + after[0], in[1] + before[1] + after[1], in[2] + before[2] + after[2]}};
}

const cpu::pad_geometry geometries[] = {
    geometry(3, {1, 1, 7}, {0, 0, 2}, {0, 0, 3}),  geometry(2, {1, 4, 5}, {0, 1, 0}, {0, 3, 4}),
    geometry(2, {3, 5, 37}, {2, 2, 1}, {0, 1, 2}), geometry(1, {2, 3, 4}, {1, 2, 3}, {1, 2, 3}),
    geometry(2, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}),  geometry(0, {1, 3, 3}, {0, 1, 1}, {0, 1, 1}),
};

}  // namespace

TEST_CASE_TEMPLATE("images widened by every kind of border, and the gradient", T, float, double) {
  generator r(81);
  for (const cpu::pad_geometry& g : geometries)
    for (const border b : {border::reflect, border::replicate, border::circular}) {
      const dim_t plane = g.in[0] * g.in[1] * g.in[2], wide = g.out[0] * g.out[1] * g.out[2];
      const guarded<T> x(g.planes * plane, r), dy(g.planes * wide, r);
      std::vector<dim_t> from(static_cast<std::size_t>(g.planes * wide));
      std::vector<double> expected(from.size()),
          gradient(static_cast<std::size_t>(g.planes * plane));
      std::size_t o = 0;
      for (dim_t p = 0; p < g.planes; ++p)
        for (dim_t z = 0; z < g.out[0]; ++z)
          for (dim_t y = 0; y < g.out[1]; ++y)
            for (dim_t c = 0; c < g.out[2]; ++c, ++o) {
              const dim_t i = ((p * g.in[0] + walked(b, z - g.before[0], g.in[0])) * g.in[1] +
                               walked(b, y - g.before[1], g.in[1])) *
                                  g.in[2] +
                              walked(b, c - g.before[2], g.in[2]);
              expected[o] = static_cast<double>(x[i]);
              gradient[static_cast<std::size_t>(i)] +=
                  static_cast<double>(dy[static_cast<dim_t>(o)]);
            }
      for_each_set([&] {
        guarded<T> y(g.planes * wide, T(9)), dx(g.planes * plane, T(9));
        cpu::pad_forward<T>(g, b, x.data(), y.data());
        cpu::pad_backward<T>(g, b, dy.data(), dx.data());
        CHECK(all_close(y, expected, 0));
        CHECK(all_close(dx, gradient, rounding<T> * 64));
        CHECK(y.intact());
        CHECK(dx.intact());
      });
    }
}
