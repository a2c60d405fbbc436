#include "ikebana/ops/elementwise.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>

#include "ikebana/ops/along.hpp"
#include "ikebana/ops/reduction.hpp"
#include "test/nn/layers.hpp"

using namespace ikebana;
using cpu::tensor_op;

namespace {

template <class M>
void check_case(const std::string& name, const M& m) {
  compare_layer("ops", name, m);
}

constexpr ops::elementwise of_one(tensor_op f) { return {f, 1}; }
constexpr ops::elementwise of_two(tensor_op f) { return {f, 2}; }

void compare_binary(const std::string& name, const auto& m) {
  for (const char* form : {"", "_row", "_column", "_middle", "_scalar"})
    check_case("elementwise_" + name + form, m);
}

ops::reduction reducing(ops::reduction_op f, ops::number_list dims, bool keep = false,
                        double p = 2) {
  return {f, keep, dims, f == ops::reduction_op::var ? 1 : p};
}

}  // namespace

TEST_CASE("element-wise operations compute what PyTorch recorded") {
  for (const tensor_op f :
       {tensor_op::exp, tensor_op::square, tensor_op::abs, tensor_op::sign, tensor_op::erf,
        tensor_op::neg, tensor_op::log, tensor_op::sqrt, tensor_op::rsqrt, tensor_op::reciprocal})
    check_case("elementwise_" + std::string(of_one(f).name()), of_one(f));
  compare_binary("add", add{});
  compare_binary("mul", mul{});
  for (const tensor_op f : {tensor_op::add, tensor_op::sub, tensor_op::mul, tensor_op::div,
                            tensor_op::maximum, tensor_op::minimum})
    compare_binary(std::string(of_two(f).name()), of_two(f));
  check_case("elementwise_equal_maximum", of_two(tensor_op::maximum));
  check_case("elementwise_large", of_two(tensor_op::mul));
  check_case("elementwise_large", mul{});
  check_case("elementwise_pow", of_two(tensor_op::pow));
  check_case("elementwise_pow_cubic", ops::elementwise{tensor_op::pow, 2, 2, {0, 3}});
  check_case("elementwise_pow_of_two", ops::elementwise{tensor_op::pow, 2, 1, {2}});
  check_case("elementwise_clamp", ops::elementwise{tensor_op::clamp, 3, 6, {0, -1, 0.5}});
  check_case("elementwise_where", ops::elementwise{tensor_op::where, 3});
  for (const tensor_op f :
       {tensor_op::eq, tensor_op::ne, tensor_op::lt, tensor_op::le, tensor_op::gt, tensor_op::ge})
    check_case("elementwise_" + std::string(of_two(f).name()), of_two(f));
  CHECK(layers_not_compared("ops", "elementwise_").empty());
}

TEST_CASE("the gradients of element-wise operations are those of their forward") {
  check_gradients(of_two(tensor_op::sub), {shape{3, 1, 2}, shape{4, 1}});
  check_gradients(of_two(tensor_op::mul), {shape{5}, shape{2, 1}});
  check_gradients(of_one(tensor_op::erf), {2, 5});
  check_gradients(ops::elementwise{tensor_op::where, 3}, {shape{3, 1}, shape{1, 4}, shape{4}});
}

TEST_CASE("element-wise operations take operands without elements") {
  check_empty_batch(of_one(tensor_op::exp), {0, 3});
  check_empty_batch(of_two(tensor_op::add), {shape{0, 3}, shape{3}});
  check_empty_batch(add{}, {shape{0, 3}, shape{3}});
}

TEST_CASE("shapes that cannot be broadcast are refused in a sentence") {
  CHECK(sentence_of(of_two(tensor_op::sub).infer({shape{32, 10}, shape{32, 20}})) ==
        "sub expects shapes that can be broadcast, got [32, 10] and [32, 20]");
  CHECK(sentence_of(mul{}.infer(shape{3}, shape{2})) ==
        "mul expects shapes that can be broadcast, got [3] and [2]");
  // A dynamic extent matches any, and another extent than 1 decides.
  CHECK(add{}.infer(shape{dynamic, 1}, shape{4, 3}).output() == shape{4, 3});
  CHECK(add{}.infer(shape{dynamic, 1}, shape{1, 3}).output() == shape{dynamic, 3});
}

TEST_CASE("not-a-number is neither the larger nor hidden by it") {
  for_each_instruction_set([](const std::string&) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const float a[] = {nan, 1, nan}, b[] = {1, nan, nan};
    float y[3];
    cpu::tensor_op_forward<float>(tensor_op::maximum, 3, a, b, nullptr, y);
    for (float v : y) CHECK(v != v);
    CHECK(cpu::fold_row<float>(cpu::fold_op::max, 2, a, 0, 0, -1) != 2);
    float row[37];
    for (float& v : row) v = 2;
    row[11] = nan;
    const float most = cpu::fold_row<float>(cpu::fold_op::max, 37, row, 0, 0, -1);
    CHECK(most != most);
  });
}

