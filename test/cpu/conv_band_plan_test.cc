#include <doctest/doctest.h>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/band_plan.hpp"
#include "ikebana/cpu/conv/pass.hpp"

using ikebana::dim_t;
using namespace ikebana::cpu::detail;

namespace {

/// Tiles like those of AVX-512 and of narrower instruction sets.
tile_sizes tiles_like(dim_t width) { return {sizeof(float), width, width == 16 ? 8 : 4, 3}; }

}  // namespace

TEST_CASE("a long row is divided until its parts fit the scratch, in both directions") {
  for (const dim_t width : {16, 8, 4}) {
    const tile_sizes tiles = tiles_like(width);
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
            CHECK(band_plan{tiles, forward}.fit());
            for (dim_t residue = 0; residue < stride; ++residue) {
              const conv_pass backward = backward_pass(g, {0, 0, residue});
              if (backward.taps() == 0) continue;
              CHECK(band_plan{tiles, backward}.fit());
            }
          }
  }
}
