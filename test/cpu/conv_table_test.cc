#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "ikebana/cpu/conv.hpp"
#include "ikebana/cpu/conv/plan.hpp"
#include "ikebana/cpu/conv/run.hpp"
#include "ikebana/cpu/conv/table.hpp"
#include "ikebana/cpu/threads.hpp"
#include "support.hpp"
#include "test/support/count_allocations.hpp"

using namespace cpu_test;
namespace cpu = ikebana::cpu;
using cpu::conv_geometry;

namespace {

constexpr conv_geometry geometry(dim_t batch, dim_t in_channels, dim_t out_channels, dim_t groups,
                                 std::array<dim_t, 3> in, std::array<dim_t, 3> kernel,
                                 std::array<dim_t, 3> stride, std::array<dim_t, 3> padding,
                                 std::array<dim_t, 3> dilation = {1, 1, 1}) {
  conv_geometry g{batch, in_channels, out_channels, groups,  in,
                  {},    kernel,      stride,       padding, dilation};
  for (std::size_t d = 0; d < 3; ++d)
    g.out[d] = (in[d] + 2 * padding[d] - dilation[d] * (kernel[d] - 1) - 1) / stride[d] + 1;
  return g;
}

std::vector<float> numbers(dim_t n, std::uint64_t seed) {
  generator random{seed};
  std::vector<float> all(static_cast<std::size_t>(n));
  for (float& x : all) x = static_cast<float>(random.number());
  return all;
}

/// The algorithms that G needs give the bits that all of them give.
template <conv_geometry G>
void check() {
  using enum cpu::conv_direction;
  namespace detail = cpu::detail;
  const auto& to_y =
      cpu::conv_algorithms_of<float, forward, detail::needed_for<float>(forward, G)>();
  const auto& to_x = cpu::conv_algorithms_of<float, data, detail::needed_for<float>(data, G)>();
  const auto& to_w =
      cpu::conv_algorithms_of<float, weights, detail::needed_for<float>(weights, G)>();
  // With separately compiled kernels all algorithms exist, and there is nothing to compare
  // (conv_table_of_headers_test compiles its own).
  CHECK((&to_y == &cpu::conv_algorithms_of<float>(forward)) == !IKEBANA_CPU_HERE);
  CHECK((&to_x == &cpu::conv_algorithms_of<float>(data)) == !IKEBANA_CPU_HERE);
  CHECK((&to_w == &cpu::conv_algorithms_of<float>(weights)) == !IKEBANA_CPU_HERE);
  if constexpr (!IKEBANA_CPU_HERE) return;
  constexpr dim_t sources = G.in_channels / G.groups;
  const dim_t size_x = G.batch * G.in_channels * conv_geometry::volume(G.in),
              size_y = G.batch * G.out_channels * conv_geometry::volume(G.out),
              size_w = G.out_channels * sources * conv_geometry::volume(G.kernel);
  const auto x = numbers(size_x, 1), w = numbers(size_w, 2), dy = numbers(size_y, 3);
  const auto same = [](dim_t n, const auto& f) {
    std::vector<float> some(static_cast<std::size_t>(n)), all = some;
    f(some.data(), true);
    f(all.data(), false);
    CHECK(std::memcmp(some.data(), all.data(), some.size() * sizeof(float)) == 0);
  };
  same(size_y, [&](float* y, bool some) {
    cpu::conv_forward<float>(G, x.data(), w.data(), nullptr, y, {},
                             some ? to_y : cpu::conv_algorithms_of<float>(forward));
  });
  same(size_x, [&](float* dx, bool some) {
    cpu::conv_backward_data<float>(G, dy.data(), w.data(), dx, nullptr,
                                   some ? to_x : cpu::conv_algorithms_of<float>(data));
  });
  same(size_w, [&](float* dw, bool some) {
    cpu::conv_backward_weights<float>(G, x.data(), dy.data(), dw, false,
                                      some ? to_w : cpu::conv_algorithms_of<float>(weights));
  });
}

/// Adds one group's products one by one to y, or to the gradient of x or of the weights.
template <class T>
void convolve_by_loops(cpu::conv_direction direction, const conv_geometry& g, const T* x,
                       const T* w, const T* dy, T* to) {
  const dim_t taps = conv_geometry::volume(g.kernel), plane = conv_geometry::volume(g.out);
  for (dim_t i = 0; i < g.out_channels * g.in_channels * taps; ++i) {
    const dim_t c = i / taps % g.in_channels, r = i / taps / g.in_channels;
    for (dim_t b = 0; b < g.batch; ++b)
      for (dim_t o = 0; o < plane; ++o) {
        dim_t tap = i % taps, place = o, step = 1, offset = 0;
        bool seen = true;
        for (std::size_t d = 3; d-- > 0;) {
          const dim_t in =
              place % g.out[d] * g.stride[d] - g.padding[d] + tap % g.kernel[d] * g.dilation[d];
          seen = seen && in >= 0 && in < g.in[d];
          offset += in * step;
          step *= g.in[d], place /= g.out[d], tap /= g.kernel[d];
        }
        if (!seen) continue;
        const dim_t at_x = (b * g.in_channels + c) * step + offset,
                    at_y = (b * g.out_channels + r) * plane + o;
        if (direction == cpu::conv_direction::forward)
          to[at_y] += w[i] * x[at_x];
        else if (direction == cpu::conv_direction::data)
          to[at_x] += w[i] * dy[at_y];
        else
          to[i] += x[at_x] * dy[at_y];
      }
  }
}

/// That reach all algorithms.
const conv_geometry shapes[] = {
    geometry(9, 1, 6, 1, {1, 14, 14}, {1, 5, 5}, {1, 1, 1}, {0, 2, 2}),
    geometry(17, 6, 16, 1, {1, 10, 10}, {1, 5, 5}, {1, 1, 1}, {0, 0, 0}),
    geometry(29, 3, 7, 1, {1, 19, 17}, {1, 3, 5}, {1, 2, 1}, {0, 1, 3}),
    geometry(13, 2, 9, 1, {1, 40, 70}, {1, 3, 3}, {1, 1, 1}, {0, 1, 0}),
    geometry(1, 3, 40, 1, {1, 19, 21}, {1, 7, 7}, {1, 2, 2}, {0, 3, 3}),
    geometry(2, 20, 33, 1, {1, 13, 12}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}),
    geometry(1, 33, 40, 1, {1, 15, 16}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}),
    geometry(2, 6, 40, 1, {1, 15, 16}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}),
    geometry(2, 35, 40, 1, {1, 9, 9}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}),
    geometry(2, 12, 40, 1, {1, 9, 9}, {1, 1, 1}, {1, 2, 2}, {0, 0, 0}),
    geometry(9, 20, 18, 1, {1, 2, 3}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}),
    geometry(1, 20, 64, 1, {1, 1, 90}, {1, 1, 5}, {1, 1, 3}, {0, 0, 2}),
    geometry(2, 4, 10, 1, {4, 7, 8}, {3, 3, 3}, {2, 2, 2}, {1, 1, 1}),
    // Lines meet rows that lie far apart.
    geometry(1, 35, 9, 1, {1, 30, 31}, {1, 3, 3}, {1, 1, 1}, {0, 12, 12}, {1, 12, 12}),
    geometry(1, 33, 8, 1, {3, 50, 11}, {2, 3, 2}, {1, 5, 1}, {0, 1, 0}, {1, 2, 1}),
    geometry(3, 9, 12, 1, {1, 31, 9}, {1, 3, 3}, {1, 1, 2}, {0, 0, 1}, {1, 12, 1}),
};

}  // namespace

