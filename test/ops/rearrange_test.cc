#include "ikebana/ops/rearrange.hpp"

#include <doctest/doctest.h>

#include <string>

#include "ikebana/ops/index.hpp"
#include "ikebana/ops/place.hpp"
#include "ikebana/ops/product.hpp"
#include "ikebana/ops/view.hpp"
#include "test/nn/layers.hpp"

using namespace ikebana;

namespace {

template <class M>
void check_case(const std::string& name, const M& m) {
  compare_layer("ops", name, m);
}

template <dim_t... D>
constexpr auto numbers = ops::number_list::of<D...>();

constexpr ops::einsum einsum_of(std::string_view equation) {
  const ops::equation e{equation};
  return {e.operands[0], e.operands[1], e.result};
}

}  // namespace

TEST_CASE("products compute what PyTorch recorded") {
  for (const char* name : {"matmul", "matmul_batch", "matmul_broadcast", "matmul_of_matrix",
                           "matmul_vector", "vector_matmul", "dot", "matmul_large"})
    check_case(std::string{"product_"} + name, ops::matmul{});
  check_case("product_matmul_nt", ops::matmul{false, true});
  check_case("product_matmul_tn", ops::matmul{true, false});
  int i = 0;
  for (const char* equation :
       {"bhqd,bhkd->bhqk", "bqhd,bkhd->bhqk", "ij,jk->ki", "i,j->ij", "ij,ij->", "ijk,jil->kl",
        "ijb,jkb->ikb", "ij,k->jk", "abc,cd->dab", "ba,bc->bac", "nchw,nc->nhw"})
    check_case("product_einsum_" + std::to_string(i++), einsum_of(equation));
  CHECK(layers_not_compared("ops", "product_").empty());
}

TEST_CASE("products of nothing are zero") {
  check_empty_batch(ops::matmul{}, {shape{0, 3}, shape{3, 4}});
  leaf_run<double, ops::matmul> run(ops::matmul{}, {shape{2, 0}, shape{0, 3}});
  for (dim_t i = 0; i < 6; ++i) run.output[i] = 7;
  run.forward();
  for (dim_t i = 0; i < 6; ++i) CHECK(run.output[i] == 0);
}

TEST_CASE("operands of a product that do not match are refused in a sentence") {
  CHECK(sentence_of(ops::matmul{}.infer(shape{4, 5}, shape{6, 3})) ==
        "matmul expects equal inner extents, got 5 of [4, 5] and 6 of [6, 3]");
  CHECK(sentence_of(ops::matmul{}.infer(shape{2, 4, 5}, shape{3, 5, 3})) ==
        "matmul expects batches that can be broadcast, got [2, 4, 5] and [3, 5, 3]");
  CHECK(sentence_of(einsum_of("ij,jk->ik").infer(shape{4, 5}, shape{6, 3})) ==
        "einsum expects equal extents of a label, got 5 of [4, 5] and 6 of [6, 3]");
  CHECK(sentence_of(einsum_of("ij,jk->ik").infer(shape{4}, shape{6, 3})) ==
        "einsum expects 2 dimensions of its first operand, got [4]");
  CHECK(ops::matmul{}.infer(shape{dynamic, 4, 5}, shape{5, 3}).output() == shape{dynamic, 4, 3});
  CHECK(einsum_of("nij,jk->nik").infer(shape{dynamic, 4, 5}, shape{5, 3}).output() ==
        shape{dynamic, 4, 3});
  CHECK(described(einsum_of("ij,jk->ik")) == "equation=ij,jk->ik");
}

TEST_CASE("rearranged values are those that PyTorch recorded") {
  using enum ops::rearrange_op;
  using ops::rearrange;
  check_case("rearrange_permute", rearrange{permute, numbers<2, 0, -1, 1>});
  check_case("rearrange_transpose", rearrange{transpose, numbers<-2, -1>});
  check_case("rearrange_slice", rearrange{ops::rearrange_op::slice, numbers<1>, 1, -1, 2});
  check_case("rearrange_slice_beyond", rearrange{ops::rearrange_op::slice, numbers<1>, -3, 100});
  check_case("rearrange_select", rearrange{ops::rearrange_op::select, numbers<1>, -2});
  check_case("rearrange_narrow", rearrange{narrow, numbers<0>, 1, 2});
  check_case("rearrange_chunk", rearrange{chunk, numbers<1>, 2, 3});
  check_case("rearrange_flip", rearrange{flip, numbers<0, 2>});
  check_case("rearrange_roll", rearrange{roll, numbers<1>, 2});
  check_case("rearrange_roll_all", rearrange{roll, {}, -4});
  check_case("rearrange_expand", rearrange{expand, numbers<3, -1, 4>});
  check_case("place_pad", ops::pad{numbers<1, 2, 0, 3>, -0.5});
  check_case("place_stack", ops::stack{-2});
  CHECK(layers_not_compared("ops", "rearrange_").empty());
  CHECK(layers_not_compared("ops", "place_").empty());
  check_gradients(rearrange{permute, numbers<1, 0>}, {3, 4});
  check_gradients(rearrange{flip, numbers<-1>}, {3, 4});
  check_empty_batch(rearrange{flip, numbers<1>}, {0, 3});
  check_empty_batch(rearrange{permute, numbers<1, 0>}, {0, 3});
  check_empty_batch(ops::stack{1}, {shape{0, 3}, shape{0, 3}});
}

