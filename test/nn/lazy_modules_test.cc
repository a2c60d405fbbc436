// PyTorch's test/nn/test_lazy_modules.py, with its names. Checks of objects at run time become
// checks of types: a lazy module and a resolved one have different types, and the resolved type is
// that of the written-out module.

#include <doctest/doctest.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <type_traits>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/lazy_model.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/module/lazy.hpp"
#include "ikebana/module/print.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/conv.hpp"
#include "ikebana/nn/conv_transpose.hpp"
#include "ikebana/nn/instance_norm.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/nn/spectral_norm.hpp"
#include "ikebana/nn/weight_norm.hpp"
#include "ikebana/optim.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dtype;
using ike::dynamic;
using ike::lazy;
using ike::shape;

namespace {

template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const ike::error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

std::size_t count_uninitialized(const ike::state_dict& dict) {
  std::size_t n = 0;
  for (const auto& e : dict) n += e.uninitialized;
  return n;
}

/// A state of these shapes, filled with distinct numbers.
struct described {
  const char* name;
  shape extents;
  dtype type = dtype::float32;
};
ike::state_dict state_of(std::initializer_list<described> all) {
  ike::state_dict dict;
  float value = 0;
  for (const described& d : all) {
    std::byte* to = dict.add_owned(d.name, d.type, d.extents);
    if (d.type != dtype::float32) continue;
    for (ike::dim_t i = 0; i < d.extents.numel(); ++i)
      reinterpret_cast<float*>(to)[i] = value += 0.125F;
  }
  return dict;
}

bool same_state(const ike::state_dict& a, const ike::state_dict& b) {
  bool same = a.size() == b.size();
  for (std::size_t i = 0; same && i < a.size(); ++i)
    same = a[i].name == b[i].name && a[i].extents == b[i].extents && !a[i].uninitialized &&
           std::memcmp(a[i].bytes.data(), b[i].bytes.data(), a[i].bytes.size()) == 0;
  return same;
}

/// Tests of states: the lazy module's state contains marks and loads as lazy; a concrete state
/// resolves it, and it then prints like the concrete module.
template <class Lazy>
void check_state(const Lazy& module, const std::string& concrete, const ike::state_dict& state) {
  ike::lazy_model holder{module, ike::seed{1}};
  CHECK(holder.has_uninitialized_params());
  CHECK(count_uninitialized(ike::get_state_dict(holder)) ==
        ike::uninitialized_params(Lazy{}).size());
  ike::lazy_model other{module, ike::seed{2}};
  ike::load_state_dict(holder, ike::get_state_dict(other));
  CHECK(holder.has_uninitialized_params());
  ike::load_state_dict(holder, state);
  CHECK_FALSE(holder.has_uninitialized_params());
  CHECK(holder.printed() == concrete);
  CHECK(same_state(ike::get_state_dict(holder), state));
}

/// A lazy module is a value: a copy is as lazy, and resolves to the same module.
template <class Lazy, class Concrete, shape In>
constexpr bool is_value() {
  return std::is_trivially_copyable_v<Lazy> && ike::is_lazy_v<Lazy> &&
         std::is_same_v<ike::become_t<Lazy, In>, Concrete> && !ike::is_lazy_v<Concrete>;
}

template <class M, std::size_t I>
constexpr shape parameter_shape = M{}.parameters()[I].extents;

}  // namespace

TEST_CASE("lazy_module_parameter") {
  ike::lazy_model holder{ike::lazy_linear<3>{}, ike::seed{1}};
  const ike::state_view placeholder = ike::get_state_dict(holder);
  CHECK(placeholder.at("weight").uninitialized);
  // lazy -> concrete
  auto concrete = ike::initialize<float, shape{dynamic, 5}>(ike::linear<5, 3>{}, ike::seed{2});
  CHECK(message_of([&] { ike::load_state_dict(concrete, placeholder); }) ==
        "load_state_dict: uninitialized: weight, bias");
  // lazy -> lazy
  ike::load_state_dict(holder, placeholder);
  CHECK(holder.has_uninitialized_params());
  // concrete -> lazy
  ike::load_state_dict(holder, ike::get_state_dict(concrete));
  CHECK_FALSE(holder.has_uninitialized_params());
  CHECK(same_state(ike::get_state_dict(holder), ike::get_state_dict(concrete)));
}

