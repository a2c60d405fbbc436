#include "ikebana/nn/grid_sample.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <tuple>

#include "ikebana/compose/graph.hpp"
#include "ikebana/model/gradient_check.hpp"
#include "ikebana/model/initialize.hpp"
#include "layers.hpp"

using namespace ikebana;
using namespace ikebana::literals;

TEST_CASE("grid_sample and affine_grid compute what PyTorch recorded") {
  const auto both = [](const std::string& name, auto plain, auto aligned) {
    compare_layer("grid_sample", name, plain);
    compare_layer("grid_sample", name + "_aligned", aligned);
  };
  using aligned = align_corners<true>;
  both("bilinear_zeros", grid_sample<>{}, grid_sample<aligned>{});
  both("bilinear_border", grid_sample<outside<"border">>{},
       grid_sample<outside<"border">, aligned>{});
  both("bilinear_reflection", grid_sample<outside<"reflection">>{},
       grid_sample<outside<"reflection">, aligned>{});
  both("nearest_zeros", grid_sample<mode<"nearest">>{}, grid_sample<mode<"nearest">, aligned>{});
  both("nearest_border", grid_sample<mode<"nearest">, outside<"border">>{},
       grid_sample<mode<"nearest">, outside<"border">, aligned>{});
  both("nearest_reflection", grid_sample<mode<"nearest">, outside<"reflection">>{},
       grid_sample<mode<"nearest">, outside<"reflection">, aligned>{});
  both("affine", affine_grid<output_size<3, 4>>{}, affine_grid<output_size<3, 4>, aligned>{});
  CHECK(layers_not_compared("grid_sample").empty());
}

TEST_CASE("gradients of a spatial transformer agree with differences") {
  constexpr auto net = graph([](auto x, auto map) {
    return "sample"_m(grid_sample<>{}, x, "grid"_m(affine_grid<output_size<4, 3>>{}, map));
  });
  const auto x = uniform<double, shape{2, 2, 5, 4}>(seed{1});
  const auto map = uniform<double, shape{2, 2, 3}>(seed{2});
  CHECK(gradient_check(net, std::tuple(x, map)).largest < 1e-6);
}

TEST_CASE("grid_sample reads zeros where a point is no number, and says what it expects") {
  leaf_run<float, grid_sample<>> run({}, {shape{1, 1, 2, 2}, shape{1, 1, 3, 2}});
  std::fill_n(run.inputs[0].data(), 4, 1.0f);
  const float none = std::numeric_limits<float>::quiet_NaN();
  const float points[] = {none, 0, 1e30f, 0, 0, 0};
  std::copy_n(points, 6, run.inputs[1].data());
  run.forward();
  CHECK(run.output[0] == 0);
  CHECK(run.output[1] == 0);
  CHECK(run.output[2] == 1);
  CHECK(sentence_of(grid_sample<>{}.infer({shape{1, 1, 2, 2}, shape{1, 1, 3, 3}})) ==
        "grid_sample expects points of 2 coordinates, got 3 (input [1, 1, 3, 3])");
  CHECK(sentence_of(affine_grid<output_size<2, 2>>{}.infer(shape{1, 3, 3})) ==
        "affine_grid expects matrices of 2 x 3, needs an extent of 2, got 3 (input [1, 3, 3])");
}
