// A custom lazy module: what its ten lines of lazy support provide.

#include <doctest/doctest.h>

#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/gradient_check.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/lazy_model.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/module/lazy.hpp"
#include "ikebana/nn/linear.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dynamic;
using ike::shape;

namespace somebody {

template <ike::dim_t N = ike::lazy>
struct scale {
  static constexpr std::string_view kind = "scale";
  static constexpr bool is_lazy = N == ike::lazy;
  ike::extent<N> features{};

  constexpr ike::inferred infer(const shape& in) const {
    if (ike::fits(features.value(), in.back())) return in;
    return ike::diagnostic{"scale expects features = {expected}, got {got} (input {input})",
                           features.value(), in.back(), in};
  }
  template <shape In>
  constexpr auto become() const {
    return scale<In.back()>{};
  }
  constexpr void bind(const ike::shape_list& in) { features.bind(in[0].back()); }
  constexpr void bind_state(ike::shape_span own, ike::shape_span) { features.bind(own[0][0]); }
  constexpr std::array<ike::parameter_spec, 1> parameters() const {
    return {{{"weight", shape{features.value()}, ike::initializer::uniform(1)}}};
  }

  template <class T>
  void forward(const ike::context<T>& c) const {
    for (ike::dim_t i = 0; i < c.input_shape().numel(); ++i)
      c.output()[i] = c.input()[i] * c.parameter(0)[i % c.input_shape().back()];
  }
  template <class T>
  void backward(const ike::context<T>& c) const {
    const ike::dim_t n = c.input_shape().back();
    T* dw = c.parameter_gradient(0);
    for (ike::dim_t f = 0; f < n && !c.accumulate(); ++f) dw[f] = 0;
    for (ike::dim_t i = 0; i < c.input_shape().numel(); ++i) {
      dw[i % n] += c.output_gradient()[i] * c.input()[i];
      if (c.input_gradient() != nullptr)
        c.input_gradient()[i] = c.output_gradient()[i] * c.parameter(0)[i % n];
    }
  }
};

}  // namespace somebody

namespace {

constexpr auto net = ike::sequential("fc"_m = ike::lazy_linear<3>{}, "own"_m = somebody::scale<>{});
using module = std::remove_const_t<decltype(net)>;

template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const ike::error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

}  // namespace

TEST_CASE("an own lazy module is inferred and listed as the built-in ones are") {
  static_assert(ike::has_uninitialized_params(net));
  static_assert(ike::uninitialized_params(net).contains("own.weight"));
  using resolved = ike::become_t<module, shape{dynamic, 5}>;
  static_assert(!ike::has_uninitialized_params(resolved{}));
  static_assert(std::is_same_v<ike::become_t<somebody::scale<>, shape{2, 7}>, somebody::scale<7>>);
  CHECK(ike::gradient_check(net, ike::uniform<double, shape{3, 5}>(ike::seed{2})).largest < 1e-8);
}

TEST_CASE("an own lazy module has the same bits, lazy or written out, alone or in a network") {
  const auto lazy = ike::initialize<float, shape{dynamic, 5}>(net, ike::seed{1});
  const auto out = ike::initialize<float, shape{dynamic, 5}>(
      ike::sequential("fc"_m = ike::linear<5, 3>{}, "own"_m = somebody::scale<3>{}), ike::seed{1});
  const auto alone =
      ike::initialize<float, shape{dynamic, 3}>(somebody::scale<>{}, ike::seed{1}.at("own"));
  for (ike::dim_t i = 0; i < 3; ++i) {
    CHECK(lazy["own.weight"_s][i] == out["own.weight"_s][i]);
    CHECK(lazy["own.weight"_s][i] == alone["weight"_s][i]);
  }
}

TEST_CASE("an own lazy module resolves with an extent that only run time knows") {
  ike::lazy_model holder{ike::sequential("own"_m = somebody::scale<>{}), ike::seed{1}};
  CHECK(holder(ike::ones<float, shape{dynamic, dynamic}>(2, 6)).extents() == shape{2, 6});
  const auto wrong = ike::ones<float, shape{dynamic, dynamic}>(2, 5);
  CHECK(message_of([&] { holder(wrong); }) ==
        "own: scale expects features = 6, got 5 (input [2, 5])");
}

TEST_CASE("an own lazy module is resolved by a state, marks and hooks included") {
  const auto source = ike::initialize<float, shape{dynamic, 5}>(net, ike::seed{1});
  ike::lazy_model holder{net, ike::seed{2}};
  CHECK(ike::get_state_dict(holder).at("own.weight").uninitialized);
  int calls = 0;
  holder.register_forward_hook("own"_s, [&](const ike::module_call& c) {
    ++calls;
    CHECK(c.kind == "scale");
  });
  ike::load_state_dict(holder, ike::get_state_dict(source));
  CHECK_FALSE(holder.has_uninitialized_params());
  holder(ike::ones<float, shape{2, 5}>());
  CHECK(calls == 1);
  CHECK(ike::get_state_dict(holder).at("own.weight").view<float, shape{3}>()[2] ==
        source["own.weight"_s][2]);
}