TEST_CASE("lazy_module_buffer") {
  using bare = ike::lazy_batch_norm1d<ike::affine<false>>;
  ike::lazy_model holder{bare{}, ike::seed{1}};
  const ike::state_view placeholder = ike::get_state_dict(holder);
  CHECK(placeholder.at("running_mean").uninitialized);
  CHECK_FALSE(placeholder.at("num_batches_tracked").uninitialized);
  ike::load_state_dict(holder, placeholder);
  CHECK(holder.has_uninitialized_params());
  auto state = state_of({{"running_mean", shape{4}},
                         {"running_var", shape{4}},
                         {"num_batches_tracked", shape{}, dtype::int64}});
  ike::load_state_dict(holder, state);
  CHECK(same_state(ike::get_state_dict(holder), state));
  auto concrete = ike::initialize<float, shape{dynamic, 4}>(bare{}, ike::seed{2});
  CHECK(message_of([&] { ike::load_state_dict(concrete, placeholder); }) ==
        "load_state_dict: uninitialized: running_mean, running_var");
}

TEST_CASE("linear") {
  using module = ike::lazy_linear<10>;
  static_assert(ike::has_uninitialized_params(module{}));
  static_assert(ike::uninitialized_params(module{}).contains("weight") &&
                ike::uninitialized_params(module{}).contains("bias"));
  using concrete = ike::become_t<module, shape{5, 5}>;
  static_assert(std::is_same_v<concrete, ike::linear<5, 10>>);
  static_assert(parameter_shape<concrete, 0> == shape{10, 5});
  static_assert(parameter_shape<concrete, 1> == shape{10});
  ike::lazy_model holder{module{}, ike::seed{1}};
  const auto x = ike::ones<float, shape{5, 5}>();
  const auto y = holder(x);
  const auto& model = holder.model_of(x);
  for (ike::dim_t o = 0; o < 10; ++o) {
    float expected = model["bias"_s][o];
    bool zero = true;
    for (ike::dim_t i = 0; i < 5; ++i) {
      expected += model["weight"_s](o, i);
      zero = zero && model["weight"_s](o, i) == 0;
    }
    CHECK_FALSE(zero);
    CHECK(y(0, o) == doctest::Approx(expected));
  }
}

TEST_CASE("a lazy module is a value") {
  static_assert(is_value<ike::lazy_linear<10>, ike::linear<5, 10>, shape{5, 5}>());
  const ike::lazy_linear<10> module;
  const auto copy = module;
  CHECK(ike::to_string(copy) == "linear(in_features=lazy, out_features=10, bias=true)");
}

TEST_CASE("linear_state") {
  check_state(ike::lazy_linear<10>{}, ike::to_string(ike::linear<5, 10>{}),
              state_of({{"weight", shape{10, 5}}, {"bias", shape{10}}}));
}

TEST_CASE("lazy_linear_state_and_forward") {
  const auto state = state_of({{"weight", shape{10, 5}}, {"bias", shape{10}}});
  ike::lazy_model holder{ike::lazy_linear<10>{}, ike::seed{1}};
  ike::load_state_dict(holder, state);
  const auto wrong = ike::ones<float, shape{5, 6}>();
  CHECK(message_of([&] { holder(wrong); }) ==
        "linear expects in_features = 5, got 6 (input [5, 6])");
  auto concrete = ike::initialize<float, shape{dynamic, 5}>(ike::linear<5, 10>{}, ike::seed{2});
  ike::load_state_dict(concrete, state);
  const auto x = ike::uniform<float, shape{5, 5}>(ike::seed{1});
  CHECK(std::memcmp(holder(x).data(), concrete(x).data(), sizeof(float) * 50) == 0);
  CHECK(same_state(ike::get_state_dict(holder), state));
}