TEST_CASE("reductions compute what PyTorch recorded") {
  using enum ops::reduction_op;
  const auto dims = []<dim_t... D>(std::integer_sequence<dim_t, D...>) {
    return ops::number_list::of<D...>();
  };
  const auto one = [&](dim_t d) {
    ops::number_list l = dims(std::integer_sequence<dim_t, 0>{});
    l.items[0] = d;
    return l;
  };
  for (const auto f : {ops::reduction_op::sum, mean, var, max, min, logsumexp, norm}) {
    const std::string name =
        "reduction_" + std::string(ops::reduction_names[static_cast<std::size_t>(f)]);
    check_case(name + "_last", reducing(f, one(-1)));
    check_case(name + "_first", reducing(f, one(0)));
    check_case(name + "_middle", reducing(f, one(1), true));
    check_case(name + "_outer", reducing(f, ops::number_list::of<0, 2>()));
    check_case(name + "_inner", reducing(f, ops::number_list::of<1, -1>(), true));
    check_case(name + "_all", reducing(f, {}));
  }
  check_case("reduction_sum_long", reducing(ops::reduction_op::sum, ops::number_list::of<0, 2>()));
  check_case("reduction_var_biased", ops::reduction{var, false, one(1), 0});
  check_case("reduction_max_equal", reducing(max, one(1)));
  check_case("reduction_norm_one", reducing(norm, one(1), false, 1));
  check_case("reduction_norm_infinity",
             reducing(norm, one(1), false, std::numeric_limits<double>::infinity()));
  check_case("reduction_norm_three", reducing(norm, one(1), false, 3));
  check_case("along_cumsum_last", ops::cumsum{-1});
  check_case("along_cumsum_middle", ops::cumsum{1});
  for (const bool is_max : {true, false}) {
    const std::string name = is_max ? "along_argmax" : "along_argmin";
    check_case(name + "_last", ops::arg_extreme{is_max, false, one(-1)});
    check_case(name + "_first", ops::arg_extreme{is_max, true, one(0)});
    check_case(name + "_all", ops::arg_extreme{is_max, false, {}});
  }
  CHECK(layers_not_compared("ops", "reduction_").empty());
  CHECK(layers_not_compared("ops", "along_").empty());
}

TEST_CASE("long sums are as exact as short ones") {
  for_each_instruction_set([](const std::string&) {
    leaf_run<float, ops::reduction> run(ops::reduction{ops::reduction_op::mean}, shape{1000003});
    for (dim_t i = 0; i < 1000003; ++i) run.input[i] = 0.1f;
    run.forward();
    CHECK(run.output[0] == doctest::Approx(0.1f).epsilon(1e-6));
    leaf_run<float, ops::reduction> columns(
        ops::reduction{ops::reduction_op::sum, false, ops::number_list::of<0>()}, {200001, 3});
    for (dim_t i = 0; i < 600003; ++i) columns.input[i] = 0.1f;
    columns.forward();
    CHECK(columns.output[2] == doctest::Approx(20000.1f).epsilon(4e-6));
  });
}

TEST_CASE("logsumexp of infinities is that of PyTorch") {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  leaf_run<double, ops::reduction> run(
      ops::reduction{ops::reduction_op::logsumexp, false, ops::number_list::of<1>()}, {3, 2});
  const double x[] = {-infinity, -infinity, infinity, 1, -infinity, 2};
  for (dim_t i = 0; i < 6; ++i) run.input[i] = x[i];
  run.forward();
  CHECK(run.output[0] == -infinity);
  CHECK(run.output[1] == infinity);
  CHECK(run.output[2] == 2);
}

TEST_CASE("reductions of nothing, and dims that are not there") {
  const auto sum = [](auto dims) { return reducing(ops::reduction_op::sum, dims); };
  check_empty_batch(sum(ops::number_list::of<1>()), {0, 3});
  leaf_run<double, ops::reduction> none(sum(ops::number_list::of<0>()), {0, 3});
  none.forward();
  CHECK(none.output[2] == 0);
  check_empty_batch(reducing(ops::reduction_op::var, ops::number_list::of<1>()), {0, 3});
  // The divisor of a variance is not below 0, as in PyTorch: 0 / 0, or infinity.
  leaf_run<double, ops::reduction> var_of_none(
      reducing(ops::reduction_op::var, ops::number_list::of<0>()), {0, 3});
  var_of_none.forward();
  CHECK(std::isnan(var_of_none.output[2]) == true);
  leaf_run<double, ops::reduction> var_of_few(
      ops::reduction{ops::reduction_op::var, false, ops::number_list::of<1>(), 3}, {1, 2});
  var_of_few.input[1] = 1;
  var_of_few.forward();
  CHECK(var_of_few.output[0] == std::numeric_limits<double>::infinity());
  CHECK(sentence_of(sum(ops::number_list::of<2>()).infer(shape{4, 5})) ==
        "sum expects a dim within 2 dimensions, got 2 (input [4, 5])");
  CHECK(sentence_of(sum(ops::number_list::of<1, -1>()).infer(shape{4, 5})) ==
        "sum expects each dim once, got -1 twice (input [4, 5])");
  CHECK(sentence_of(ops::cumsum{3}.infer(shape{4})) ==
        "cumsum expects a dim within 1 dimensions, got 3 (input [4])");
}