TEST_CASE("ranges that are not there are refused in a sentence") {
  using enum ops::rearrange_op;
  using ops::rearrange;
  CHECK(sentence_of(rearrange{permute, numbers<0, 0>}.infer(shape{2, 3})) ==
        "permute expects each of 2 dimensions once (input [2, 3])");
  CHECK(sentence_of(rearrange{transpose, numbers<0, 2>}.infer(shape{2, 3})) ==
        "transpose expects dims within 2 dimensions, got 2 (input [2, 3])");
  CHECK(sentence_of(rearrange{ops::rearrange_op::select, numbers<1>, 3}.infer(shape{2, 3})) ==
        "select expects an index below 3, got 3 (input [2, 3])");
  CHECK(sentence_of(rearrange{narrow, numbers<1>, 2, 2}.infer(shape{2, 3})) ==
        "narrow expects a range within 3 elements, got one up to 4 (input [2, 3])");
  CHECK(sentence_of(rearrange{chunk, numbers<1>, 0, 4}.infer(shape{2, 5})) ==
        "chunk expects an extent that makes 4 parts, got 5 (input [2, 5])");
  CHECK(sentence_of(rearrange{expand, numbers<2, 4>}.infer(shape{2, 3})) ==
        "expand expects extents of 1 or equal ones, got [2, 3] and [2, 4]");
  CHECK(sentence_of(ops::pad{numbers<1, 1, 2, 2>}.infer(shape{3})) ==
        "pad expects at least 2 dimensions, got [3]");
  CHECK(sentence_of(ops::stack{0}.infer({shape{2, 3}, shape{3, 3}})) ==
        "stack expects equal shapes, got [2, 3] and [3, 3]");
  CHECK(rearrange{ops::rearrange_op::slice, numbers<0>, 5, 2}.infer(shape{7, 3}).output() ==
        shape{0, 3});
}

TEST_CASE("views have the shapes of PyTorch's") {
  using enum ops::view_op;
  using ops::view;
  CHECK(view{ops::view_op::reshape, numbers<3, -1, 2>}.infer(shape{2, 3, 5}).output() ==
        shape{3, 5, 2});
  CHECK(view{ops::view_op::reshape, numbers<-1, 20>}.infer(shape{dynamic, 4, 5}).output() ==
        shape{dynamic, 20});
  CHECK(view{unsqueeze, numbers<-1, 0>}.infer(shape{3, 4}).output() == shape{1, 3, 4, 1});
  CHECK(view{squeeze, numbers<-1, 0>}.infer(shape{1, 3, 1}).output() == shape{3});
  CHECK(sentence_of(view{ops::view_op::reshape, numbers<4, 4>}.infer(shape{3, 5})) ==
        "reshape expects 16 elements, got 15 (input [3, 5], to [4, 4])");
  CHECK(sentence_of(view{ops::view_op::reshape, numbers<-1, 4>}.infer(shape{3, 5})) ==
        "reshape expects a multiple of 4 elements, got 15 (input [3, 5], to [dynamic, 4])");
  CHECK(sentence_of(view{squeeze, numbers<1>}.infer(shape{1, 3})) ==
        "squeeze expects an extent of 1, got 3 (input [1, 3])");
  CHECK(sentence_of(view{unsqueeze, numbers<3>}.infer(shape{1, 3})) ==
        "unsqueeze expects each dim once and within 3 dimensions, got 3 (input [1, 3])");
}

TEST_CASE("indexed values are those that PyTorch recorded") {
  check_case("index_gather", ops::index{ops::index_op::gather, 1});
  check_case("index_select", ops::index{ops::index_op::index_select, 1});
  check_case("index_scatter_add", ops::index{ops::index_op::scatter_add, 0});
  check_case("index_masked_fill", ops::masked_fill{-2.5});
  CHECK(layers_not_compared("ops", "index_").empty());
  leaf_run<float, ops::index> run(ops::index{ops::index_op::one_hot, 3}, shape{2});
  run.indices[0][0] = 2, run.indices[0][1] = 0;
  run.forward();
  const float expected[] = {0, 0, 1, 1, 0, 0};
  for (dim_t i = 0; i < 6; ++i) CHECK(run.output[i] == expected[i]);
  run.indices[0][1] = 3;
  CHECK_THROWS_WITH_AS(run.forward(), "one_hot expects indices from 0 to 2, got 3", error);
  CHECK(sentence_of(ops::index{ops::index_op::gather, 1}.infer({shape{4, 5}, shape{5, 2}})) ==
        "gather expects indices that are within the other dimensions of [4, 5], got [5, 2]");
  CHECK(sentence_of(ops::masked_fill{}.infer(shape{4, 5}, shape{2, 4, 5})) ==
        "masked_fill expects a mask that can be broadcast to [4, 5], got [2, 4, 5]");
}
