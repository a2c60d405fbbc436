#include "ikebana/module/lowering.hpp"

#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <type_traits>

#include "ikebana/compose/residual.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/module/lazy.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/conv.hpp"
#include "ikebana/nn/conv_transpose.hpp"
#include "ikebana/nn/dropout.hpp"
#include "ikebana/nn/embedding.hpp"
#include "ikebana/nn/flatten.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/lstm.hpp"
#include "ikebana/nn/multihead_attention.hpp"
#include "ikebana/nn/pool.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dynamic;
using ike::shape;
using ike::shape_list;

namespace {

constexpr auto net =
    ike::sequential("conv"_m = ike::lazy_conv2d<6, ike::kernel<3, 5>, ike::stride<2, 1>>{},
                    "norm"_m = ike::lazy_batch_norm2d<>{}, "skip"_m = ike::residual(ike::relu{}),
                    "flatten"_m = ike::flatten{}, "fc"_m = ike::lazy_linear<2>{});
constexpr shape in{dynamic, 3, 9, 9};
constexpr auto n = ike::sizes_of<std::remove_const_t<decltype(net)>>(1);
using resolved = ike::become_t<std::remove_const_t<decltype(net)>, in>;
constexpr auto program = ike::lower<n>(resolved{}, shape_list{in});

static_assert(program.error.ok());
static_assert(n.nodes == 6 && n.values == 7 && n.edges == 7 && n.leaves == 6);
static_assert(n.scopes == 8, "the root, five children, two of the residual");
static_assert(n.parameters == 6 && n.buffers == 3 && n.saved == 2);

static_assert(program.values[0] == in);
static_assert(program.values[1] == shape{dynamic, 6, 4, 5});
static_assert(program.values[5] == shape{dynamic, 6 * 4 * 5});
static_assert(program.output() == shape{dynamic, 2});

}  // namespace

TEST_CASE("values and edges are numbered in the order of forward") {
  CHECK(program.nodes[0].inputs[0] == 0);
  CHECK(program.nodes[2].inputs[0] == 2);    // relu
  CHECK(program.nodes[3].input_count == 2);  // The sum of relu's output and its input.
  CHECK(program.nodes[3].inputs[0] == 3);
  CHECK(program.nodes[3].inputs[1] == 2);
  CHECK(program.nodes[3].first_edge == 3);
  CHECK(program.nodes[4].first_edge == 5);
  CHECK(program.nodes[4].is_view);
  CHECK(program.outputs[0] == 6);
  for (std::size_t k = 0; k < n.nodes; ++k) {
    CHECK(program.nodes[k].first_output == static_cast<int>(k) + 1);
    CHECK(program.nodes[k].leaf == static_cast<int>(k));
  }
}

TEST_CASE("parameters and buffers stand in PyTorch's order, under its names") {
  const auto path = [](const auto& x) { return std::string{program.path(x).view()}; };
  CHECK(path(program.parameters[0]) == "conv.weight");
  CHECK(path(program.parameters[1]) == "conv.bias");
  CHECK(path(program.parameters[2]) == "norm.weight");
  CHECK(path(program.parameters[3]) == "norm.bias");
  CHECK(path(program.parameters[4]) == "fc.weight");
  CHECK(path(program.buffers[0]) == "norm.running_mean");
  CHECK(path(program.buffers[2]) == "norm.num_batches_tracked");
  CHECK(program.parameters[0].spec.extents == shape{6, 3, 3, 5});
  CHECK(program.parameters[4].spec.extents == shape{2, 120});
  CHECK(path(program.leaves[3]) == "skip.add");
  CHECK(program.leaves[3].path_hash == ike::hash_path("skip.add"));
}

TEST_CASE("a refusal names the first module that refuses, with its path") {
  const auto refused = [](const auto& module, const shape& input) {
    const ike::inferred r = ike::infer(module, shape_list{input});
    return r.ok() ? std::string{"accepted"} : std::string{r.error.message().view()};
  };
  const auto two =
      ike::sequential("a"_m = ike::sequential(ike::relu{}, "b"_m = ike::linear<10, 4>{}),
                      "c"_m = ike::linear<5, 2>{});
  CHECK(refused(two, shape{2, 10}) == "c: linear expects in_features = 5, got 4 (input [2, 4])");
  CHECK(refused(two, shape{2, 11}) ==
        "a.b: linear expects in_features = 10, got 11 (input [2, 11])");
  CHECK(refused(two, shape{}) == "a.b: linear expects an input of at least 1 dimension, got []");
  CHECK(refused(ike::linear<5, 2>{}, shape{1, 4}) ==
        "linear expects in_features = 5, got 4 (input [1, 4])");
  CHECK(refused(two, shape{2, dynamic}) ==
        "c: linear expects in_features = 5, got 4 (input [2, 4])");
}