TEST_CASE("what is not needed for a convolution would not be chosen for it") {
  for_each_set([] {
    check<geometry(9, 1, 6, 1, {1, 14, 14}, {1, 5, 5}, {1, 1, 1}, {0, 2, 2})>();
    check<geometry(2, 6, 16, 1, {1, 14, 14}, {1, 5, 5}, {1, 1, 1}, {0, 0, 0})>();
    check<geometry(1, 12, 40, 1, {1, 9, 9}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0})>();
    check<geometry(2, 12, 40, 1, {1, 9, 9}, {1, 1, 1}, {1, 2, 2}, {0, 0, 0})>();
    check<geometry(1, 5, 7, 1, {1, 5, 5}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1})>();
    check<geometry(2, 3, 33, 1, {1, 21, 21}, {1, 7, 7}, {1, 2, 2}, {0, 3, 3})>();
    check<geometry(1, 16, 16, 1, {1, 20, 20}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1})>();
    check<geometry(1, 3, 24, 1, {1, 12, 12}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1})>();
    check<geometry(2, 40, 12, 2, {1, 11, 12}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1})>();
    check<geometry(1, 8, 6, 1, {1, 1, 60}, {1, 1, 7}, {1, 1, 3}, {0, 0, 3})>();
    check<geometry(1, 20, 33, 1, {3, 7, 8}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1})>();
    // Only one tap of the kernel sees the image.
    check<geometry(25, 128, 20, 1, {1, 1, 1}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1})>();
  });
}

