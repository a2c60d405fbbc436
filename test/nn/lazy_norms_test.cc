// The normalizations of PyTorch's test/nn/test_lazy_modules.py, with its names; see
// lazy_modules_test.cc.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <type_traits>

#include "ikebana/compose/graph.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/inputs.hpp"
#include "ikebana/model/lazy_model.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/module/lazy.hpp"
#include "ikebana/module/print.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/instance_norm.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dtype;
using ike::dynamic;
using ike::lazy;
using ike::shape;

namespace {

template <bool B>
using affine = ike::affine<B>;
template <bool B>
using tracks = ike::track_running_stats<B>;

/// For the four combinations of options: the uninitialized entries are the existing ones of weight,
/// bias and statistics, and the module resolves to the written-out one.
template <template <ike::dim_t, class...> class Norm, shape In, std::size_t C>
constexpr bool resolves_in_all_forms() {
  constexpr auto one = []<bool A, bool R>(std::bool_constant<A>, std::bool_constant<R>) {
    using module = Norm<lazy, affine<A>, tracks<R>>;
    constexpr auto list = ike::uninitialized_params(module{});
    return list.size() == (A ? 2 : 0) + (R ? 2 : 0) && list.contains("weight") == A &&
           list.contains("running_var") == R && !list.contains("num_batches_tracked") &&
           ike::has_uninitialized_params(module{}) == (A || R) &&
           std::is_same_v<ike::become_t<module, In>,
                          Norm<static_cast<ike::dim_t>(In[C]), affine<A>, tracks<R>>>;
  };
  constexpr std::true_type yes;
  constexpr std::false_type no;
  return one(yes, yes) && one(yes, no) && one(no, yes) && one(no, no);
}

/// Checks that a lazy norm resolved by a state of 5 channels gives the same outputs and statistics
/// as the explicit norm with that state, in training and then in evaluation.
template <template <ike::dim_t, class...> class Norm, shape In>
void check_outputs() {
  ike::state_dict state;
  float value = 0.5F;
  for (const char* name : {"weight", "bias", "running_mean", "running_var"}) {
    auto* to = reinterpret_cast<float*>(state.add_owned(name, dtype::float32, shape{5}));
    for (int i = 0; i < 5; ++i) to[i] = value += 0.125F;
  }
  state.add_owned("num_batches_tracked", dtype::int64, shape{});
  ike::lazy_model holder{Norm<lazy, affine<true>, tracks<true>>{}, ike::seed{1}};
  auto concrete = ike::initialize<float, In.with(0, dynamic)>(Norm<5, affine<true>, tracks<true>>{},
                                                              ike::seed{2});
  ike::load_state_dict(holder, state);
  ike::load_state_dict(concrete, state);
  const auto x = ike::uniform<float, In>(ike::seed{3});
  for (const bool training : {false, true, false}) {
    CAPTURE(training);
    holder.train(training);
    concrete.train(training);
    const auto y = holder(x), expected = concrete(x);
    CHECK(std::equal(y.data(), y.data() + y.size(), expected.data()));
    CHECK(y[0] != x[0]);
  }
  for (const auto& e : ike::get_state_dict(concrete))
    CHECK(std::ranges::equal(e.bytes, ike::get_state_dict(holder).at(e.name).bytes));
}

/// For the state: the lazy module's marks, and a concrete state that resolves it. For all four
/// combinations, or the two from which the others follow.
template <template <ike::dim_t, class...> class Norm, bool All = false>
void check_states() {
  const auto one = []<bool A, bool R>(std::bool_constant<A>, std::bool_constant<R>) {
    ike::lazy_model holder{Norm<lazy, affine<A>, tracks<R>>{}, ike::seed{1}};
    CHECK(holder.has_uninitialized_params() == (A || R));
    ike::state_dict state;
    if (A)
      for (const char* name : {"weight", "bias"}) state.add_owned(name, dtype::float32, shape{5});
    if (R) {
      for (const char* name : {"running_mean", "running_var"})
        state.add_owned(name, dtype::float32, shape{5});
      state.add_owned("num_batches_tracked", dtype::int64, shape{});
    }
    const ike::state_view marks = ike::get_state_dict(holder);
    REQUIRE(marks.size() == state.size());
    for (const auto& e : marks) {
      CHECK(e.uninitialized == (e.name != "num_batches_tracked"));
      CHECK(state.contains(e.name));
    }
    ike::load_state_dict(holder, state);
    CHECK_FALSE(holder.has_uninitialized_params());
    if (A || R) CHECK(holder.printed() == ike::to_string(Norm<5, affine<A>, tracks<R>>{}));
  };
  constexpr std::true_type yes;
  constexpr std::false_type no;
  one(yes, no);
  one(no, yes);
  if constexpr (All) {
    one(yes, yes);
    one(no, no);
  }
}

/// A lazy module is a value.
template <template <ike::dim_t, class...> class Norm>
constexpr bool is_value = std::is_trivially_copyable_v<Norm<lazy>>;

}  // namespace

