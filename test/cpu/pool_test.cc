#include "ikebana/cpu/pool.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ikebana/cpu/pool/run.hpp"
#include "ikebana/cpu/threads.hpp"
#include "support.hpp"

using namespace cpu_test;
namespace cpu = ikebana::cpu;
using cpu::pool_geometry;

namespace {

pool_geometry geometry(dim_t planes, std::array<dim_t, 3> in, std::array<dim_t, 3> kernel,
                       std::array<dim_t, 3> stride, std::array<dim_t, 3> padding,
                       std::array<dim_t, 3> dilation, bool ceil_mode = false) {
  pool_geometry g{planes, in, {}, kernel, stride, padding, dilation};
  for (std::size_t d = 0; d < 3; ++d) {
    const dim_t room = in[d] + 2 * padding[d] - dilation[d] * (kernel[d] - 1) - 1;
    g.out[d] = (room + (ceil_mode ? stride[d] - 1 : 0)) / stride[d] + 1;
    if (ceil_mode && (g.out[d] - 1) * stride[d] >= in[d] + padding[d]) --g.out[d];
  }
  return g;
}

const pool_geometry geometries[] = {
    geometry(3, {1, 8, 8}, {1, 2, 2}, {1, 2, 2}, {0, 0, 0}, {1, 1, 1}),
    geometry(2, {1, 7, 75}, {1, 2, 2}, {1, 2, 2}, {0, 0, 0}, {1, 1, 1}),
    geometry(2, {3, 4, 33}, {1, 2, 2}, {1, 2, 2}, {0, 0, 0}, {1, 1, 1}),
    geometry(2, {1, 7, 9}, {1, 2, 2}, {1, 2, 2}, {0, 0, 0}, {1, 1, 1}, true),
    geometry(2, {1, 9, 10}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}),
    geometry(1, {1, 10, 11}, {1, 3, 2}, {1, 1, 2}, {0, 1, 1}, {1, 1, 1}, true),
    geometry(2, {5, 6, 7}, {2, 3, 3}, {2, 1, 2}, {1, 1, 0}, {1, 1, 1}),
    geometry(0, {1, 4, 4}, {1, 2, 2}, {1, 2, 2}, {0, 0, 0}, {1, 1, 1}),
    geometry(2, {1, 5, 67}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}),
    geometry(2, {1, 4, 53}, {1, 3, 4}, {1, 1, 1}, {0, 1, 2}, {1, 1, 1}, true),
    geometry(1, {1, 3, 83}, {1, 2, 3}, {1, 3, 3}, {0, 1, 1}, {1, 1, 1}, true),
    geometry(2, {4, 4, 37}, {2, 2, 2}, {2, 2, 2}, {0, 0, 0}, {1, 1, 1}),
    geometry(2, {1, 6, 41}, {1, 5, 23}, {1, 1, 9}, {0, 2, 0}, {1, 1, 1}),
    geometry(2, {2, 3, 19}, {2, 3, 19}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}),
    geometry(3, {1, 14, 14}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}),
    geometry(2, {1, 5, 9}, {1, 2, 2}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}),
    geometry(2, {1, 2, 2}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}),
    geometry(2, {6, 9, 14}, {3, 3, 3}, {2, 2, 2}, {1, 1, 1}, {1, 1, 1}),
    geometry(2, {1, 7, 11}, {1, 3, 3}, {1, 2, 1}, {0, 1, 1}, {1, 1, 1}, true),
    geometry(2, {1, 4, 0}, {1, 2, 2}, {1, 2, 2}, {0, 0, 0}, {1, 1, 1}),
    // Narrow planes without leftover elements, more of them than are joined together.
    geometry(90, {1, 10, 10}, {1, 2, 2}, {1, 2, 2}, {0, 0, 0}, {1, 1, 1}),
    geometry(3, {2, 6, 2}, {1, 2, 2}, {1, 2, 2}, {0, 0, 0}, {1, 1, 1}),
    geometry(5, {1, 26, 46}, {1, 2, 2}, {1, 2, 2}, {0, 0, 0}, {1, 1, 1}),
    // Windows of a whole plane.
    geometry(21, {1, 7, 7}, {1, 7, 7}, {1, 7, 7}, {0, 0, 0}, {1, 1, 1}),
    geometry(2, {1, 8, 8}, {1, 8, 8}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}),
    geometry(3, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}),
    // 3x3 windows: planes narrower than a vector, and of several vectors.
    geometry(3, {2, 7, 7}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}),
    geometry(2, {1, 1, 1}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}),
    geometry(2, {1, 6, 35}, {1, 3, 3}, {1, 1, 1}, {0, 0, 1}, {1, 1, 1}),
    geometry(2, {1, 3, 16}, {1, 3, 3}, {1, 1, 1}, {0, 0, 1}, {1, 1, 1}),
    geometry(2, {1, 6, 34}, {1, 3, 3}, {1, 2, 2}, {0, 0, 1}, {1, 1, 1}),
    // Several tiles per plane.
    geometry(2, {1, 31, 700}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}),
    geometry(1, {1, 61, 1301}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}),
    geometry(2, {1, 1, 5003}, {1, 1, 3}, {1, 1, 2}, {0, 0, 1}, {1, 1, 1}),
    geometry(2, {1, 1, 9001}, {1, 1, 4}, {1, 1, 4}, {0, 0, 1}, {1, 1, 1}),
    // Windows that touch, overlap, or leave elements out.
    geometry(5, {1, 13, 22}, {1, 4, 4}, {1, 4, 4}, {0, 0, 0}, {1, 1, 1}),
    geometry(3, {1, 12, 33}, {1, 3, 3}, {1, 3, 3}, {0, 0, 0}, {1, 1, 1}),
    geometry(3, {2, 9, 31}, {1, 5, 7}, {1, 3, 3}, {0, 2, 3}, {1, 1, 1}),
    geometry(2, {4, 7, 150}, {3, 7, 6}, {2, 4, 4}, {1, 3, 2}, {1, 1, 1}),
    geometry(4, {1, 11, 19}, {1, 2, 2}, {1, 4, 3}, {0, 1, 1}, {1, 1, 1}),
    geometry(2, {1, 9, 40}, {1, 7, 6}, {1, 5, 5}, {0, 2, 1}, {1, 1, 1}, true),
    geometry(2, {1, 2, 400}, {1, 1, 3}, {1, 1, 17}, {0, 0, 0}, {1, 1, 1}),
    geometry(3, {1, 2, 44}, {1, 1, 8}, {1, 1, 8}, {0, 0, 0}, {1, 1, 1}),
    geometry(2, {1, 9, 11}, {1, 4, 5}, {1, 2, 2}, {0, 0, 1}, {1, 1, 1}, true),
    // Several tiles of rows with partial vectors.
    geometry(2, {1, 500, 21}, {1, 5, 5}, {1, 1, 1}, {0, 2, 2}, {1, 1, 1}),
    geometry(1, {1, 400, 35}, {1, 7, 4}, {1, 3, 3}, {0, 3, 2}, {1, 1, 1}),
    geometry(1, {3, 300, 20}, {2, 2, 3}, {1, 3, 1}, {1, 0, 1}, {1, 1, 1}),
    // Many planes of a few short rows.
    geometry(37, {1, 5, 4}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}),
    geometry(35, {1, 7, 7}, {1, 6, 5}, {1, 1, 1}, {0, 3, 2}, {1, 1, 1}),
    geometry(34, {3, 3, 3}, {2, 2, 2}, {2, 2, 2}, {1, 0, 1}, {1, 1, 1}),
    geometry(33, {1, 9, 8}, {1, 4, 4}, {1, 3, 3}, {0, 1, 1}, {1, 1, 1}, true),
    geometry(33, {1, 3, 3}, {1, 3, 3}, {1, 3, 3}, {0, 1, 1}, {1, 1, 1}),
    // Wide windows side by side.
    geometry(2, {1, 40, 7}, {1, 7, 7}, {1, 1, 1}, {0, 3, 3}, {1, 1, 1}),
    geometry(1, {1, 1, 1500}, {1, 1, 70}, {1, 1, 3}, {0, 0, 0}, {1, 1, 1}),
};
const pool_geometry dilated_geometries[] = {
    geometry(2, {1, 12, 11}, {1, 3, 3}, {1, 2, 1}, {0, 1, 1}, {1, 2, 3}),
    geometry(1, {1, 7, 61}, {1, 2, 3}, {1, 1, 2}, {0, 1, 1}, {1, 3, 4}, true),
    geometry(1, {5, 4, 45}, {2, 2, 2}, {1, 2, 3}, {1, 0, 1}, {3, 2, 5}),
    geometry(2, {1, 40, 9}, {1, 3, 3}, {1, 2, 1}, {0, 2, 1}, {1, 3, 2}),
    geometry(35, {1, 6, 8}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}, {1, 2, 2}),
};

