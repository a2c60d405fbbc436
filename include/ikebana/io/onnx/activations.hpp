#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "ikebana/io/onnx/rule.hpp"

namespace ikebana::detail {

/// Activations, and what is the identity in evaluation.
struct onnx_activations : onnx_rule {
  static void pass(step& s) { s.result(s.in()); }
  static void gelu(step& s) {
    std::string inner;
    if (s.text("approximate") == "tanh") {
      const std::string cube = s.node("Mul", {s.node("Mul", {s.in(), s.in()}), s.in()});
      const std::string sum = s.node("Add", {s.in(), s.node("Mul", {cube, s.real(0.044715)})});
      inner = s.node("Tanh", {s.node("Mul", {sum, s.real(0.7978845608028654)})});
    } else {
      inner = s.node("Erf", {s.node("Mul", {s.in(), s.real(0.7071067811865476)})});
    }
    const std::string half = s.node("Mul", {s.in(), s.real(0.5)});
    s.result("Mul", {half, s.node("Add", {inner, s.real(1)})});
  }
  static void softplus(step& s) {
    const double beta = s.number("beta", 1);
    if (beta == 1) return s.result("Softplus", {s.in()});
    s.result("Div", {s.node("Softplus", {s.node("Mul", {s.in(), s.real(beta)})}), s.real(beta)});
  }
  static void threshold(step& s) {
    s.result("Where", {s.node("Greater", {s.in(), s.real(s.number("threshold"))}), s.in(),
                       s.real(s.number("value"))});
  }
  static void prelu(step& s) {
    const std::int64_t n = s.integer("num_parameters");
    s.result("PRelu",
             {s.in(), n == 1 ? s.parameter("weight") : s.per_channel(s.parameter("weight"), n)});
  }
  static void glu(step& s) {
    const strings half = s.nodes("Split", {s.in()}, 2, {{"axis", s.axis("dim")}});
    s.result("Mul", {half[0], s.node("Sigmoid", {half[1]})});
  }
  static void limits(step& s, double low, double high) {
    s.result("Clip", {s.in(), s.real(low), s.real(high)});
  }
  static void along(step& s, std::string_view op, const std::string& x) {
    s.result(op, {x}, {{"axis", s.axis("dim")}});
  }

  static constexpr rule rules[]{
      {"identity", pass},
      {"dropout", pass},
      {"alpha_dropout", pass},
      {"feature_alpha_dropout", pass},
      {"stop_gradient", pass},
      {"relu", [](step& s) { s.result("Relu", {s.in()}); }},
      {"tanh", [](step& s) { s.result("Tanh", {s.in()}); }},
      {"sigmoid", [](step& s) { s.result("Sigmoid", {s.in()}); }},
      {"gelu", gelu},
      {"silu",
       [](step& s) {
         s.result("Mul", {s.in(), s.node("Sigmoid", {s.in()})});
       }},
      {"elu",
       [](step& s) {
         s.result("Elu", {s.in()}, {{"alpha", s.number("alpha")}});
       }},
      {"celu",
       [](step& s) {
         s.result("Celu", {s.in()}, {{"alpha", s.number("alpha")}});
       }},
      {"selu", [](step& s) { s.result("Selu", {s.in()}); }},
      {"softplus", softplus},
      {"log_sigmoid",
       [](step& s) { s.result("Neg", {s.node("Softplus", {s.node("Neg", {s.in()})})}); }},
      {"mish",
       [](step& s) {
         s.result("Mul", {s.in(), s.node("Tanh", {s.node("Softplus", {s.in()})})});
       }},
      {"softsign", [](step& s) { s.result("Softsign", {s.in()}); }},
      {"tanhshrink",
       [](step& s) {
         s.result("Sub", {s.in(), s.node("Tanh", {s.in()})});
       }},
      {"leaky_relu",
       [](step& s) {
         s.result("LeakyRelu", {s.in()}, {{"alpha", s.number("negative_slope")}});
       }},
      {"rrelu",
       [](step& s) {
         s.result("LeakyRelu", {s.in()}, {{"alpha", (s.number("lower") + s.number("upper")) / 2}});
       }},
      {"hardtanh", [](step& s) { limits(s, s.number("min_val"), s.number("max_val")); }},
      {"relu6", [](step& s) { limits(s, 0, 6); }},
      {"hard_sigmoid",
       [](step& s) {
         s.result("HardSigmoid", {s.in()}, {{"alpha", 1.0 / 6}, {"beta", 0.5}});
       }},
      {"hardswish", [](step& s) { s.result("HardSwish", {s.in()}); }},
      {"threshold", threshold},
      {"hardshrink",
       [](step& s) {
         s.result("Shrink", {s.in()}, {{"lambd", s.number("lambd")}});
       }},
      {"softshrink",
       [](step& s) {
         s.result("Shrink", {s.in()}, {{"bias", s.number("lambd")}, {"lambd", s.number("lambd")}});
       }},
      {"prelu", prelu},
      {"glu", glu},
      {"softmax", [](step& s) { along(s, "Softmax", s.in()); }},
      {"softmin", [](step& s) { along(s, "Softmax", s.node("Neg", {s.in()})); }},
      {"log_softmax", [](step& s) { along(s, "LogSoftmax", s.in()); }},
  };
};

}  // namespace ikebana::detail
