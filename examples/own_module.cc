// A custom leaf module: all that a layer needs to be inferred, checked, trained, printed, saved and
// resolved by a state.

#include <iostream>

#include "ikebana/ikebana.hpp"
#include "ikebana/model/gradient_check.hpp"

namespace ike = ikebana;
using namespace ike::literals;

namespace mine {

/// y = x * weight, a factor for each feature.
template <ike::dim_t N = ike::lazy>
struct scale {
  static constexpr std::string_view kind = "scale";
  static constexpr bool is_lazy = N == ike::lazy;
  ike::extent<N> features{};

  constexpr ike::inferred infer(const ike::shape& in) const {
    if (ike::fits(features.value(), in.back())) return in;
    return ike::diagnostic{"scale expects features = {expected}, got {got} (input {input})",
                           features.value(), in.back(), in};
  }
  template <ike::shape In>
  constexpr auto become() const {
    return scale<In.back()>{};
  }
  constexpr void bind(const ike::shape_list& in) { features.bind(in[0].back()); }
  constexpr void bind_state(ike::shape_span own, ike::shape_span) { features.bind(own[0][0]); }
  constexpr std::array<ike::parameter_spec, 1> parameters() const {
    return {{{"weight", ike::shape{features.value()}, ike::initializer::constant(1)}}};
  }

  template <class T>
  void forward(const ike::context<T>& c) const {
    for (ike::dim_t i = 0; i < c.input_shape().numel(); ++i)
      c.output()[i] = c.input()[i] * c.parameter(0)[i % c.input_shape().back()];
  }
  template <class T>
  void backward(const ike::context<T>& c) const {
    T* dw = c.parameter_gradient(0);
    const ike::dim_t n = c.input_shape().back();
    for (ike::dim_t f = 0; f < n && !c.accumulate(); ++f) dw[f] = 0;
    for (ike::dim_t i = 0; i < c.input_shape().numel(); ++i) {
      dw[i % n] += c.output_gradient()[i] * c.input()[i];
      if (c.input_gradient() != nullptr)
        c.input_gradient()[i] = c.output_gradient()[i] * c.parameter(0)[i % n];
    }
  }
};

}  // namespace mine

constexpr auto net = ike::sequential("fc"_m = ike::lazy_linear<8>{}, "scale"_m = mine::scale<>{},
                                     ike::tanh{}, "out"_m = ike::lazy_linear<2>{});
static_assert(ike::uninitialized_params(net).contains("scale.weight"));

/// A class that has a model and its optimizer as members.
class regression {
 public:
  template <class X, class Y>
  float step(const X& x, const Y& y) {
    return model_.train_step(x, y, ike::mse_loss{}, optimizer_);
  }

 private:
  using input = ike::tensor<float, ike::shape{ike::dynamic, 5}>;
  ike::model_of<net, float, input::static_shape> model_{
      ike::initialize<float, input::static_shape>(net, ike::seed{1})};
  ike::sgd<float> optimizer_{model_, {.lr = 0.01}};
};

int main() {
  auto model = ike::initialize<float, ike::shape{ike::dynamic, 5}>(net, ike::seed{1});
  std::cout << model.module() << "\n" << ike::summary(model);

  // A state can supply the dimensions before any input.
  ike::lazy_model holder{net, ike::seed{2}};
  ike::load_state_dict(holder, ike::get_state_dict(model));
  const auto x = ike::ones<float, ike::shape{1, 5}>();
  const bool same = holder(x)[0] == model(x)[0];

  regression fit;
  const auto y = ike::ones<float, ike::shape{1, 2}>();
  const float first = fit.step(x, y);
  const bool learns = fit.step(x, y) < first;

  // Compares backward with finite differences, in double.
  const auto check = ike::gradient_check(net, ike::uniform<double, ike::shape{3, 5}>(ike::seed{2}));
  std::cout << "largest disagreement of the gradients: " << check.largest << " at " << check.where
            << "\n";
  return same && learns && check.largest < 1e-8 ? 0 : 1;
}