dim_t volume(const std::array<dim_t, 3>& e) { return e[0] * e[1] * e[2]; }

/// Calls f(index within the plane) for each element of the window of output (oz, oy, ox) inside the
/// input.
template <class F>
void for_each_element(const pool_geometry& g, dim_t oz, dim_t oy, dim_t ox, F f) {
  for (dim_t kz = 0; kz < g.kernel[0]; ++kz)
    for (dim_t ky = 0; ky < g.kernel[1]; ++ky)
      for (dim_t kx = 0; kx < g.kernel[2]; ++kx) {
        const dim_t z = oz * g.stride[0] - g.padding[0] + kz * g.dilation[0];
        const dim_t r = oy * g.stride[1] - g.padding[1] + ky * g.dilation[1];
        const dim_t c = ox * g.stride[2] - g.padding[2] + kx * g.dilation[2];
        if (z >= 0 && z < g.in[0] && r >= 0 && r < g.in[1] && c >= 0 && c < g.in[2])
          f((z * g.in[1] + r) * g.in[2] + c);
      }
}

template <class F>
void for_each_output(const pool_geometry& g, F f) {
  dim_t o = 0;
  for (dim_t plane = 0; plane < g.planes; ++plane)
    for (dim_t oz = 0; oz < g.out[0]; ++oz)
      for (dim_t oy = 0; oy < g.out[1]; ++oy)
        for (dim_t ox = 0; ox < g.out[2]; ++ox, ++o) f(plane, oz, oy, ox, o);
}

