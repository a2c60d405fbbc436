#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ikebana/io/onnx/rule.hpp"

namespace ikebana::detail {

/// Norms.
struct onnx_norms : onnx_rule {
  static std::string or_constant(step& s, std::string_view parameter, std::int64_t n,
                                 double value) {
    const std::string p = s.parameter(parameter);
    return p.empty() ? s.reals(std::vector<double>(step::at(n), value), {n}) : p;
  }
  static void batch_norm(step& s) {
    const std::string mean = s.parameter("running_mean");
    const std::int64_t n = s.integer("num_features");
    if (mean.empty()) s.refuse(" with track_running_stats=false");
    s.result("BatchNormalization",
             {s.in(), or_constant(s, "weight", n, 1), or_constant(s, "bias", n, 0), mean,
              s.parameter("running_var")},
             {{"epsilon", s.number("eps")}});
  }
  static void instance_norm(step& s) {
    if (s.is("track_running_stats")) return batch_norm(s);
    spatial(s);
    const std::int64_t n = s.integer("num_features");
    s.result("InstanceNormalization",
             {s.in(), or_constant(s, "weight", n, 1), or_constant(s, "bias", n, 0)},
             {{"epsilon", s.number("eps")}});
  }
  static void group_norm(step& s) {
    const std::int64_t groups = s.integer("num_groups"), channels = s.integer("num_channels");
    const std::string x = s.node("InstanceNormalization",
                                 {s.reshape(s.in(), {0, groups, -1}), or_constant(s, "", groups, 1),
                                  or_constant(s, "", groups, 0)},
                                 {{"epsilon", s.number("eps")}});
    std::string y = s.node("Reshape", {x, s.node("Shape", {s.in()})});
    if (s.is("affine")) {
      y = s.node("Mul", {y, s.per_channel(s.parameter("weight"), channels)});
      y = s.node("Add", {y, s.per_channel(s.parameter("bias"), channels)});
    }
    s.result(y);
  }
  static std::int64_t normalized(step& s) {
    return static_cast<std::int64_t>(s.texts("normalized_shape").size());
  }
  static void layer_norm(step& s) {
    std::string scale = s.parameter("weight");
    if (scale.empty()) {
      integers dims;
      std::size_t n = 1;
      for (std::int64_t d = s.rank() - normalized(s); d < s.rank(); ++d) {
        dims.push_back(s.known(step::at(d)));
        n *= step::at(dims.back());
      }
      scale = s.reals(std::vector<double>(n, 1), dims);
    }
    s.result("LayerNormalization", {s.in(), scale, s.parameter("bias")},
             {{"axis", -normalized(s)}, {"epsilon", s.number("eps")}});
  }
  static void rms_norm(step& s) {
    integers axes;
    for (std::int64_t d = -normalized(s); d < 0; ++d) axes.push_back(d);
    const double eps = s.text("eps") == "epsilon" ? s.epsilon() : s.number("eps");
    const std::string mean = s.node("ReduceMean", {s.node("Mul", {s.in(), s.in()})},
                                    {{"axes", axes}, {"keepdims", one}});
    const std::string y =
        s.node("Div", {s.in(), s.node("Sqrt", {s.node("Add", {mean, s.real(eps)})})});
    const std::string w = s.parameter("weight");
    w.empty() ? s.result(y) : s.result("Mul", {y, w});
  }
  static void local_response_norm(step& s) {
    spatial_at_least_1(s);
    s.result("LRN", {s.in()},
             {{"size", s.integer("size")},
              {"alpha", s.number("alpha")},
              {"beta", s.number("beta")},
              {"bias", s.number("k")}});
  }
  static void spatial_at_least_1(step& s) {
    if (s.rank() < 3) s.refuse(" of an input without a batch");
  }
  static void standard_scaler(step& s) {
    s.result("Div", {s.node("Sub", {s.in(), s.parameter("mean")}), s.parameter("deviation")});
  }

  static constexpr rule rules[]{
      {"batch_norm", batch_norm},
      {"sync_batch_norm", batch_norm},
      {"instance_norm", instance_norm},
      {"group_norm", group_norm},
      {"layer_norm", layer_norm},
      {"rms_norm", rms_norm},
      {"local_response_norm", local_response_norm},
      {"standard_scaler", standard_scaler},
  };
};

}  // namespace ikebana::detail