namespace {
template <class Lazy, class Concrete, shape In, shape Weight>
constexpr bool resolves() {
  using made = ike::become_t<Lazy, In>;
  return ike::has_uninitialized_params(Lazy{}) && std::is_same_v<made, Concrete> &&
         parameter_shape<made, 0> == Weight && parameter_shape<made, 1> == shape{32};
}
using k2 = ike::kernel<2>;
}  // namespace

TEST_CASE("lazy_conv1d") {
  static_assert(resolves<ike::lazy_conv1d<32, k2>, ike::conv1d<16, 32, k2>, shape{192, 16, 50},
                         shape{32, 16, 2}>());
  static_assert(std::is_same_v<ike::become_t<ike::lazy_conv1d<32, k2>, shape{16, 50}>,
                               ike::conv1d<16, 32, k2>>);  // unbatched
}
TEST_CASE("lazy_conv2d") {
  static_assert(resolves<ike::lazy_conv2d<32, k2>, ike::conv2d<16, 32, k2>, shape{192, 16, 8, 6},
                         shape{32, 16, 2, 2}>());
  static_assert(std::is_same_v<ike::become_t<ike::lazy_conv2d<32, k2>, shape{16, 8, 6}>,
                               ike::conv2d<16, 32, k2>>);
}
TEST_CASE("lazy_conv3d") {
  static_assert(resolves<ike::lazy_conv3d<32, k2>, ike::conv3d<16, 32, k2>, shape{192, 16, 8, 7, 6},
                         shape{32, 16, 2, 2, 2}>());
  static_assert(std::is_same_v<ike::become_t<ike::lazy_conv3d<32, k2>, shape{16, 8, 7, 6}>,
                               ike::conv3d<16, 32, k2>>);
}
TEST_CASE("lazy_conv_transposed1d") {
  static_assert(resolves<ike::lazy_conv_transpose1d<32, k2>, ike::conv_transpose1d<16, 32, k2>,
                         shape{192, 16, 50}, shape{16, 32, 2}>());
}
TEST_CASE("lazy_conv_transpose2d") {
  static_assert(resolves<ike::lazy_conv_transpose2d<32, k2>, ike::conv_transpose2d<16, 32, k2>,
                         shape{192, 16, 8, 6}, shape{16, 32, 2, 2}>());
}
TEST_CASE("lazy_conv_transpose3d") {
  static_assert(resolves<ike::lazy_conv_transpose3d<32, k2>, ike::conv_transpose3d<16, 32, k2>,
                         shape{192, 16, 8, 7, 6}, shape{16, 32, 2, 2, 2}>());
}

namespace {
/// output_size is an option here, so that the compiler knows the output's shape.
template <class Lazy, shape In, shape Out>
constexpr bool resolves_to() {
  return ike::infer(ike::become<ike::shape_list{In}>(Lazy{}), ike::shape_list{In}).output() == Out;
}
template <ike::dim_t... N>
using out = ike::output_size<N...>;
}  // namespace

TEST_CASE("lazy_conv_transpose1d_kwargs") {
  using module = ike::lazy_conv_transpose1d<32, k2, ike::stride<2>, out<101>>;
  static_assert(resolves_to<module, shape{192, 16, 50}, shape{192, 32, 101}>());
}
TEST_CASE("lazy_conv_transpose2d_kwargs") {
  using module = ike::lazy_conv_transpose2d<32, k2, ike::stride<2>, out<17, 12>>;
  static_assert(resolves_to<module, shape{192, 16, 8, 6}, shape{192, 32, 17, 12}>());
}
TEST_CASE("lazy_conv_transpose3d_kwargs") {
  using module = ike::lazy_conv_transpose3d<32, k2, ike::stride<2>, out<17, 14, 13>>;
  static_assert(resolves_to<module, shape{192, 16, 8, 7, 6}, shape{192, 32, 17, 14, 13}>());
}