TEST_CASE("lazy_batchnorm1d") {
  static_assert(resolves_in_all_forms<ike::batch_norm1d, shape{16, 3, 6}, 1>());
  static_assert(resolves_in_all_forms<ike::batch_norm1d, shape{16, 6}, 1>());
}
TEST_CASE("lazy_batchnorm2d") {
  static_assert(resolves_in_all_forms<ike::batch_norm2d, shape{16, 3, 6, 7}, 1>());
}
TEST_CASE("lazy_batchnorm3d") {
  static_assert(resolves_in_all_forms<ike::batch_norm3d, shape{16, 3, 6, 7, 8}, 1>());
}
TEST_CASE("lazy_instancenorm1d") {
  static_assert(resolves_in_all_forms<ike::instance_norm1d, shape{16, 3, 6}, 1>());
  // Unbatched, the channels are the first extent; PyTorch infers the second.
  static_assert(resolves_in_all_forms<ike::instance_norm1d, shape{3, 6}, 0>());
}
TEST_CASE("lazy_instancenorm2d") {
  static_assert(resolves_in_all_forms<ike::instance_norm2d, shape{16, 3, 6, 7}, 1>());
  static_assert(resolves_in_all_forms<ike::instance_norm2d, shape{3, 6, 7}, 0>());
}
TEST_CASE("lazy_instancenorm3d") {
  static_assert(resolves_in_all_forms<ike::instance_norm3d, shape{16, 3, 6, 7, 8}, 1>());
  static_assert(resolves_in_all_forms<ike::instance_norm3d, shape{3, 6, 7, 8}, 0>());
  // The defaults are those of the written-out module, lazy or not.
  static_assert(!ike::has_uninitialized_params(ike::lazy_instance_norm3d<>{}));
}

TEST_CASE("lazy_batchnorm1d_state") {
  check_states<ike::batch_norm1d, true>();
  check_outputs<ike::batch_norm1d, shape{2, 5, 6}>();
}
TEST_CASE("lazy_batchnorm2d_state") {
  check_states<ike::batch_norm2d>();
  check_outputs<ike::batch_norm2d, shape{2, 5, 3, 4}>();
}
TEST_CASE("lazy_batchnorm3d_state") {
  check_states<ike::batch_norm3d>();
  check_outputs<ike::batch_norm3d, shape{2, 5, 3, 2, 2}>();
}
TEST_CASE("lazy_instancenorm1d_state") {
  check_states<ike::instance_norm1d>();
  check_outputs<ike::instance_norm1d, shape{2, 5, 6}>();
}
TEST_CASE("lazy_instancenorm2d_state") {
  check_states<ike::instance_norm2d>();
  check_outputs<ike::instance_norm2d, shape{2, 5, 3, 4}>();
}
TEST_CASE("lazy_instancenorm3d_state") {
  check_states<ike::instance_norm3d>();
  check_outputs<ike::instance_norm3d, shape{2, 5, 3, 2, 2}>();
}

TEST_CASE("lazy norms are values") {
  static_assert(is_value<ike::batch_norm1d>);
  static_assert(is_value<ike::batch_norm2d>);
  static_assert(is_value<ike::batch_norm3d>);
  static_assert(is_value<ike::instance_norm1d>);
  static_assert(is_value<ike::instance_norm2d>);
  static_assert(is_value<ike::instance_norm3d>);
}

TEST_CASE("lazy_batchnorm_with_dict_input") {
  // The first call passes its input by name.
  constexpr auto net =
      ike::graph<"input">([](auto x) { return "bn"_m(ike::lazy_batch_norm2d<>{}, x); });
  ike::lazy_model holder{net, ike::seed{1}};
  const auto x = ike::uniform<float, shape{4, 3, 2, 2}>(ike::seed{1});
  CHECK(holder("input"_arg = x).extents() == shape{4, 3, 2, 2});
  CHECK(ike::get_state_dict(holder).at("bn.running_var").extents == shape{3});
}
