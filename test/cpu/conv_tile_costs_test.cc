#include <doctest/doctest.h>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv/plan.hpp"
#include "ikebana/cpu/conv/tile_costs.hpp"

using ikebana::dim_t;
using namespace ikebana::cpu::detail;

namespace {

void do_nothing(const conv_job<float>&) {}

using shape = conv_tiles<float>::slide_shape;
constexpr shape none[] = {{}};
constexpr shape wide[] = {
    {6, 4, do_nothing, nullptr}, {8, 3, do_nothing, nullptr}, {12, 2, do_nothing, nullptr}, {}};
constexpr shape narrow[] = {{4, 3, do_nothing, nullptr}, {6, 2, do_nothing, nullptr}, {}};
constexpr shape slides[] = {{8, 3, do_nothing, nullptr}, {1, 8, do_nothing, nullptr}};

/// Tile shapes like those of AVX-512, AVX2 and instruction sets without other tiles; they compute
/// nothing.
conv_tiles<float> tiles_like(dim_t width) {
  conv_tiles<float> t{};
  t.width = width;
  t.panel = width == 16  ? shape{8, 3, do_nothing, do_nothing}
            : width == 8 ? shape{4, 3, do_nothing, do_nothing}
                         : shape{4, 3, do_nothing, nullptr};
  t.lanes = width == 16 ? wide : width == 8 ? narrow : none;
  t.slides = slides;
  return t;
}

}  // namespace

TEST_CASE("tiles take all positions, for no more than panels alone") {
  for (const dim_t width : {16, 8, 4}) {
    const conv_tiles<float> tiles = tiles_like(width);
    const dim_t tile = tiles.panel.registers * width;
    for (const dim_t results : {1, 4, 8, 12, 24, 36, 37, 48, 120}) {
      const tile_costs<float> costs{tiles, results, 144};
      CHECK(costs.next(0).cycles == 0);
      for (dim_t n = 1; n <= 5 * tile; ++n) {
        INFO("width " << width << " results " << results << " positions " << n);
        const double panels =
            static_cast<double>((n + tile - 1) / tile * tiles.panel.registers) / 2;
        CHECK(costs.next(n).cycles <= panels + 1e-9);
        CHECK(costs.next(n + tile).cycles > costs.next(n).cycles);
        double before = panels + 1;
        for (dim_t left = n; left > 0;) {
          const auto step = costs.next(left);
          // Another shape has at most as many rows, and none of its vectors is empty.
          if (step.shape != &tiles.panel) {
            CHECK(step.shape->rows <= results);
            CHECK(left > (step.shape->registers - 1) * width);
          }
          CHECK(step.cycles < before);
          before = step.cycles;
          left -= step.shape->registers * width;
        }
      }
    }
  }
}

TEST_CASE("tiles of two registers take what they hold, where their rows fit the results") {
  const conv_tiles<float> tiles = tiles_like(16);
  const auto shape_for_rows = [&](dim_t results) {
    return tile_costs<float>{tiles, results, 144}.next(32).shape;
  };
  CHECK(shape_for_rows(48) == &tiles.lanes[2]);
  CHECK(shape_for_rows(37) == &tiles.panel);
  CHECK(shape_for_rows(8) == &tiles.panel);
}

TEST_CASE("few positions leave the tiles where sums along the weights are cheaper") {
  for (const dim_t width : {16, 8, 4}) {
    const conv_tiles<float> tiles = tiles_like(width);
    const dim_t tile = tiles.panel.registers * width;
    for (const dim_t summed : {dim_t{9}, dim_t{144}, dim_t{512}}) {
      const tile_costs<float> costs{tiles, 64, summed};
      for (dim_t n = 1; n <= 6 * tile; ++n) {
        const dim_t few = costs.few_of(n);
        CHECK((few == 0 || few == n % width));
        CHECK(costs.cycles(n, few) <= costs.cycles(n, 0));
      }
      CHECK(costs.few_of(tile) == 0);
    }
    // One position more than a tile, with long sums.
    CHECK(tile_costs<float>{tiles, 64, 512}.few_of(tile + 1) == 1);
  }
}

TEST_CASE("a long row is divided until its parts fit the scratch, in both directions") {
  for (const dim_t width : {16, 8, 4}) {
    conv_tiles<float> tiles = tiles_like(width);
    tiles.packing = do_nothing;
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
            CHECK(conv_plan<float>{tiles, forward}.fit());
            for (dim_t residue = 0; residue < stride; ++residue) {
              const conv_pass backward = backward_pass(g, {0, 0, residue});
              if (backward.taps() > 0) CHECK(conv_plan<float>{tiles, backward}.fit());
            }
          }
  }
}