template <class T>
void check_maximum(const pool_geometry& g, bool with_nan, generator& r) {
  const dim_t nx = g.planes * volume(g.in), ny = g.planes * volume(g.out);
  guarded<T> x(nx, r);
  // Few distinct values, so that ties occur and the first must win.
  for (dim_t i = 0; i < nx; ++i) x[i] = std::round(x[i] * T(4));
  if (with_nan) {
    // Windows of nothing but -infinity, too: their place is the first.
    for (dim_t i = nx / 2; i < nx; ++i)
      x[i] = (i % 11 == 3 ? T(1) : T(-1)) * std::numeric_limits<T>::infinity();
    for (dim_t i = 0; i < nx; i += 13) x[i] = std::numeric_limits<T>::quiet_NaN();
  }
  const guarded<T> dy(ny, r);
  std::vector<double> ey(static_cast<std::size_t>(ny)), edx(static_cast<std::size_t>(nx));
  std::vector<std::int32_t> places(static_cast<std::size_t>(ny));
  for_each_output(g, [&](dim_t plane, dim_t oz, dim_t oy, dim_t ox, dim_t o) {
    T best = -std::numeric_limits<T>::infinity();
    dim_t place = -1;
    for_each_element(g, oz, oy, ox, [&](dim_t i) {
      const T v = x[plane * volume(g.in) + i];
      if (place < 0 || v > best || std::isnan(v)) {
        best = v;
        place = i;
      }
    });
    ey[static_cast<std::size_t>(o)] = static_cast<double>(best);
    places[static_cast<std::size_t>(o)] = static_cast<std::int32_t>(place);
    edx[static_cast<std::size_t>(plane * volume(g.in) + place)] += static_cast<double>(dy[o]);
  });
  for_each_set([&] {
    guarded<T> y(ny), alone(ny), dx(nx, std::numeric_limits<T>::quiet_NaN());
    guarded<std::int32_t> indices(ny);
    cpu::max_pool_forward(g, x.data(), y.data(), indices.data());
    cpu::max_pool_forward<T>(g, x.data(), alone.data(), nullptr);
    cpu::max_pool_backward(g, dy.data(), indices.data(), dx.data());
    CHECK(all_close(y, ey, 0));
    CHECK(all_close(alone, ey, 0));
    CHECK(all_close(indices, places, 0));
    CHECK(all_close(dx, edx, rounding<T> * 16));
    for (const auto* a : {&y, &alone, &dx}) CHECK(a->intact());
    CHECK(indices.intact());
  });
}

}  // namespace