TEST_CASE("lazy convolutions are values") {
  static_assert(is_value<ike::lazy_conv1d<32, k2>, ike::conv1d<16, 32, k2>, shape{2, 16, 50}>());
  static_assert(is_value<ike::lazy_conv2d<32, k2>, ike::conv2d<16, 32, k2>, shape{2, 16, 8, 6}>());
  static_assert(
      is_value<ike::lazy_conv3d<32, k2>, ike::conv3d<16, 32, k2>, shape{2, 16, 8, 7, 6}>());
  static_assert(is_value<ike::lazy_conv_transpose1d<32, k2>, ike::conv_transpose1d<16, 32, k2>,
                         shape{2, 16, 50}>());
  static_assert(is_value<ike::lazy_conv_transpose2d<32, k2>, ike::conv_transpose2d<16, 32, k2>,
                         shape{2, 16, 8, 6}>());
  static_assert(is_value<ike::lazy_conv_transpose3d<32, k2>, ike::conv_transpose3d<16, 32, k2>,
                         shape{2, 16, 8, 7, 6}>());
}

namespace {
/// Loads a state into a lazy module and into the written-out one, and compares their outputs.
template <shape In, class Lazy, class Concrete>
void check_state_and_forward(const Lazy& module, const Concrete& written_out,
                             const ike::state_dict& state) {
  ike::lazy_model holder{module, ike::seed{1}};
  auto concrete = ike::initialize<float, In.with(0, dynamic)>(written_out, ike::seed{2});
  ike::load_state_dict(holder, state);
  ike::load_state_dict(concrete, state);
  holder.eval();
  concrete.eval();
  const auto x = ike::uniform<float, In>(ike::seed{1});
  const auto y = holder(x), expected = concrete(x);
  REQUIRE(y.extents() == expected.extents());
  CHECK(std::memcmp(y.data(), expected.data(),
                    sizeof(float) * static_cast<std::size_t>(y.size())) == 0);
}
}  // namespace

TEST_CASE("lazy_conv1d_state") {
  const auto state = state_of({{"weight", shape{32, 16, 2}}, {"bias", shape{32}}});
  check_state(ike::lazy_conv1d<32, k2>{}, ike::to_string(ike::conv1d<16, 32, k2>{}), state);
  check_state_and_forward<shape{2, 16, 5}>(ike::lazy_conv1d<32, k2>{}, ike::conv1d<16, 32, k2>{},
                                           state);
}
TEST_CASE("lazy_conv2d_state") {
  // in_channels is also inferred with groups.
  const auto state = state_of({{"weight", shape{32, 4, 2, 2}}, {"bias", shape{32}}});
  check_state(ike::lazy_conv2d<32, k2, ike::groups<4>>{},
              ike::to_string(ike::conv2d<16, 32, k2, ike::groups<4>>{}), state);
  check_state_and_forward<shape{2, 16, 3, 4}>(ike::lazy_conv2d<32, k2, ike::groups<4>>{},
                                              ike::conv2d<16, 32, k2, ike::groups<4>>{}, state);
}
TEST_CASE("lazy_conv3d_state") {
  const auto state = state_of({{"weight", shape{32, 16, 2, 2, 2}}});
  check_state(ike::lazy_conv3d<32, k2, ike::bias<false>>{},
              ike::to_string(ike::conv3d<16, 32, k2, ike::bias<false>>{}), state);
  check_state_and_forward<shape{2, 16, 3, 2, 4}>(ike::lazy_conv3d<32, k2, ike::bias<false>>{},
                                                 ike::conv3d<16, 32, k2, ike::bias<false>>{},
                                                 state);
}
TEST_CASE("lazy_conv_transpose1d_state") {
  const auto state = state_of({{"weight", shape{16, 32, 2}}, {"bias", shape{32}}});
  check_state(ike::lazy_conv_transpose1d<32, k2>{},
              ike::to_string(ike::conv_transpose1d<16, 32, k2>{}), state);
  check_state_and_forward<shape{2, 16, 5}>(ike::lazy_conv_transpose1d<32, k2>{},
                                           ike::conv_transpose1d<16, 32, k2>{}, state);
}
TEST_CASE("lazy_conv_transpose2d_state") {
  const auto state = state_of({{"weight", shape{16, 16, 2, 2}}, {"bias", shape{32}}});
  check_state(ike::lazy_conv_transpose2d<32, k2, ike::groups<2>>{},
              ike::to_string(ike::conv_transpose2d<16, 32, k2, ike::groups<2>>{}), state);
  check_state_and_forward<shape{2, 16, 3, 4}>(ike::lazy_conv_transpose2d<32, k2, ike::groups<2>>{},
                                              ike::conv_transpose2d<16, 32, k2, ike::groups<2>>{},
                                              state);
}
TEST_CASE("lazy_conv_transpose3d_state") {
  const auto state = state_of({{"weight", shape{16, 32, 2, 2, 2}}, {"bias", shape{32}}});
  check_state(ike::lazy_conv_transpose3d<32, k2>{},
              ike::to_string(ike::conv_transpose3d<16, 32, k2>{}), state);
  check_state_and_forward<shape{2, 16, 3, 2, 4}>(ike::lazy_conv_transpose3d<32, k2>{},
                                                 ike::conv_transpose3d<16, 32, k2>{}, state);
}