TEST_CASE("what is not known of channels is built for any") {
  using enum cpu::conv_algorithm;
  using enum cpu::conv_direction;
  constexpr auto with = [](dim_t in_channels, dim_t out_channels) {
    conv_geometry g = geometry(1, 1, 1, 1, {1, 9, 9}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1});
    g.in_channels = in_channels;
    g.out_channels = out_channels;
    return g;
  };
  constexpr auto unknown = cpu::detail::needed_for<float>(forward, with(-1, -1));
  CHECK(unknown.has(winograd));
  CHECK(unknown.has(bands));
  CHECK(!unknown.strides);
  constexpr auto few = cpu::detail::needed_for<float>(forward, with(4, 31));
  CHECK(!few.has(winograd));
  CHECK(few.has(bands));
  CHECK(cpu::detail::needed_for<float>(weights, with(-1, -1)).has(winograd));
  CHECK(!cpu::detail::needed_for<float>(weights, with(3, -1)).has(winograd));
  CHECK(!cpu::detail::needed_for<float>(weights, with(3, -1)).has(bands));
}

TEST_CASE("images are no lanes where the copy of a line of all of them would be large") {
  const auto applies = [](dim_t length, dim_t dilation) {
    const conv_geometry g = geometry(16, 32, 32, 1, {1, 1, length}, {1, 1, 3}, {1, 1, 1},
                                     {0, 0, dilation}, {1, 1, dilation});
    return cpu::applies(cpu::conv_algorithm::images,
                        cpu::problem_of(cpu::conv_direction::weights, g, 4, 16));
  };
  CHECK(applies(1000, 1));
  CHECK(!applies(128000, 1));
  CHECK(!applies(1000, 4000));
}

TEST_CASE_TEMPLATE("sums over images in lanes have the same bits for any number of threads", T,
                   float, double) {
  generator r(8);
  // Several bands of lines; 13 results are dealt out to tiles of all heights.
  const conv_geometry g = geometry(16, 5, 13, 1, {1, 70, 61}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1});
  const guarded<T> x(16 * 5 * 70 * 61, r), dy(16 * 13 * 70 * 61, r);
  cpu::detail::conv_table<T> only = cpu::conv_algorithms_of<T>(cpu::conv_direction::weights);
  for (const cpu::conv_algorithm other : cpu::conv_algorithms)
    if (other != cpu::conv_algorithm::images) only.remove(other);
  for_each_set([&] {
    if (cpu::active_instruction_set() == cpu::instruction_set::scalar) return;
    guarded<T> alone(13 * 5 * 9, T(0)), shared(13 * 5 * 9, T(0));
    const auto make = [&](int threads, guarded<T>& to) {
      const ikebana::scoped_num_threads scope(threads);
      cpu::conv_backward_weights<T>(g, x.data(), dy.data(), to.data(), false, only);
    };
    make(1, alone);
    for (const int threads : {2, 3, 5}) {
      make(threads, shared);
      CHECK(std::memcmp(alone.data(), shared.data(), 13 * 5 * 9 * sizeof(T)) == 0);
    }
  });
}

TEST_CASE("the costs of algorithms are their multiply-adds") {
  using cpu::conv_algorithm, cpu::conv_direction;
  const conv_geometry g = geometry(2, 3, 5, 1, {1, 10, 11}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1});
  const auto cost = [&](conv_direction d, conv_algorithm a) {
    return cpu::cost(a, cpu::problem_of(d, g, 4, 8));
  };
  CHECK(cost(conv_direction::forward, conv_algorithm::bands) == 2 * 3 * 5 * 9 * 5 * 6);
  CHECK(cost(conv_direction::data, conv_algorithm::im2col) == 2 * 3 * 5 * 9 * 5 * 6);
  CHECK(cost(conv_direction::data, conv_algorithm::bands) == 2 * 3 * 5 * 9 * 10 * 11);
  // Tiles of 4x4 results are computed whole.
  CHECK(cost(conv_direction::forward, conv_algorithm::winograd) == 2 * 3 * 5 * 36 * 2 * 2);
}

