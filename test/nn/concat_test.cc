#include "ikebana/nn/concat.hpp"

#include <doctest/doctest.h>

#include "ikebana/nn/split.hpp"
#include "leaf_run.hpp"

using namespace ikebana;

TEST_CASE("concat and split name a dimension that counts from the end as it was written") {
  CHECK(sentence_of(concat<dim<-1>>{}.infer(shape_list{shape{2, 3}, shape{3, 3}})) ==
        "concat expects shapes that are equal but for dim -1, got [2, 3] and [3, 3]");
  CHECK(sentence_of(concat<dim<-2>>{}.infer(shape_list{shape{2}})) ==
        "concat expects dim -2 to be one of the input's (input [2])");
  CHECK(sentence_of(split<sections<1, 1>, dim<-2>>{}.infer(shape{2})) ==
        "split expects dim -2 to be one of the input's (input [2])");
}
