#include "ikebana/nn/adaptive_pool.hpp"

#include <doctest/doctest.h>

#include "layers.hpp"

using namespace ikebana;

namespace {

template <class M>
void compare(const std::string& name, const M& m) {
  compare_layer("adaptive_pool", name, m);
}

template <template <class...> class P1, template <class...> class P2, template <class...> class P3>
void compare_all(const std::string& kind) {
  compare(kind + "1d", P1<output_size<3>>{});
  compare(kind + "1d_more", P1<output_size<8>>{});
  compare(kind + "1d_unbatched", P1<output_size<4>>{});
  compare(kind + "1d_one", P1<output_size<1>>{});
  compare(kind + "2d", P2<output_size<3, 2>>{});
  compare(kind + "2d_one", P2<output_size<1>>{});
  compare(kind + "2d_unchanged", P2<output_size<unchanged, 3>>{});
  compare(kind + "2d_more", P2<output_size<5, 7>>{});
  compare(kind + "2d_unbatched", P2<output_size<4, 3>>{});
  compare(kind + "3d", P3<output_size<2, 3, 3>>{});
  compare(kind + "3d_one", P3<output_size<1>>{});
  compare(kind + "3d_unchanged", P3<output_size<2, unchanged, 2>>{});
  compare(kind + "3d_unbatched", P3<output_size<2>>{});
}

}  // namespace

TEST_CASE("adaptive pooling computes what PyTorch recorded") {
  compare_all<adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d>("adaptive_avg_pool");
  compare_all<adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d>("adaptive_max_pool");
  CHECK(layers_not_compared("adaptive_pool").empty());
}

TEST_CASE("the gradients of adaptive pooling are those of its forward") {
  check_gradients(adaptive_avg_pool2d<output_size<3, 2>>{}, {2, 2, 5, 4});
  check_gradients(adaptive_max_pool3d<output_size<2>>{}, {1, 2, 3, 4, 3});
}

TEST_CASE("adaptive pooling of an empty batch, and to nothing") {
  check_empty_batch(adaptive_avg_pool2d<output_size<2>>{}, {0, 3, 5, 5});
  check_empty_batch(adaptive_max_pool2d<output_size<2>>{}, {0, 3, 5, 5});
  check_empty_batch(adaptive_avg_pool1d<output_size<0>>{}, {2, 3, 5});
  check_empty_batch(adaptive_max_pool2d<output_size<0, 3>>{}, {2, 3, 5, 5});
}

TEST_CASE("adaptive pooling says what is wrong with its input") {
  using global = adaptive_avg_pool2d<output_size<1>>;
  CHECK(sentence_of(global{}.infer(shape{8, 8})) ==
        "adaptive_avg_pool2d expects an input of 3 (unbatched) or 4 dimensions, got 2 (input [8, "
        "8])");
  CHECK(sentence_of(adaptive_max_pool1d<output_size<1>>{}.infer(shape{2, 3, 0})) ==
        "adaptive_max_pool1d expects spatial extents of at least 1, got 0 (input [2, 3, 0])");
}

TEST_CASE("adaptive pooling makes known extents of those that only run time knows") {
  CHECK(adaptive_avg_pool2d<output_size<3, unchanged>>{}
            .infer(shape{dynamic, 3, dynamic, dynamic})
            .output() == shape{dynamic, 3, 3, dynamic});
}

TEST_CASE("adaptive pooling describes itself by PyTorch's names") {
  CHECK(described(adaptive_avg_pool2d<output_size<3>>{}) == "output_size=3");
  CHECK(described(adaptive_max_pool2d<output_size<unchanged, 7>>{}) ==
        "output_size=(unchanged, 7)");
}