TEST_CASE_TEMPLATE("each algorithm gives what loops give, where it applies", T, float, double) {
  using cpu::conv_algorithm, cpu::conv_direction;
  namespace detail = cpu::detail;
  const double most = std::is_same_v<T, float> ? 1e-4 : 1e-12;
  int made[3][std::size(cpu::conv_algorithms)] = {};
  generator r(3);
  for (const conv_geometry& g : shapes) {
    const guarded<T> x(g.batch * g.in_channels * conv_geometry::volume(g.in), r),
        w(g.out_channels * g.in_channels * conv_geometry::volume(g.kernel), r),
        dy(g.batch * g.out_channels * conv_geometry::volume(g.out), r);
    const auto compute = [&](conv_direction d, conv_algorithm a, guarded<T>& to) {
      detail::conv_table<T> only = cpu::conv_algorithms_of<T>(d);
      for (const conv_algorithm other : cpu::conv_algorithms)
        if (other != a) only.remove(other);
      if (d == conv_direction::forward)
        cpu::conv_forward<T>(g, x.data(), w.data(), nullptr, to.data(), {}, only);
      else if (d == conv_direction::data)
        cpu::conv_backward_data<T>(g, dy.data(), w.data(), to.data(), nullptr, only);
      else
        cpu::conv_backward_weights<T>(g, x.data(), dy.data(), to.data(), false, only);
    };
    for (const conv_direction d :
         {conv_direction::forward, conv_direction::data, conv_direction::weights}) {
      const dim_t n = d == conv_direction::forward ? dy.size()
                      : d == conv_direction::data  ? x.size()
                                                   : w.size();
      guarded<T> expected(n, T(0));
      convolve_by_loops(d, g, x.data(), w.data(), dy.data(), expected.data());
      double largest = 0;
      for (dim_t i = 0; i < n; ++i)
        largest = std::max(largest, std::abs(static_cast<double>(expected.data()[i])));
      for_each_set([&] {
        const auto& tiles = cpu::conv_algorithms_of<T>(conv_direction::forward).tiles();
        for (const conv_algorithm a : cpu::conv_algorithms) {
          bool fits = a != conv_algorithm::passes && applies(a, detail::planned(d, g, tiles));
          if (d == conv_direction::data && a != conv_algorithm::im2col &&
              a != conv_algorithm::passes) {
            fits = true;
            detail::each_pass(g, [&](const detail::conv_pass& pass) {
              fits = fits && applies(a, detail::planned(pass, tiles));
            });
          }
          if (!fits) continue;
          ++made[static_cast<int>(d)][static_cast<int>(a)];
          guarded<T> found(n, std::numeric_limits<T>::quiet_NaN());
          compute(d, a, found);
          INFO(std::string(name(a))
               << ", direction " << static_cast<int>(d) << ", " << g.in_channels << " to "
               << g.out_channels << " channels, " << g.in[1] << "x" << g.in[2]);
          CHECK(found.intact());
          double error = 0;
          for (dim_t i = 0; i < n; ++i) {
            const double e = std::abs(static_cast<double>(found.data()[i]) -
                                      static_cast<double>(expected.data()[i]));
            error = e >= 0 ? std::max(error, e) : std::numeric_limits<double>::infinity();
          }
          CHECK(error <= most * largest);
        }
      });
    }
  }
  const auto was_made = [&](conv_direction d, std::initializer_list<conv_algorithm> all) {
    for (const conv_algorithm a : all) {
      INFO(std::string(name(a)) << ", direction " << static_cast<int>(d));
      CHECK(made[static_cast<int>(d)][static_cast<int>(a)] > 0);
    }
  };
  using enum conv_algorithm;
  was_made(conv_direction::forward, {im2col, bands});
  was_made(conv_direction::data, {im2col, bands});
  was_made(conv_direction::weights, {im2col});
  if (cpu::conv_algorithms_of<T>(conv_direction::weights).tiles().width > 1)
    was_made(conv_direction::weights, {images});
}