TEST_CASE("products of extents that would overflow are refused") {
  constexpr ike::dim_t large = ike::dim_t{1} << 40;
  const auto refused = [](const auto& module, const shape& input) {
    const ike::inferred r = ike::infer(ike::sequential("m"_m = module), shape_list{input});
    return r.ok() ? std::string{"accepted"} : std::string{r.error.message().view()};
  };
  // Parameters, whose extents are known at compile time.
  CHECK(refused(ike::embedding<large, (large >> 10)>{}, shape{2}) ==
        "m: with a tensor of shape [1099511627776, 1073741824], the network has more than 2^56 "
        "elements");
  CHECK(refused(ike::lstm<3, large>{}, shape{2, 1, 3}).ends_with("than 2^56 elements"));
  CHECK(refused(ike::multihead_attention<large, 1>{}, shape{2, 1, large})
            .ends_with("[3298534883328, 1099511627776], the network has more than 2^56 elements"));
  // Inputs and outputs, whose extents are known only at run time. In 64 bits, 2^62 * 4 and
  // 2^57 * 2^7 overflow to 0.
  CHECK(refused(ike::relu{}, shape{large << 22, 4}).ends_with("2^56 elements"));
  CHECK(refused(ike::relu{}, shape{0, large << 22}).ends_with("2^56 elements"));
  CHECK(refused(ike::flatten{}, shape{2, large, large}).ends_with("2^56 elements"));
  CHECK(
      refused(ike::linear<1, (large << 10)>{}, shape{(large << 2), 1}).ends_with("2^56 elements"));
  CHECK(refused(ike::conv_transpose1d<1, 1, ike::kernel<1>, ike::stride<(large >> 10)>>{},
                shape{1, 1, (large << 14)})
            .ends_with("2^56 elements"));
  // Each tensor is allowed, but not their sum.
  const auto half = ike::linear<1, (large << 15)>{};
  CHECK(refused(half, shape{1, 1}) ==
        "m: with a tensor of shape [1, 1], the network has more than 2^56 elements");
  CHECK(refused(ike::linear<1, (large << 12)>{}, shape{1, 1}) == "accepted");
  CHECK(refused(ike::relu{}, shape{large, (large >> 26)}) == "accepted");
  CHECK(refused(ike::relu{}, shape{large, (large >> 24)}).ends_with("2^56 elements"));
}

TEST_CASE("too many or too few inputs are refused") {
  const ike::inferred r = ike::infer(net, shape_list{in, in});
  REQUIRE_FALSE(r.ok());
  CHECK(r.error.message().view() ==
        "a composition takes 1 input, got 2: concat, add and mul make one value of several");
  const ike::inferred leaf = ike::infer(ike::relu{}, shape_list{in, in});
  REQUIRE_FALSE(leaf.ok());
  CHECK(leaf.error.message().view() ==
        "relu takes 1 input, got 2: concat, add and mul make one value of several");
}

TEST_CASE("what is lazy has uninitialized parameters, until it becomes something else") {
  static_assert(ike::has_uninitialized_params(net));
  static_assert(!ike::has_uninitialized_params(resolved{}));
  static_assert(!ike::has_uninitialized_params(ike::relu{}));
  static_assert(!ike::has_uninitialized_params(ike::sequential()));
  static_assert(ike::has_uninitialized_params(
      ike::sequential("a"_m = ike::residual("b"_m = ike::sequential(ike::lazy_linear<3>{})))));
  static_assert(ike::resolved_module<resolved> &&
                !ike::resolved_module<std::remove_const_t<decltype(net)>>);
}

TEST_CASE("become fills in what is left out, and keeps names and options") {
  static_assert(std::is_same_v<ike::become_t<ike::lazy_linear<4, ike::bias<false>>, shape{7, 3}>,
                               ike::linear<3, 4, ike::bias<false>>>);
  static_assert(std::is_same_v<ike::become_t<ike::lazy_linear<4>, shape{7, dynamic}>,
                               ike::linear<dynamic, 4>>);
  static_assert(std::is_same_v<ike::become_t<ike::relu, shape{7}>, ike::relu>);
  constexpr auto options = ike::sequential("drop"_m = ike::dropout{.p = 0.25},
                                           "norm"_m = ike::lazy_batch_norm2d<>{.eps = 0.5},
                                           "fc"_m = ike::lazy_linear<3>{});
  constexpr auto made = ike::become<shape_list{shape{2, 3, 4, 5}}>(options);
  static_assert(std::is_same_v<std::remove_const_t<decltype(made)>,
                               std::remove_const_t<decltype(ike::sequential(
                                   "drop"_m = ike::dropout{}, "norm"_m = ike::batch_norm2d<3>{},
                                   "fc"_m = ike::linear<5, 3>{}))>>);
  CHECK(static_cast<double>(made.children[boost::hana::size_c<0>].module.p) == 0.25);
  CHECK(made.children[boost::hana::size_c<1>].module.eps == 0.5);
}

TEST_CASE("what is not lazy is itself") {
  constexpr resolved r{};
  static_assert(std::is_same_v<ike::become_t<resolved, in>, resolved>);
  (void)r;
}
