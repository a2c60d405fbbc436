#include "ikebana/module/lazy.hpp"

#include <doctest/doctest.h>

#include <array>
#include <string_view>
#include <type_traits>
#include <vector>

#include "ikebana/compose/graph.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/module/print.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/conv.hpp"
#include "ikebana/nn/flatten.hpp"
#include "ikebana/nn/linear.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dynamic;
using ike::lazy;
using ike::shape;

namespace {

constexpr auto net =
    ike::sequential("conv"_m = ike::lazy_conv2d<4, ike::kernel<3>>{},
                    "block"_m = ike::sequential("norm"_m = ike::lazy_batch_norm2d<>{}, ike::relu{}),
                    "flatten"_m = ike::flatten{}, "fc"_m = ike::linear<16, 3>{});

template <class List>
std::vector<std::string_view> views(const List& list) {
  std::vector<std::string_view> all;
  for (const auto& p : list) all.push_back(p.view());
  return all;
}

/// Two inputs, of which only the second's extent is lazy.
template <ike::dim_t Second = lazy>
struct pair_module {
  static constexpr std::string_view kind = "pair";
  static constexpr bool is_lazy = Second == lazy;
  static constexpr std::array<std::string_view, 2> input_names{"left", "right"};
  ike::extent<Second> second{};
  constexpr ike::inferred infer(const shape& left, const shape& right) const {
    if (!ike::fits(second.value(), right.back()))
      return ike::diagnostic{"pair expects {expected}, got {got}", second.value(), right.back()};
    return left;
  }
  template <shape, shape Right>
  constexpr auto become() const {
    return pair_module<Right.back()>{};
  }
  constexpr std::array<ike::parameter_spec, 1> parameters() const {
    return {ike::parameter_spec{"weight", shape{second.value()}}};
  }
  template <class T>
  void forward(const ike::context<T>&) const {}
  template <class T>
  void backward(const ike::context<T>&) const {}
};

}  // namespace

TEST_CASE("the uninitialized parameters are a list of paths that the compiler knows") {
  constexpr auto list = ike::uninitialized_params(net);
  static_assert(list.size() == 6);
  static_assert(list[0].view() == "conv.weight");
  static_assert(list.contains("block.norm.running_var") && !list.contains("fc.weight"));
  CHECK(views(list) == std::vector<std::string_view>{
                           "conv.weight", "conv.bias", "block.norm.weight", "block.norm.bias",
                           "block.norm.running_mean", "block.norm.running_var"});
}

TEST_CASE("what is uninitialized is so recursively, and of parameters and buffers alone") {
  static_assert(ike::has_uninitialized_params(net));
  static_assert(!ike::has_uninitialized_params(ike::sequential()));
  static_assert(!ike::has_uninitialized_params(ike::linear<3, 2>{}));
  static_assert(ike::uninitialized_params(ike::linear<3, 2>{}).empty());
  static_assert(ike::uninitialized_params(ike::lazy_linear<2>{})[0].view() == "weight");
  // Like PyTorch's: neither parameters nor buffers, so there is nothing to initialize.
  constexpr ike::lazy_batch_norm2d<ike::affine<false>, ike::track_running_stats<false>> bare;
  static_assert(!ike::has_uninitialized_params(bare) && ike::uninitialized_params(bare).empty());
  static_assert(ike::is_lazy_v<decltype(bare)>);
  // Shared modules are listed once.
  constexpr auto twice = ike::graph([](auto x) {
    constexpr auto fc = ike::linear<lazy, 4>{};
    return "fc"_m(fc, "fc"_m(fc, x));
  });
  static_assert(ike::uninitialized_params(twice).size() == 2);
}

TEST_CASE("become_t is the type that a module becomes") {
  using before = std::remove_const_t<decltype(net)>;
  using after = ike::become_t<before, shape{dynamic, 1, 4, 4}>;
  static_assert(!ike::is_lazy_v<after> && ike::resolved_module<after>);
  static_assert(std::is_same_v<ike::become_t<ike::lazy_linear<4>, shape{7, 3}>, ike::linear<3, 4>>);
  static_assert(std::is_same_v<ike::become_t<ike::lazy_linear<4>, shape{7, dynamic}>,
                               ike::linear<dynamic, 4>>);
  static_assert(std::is_same_v<ike::become_t<ike::linear<3, 4>, shape{7, 3}>, ike::linear<3, 4>>);
  static_assert(ike::uninitialized_params(after{}).empty());
}

TEST_CASE("a lazy module may take several inputs") {
  static_assert(ike::uninitialized_params(pair_module<>{}).size() == 1);
  using after = ike::become_t<pair_module<>, shape{2}, shape{2, 9}>;
  static_assert(std::is_same_v<after, pair_module<9>>);
  constexpr auto both = ike::graph<"left", "right">(
      [](auto left, auto right) { return "pair"_m(pair_module<>{}, left, right); });
  static_assert(ike::uninitialized_params(both)[0].view() == "pair.weight");
  using whole = ike::become_t<std::remove_const_t<decltype(both)>, shape{2}, shape{2, 9}>;
  static_assert(!ike::has_uninitialized_params(whole{}));
}

TEST_CASE("a dimension that is left out is made dynamic where no input is there") {
  constexpr auto open = ike::detail::open_dimensions(net);
  static_assert(!ike::is_lazy_v<std::remove_const_t<decltype(open)>>);
  static_assert(std::is_same_v<ike::detail::opened_t<pair_module<>>, pair_module<dynamic>>);
  static_assert(
      std::is_same_v<ike::detail::opened_t<ike::lazy_linear<4>>, ike::linear<dynamic, 4>>);
}

TEST_CASE("a lazy module is a plain value") {
  using module = std::remove_const_t<decltype(net)>;
  static_assert(std::is_trivially_copyable_v<ike::lazy_linear<4>>);
  static_assert(std::is_copy_constructible_v<module> && std::is_default_constructible_v<module>);
  const module copy = net;
  CHECK(ike::to_string(copy) == ike::to_string(net));
}

TEST_CASE("a lazy module prints what is left out, a resolved one its number") {
  CHECK(ike::to_string(ike::lazy_linear<4>{}) ==
        "linear(in_features=lazy, out_features=4, bias=true)");
  CHECK(ike::to_string(ike::become<ike::shape_list{shape{7, 3}}>(ike::lazy_linear<4>{})) ==
        "linear(in_features=3, out_features=4, bias=true)");
}
