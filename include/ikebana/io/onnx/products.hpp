#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "ikebana/io/onnx/rule.hpp"

namespace ikebana::detail {

/// Products, convolutions and tables.
struct onnx_products : onnx_rule {
  static void linear(step& s) {
    const std::string weight = s.parameter("weight");
    s.result(s.affine(s.in(), s.in_shape().rank(), weight, s.parameter("bias")));
  }
  static void bilinear(step& s) {
    const std::string b = s.parameter("bias");
    const std::string y = s.node(
        "Einsum",
        {s.node("Einsum", {s.in(0), s.parameter("weight")}, {{"equation", "...i,oij->...oj"}}),
         s.in(1)},
        {{"equation", "...oj,...j->...o"}});
    b.empty() ? s.result(y) : s.result("Add", {y, b});
  }
  static void conv(step& s) {
    const std::size_t n = spatial(s);
    const bool causal = s.call().kind.starts_with("causal");
    s.refuse_option("stateful");
    const integers kernel = s.numbers("kernel_size", n, 1), stride = s.numbers("stride", n, 1),
                   dilation = s.numbers("dilation", n, 1);
    integers before(n, 0), after(n, 0);
    const bool same = s.text("padding") == "same";
    const integers padding = same ? integers{} : s.numbers("padding", n, 0);
    for (std::size_t d = 0; d < n; ++d) {
      const std::int64_t reach = dilation[d] * (kernel[d] - 1);
      before[d] = causal ? reach : same ? reach / 2 : padding[d];
      after[d] = causal ? 0 : same ? reach - reach / 2 : padding[d];
    }
    std::string x = s.in();
    if (const std::string mode = s.text("padding_mode", "zeros"); mode != "zeros") {
      if (mode == "circular") s.refuse_option("padding_mode");
      x = padded(s, before, after, mode == "reflect" ? "reflect" : "edge", {});
      before.assign(n, 0), after.assign(n, 0);
    }
    before.insert(before.end(), after.begin(), after.end());
    s.result("Conv", {x, s.parameter("weight"), s.parameter("bias")},
             {{"kernel_shape", kernel},
              {"strides", stride},
              {"pads", before},
              {"dilations", dilation},
              {"group", s.integer("groups", 1)}});
  }
  static void conv_transpose(step& s) {
    const std::size_t n = spatial(s);
    const integers kernel = s.numbers("kernel_size", n, 1), stride = s.numbers("stride", n, 1),
                   dilation = s.numbers("dilation", n, 1), padding = s.numbers("padding", n, 0);
    integers more = s.numbers("output_padding", n, 0);
    if (s.has("output_size"))
      for (std::size_t d = 0; d < n; ++d)
        more[d] = s.out_shape()[d + 2] - ((s.known(d + 2) - 1) * stride[d] - 2 * padding[d] +
                                          dilation[d] * (kernel[d] - 1) + 1);
    s.result("ConvTranspose", {s.in(), s.parameter("weight"), s.parameter("bias")},
             {{"kernel_shape", kernel},
              {"strides", stride},
              {"pads", twice(padding)},
              {"dilations", dilation},
              {"output_padding", more},
              {"group", s.integer("groups", 1)}});
  }
  static void matmul(step& s) {
    strings x{s.in(0), s.in(1)};
    for (std::size_t i = 0; i < 2; ++i) {
      if (!s.is(i == 0 ? "transpose_a" : "transpose_b")) continue;
      integers order;
      const auto rank = static_cast<std::int64_t>(s.in_shape(i).rank());
      for (std::int64_t d = 0; d < rank; ++d) order.push_back(d);
      std::swap(order[step::at(rank - 1)], order[step::at(rank - 2)]);
      x[i] = s.transpose(x[i], order);
    }
    s.result("MatMul", x);
  }
  static void einsum(step& s) {
    // The option's text is cut at its commas; the equation is letters, one comma and an arrow.
    const std::string_view all = s.call().options;
    s.result("Einsum", {s.in(0), s.in(1)}, {{"equation", all.substr(all.find('=') + 1)}});
  }
  static void embedding_bag(step& s) {
    for (const char* option : {"padding_idx", "max_norm", "offsets", "per_sample_weights"})
      s.refuse_option(option);
    const std::string rows = s.node("Gather", {s.parameter("weight"), s.in()});
    const std::string mode = s.text("mode");
    if (mode == "sum")
      return s.result("ReduceSum", {rows, s.ints({1})}, {{"keepdims", std::int64_t{0}}});
    s.result(mode == "max" ? "ReduceMax" : "ReduceMean", {rows},
             {{"axes", integers{1}}, {"keepdims", std::int64_t{0}}});
  }

  static constexpr rule rules[]{
      {"linear", linear},
      {"bilinear", bilinear},
      {"conv", conv},
      {"causal_conv", conv},
      {"conv_transpose", conv_transpose},
      {"matmul", matmul},
      {"einsum", einsum},
      {"embedding",
       [](step& s) {
         s.refuse_option("max_norm");
         s.result("Gather", {s.parameter("weight"), s.in()});
       }},
      {"embedding_bag", embedding_bag},
  };
};

}  // namespace ikebana::detail
