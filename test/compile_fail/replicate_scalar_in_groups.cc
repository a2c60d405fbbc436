// expect: scale.gain: groups_by_module does not support scalar parameters: make it a vector of one element
#include <array>
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/module/context.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/replicate/replicate.hpp>
#include <ikebana/replicate/thread_group.hpp>
#include <string_view>

namespace ike = ikebana;
using namespace ike::literals;

/// y = gain x
struct scale {
  static constexpr std::string_view kind = "scale";
  constexpr ike::inferred infer(const ike::shape& in) const { return in; }
  constexpr std::array<ike::parameter_spec, 1> parameters() const {
#ifdef MENDED
    return {ike::parameter_spec{"gain", ike::shape{1}, ike::initializer::constant(1)}};
#else
    return {ike::parameter_spec{"gain", ike::shape{}, ike::initializer::constant(1)}};
#endif
  }
  template <class T>
  void forward(const ike::context<T>& c) const {
    for (ike::dim_t i = 0; i < c.input_shape().numel(); ++i)
      c.output()[i] = c.parameter(0)[0] * c.input()[i];
  }
  template <class T>
  void backward(const ike::context<T>& c) const {
    T sum = c.accumulate() ? c.parameter_gradient(0)[0] : T{0};
    for (ike::dim_t i = 0; i < c.input_shape().numel(); ++i) {
      sum += c.output_gradient()[i] * c.input()[i];
      if (c.input_gradient()) c.input_gradient()[i] = c.parameter(0)[0] * c.output_gradient()[i];
    }
    c.parameter_gradient(0)[0] = sum;
  }
};

constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<10>{}, "scale"_m = scale{});

void on_each_rank(ike::thread_group& group) {
  using policy = ike::replicate_policy<ike::groups_by_module<"fc1">>;
  ike::replicate<policy>(ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1}), group);
}