TEST_CASE("lazy_conv2d_state_and_forward") {
  check_state_and_forward<shape{2, 3, 5, 4}>(
      ike::lazy_conv2d<4, k2>{}, ike::conv2d<3, 4, k2>{},
      state_of({{"weight", shape{4, 3, 2, 2}}, {"bias", shape{4}}}));
}
TEST_CASE("lazy_conv_transpose2d_state_and_forward") {
  check_state_and_forward<shape{2, 3, 5, 4}>(
      ike::lazy_conv_transpose2d<4, k2>{}, ike::conv_transpose2d<3, 4, k2>{},
      state_of({{"weight", shape{3, 4, 2, 2}}, {"bias", shape{4}}}));
}
TEST_CASE("lazy_batchnorm2d_state_and_forward") {
  check_state_and_forward<shape{2, 3, 5, 4}>(
      ike::lazy_batch_norm2d<>{}, ike::batch_norm2d<3>{},
      state_of({{"weight", shape{3}},
                {"bias", shape{3}},
                {"running_mean", shape{3}},
                {"running_var", shape{3}},
                {"num_batches_tracked", shape{}, dtype::int64}}));
}

TEST_CASE("lazy_pre_forward_hook") {
  // Users' hooks run on a module with nothing lazy, and on a lazy one.
  ike::lazy_model holder{ike::relu{}, ike::seed{1}};
  CHECK_FALSE(holder.has_uninitialized_params());
  float seen = 0;
  holder.register_forward_pre_hook("",
                                   [&](const ike::module_call& c) { seen = c.input<float>()[1]; });
  const auto x = ike::tensor_of<float, shape{1, 2}>({-1, 3});
  CHECK(holder(x)[0] == 0);
  CHECK(seen == 3);
}

TEST_CASE("lazy_forward_hook") {
  ike::lazy_model holder{ike::relu{}, ike::seed{1}};
  holder.register_forward_hook("", [&](const ike::module_call& c) {
    for (float& y : c.writable_output<float>()) y += 1;
  });
  const auto x = ike::tensor_of<float, shape{1, 2}>({-1, 3});
  const auto y = holder(x);
  CHECK(y[0] == 1);
  CHECK(y[1] == 4);
}

TEST_CASE("materialize_dtype") {
  // The element type is that of the inputs, or the chosen one.
  ike::lazy_model single{ike::lazy_linear<3>{}, ike::seed{1}};
  CHECK(ike::get_state_dict(single).at("weight").type == dtype::float32);
  ike::lazy_model twice{ike::lazy_linear<3>{}, ike::seed{1}, ike::element_type<double>{}};
  CHECK(ike::get_state_dict(twice).at("weight").type == dtype::float64);
  twice.initialize_parameters(ike::ones<double, shape{2, 5}>());
  CHECK(ike::get_state_dict(twice).at("weight").type == dtype::float64);
}

