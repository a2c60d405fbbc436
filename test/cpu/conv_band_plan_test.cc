#include <doctest/doctest.h>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/band_plan.hpp"
#include "ikebana/cpu/conv/pass.hpp"

using ikebana::dim_t;
using namespace ikebana::cpu::detail;

namespace {

void do_nothing(const conv_job<float>&) {}

using shape = conv_tiles<float>::slide_shape;
constexpr shape slides[] = {{8, 3, do_nothing, nullptr}, {1, 8, do_nothing, nullptr}};

/// Tile shapes like those of AVX-512 and of narrower instruction sets; they compute nothing.
conv_tiles<float> tiles_like(dim_t width) {
  conv_tiles<float> t{};
  t.width = width;
  t.panel = {width == 16 ? 8 : 4, 3, do_nothing, nullptr};
  t.slides = slides;
  return t;
}

}  // namespace

TEST_CASE("a long row is divided until its parts fit the scratch, in both directions") {
  for (const dim_t width : {16, 8, 4}) {
    const conv_tiles<float> tiles = tiles_like(width);
    for (const dim_t length : {2000, 20'000, 500'000})
      for (const dim_t channels : {3, 31, 32, 300})
        for (const dim_t kernel : {2, 3, 31})
          for (const dim_t stride : {1, 2, 3}) {
            INFO("width " << width << " length " << length << " channels " << channels << " kernel "
                          << kernel << " stride " << stride);
            const ikebana::cpu::conv_geometry g{1,
                                                channels,
                                                channels,
                                                1,
                                                {1, 1, length},
                                                {1, 1, (length - kernel) / stride + 1},
                                                {1, 1, kernel},
                                                {1, 1, stride},
                                                {0, 0, 0},
                                                {1, 1, 1}};
            const conv_pass forward = forward_pass(g);
            for (const bool packs : {false, true})
              CHECK(band_plan<float>{tiles, forward, packs}.fit());
            for (dim_t residue = 0; residue < stride; ++residue) {
              const conv_pass backward = backward_pass(g, {0, 0, residue});
              if (backward.taps() == 0) continue;
              for (const bool packs : {false, true})
                CHECK(band_plan<float>{tiles, backward, packs}.fit());
            }
          }
  }
}
