// A leaf module of one's own: what a layer needs to be inferred, checked, trained, printed and
// saved.

#include <iostream>

#include "ikebana/ikebana.hpp"
#include "ikebana/model/gradient_check.hpp"

namespace ike = ikebana;
using namespace ike::literals;

namespace mine {

/// y = x * weight, a factor for each feature.
template <ike::dim_t Features = ike::lazy>
struct scale {
  static constexpr std::string_view kind = "scale";
  static constexpr bool is_lazy = Features == ike::lazy;

  constexpr ike::inferred infer(const ike::shape& in) const {
    if (!ike::fits(Features, in.back()))
      return ike::diagnostic{"scale expects features = {expected}, got {got} (input {input})",
                             Features, in.back(), in};
    return in;
  }
  template <ike::shape In>
  constexpr auto become() const {
    return scale<In.back()>{};
  }
  constexpr std::array<ike::parameter_spec, 1> parameters() const {
    return {{{"weight", ike::shape{Features}, ike::initializer::constant(1)}}};
  }
  template <class T>
  void forward(const ike::context<T>& c) const {
    for (ike::dim_t i = 0; i < c.input_shape().numel(); ++i)
      c.output()[i] = c.input()[i] * c.parameter(0)[i % Features];
  }
  template <class T>
  void backward(const ike::context<T>& c) const {
    T* dw = c.parameter_gradient(0);
    for (ike::dim_t f = 0; f < Features && !c.accumulate(); ++f) dw[f] = 0;
    for (ike::dim_t i = 0; i < c.input_shape().numel(); ++i) {
      dw[i % Features] += c.output_gradient()[i] * c.input()[i];
      if (c.input_gradient() != nullptr)
        c.input_gradient()[i] = c.output_gradient()[i] * c.parameter(0)[i % Features];
    }
  }
};

}  // namespace mine

constexpr auto net = ike::sequential("fc"_m = ike::lazy_linear<8>{}, "scale"_m = mine::scale<>{},
                                     ike::tanh{}, "out"_m = ike::lazy_linear<2>{});

int main() {
  auto model = ike::initialize<float, ike::shape{ike::dynamic, 5}>(net, ike::seed{1});
  std::cout << model.module() << "\n" << ike::summary(model);

  // The check for whoever writes a module: backward against differences, in double.
  const auto check = ike::gradient_check(net, ike::uniform<double, ike::shape{3, 5}>(ike::seed{2}));
  std::cout << "largest disagreement of the gradients: " << check.largest << " at " << check.where
            << "\n";
  return check.largest < 1e-8 ? 0 : 1;
}