TEST_CASE_TEMPLATE("max pooling finds the first maximum, and its gradient goes there", T, float,
                   double) {
  generator r(81);
  for (const pool_geometry& g : geometries) check_maximum<T>(g, false, r);
  for (const pool_geometry& g : dilated_geometries) check_maximum<T>(g, false, r);
}

TEST_CASE_TEMPLATE("max pooling lets not-a-number through, whose place is the last of several", T,
                   float, double) {
  generator r(82);
  for (const pool_geometry& g : geometries) check_maximum<T>(g, true, r);
  for (const pool_geometry& g : dilated_geometries) check_maximum<T>(g, true, r);
}

TEST_CASE_TEMPLATE("average pooling divides as asked, and its gradient is its transpose", T, float,
                   double) {
  generator r(83);
  for (const pool_geometry& g : geometries)
    for (bool count_include_pad : {false, true})
      for (dim_t divisor : {0, 3}) {
        const dim_t nx = g.planes * volume(g.in), ny = g.planes * volume(g.out);
        const guarded<T> x(nx, r), dy(ny, r);
        std::vector<double> ey(static_cast<std::size_t>(ny)), edx(static_cast<std::size_t>(nx));
        for_each_output(g, [&](dim_t plane, dim_t oz, dim_t oy, dim_t ox, dim_t o) {
          dim_t padded = 1, inside = 0;
          const dim_t place[] = {oz, oy, ox};
          for (std::size_t d = 0; d < 3; ++d) {
            const dim_t start = place[d] * g.stride[d] - g.padding[d];
            padded *= std::min(start + g.kernel[d], g.in[d] + g.padding[d]) - start;
          }
          double total = 0;
          for_each_element(g, oz, oy, ox, [&](dim_t i) {
            total += static_cast<double>(x[plane * volume(g.in) + i]);
            ++inside;
          });
          const auto by = static_cast<double>(divisor != 0        ? divisor
                                              : count_include_pad ? padded
                                                                  : inside);
          ey[static_cast<std::size_t>(o)] = total / by;
          for_each_element(g, oz, oy, ox, [&](dim_t i) {
            edx[static_cast<std::size_t>(plane * volume(g.in) + i)] +=
                static_cast<double>(dy[o]) / by;
          });
        });
        for_each_set([&] {
          guarded<T> y(ny), dx(nx, std::numeric_limits<T>::quiet_NaN());
          cpu::avg_pool_forward(g, x.data(), y.data(), count_include_pad, divisor);
          cpu::avg_pool_backward(g, dy.data(), dx.data(), count_include_pad, divisor);
          CHECK(all_close(y, ey, rounding<T> * 16));
          CHECK(all_close(dx, edx, rounding<T> * 16));
          CHECK(y.intact());
          CHECK(dx.intact());
        });
      }
}