TEST_CASE("chained_initialization") {
  constexpr auto net =
      ike::sequential("linear_1"_m = ike::lazy_linear<15>{}, "linear_2"_m = ike::lazy_linear<10>{});
  using resolved = ike::become_t<std::remove_const_t<decltype(net)>, shape{5, 10}>;
  constexpr auto p = ike::outline(resolved{});
  static_assert(p.parameters[0].spec.extents == shape{15, 10});
  static_assert(p.parameters[1].spec.extents == shape{15});
  static_assert(p.parameters[2].spec.extents == shape{10, 15});
  static_assert(p.parameters[3].spec.extents == shape{10});
}

TEST_CASE("optimizer_pass") {
  // No optimizer takes a lazy module; each steps on the model that results from inputs, before any
  // forward.
  static_assert(!ike::optimizable<ike::lazy_linear<3>>);
  static_assert(!ike::optimizable<ike::lazy_model<ike::lazy_linear<3>>>);
  const auto x = ike::ones<float, shape{2, 5}>();
  const auto step = [&](auto make) {
    ike::lazy_model holder{ike::lazy_linear<3>{}, ike::seed{1}};
    auto& model = holder.initialize_parameters(x);
    auto optimizer = make(model);
    const float before = model["weight"_s][0];
    model.train_step(x, ike::ones<float, shape{2, 3}>(), ike::mse_loss{}, optimizer);
    CHECK(model["weight"_s][0] != before);
  };
  step([](auto& m) { return ike::sgd{m, {.lr = 0.1}}; });
  step([](auto& m) { return ike::sgd{m, {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1}}; });
  step([](auto& m) { return ike::sgd{m, {.lr = 0.1, .momentum = 0.9, .nesterov = true}}; });
  step([](auto& m) { return ike::sgd{m, {.lr = 0.1, .maximize = true, .max_norm = 1}}; });
  step([](auto& m) { return ike::adam{m, {.lr = 0.1}}; });
  step([](auto& m) { return ike::adam{m, {.lr = 0.1, .weight_decay = 0.1, .amsgrad = true}}; });
  step([](auto& m) { return ike::adamw{m, {.lr = 0.1}}; });
  step([](auto& m) { return ike::adamw{m, {.lr = 0.1, .amsgrad = true, .maximize = true}}; });
  step([](auto& m) { return ike::adadelta{m}; });
  step([](auto& m) { return ike::adagrad{m}; });
  step([](auto& m) { return ike::adamax{m}; });
  step([](auto& m) { return ike::asgd{m}; });
  step([](auto& m) { return ike::lion{m}; });
  step([](auto& m) { return ike::nadam{m}; });
  step([](auto& m) { return ike::radam{m}; });
  step([](auto& m) { return ike::rmsprop{m}; });
  step([](auto& m) { return ike::rprop{m}; });
}

TEST_CASE("weight_norm") {
  // Wrapping a lazy module does not compile (test/compile_fail/weight_norm_lazy.cc); wrapping what
  // it resolves to does.
  constexpr auto fc = ike::become<ike::shape_list{shape{2, 5}}>(ike::lazy_linear<3>{});
  static_assert(!ike::has_uninitialized_params(ike::weight_norm(fc)));
}
TEST_CASE("spectral_norm") {
  constexpr auto fc = ike::become<ike::shape_list{shape{2, 5}}>(ike::lazy_linear<3>{});
  static_assert(!ike::has_uninitialized_params(ike::spectral_norm(fc)));
}

namespace {
template <class M, class Path>
concept has_parameter_at = requires(M& m, Path path) {
  m[path];
};
template <class M>
concept has_gradients = requires(M& m) {
  m.gradients();
};
template <class M>
concept adds_up = requires(M& m) {
  m + m;
};
}  // namespace

TEST_CASE("invalid_functions") {
  // There is no placeholder to be misused: a lazy module has no parameters.
  using module = ike::lazy_linear<3>;
  using path = decltype("weight"_s);
  static_assert(!has_parameter_at<module, path> && !has_gradients<module> && !adds_up<module>);
  using model = decltype(ike::initialize<float, shape{2, 5}>(module{}, ike::seed{1}));
  static_assert(has_parameter_at<model, path> && has_gradients<model>);
  static_assert(!ike::initialized_model<module> && ike::initialized_model<model>);
}
