// The effect of precision<bf16> on every module with products.

#include <string_view>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/precision.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/bilinear.hpp"
#include "ikebana/nn/gru.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/lstm.hpp"
#include "ikebana/nn/multihead_attention.hpp"
#include "ikebana/nn/rnn.hpp"
#include "ikebana/nn/rnn_cell.hpp"
#include "ikebana/nn/spectral_norm.hpp"
#include "ikebana/nn/weight_norm.hpp"
#include "precision_runs.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::bf16;
using ike::dim_t;
using ike::precision;
using ike::shape;
using precision_test::largest_difference;
using precision_test::results;
using precision_test::rounded;
using precision_test::run;
using precision_test::same_bits;

namespace {

template <class Model>
void round_weights(Model& model) {
  const auto& p = model.current_program();
  for (std::size_t i = 0; i < p.all_parameters().size(); ++i) {
    if (std::string_view{p.parameters[i].spec.name}.find("weight") == std::string_view::npos)
      continue;
    float* const at = model.parameters().data() + model.layout().offsets[i];
    for (dim_t e = 0; e < p.parameters[i].spec.extents.numel(); ++e) at[e] = rounded(at[e]);
  }
}

/// Products use rounded weights: rounding them beforehand changes nothing, unlike in float.
template <shape... In>
void check_module(const ike::any_module auto& m) {
  const auto check = [&](const auto&... x) {
    auto exact = ike::initialize<float, In...>(m, ike::seed{3});
    auto model = ike::initialize<precision<bf16>, In...>(m, ike::seed{3});
    CHECK(same_bits(model.parameters(), exact.parameters()));
    const results of_floats = run(exact, x...), first = run(model, x...);
    round_weights(model);
    round_weights(exact);
    const results again = run(model, x...), of_rounded_weights = run(exact, x...);
    CHECK(same_bits(first.output, again.output));
    CHECK(same_bits(first.gradients, again.gradients));
    CHECK_FALSE(same_bits(of_floats.output, of_rounded_weights.output));
    CHECK_FALSE(same_bits(first.output, of_rounded_weights.output));
    CHECK(largest_difference(first.output, of_floats.output) < 0.02);
    CHECK(largest_difference(first.gradients, of_floats.gradients) < 0.03);
  };
  check(ike::uniform<float, In>(ike::seed{4})...);
}

}  // namespace

TEST_CASE("all modules of products round their factors") {
  check_module<shape{6, 20}>(ike::sequential("fc"_m = ike::linear<20, 9>{}, "relu"_m = ike::relu{},
                                             "fc2"_m = ike::linear<9, 4, ike::bias<false>>{}));
  check_module<shape{6, 5}, shape{6, 7}>(ike::bilinear<5, 7, 3>{});
  check_module<shape{4, 3, 12}>(ike::multihead_attention<12, 3>{});
  check_module<shape{4, 3, 12}, shape{5, 3, 10}, shape{5, 3, 6}>(
      ike::multihead_attention<12, 2, ike::kdim<10>, ike::vdim<6>, ike::need_weights<true>>{});
  check_module<shape{9, 2, 5}>(ike::lstm<5, 8, ike::num_layers<2>, ike::bidirectional<true>>{});
  check_module<shape{3, 2, 40}>(ike::lstm<40, 48, ike::proj_size<20>>{});
  check_module<shape{9, 2, 5}>(ike::gru<5, 8>{});
  check_module<shape{3, 2, 5}>(ike::rnn<5, 8>{});
  check_module<shape{3, 5}>(ike::lstm_cell<5, 8>{});
  check_module<shape{3, 5}>(ike::gru_cell<5, 8>{});
}

TEST_CASE("a weight that is computed is rounded as any other") {
  const auto check = [](const auto& m) {
    const auto x = ike::uniform<float, shape{6, 20}>(ike::seed{4});
    auto exact = ike::initialize<float, shape{6, 20}>(m, ike::seed{3});
    auto model = ike::initialize<precision<bf16>, shape{6, 20}>(m, ike::seed{3});
    const results of_floats = run(exact, x), rounding = run(model, x);
    CHECK_FALSE(same_bits(of_floats.output, rounding.output));
    CHECK(largest_difference(rounding.output, of_floats.output) < 0.02);
    CHECK(largest_difference(rounding.gradients, of_floats.gradients) < 0.03);
  };
  check(ike::weight_norm(ike::linear<20, 9>{}));
  check(ike::spectral_norm(ike::linear<20, 9>{}));
}