namespace {

template <class T>
bool same(const guarded<T>& got, const guarded<T>& expected, double tolerance = 0) {
  return all_close(got, std::vector<T>(expected.data(), expected.data() + expected.size()),
                   tolerance);
}

using cpu::pool_algorithm;
using cpu::pool_fit;
using cpu::pool_work;

/// Runs each algorithm that applies to g, and compares it with the last one.
template <pool_work Work, class T>
void check_each(const pool_geometry& g, int (&made)[std::size(cpu::pool_algorithms)],
                generator& r) {
  constexpr bool backward =
                     Work == pool_work::average_backward || Work == pool_work::maximum_backward,
                 averages = Work == pool_work::average || Work == pool_work::average_backward;
  if (averages && volume(g.dilation) != 1) return;
  const dim_t nx = g.planes * volume(g.in), ny = g.planes * volume(g.out);
  const guarded<T> source(backward ? ny : nx, r);
  const guarded<T> x(nx, r);
  guarded<T> y(ny), expected(backward ? nx : ny);
  guarded<std::int32_t> found(ny), indices(ny);
  cpu::detail::maxima_by_windows(cpu::detail::windows_of(g), x.data(), y.data(), indices.data());
  cpu::detail::pool_job<T> job{
      source.data(), expected.data(), nullptr, averages ? T(0.25) : T(1), true, 4};
  if (Work == pool_work::maximum_with_place) job.indices = indices.data();
  if (Work == pool_work::maximum_backward) job.maxima = indices.data();
  cpu::detail::pool_by<T>(pool_algorithm::plain, Work, g, job);
  for_each_set([&] {
    for (const pool_algorithm algorithm : cpu::pool_algorithms) {
      if (applies(algorithm, {Work, g}) != pool_fit::always) continue;
      INFO(std::string(name(algorithm))
           << " of " << g.planes << "x" << g.in[0] << "x" << g.in[1] << "x" << g.in[2] << " by "
           << g.kernel[1] << "x" << g.kernel[2]);
      guarded<T> result(backward ? nx : ny, std::numeric_limits<T>::quiet_NaN());
      job.result = result.data();
      if (job.indices != nullptr) job.indices = found.data();
      if (!cpu::detail::pool_by<T>(algorithm, Work, g, job)) continue;
      ++made[static_cast<int>(algorithm)];
      CHECK(same(result, expected, averages || backward ? rounding<T> * 16 : 0));
      if (job.indices != nullptr) CHECK(same(found, indices));
      CHECK(result.intact());
      CHECK(found.intact());
    }
  });
}

constexpr pool_geometry known(std::array<dim_t, 3> kernel, std::array<dim_t, 3> stride,
                              std::array<dim_t, 3> padding,
                              std::array<dim_t, 3> dilation = {1, 1, 1}) {
  return {-1, {-1, -1, -1}, {-1, -1, -1}, kernel, stride, padding, dilation};
}

/// The algorithms that a type's windows leave, compared with all of them.
template <pool_geometry K, bool Ceils, class T>
void check_set(std::array<dim_t, 3> in, generator& r) {
  const pool_geometry g = geometry(3, in, K.kernel, K.stride, K.padding, K.dilation, Ceils);
  const dim_t nx = g.planes * volume(g.in), ny = g.planes * volume(g.out);
  const guarded<T> x(nx, r), dy(ny, r);
  static constexpr auto set = [](pool_work work, pool_fit one_divisor = pool_fit::always) {
    return cpu::pool_set_of({work, K, Ceils, one_divisor});
  };
  constexpr cpu::pool_set maxima = set(pool_work::maximum) | set(pool_work::maximum_with_place);
  for_each_set([&] {
    guarded<T> y(ny), all(ny), alone(ny), dx(nx), all_dx(nx);
    guarded<std::int32_t> places(ny), all_places(ny);
    cpu::max_pool_forward<T, maxima>(g, x.data(), y.data(), places.data());
    cpu::max_pool_forward<T, maxima>(g, x.data(), alone.data(), nullptr);
    cpu::max_pool_backward<T, set(pool_work::maximum_backward)>(g, dy.data(), places.data(),
                                                                dx.data());
    cpu::max_pool_forward(g, x.data(), all.data(), all_places.data());
    cpu::max_pool_backward(g, dy.data(), places.data(), all_dx.data());
    CHECK(same(y, all));
    CHECK(same(alone, all));
    CHECK(same(places, all_places));
    CHECK(same(dx, all_dx));
    if constexpr (K.dilation[1] == 1 && K.dilation[2] == 1) {
      const bool counted = Ceils;
      constexpr cpu::pool_set spread = set(pool_work::average_backward);
      cpu::avg_pool_forward<T, set(pool_work::average, pool_fit::perhaps)>(g, x.data(), y.data(),
                                                                           counted, 0);
      cpu::avg_pool_backward<T, spread>(g, dy.data(), dx.data(), counted, 0);
      cpu::avg_pool_forward(g, x.data(), all.data(), counted, 0);
      cpu::avg_pool_backward(g, dy.data(), all_dx.data(), counted, 0);
      CHECK(same(y, all, rounding<T> * 16));
      CHECK(same(dx, all_dx, rounding<T> * 16));
      cpu::avg_pool_forward<T, set(pool_work::average)>(g, x.data(), y.data(), counted, 5);
      cpu::avg_pool_forward(g, x.data(), all.data(), counted, 5);
      CHECK(same(y, all, rounding<T> * 16));
    }
  });
}

}  // namespace

