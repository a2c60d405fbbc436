#include <array>
#include <cstddef>
#include <cstring>
#include <vector>

#include "ikebana/cpu/conv.hpp"
#include "ikebana/cpu/conv/needs.hpp"
#include "support.hpp"

using namespace cpu_test;
namespace cpu = ikebana::cpu;
using cpu::conv_geometry;

namespace {

constexpr conv_geometry geometry(dim_t batch, dim_t in_channels, dim_t out_channels, dim_t groups,
                                 std::array<dim_t, 3> in, std::array<dim_t, 3> kernel,
                                 std::array<dim_t, 3> stride, std::array<dim_t, 3> padding) {
  conv_geometry g{batch, in_channels, out_channels, groups,  in,
                  {},    kernel,      stride,       padding, {1, 1, 1}};
  for (std::size_t d = 0; d < 3; ++d)
    g.out[d] = (in[d] + 2 * padding[d] - kernel[d]) / stride[d] + 1;
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
  constexpr dim_t sources = G.in_channels / G.groups, results = G.out_channels / G.groups;
  constexpr cpu::detail::conv_needs forward = cpu::detail::needs_of<float>(G, {sources, results}),
                                    back = cpu::detail::needs_of<float>(G, {results, sources});
  // With separately compiled kernels all algorithms exist, and there is nothing to compare
  // (conv_needs_of_headers_test compiles its own).
  CHECK((&cpu::detail::ways_forward<float, forward>() == &cpu::detail::all_pass_ways<float>()) ==
        !IKEBANA_CPU_HERE);
  CHECK((&cpu::detail::ways_to_data<float, back>() == &cpu::detail::all_data_ways<float>()) ==
        !IKEBANA_CPU_HERE);
  CHECK((&cpu::detail::ways_to_weights<float, forward>() ==
         &cpu::detail::all_weights_ways<float>()) == !IKEBANA_CPU_HERE);
  if constexpr (!IKEBANA_CPU_HERE) return;
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
    cpu::conv_forward<float>(
        G, x.data(), w.data(), nullptr, y, {},
        some ? cpu::detail::ways_forward<float, forward>() : cpu::detail::all_pass_ways<float>());
  });
  same(size_x, [&](float* dx, bool some) {
    cpu::conv_backward_data<float>(
        G, dy.data(), w.data(), dx, nullptr,
        some ? cpu::detail::ways_to_data<float, back>() : cpu::detail::all_data_ways<float>());
  });
  same(size_w, [&](float* dw, bool some) {
    cpu::conv_backward_weights<float>(G, x.data(), dy.data(), dw, false,
                                      some ? cpu::detail::ways_to_weights<float, forward>()
                                           : cpu::detail::all_weights_ways<float>());
  });
}

}  // namespace

TEST_CASE("what a convolution does not need is no way that it would take") {
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
  constexpr conv_geometry g = geometry(1, 1, 1, 1, {1, 9, 9}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1});
  constexpr auto unknown = cpu::detail::needs_of<float>(g, {-1, -1});
  CHECK(unknown.many);
  CHECK(unknown.deep);
  CHECK(unknown.handed);
  CHECK(unknown.winograd);
  CHECK(!unknown.strides);
  constexpr auto known = cpu::detail::needs_of<float>(g, {4, 31});
  CHECK(!known.many);
  CHECK(!known.winograd);
}