TEST_CASE_TEMPLATE("a block adds nothing to what it does not meet of a row", T, float, double) {
  for_each_set([] {
    const auto& tiles = cpu::conv_algorithms_of<T>(cpu::conv_direction::data).tiles();
    std::vector<T> from(64 + 2 * 10 + 64, T(1)), row(200, T(-0.0));
    // Two taps of ten positions, the first at column 101, three columns apart.
    tiles.add_rows({1, 2, 10, from.data() + 64, 0, 10, row.data(), 0, 200, 101, 3, 1});
    for (int i = 0; i < 200; ++i) {
      const int met = (i >= 101 && i < 111) + (i >= 104 && i < 114);
      CHECK(row[static_cast<std::size_t>(i)] == met);
      if (i < 101 || i >= 114) CHECK(std::signbit(row[static_cast<std::size_t>(i)]));
    }
  });
}

TEST_CASE("what a thread keeps does not grow with dilation") {
  const conv_geometry g =
      geometry(1, 40, 7, 1, {1, 60'008, 1}, {1, 3, 1}, {1, 1, 1}, {0, 0, 0}, {1, 30'000, 1});
  const std::vector<float> x(40 * 60'008, 1.0F), w(7 * 40 * 3, 1.0F), dy(7 * 8, 1.0F);
  std::vector<float> y(dy.size()), dx(x.size()), dw(w.size());
  std::size_t kept = 0;
  // Which has no memory yet.
  std::thread([&] {
    const std::size_t before = allocated_bytes;
    cpu::conv_forward<float>(g, x.data(), w.data(), nullptr, y.data());
    cpu::conv_backward_data<float>(g, dy.data(), w.data(), dx.data());
    cpu::conv_backward_weights<float>(g, x.data(), dy.data(), dw.data(), false);
    kept = allocated_bytes - before;
  }).join();
  CHECK(kept < x.size() * sizeof(float) / 2);
  CHECK(y.back() == 120);
  CHECK(dx.back() == 7);
  CHECK(dw.back() == 8);
}

TEST_CASE("a kernel whose lists no thread keeps is convolved, too") {
  const conv_geometry g =
      geometry(1, 1, 1, 1, {1, 1, 33'010}, {1, 1, 33'000}, {1, 1, 1}, {0, 0, 0});
  const std::vector<float> x(33'010, 1.0F), w(33'000, 1.0F);
  std::vector<float> y(11);
  for_each_set([&] {
    cpu::conv_forward<float>(g, x.data(), w.data(), nullptr, y.data());
    for (const float each : y) CHECK(each == 33'000);
  });
}

TEST_CASE_TEMPLATE("a plan that is kept gives the bits of one that is made anew", T, float,
                   double) {
  using cpu::conv_direction;
  generator r(4);
  for (const conv_geometry& g : shapes) {
    const guarded<T> x(g.batch * g.in_channels * conv_geometry::volume(g.in), r),
        w(g.out_channels * g.in_channels * conv_geometry::volume(g.kernel), r),
        dy(g.batch * g.out_channels * conv_geometry::volume(g.out), r), bias(g.in_channels, r);
    std::vector<std::uint64_t> rooms[3];
    const auto compute = [&](conv_direction d, dim_t batch, bool keeps) {
      conv_geometry some = g;
      some.batch = batch;
      const auto& table = cpu::conv_algorithms_of<T>(d);
      std::span<std::byte> room;
      if (keeps) {
        auto& words = rooms[static_cast<int>(d)];
        words.resize(cpu::conv_plan_bytes(d, g.stride) / sizeof(std::uint64_t));
        room = std::as_writable_bytes(std::span(words));
      }
      guarded<T> to(d == conv_direction::forward ? dy.size()
                    : d == conv_direction::data  ? x.size()
                                                 : w.size());
      if (d == conv_direction::forward)
        cpu::conv_forward<T>(some, x.data(), w.data(), nullptr, to.data(), {}, table, room);
      else if (d == conv_direction::data)
        cpu::conv_backward_data<T>(some, dy.data(), w.data(), to.data(), bias.data(), table, room);
      else
        cpu::conv_backward_weights<T>(some, x.data(), dy.data(), to.data(), false, table, room);
      CHECK(to.intact());
      return to;
    };
    for_each_set([&] {
      for (const conv_direction d :
           {conv_direction::forward, conv_direction::data, conv_direction::weights})
        for (const dim_t batch : {g.batch, g.batch, dim_t{1}, g.batch}) {
          const ikebana::scoped_num_threads threads(batch == 1 ? 3 : 1);
          const auto expected = compute(d, batch, false), found = compute(d, batch, true);
          CHECK(std::memcmp(found.data(), expected.data(),
                            static_cast<std::size_t>(found.size()) * sizeof(T)) == 0);
        }
    });
  }
}
