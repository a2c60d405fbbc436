// A custom module: a few lines outside of the library's namespace, used like any other.

#include <doctest/doctest.h>

#include <array>
#include <string_view>

#include "ikebana/compose/graph.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/gradient_check.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/module/print.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/optim/sgd.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dynamic;
using ike::shape;

namespace somebody {

/// y = a x^2 with one learned number a.
struct square {
  static constexpr std::string_view kind = "square";
  constexpr ike::inferred infer(const shape& in) const { return in; }
  constexpr std::array<ike::parameter_spec, 1> parameters() const {
    return {ike::parameter_spec{"a", shape{1}, ike::initializer::constant(0.5)}};
  }
  template <class T>
  void forward(const ike::context<T>& c) const {
    for (ike::dim_t i = 0; i < c.input_shape().numel(); ++i)
      c.output()[i] = c.parameter(0)[0] * c.input()[i] * c.input()[i];
  }
  template <class T>
  void backward(const ike::context<T>& c) const {
    T sum = c.accumulate() ? c.parameter_gradient(0)[0] : T{0};
    for (ike::dim_t i = 0; i < c.input_shape().numel(); ++i) {
      sum += c.output_gradient()[i] * c.input()[i] * c.input()[i];
      if (c.input_gradient())
        c.input_gradient()[i] = 2 * c.parameter(0)[0] * c.input()[i] * c.output_gradient()[i];
    }
    c.parameter_gradient(0)[0] = sum;
  }
};

/// The same with a wrong gradient: of the parameter, or of the input.
template <bool Parameter>
struct wrong_square : square {
  template <class T>
  void backward(const ike::context<T>& c) const {
    square::backward(c);
    if (Parameter)
      c.parameter_gradient(0)[0] *= T{1.001};
    else if (c.input_gradient())
      c.input_gradient()[2] = 0;
  }
};

/// Only what the protocol requires of a module without parameters.
struct negate {
  static constexpr std::string_view kind = "negate";
  constexpr ike::inferred infer(const shape& in) const { return in; }
  template <class T>
  void forward(const ike::context<T>& c) const {
    for (ike::dim_t i = 0; i < c.input_shape().numel(); ++i) c.output()[i] = -c.input()[i];
  }
  template <class T>
  void backward(const ike::context<T>& c) const {
    if (c.input_gradient())
      for (ike::dim_t i = 0; i < c.input_shape().numel(); ++i)
        c.input_gradient()[i] = -c.output_gradient()[i];
  }
};

/// x -> (x, -x): two outputs.
struct mirror {
  static constexpr std::string_view kind = "mirror";
  static constexpr std::size_t outputs = 2;
  constexpr ike::inferred infer(const shape& in) const { return ike::shape_list{in, in}; }
  template <class T>
  void forward(const ike::context<T>& c) const {
    for (ike::dim_t i = 0; i < c.input_shape().numel(); ++i) {
      c.output(0)[i] = c.input()[i];
      c.output(1)[i] = -c.input()[i];
    }
  }
  template <class T>
  void backward(const ike::context<T>& c) const {
    if (c.input_gradient())
      for (ike::dim_t i = 0; i < c.input_shape().numel(); ++i)
        c.input_gradient()[i] = c.output_gradient(0)[i] - c.output_gradient(1)[i];
  }
};

}  // namespace somebody

namespace {
constexpr auto net = ike::sequential("fc"_m = ike::lazy_linear<4>{}, "sq"_m = somebody::square{},
                                     somebody::negate{}, "out"_m = ike::lazy_linear<1>{});
}

TEST_CASE("an own module prints, trains and is saved as any other") {
  auto m = ike::initialize<float, shape{dynamic, 3}>(net, ike::seed{1});
  CHECK(ike::to_string(m.module()) ==
        "sequential(\n"
        "  (fc): linear(in_features=3, out_features=4, bias=true)\n"
        "  (sq): square()\n"
        "  (2): negate()\n"
        "  (out): linear(in_features=4, out_features=1, bias=true)\n"
        ")");
  CHECK(m["sq.a"_s][0] == 0.5f);
  CHECK(ike::get_state_dict(m).contains("sq.a"));
  ike::sgd optimizer{m, {.lr = 0.05}};
  const auto x = ike::uniform<float, shape{16, 3}>(ike::seed{2});
  const auto t = ike::ones<float, shape{16, 1}>();
  const float first = m.train_step(x, t, ike::mse_loss{}, optimizer);
  float last = first;
  for (int i = 0; i < 30; ++i) last = m.train_step(x, t, ike::mse_loss{}, optimizer);
  CHECK(last < first / 2);
  CHECK(m["sq.a"_s][0] != 0.5f);
}

TEST_CASE("the gradient check passes a right module and finds a wrong one") {
  const auto x = ike::uniform<double, shape{2, 3}>(ike::seed{2});
  CHECK(ike::gradient_check(net, x).largest < 1e-7);
  const auto parameter =
      ike::gradient_check(ike::sequential("sq"_m = somebody::wrong_square<true>{}), x);
  CHECK(parameter.largest > 1e-5);
  CHECK(parameter.where == "sq.a[0]");
  const auto input = ike::gradient_check(somebody::wrong_square<false>{}, x);
  CHECK(input.largest > 1e-5);
  CHECK(input.where == "input0[2]");
}

TEST_CASE("an own module stands in a graph, named where it has parameters") {
  constexpr auto g = ike::graph([](auto x) {
    auto h = "sq"_m(somebody::square{}, x);
    return h + x;
  });
  CHECK(ike::gradient_check(g, ike::uniform<double, shape{2, 3}>(ike::seed{2})).largest < 1e-7);
}

TEST_CASE("a module of two outputs lowers to a node of two values") {
  constexpr auto n = ike::sizes_of<somebody::mirror>(1);
  CHECK(n.nodes == 1);
  CHECK(n.values == 3);
  constexpr auto p = ike::lower<n>(somebody::mirror{}, ike::shape_list{shape{2, 3}});
  CHECK(p.nodes[0].output_count == 2);
  CHECK(p.values[2] == shape{2, 3});
  CHECK(p.output_count == 2);
}
