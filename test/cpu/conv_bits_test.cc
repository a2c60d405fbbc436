#include <array>
#include <cstddef>
#include <cstring>
#include <thread>
#include <vector>

#include "ikebana/cpu/conv.hpp"
#include "ikebana/cpu/detail/caches.hpp"
#include "support.hpp"

using namespace cpu_test;
namespace cpu = ikebana::cpu;
using cpu::conv_geometry;

namespace {

struct layer {
  dim_t inputs, outputs;
  std::array<dim_t, 3> in, kernel, stride, padding;
};

// One for each algorithm and kind of positions: few and many, alone and with others of a batch.
const layer layers[] = {
    {16, 20, {1, 5, 5}, {1, 5, 5}, {1, 1, 1}, {0, 0, 0}},
    {40, 70, {1, 2, 2}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}},
    {130, 24, {1, 1, 1}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}},
    {70, 40, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}},
    {6, 40, {1, 2, 4}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}},
    {20, 33, {1, 4, 4}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}},
    {6, 16, {1, 10, 10}, {1, 5, 5}, {1, 1, 1}, {0, 0, 0}},
    {1, 6, {1, 28, 28}, {1, 5, 5}, {1, 1, 1}, {0, 2, 2}},
    {3, 24, {1, 17, 17}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}},
    {33, 65, {1, 16, 15}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}},
    {600, 33, {1, 1, 90}, {1, 1, 2}, {1, 1, 1}, {0, 0, 0}},
    {33, 40, {1, 9, 9}, {1, 1, 1}, {1, 2, 2}, {0, 0, 0}},
    {48, 50, {1, 20, 20}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}},
    {20, 34, {1, 20, 20}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}},
    {4, 40, {3, 7, 8}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}},
};

conv_geometry geometry(const layer& l, dim_t batch) {
  conv_geometry g{batch, l.inputs, l.outputs, 1,         l.in,
                  {},    l.kernel, l.stride,  l.padding, {1, 1, 1}};
  for (std::size_t d = 0; d < 3; ++d)
    g.out[d] = (l.in[d] + 2 * l.padding[d] - l.kernel[d]) / l.stride[d] + 1;
  return g;
}

template <class T>
struct arrays {
  static constexpr dim_t batch = 9;
  dim_t x_image, y_image;
  guarded<T> x, w, bias, dy;

  arrays(const layer& l, generator& r)
      : x_image{l.inputs * conv_geometry::volume(l.in)},
        y_image{l.outputs * conv_geometry::volume(geometry(l, batch).out)},
        x(batch * x_image, r),
        w(l.outputs * l.inputs * conv_geometry::volume(l.kernel), r),
        bias(l.outputs, r),
        dy(batch * y_image, r) {}
};

template <class T>
bool same(const T* a, const T* b, dim_t n) {
  return std::memcmp(a, b, static_cast<std::size_t>(n) * sizeof(T)) == 0;
}

}  // namespace

TEST_CASE_TEMPLATE("an image gets the same bits alone and in a batch", T, float, double) {
  generator r(5);
  for (const layer& l : layers) {
    const arrays<T> a(l, r);
    constexpr dim_t batch = arrays<T>::batch;
    for_each_set([&] {
      guarded<T> y(a.dy.size()), dx(a.x.size()), some_y(a.dy.size()), some_dx(a.x.size());
      const conv_geometry all = geometry(l, batch);
      cpu::conv_forward<T>(all, a.x.data(), a.w.data(), a.bias.data(), y.data());
      cpu::conv_backward_data<T>(all, a.dy.data(), a.w.data(), dx.data());
      for (const dim_t part : {1, 2, 5}) {
        INFO(l.inputs << " to " << l.outputs << " channels, " << l.in[1] << "x" << l.in[2] << ", "
                      << part << " of " << batch << " images");
        const conv_geometry some = geometry(l, part);
        const dim_t at = batch - part;
        cpu::conv_forward<T>(some, a.x.data() + at * a.x_image, a.w.data(), a.bias.data(),
                             some_y.data());
        cpu::conv_backward_data<T>(some, a.dy.data() + at * a.y_image, a.w.data(), some_dx.data());
        CHECK(same(some_y.data(), y.data() + at * a.y_image, part * a.y_image));
        CHECK(same(some_dx.data(), dx.data() + at * a.x_image, part * a.x_image));
      }
    });
  }
}

TEST_CASE_TEMPLATE("convolutions' bits do not depend on the caches that were found", T, float,
                   double) {
  generator r(6);
  const dim_t kib = 1024;
  struct levels {
    dim_t first, second;
  };
  const cpu::detail::cache_sizes found = cpu::detail::caches();
  const auto pretend = [](dim_t first, dim_t second) {
    cpu::detail::second_level_bytes = second;
    cpu::detail::first_level_bytes = first;
  };
  for (const layer& l : layers) {
    const arrays<T> a(l, r);
    const conv_geometry g = geometry(l, arrays<T>::batch);
    const auto make = [&] {
      guarded<T> y(a.dy.size()), dx(a.x.size()), dw(a.w.size());
      cpu::conv_forward<T>(g, a.x.data(), a.w.data(), a.bias.data(), y.data());
      cpu::conv_backward_data<T>(g, a.dy.data(), a.w.data(), dx.data());
      cpu::conv_backward_weights<T>(g, a.x.data(), a.dy.data(), dw.data(), false);
      std::vector<T> all;
      for (const guarded<T>* of : {&y, &dx, &dw})
        all.insert(all.end(), of->data(), of->data() + of->size());
      return all;
    };
    for_each_set([&] {
      const std::vector<T> expected = make();
      for (const levels& c :
           {levels{16 * kib, 64 * kib}, levels{32 * kib, 256 * kib}, levels{64 * kib, 2048 * kib}})
        // A thread of its own, whose packing buffers are as large as the caches ask for.
        std::thread([&] {
          pretend(c.first, c.second);
          const std::vector<T> all = make();
          pretend(found.first, found.second);
          INFO("caches of " << c.first << " and " << c.second << ", " << l.inputs << " to "
                            << l.outputs << " channels");
          CHECK(same(expected.data(), all.data(), static_cast<dim_t>(all.size())));
        }).join();
    });
  }
}
