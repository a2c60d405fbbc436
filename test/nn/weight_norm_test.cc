#include "ikebana/nn/weight_norm.hpp"

#include <doctest/doctest.h>

#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/conv.hpp"
#include "ikebana/nn/linear.hpp"
#include "layers.hpp"

using namespace ikebana;

TEST_CASE("weight_norm computes what PyTorch recorded") {
  const auto norm = [](const char* name, const auto& m) {
    compare_layer("norm", std::string{"weight_norm_"} + name, m);
  };
  norm("linear", weight_norm(linear<5, 7>{}));
  norm("linear_no_bias", weight_norm(linear<19, 3, bias<false>>{}));
  norm("linear_dim1", weight_norm<linear<5, 7>, "weight", 1>{});
  norm("linear_whole", weight_norm<linear<5, 7>, "weight", no_dim>{});
  norm("linear_bias", weight_norm<linear<5, 7>, "bias", no_dim>{});
  norm("linear_both", weight_norm<weight_norm<linear<5, 7>>, "bias", no_dim>{});
  norm("conv2d", weight_norm(conv2d<3, 5, kernel<3>>{}));
  norm("conv2d_dim1", weight_norm<conv2d<3, 5, kernel<3>>, "weight", 1>{});
  norm("batch_norm2d", weight_norm<batch_norm2d<3>, "weight", no_dim>{});
  CHECK(layers_not_compared("norm", "weight_norm").empty());
}

TEST_CASE("the gradients of weight_norm are those of its forward") {
  check_gradients(weight_norm(linear<3, 4>{}), {2, 3});
  check_gradients(weight_norm<linear<3, 4>, "weight", no_dim>{}, {2, 3});
}

template <class M>
void check_initial_weight(const M& m, const shape& in, std::size_t v) {
  leaf_run<float, M> plain(m, in);
  plain.initialize(seed{3});
  for_each_instruction_set([&](const std::string& where) {
    leaf_run<float, weight_norm<M>> wrapped(weight_norm<M>{m}, in);
    wrapped.initialize(seed{3});
    fill_random(plain.input.data(), plain.input.size(), 1);
    fill_random(wrapped.input.data(), wrapped.input.size(), 1);
    plain.forward();
    wrapped.forward();
    const std::size_t size =
        static_cast<std::size_t>(plain.parameter_specs[0].extents.numel()) * sizeof(float);
    CHECK_MESSAGE(std::memcmp(plain.parameter(0), wrapped.parameter(v), size) == 0, where);
    CHECK_MESSAGE(std::memcmp(plain.output.data(), wrapped.output.data(),
                              static_cast<std::size_t>(plain.output.size()) * sizeof(float)) == 0,
                  where);
  });
}

TEST_CASE("the initial weight has the bits that it has without weight_norm") {
  check_initial_weight(linear<37, 5>{}, {3, 37}, 2);
  check_initial_weight(conv2d<3, 5, kernel<3>, bias<false>>{}, {2, 3, 5, 5}, 1);
}

TEST_CASE("weight_norm has PyTorch's parameters, in its order, and is the module in all else") {
  constexpr weight_norm m{conv2d<3, 5, kernel<3>>{}};
  constexpr auto p = m.parameters();
  static_assert(p.size() == 3);
  CHECK(std::string{p[0].name} == "bias");
  CHECK(std::string{p[1].name} == "weight_g");
  CHECK(p[1].extents == shape{5, 1, 1, 1});
  CHECK(std::string{p[2].name} == "weight_v");
  CHECK(p[2].extents == shape{5, 3, 3, 3});
  CHECK(std::string{p[2].drawn_as} == "weight");
  CHECK(weight_norm<linear<5, 7>, "weight", no_dim>{}.parameters()[1].extents == shape{});
  CHECK(m.kind == "conv2d");
  CHECK(m.infer(shape{2, 3, 5, 5}).output() == shape{2, 5, 3, 3});
  CHECK(described(weight_norm(linear<5, 7>{})) ==
        "in_features=5, out_features=7, bias=true, weight_norm=weight");
  CHECK(sentence_of(weight_norm(linear<5, 7>{}).infer(shape{2, 4})) ==
        "linear expects in_features = 5, got 4 (input [2, 4])");
  static_assert(leaf_module<decltype(m)> && !decltype(m)::is_lazy);
}

TEST_CASE("weight_norm keeps the options of a module, and its buffers") {
  constexpr weight_norm m{batch_norm2d<3>{.eps = 1e-3}};
  static_assert(m.eps == 1e-3);
  CHECK(m.buffers().size() == 3);
  CHECK_FALSE(m.check({shape{1, 3, 1, 1}}, true).ok());
}

TEST_CASE("weight_norm of a module whose extents only run time knows") {
  using norm = weight_norm<linear<dynamic, 4>>;
  leaf_run<float, norm> run({}, {2, 3});
  CHECK(run.parameter_specs[2].extents == shape{4, 3});
  const shape of_state[] = {{4}, {4, 1}, {4, 9}};
  norm loaded;
  loaded.bind_state(of_state, {});
  CHECK(loaded.parameters()[2].extents == shape{4, 9});
}

TEST_CASE("weight_norm of an empty batch") {
  leaf_run<float, weight_norm<linear<5, 7>>> run({}, {0, 5});
  run.initialize(seed{1});
  fill_random(run.gradients.data(), run.gradients.size(), 1);
  run.forward();
  run.backward(false);
  for (std::size_t p = 0; p < 3; ++p)
    for (dim_t i = 0; i < run.parameter_specs[p].extents.numel(); ++i)
      CHECK(run.gradient(p)[i] == 0);
}