TEST_CASE_TEMPLATE("each algorithm of pooling that applies gives the same", T, float, double) {
  generator r(87);
  int made[std::size(cpu::pool_algorithms)] = {};
  const auto check = [&](const pool_geometry& g) {
    check_each<pool_work::maximum, T>(g, made, r);
    check_each<pool_work::maximum_with_place, T>(g, made, r);
    check_each<pool_work::maximum_backward, T>(g, made, r);
    if (volume(g.dilation) != 1) return;
    check_each<pool_work::average, T>(g, made, r);
    check_each<pool_work::average_backward, T>(g, made, r);
  };
  for (const pool_geometry& g : geometries) check(g);
  for (const pool_geometry& g : dilated_geometries) check(g);
  for (const pool_algorithm a : cpu::pool_algorithms) {
    INFO(std::string(name(a)));
    CHECK(made[static_cast<int>(a)] > 0);
  }
}

TEST_CASE_TEMPLATE("windows that are known beforehand are pooled as others", T, float, double) {
  generator r(86);
  const auto check = [&]<pool_geometry K, bool Ceils = false>() {
    check_set<K, Ceils, T>({1, 7, 7}, r);
    check_set<K, Ceils, T>({1, 9, 37}, r);
    check_set<K, Ceils, T>({3, 8, 18}, r);
  };
  check.template operator()<known({1, 2, 2}, {1, 2, 2}, {0, 0, 0})>();
  check.template operator()<known({1, 2, 2}, {1, 2, 2}, {0, 0, 0}), true>();
  check.template operator()<known({1, 3, 3}, {1, 1, 1}, {0, 1, 1})>();
  check.template operator()<known({1, 3, 3}, {1, 2, 2}, {0, 1, 1}), true>();
  check.template operator()<known({1, 3, 3}, {1, 2, 2}, {0, 0, 0})>();
  check.template operator()<known({1, 3, 3}, {1, 2, 1}, {0, 1, 1}, {1, 1, 2})>();
  check.template operator()<known({1, 7, 7}, {1, 1, 1}, {0, 0, 0})>();
  check.template operator()<known({1, 4, 4}, {1, 4, 4}, {0, 0, 0})>();
  check.template operator()<known({1, 5, 5}, {1, 3, 3}, {0, 2, 2})>();
  check.template operator()<known({1, 2, 6}, {1, 2, 5}, {0, 0, 1}), true>();
  check.template operator()<known({1, 1, 3}, {1, 1, 17}, {0, 0, 1})>();
}

TEST_CASE("the costs of algorithms of pooling are the elements that they join") {
  const cpu::pool_problem p{cpu::pool_work::average,
                            {2, {1, 9, 8}, {1, 3, 2}, {1, 3, 4}, {1, 3, 4}, {0, 0, 0}, {1, 1, 1}}};
  CHECK(cpu::cost(cpu::pool_algorithm::plain, p) == 2 * 3 * 2 * 3 * 4);
  CHECK(cpu::cost(cpu::pool_algorithm::whole_planes, p) == 2 * 9 * 8);
  // Rows of four elements, columns of three, planes of one.
  CHECK(cpu::cost(cpu::pool_algorithm::separable, p) == 2 * 2 * (9 * 4 + 3 * 3 + 3));
}

TEST_CASE("pooling gives the same bits on any number of threads") {
  for (const dim_t kernel : {2, 3}) {
    const pool_geometry g{90,          {1, 34, 34},
                          {1, 17, 17}, {1, kernel, kernel},
                          {1, 2, 2},   {0, kernel - 2, kernel - 2},
                          {1, 1, 1}};
    const dim_t nx = 90 * 34 * 34, ny = 90 * 17 * 17;
    generator r(75);
    const guarded<float> x(nx, r), dy(ny, r);
    for_each_set([&] {
      const auto run = [&](std::vector<float>& all) {
        guarded<float> y(ny), dx(nx), average(ny), dx2(nx);
        std::vector<std::int32_t> indices(static_cast<std::size_t>(ny));
        cpu::max_pool_forward(g, x.data(), y.data(), indices.data());
        cpu::max_pool_backward(g, dy.data(), indices.data(), dx.data());
        cpu::avg_pool_forward(g, x.data(), average.data(), false, 0);
        cpu::avg_pool_backward(g, dy.data(), dx2.data(), false, 0);
        for (const auto* a : {&y, &dx, &average, &dx2})
          all.insert(all.end(), a->data(), a->data() + a->size());
        all.insert(all.end(), indices.begin(), indices.end());
      };
      std::vector<float> alone, shared;
      run(alone);
      {
        const ikebana::scoped_num_threads threads(3);
        run(shared);
      }
      CHECK(alone == shared);
    });
  }
}
