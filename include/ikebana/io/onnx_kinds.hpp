#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "ikebana/io/onnx_builder.hpp"

// What each kind of module is in ONNX, operators of opset 17:
// https://github.com/onnx/onnx/blob/v1.12.0/docs/Operators.md
namespace ikebana::detail {

template <class = void>
struct onnx_kinds {
  using step = onnx_step;
  using integers = step::integers;
  using strings = step::strings;
  using attributes = step::attributes;

  struct rule {
    std::string_view kind;
    void (*write)(step&);
  };

  static constexpr std::int64_t one = 1;
  static constexpr std::int64_t last = std::numeric_limits<std::int64_t>::max();

  /// The kind without its number of dimensions: conv2d is a conv.
  static std::string_view family(std::string_view kind) {
    const std::size_t n = kind.size();
    return n > 2 && kind[n - 1] == 'd' && kind[n - 2] >= '1' && kind[n - 2] <= '3'
               ? kind.substr(0, n - 2)
               : kind;
  }
  /// The number of dimensions in the kind. Unbatched inputs are refused.
  static std::size_t spatial(step& s) {
    const std::string_view kind = s.call().kind;
    const auto n = static_cast<std::size_t>(kind[kind.size() - 2] - '0');
    if (s.in_shape().rank() != n + 2) s.refuse(" of an input without a batch");
    return n;
  }
  static integers twice(const integers& sides) {
    integers both = sides;
    both.insert(both.end(), sides.begin(), sides.end());
    return both;
  }

  // ---- products and convolutions ----

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

  // ---- pools ----

  static attributes window(step& s, bool dilated) {
    const std::size_t n = spatial(s);
    attributes a{{"kernel_shape", s.numbers("kernel_size", n, 1)},
                 {"strides", s.numbers("stride", n, 1)},
                 {"pads", twice(s.numbers("padding", n, 0))}};
    if (dilated) a.emplace_back("dilations", s.numbers("dilation", n, 1));
    return a;
  }
  static void max_pool(step& s) {
    if (s.outputs() > 1) s.refuse(" with return_indices=true");
    attributes a = window(s, true);
    a.emplace_back("ceil_mode", std::int64_t{s.is("ceil_mode")});
    s.result("MaxPool", {s.in()}, a);
  }
  static void avg_pool(step& s) {
    s.refuse_option("divisor_override");
    attributes a = window(s, false);
    a.emplace_back("ceil_mode", std::int64_t{s.is("ceil_mode")});
    a.emplace_back("count_include_pad",
                   std::int64_t{s.text("count_include_pad", "true") == "true"});
    s.result("AveragePool", {s.in()}, a);
  }
  static void lp_pool(step& s) {
    s.refuse_option("ceil_mode");
    const double p = s.number("norm_type");
    // Others take roots of sums that may be negative.
    if (p < 2 || p > 1e6 || p != 2 * std::floor(p / 2)) s.refuse_option("norm_type");
    attributes a = window(s, false);
    a.emplace_back("p", static_cast<std::int64_t>(p));
    s.result("LpPool", {s.in()}, a);
  }
  static void adaptive_pool(step& s) {
    if (s.outputs() > 1) s.refuse(" with return_indices=true");
    const std::size_t n = spatial(s);
    const bool is_max = s.call().kind.find("max") != std::string_view::npos;
    integers kernel;
    bool is_global = true;
    for (std::size_t d = 0; d < n; ++d) {
      const dim_t to = s.out_shape()[d + 2];
      is_global = is_global && to == 1;
      if (to == 1 && s.in_shape()[d + 2] < 0) continue;
      if (to <= 0 || s.known(d + 2) % to != 0)
        s.refuse(" from " + std::to_string(s.in_shape()[d + 2]) + " to " + std::to_string(to) +
                 " elements");
      kernel.push_back(s.in_shape()[d + 2] / to);
    }
    if (is_global) return s.result(is_max ? "GlobalMaxPool" : "GlobalAveragePool", {s.in()});
    if (kernel.size() < n) s.refuse(" of an extent that is unknown");
    s.result(is_max ? "MaxPool" : "AveragePool", {s.in()},
             {{"kernel_shape", kernel}, {"strides", kernel}});
  }

  // ---- norms ----

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

  // ---- activations ----

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

  // ---- shapes ----

  static void flatten(step& s) {
    if (s.integer("start_dim") == 1 && s.axis("end_dim") == s.rank() - 1 && s.rank() > 1)
      return s.result("Flatten", {s.in()}, {{"axis", one}});
    reshaped(s);
  }
  static void reshaped(step& s) { s.result(s.reshape(s.in(), s.in_shape(), s.out_shape())); }
  static void view(step& s) {
    const std::string f = s.text("f");
    if (f == "reshape") return reshaped(s);
    s.result(f == "squeeze" ? "Squeeze" : "Unsqueeze", {s.in(), s.ints(s.numbers("dim"))});
  }
  static strings all_inputs(step& s) {
    strings x;
    for (std::size_t i = 0; i < s.inputs(); ++i) x.push_back(s.in(i));
    return x;
  }
  static void concat(step& s) { s.result("Concat", all_inputs(s), {{"axis", s.axis("dim")}}); }
  static void stack(step& s) {
    strings x;
    for (std::size_t i = 0; i < s.inputs(); ++i)
      x.push_back(s.node("Unsqueeze", {s.in(i), s.ints({s.integer("dim")})}));
    std::int64_t d = s.integer("dim");
    s.result("Concat", x, {{"axis", d < 0 ? d + s.rank() + 1 : d}});
  }
  static void split(step& s) {
    const std::int64_t d = s.axis("dim");
    integers parts;
    for (std::size_t i = 0; i < s.outputs(); ++i) {
      if (s.out_shape(i)[step::at(d)] < 0) s.refuse(" of an extent that is unknown");
      parts.push_back(s.out_shape(i)[step::at(d)]);
    }
    const strings y = s.nodes("Split", {s.in(), s.ints(parts)}, parts.size(), {{"axis", d}});
    for (std::size_t i = 0; i < y.size(); ++i) s.result(y[i], i);
  }
  static void rearrange(step& s) {
    const std::string f = s.text("f");
    const integers dims = s.numbers(f == "expand" ? "shape" : "dim");
    const std::int64_t first = s.integer("first"), end = s.integer("last"), rank = s.rank();
    const std::int64_t d = dims.empty() ? 0 : dims[0] < 0 ? dims[0] + rank : dims[0];
    if (f == "permute" || f == "transpose") {
      integers order;
      for (std::int64_t i = 0; i < rank; ++i) order.push_back(i);
      if (f == "permute")
        for (std::size_t i = 0; i < dims.size(); ++i)
          order[i] = dims[i] < 0 ? dims[i] + rank : dims[i];
      else
        std::swap(order[step::at(d)], order[step::at(dims[1] < 0 ? dims[1] + rank : dims[1])]);
      return s.result(s.transpose(s.in(), order));
    }
    if (f == "select") return s.result("Gather", {s.in(), s.scalar(first)}, {{"axis", d}});
    if (f == "slice") return s.result(s.slice(s.in(), d, first, end, s.integer("step", 1)));
    if (f == "narrow") return s.result(s.slice(s.in(), d, first, first + end));
    if (f == "chunk") {
      const std::int64_t each = (s.known(step::at(d)) + end - 1) / end;
      return s.result(s.slice(s.in(), d, first * each, (first + 1) * each));
    }
    if (f == "expand") {
      integers shape;
      for (std::int64_t n : dims) shape.push_back(n < 0 ? 1 : n);
      return s.result("Expand", {s.in(), s.ints(shape)});
    }
    if (f == "flip") {
      std::string x = s.in();
      for (std::int64_t i : dims)
        x = s.slice(x, i, -1, std::numeric_limits<std::int64_t>::min(), -1);
      return s.result(x);
    }
    if (dims.empty()) s.refuse(" with f=roll over all dimensions");
    const std::int64_t n = s.known(step::at(d)), shift = n == 0 ? 0 : ((first % n) + n) % n;
    s.result("Concat", {s.slice(s.in(), d, n - shift, last), s.slice(s.in(), d, 0, n - shift)},
             {{"axis", d}});
  }
  /// `before` and `after` are of the last dimensions.
  static std::string padded(step& s, const integers& before, const integers& after,
                            std::string_view mode, const std::string& value) {
    integers sides(2 * step::at(s.rank()), 0);
    const std::size_t first = step::at(s.rank()) - before.size();
    for (std::size_t d = 0; d < before.size(); ++d) {
      sides[first + d] = before[d];
      sides[step::at(s.rank()) + first + d] = after[d];
    }
    return s.node("Pad", {s.in(), s.ints(sides), value}, {{"mode", mode}});
  }
  static void pad(step& s) {
    const std::string_view kind = family(s.call().kind);
    if (kind == "circular_pad") s.refuse("");
    // PyTorch's order: the last dimension first, two numbers each.
    const std::size_t n =
        kind == "pad" ? s.numbers("padding").size() / 2
                      : static_cast<std::size_t>(s.call().kind[s.call().kind.size() - 2] - '0');
    const integers sides = s.numbers("padding", 2 * n, 0);
    integers before, after;
    for (std::size_t d = n; d-- > 0;) {
      before.push_back(sides[2 * d]);
      after.push_back(sides[2 * d + 1]);
    }
    const std::string_view mode = kind == "reflection_pad"    ? "reflect"
                                  : kind == "replication_pad" ? "edge"
                                                              : "constant";
    s.result(padded(s, before, after, mode,
                    mode == "constant" ? s.real(s.number("value")) : std::string()));
  }
  static void upsample(step& s) {
    const std::string mode = s.text("mode");
    const bool nearest = mode.starts_with("nearest"), cubic = mode == "bicubic";
    attributes a{{"mode", nearest ? "nearest"
                          : cubic ? "cubic"
                                  : "linear"},
                 {"coordinate_transformation_mode", s.is("align_corners") ? "align_corners"
                                                    : mode == "nearest"   ? "asymmetric"
                                                                          : "half_pixel"}};
    if (nearest) a.emplace_back("nearest_mode", mode == "nearest" ? "floor" : "round_prefer_ceil");
    if (cubic) a.emplace_back("cubic_coeff_a", -0.75);
    const std::size_t n = s.in_shape().rank() - 2;
    if (s.has("size")) {
      const std::string begin = s.slice(s.node("Shape", {s.in()}), 0, 0, 2);
      const std::string all =
          s.node("Concat", {begin, s.ints(s.numbers("size", n, 1))}, {{"axis", std::int64_t{0}}});
      return s.result("Resize", {s.in(), "", "", all}, a);
    }
    std::vector<double> scales{1, 1};
    for (const std::string& t : s.texts("scale_factor"))
      scales.push_back(std::strtod(t.c_str(), nullptr));
    scales.resize(n + 2, scales.back());
    s.result("Resize", {s.in(), "", s.scales(scales)}, a);
  }
  static void shuffle(step& s) {
    const bool up = s.call().kind == "pixel_shuffle", down = s.call().kind == "pixel_unshuffle";
    if (s.rank() != 4) s.refuse(" of an input that has not 4 dimensions");
    const std::int64_t r = s.integer(up ? "upscale_factor" : "downscale_factor");
    if (up) return s.result("DepthToSpace", {s.in()}, {{"blocksize", r}, {"mode", "CRD"}});
    const std::int64_t c = s.known(1);
    if (down) {
      const std::string x = s.reshape(s.in(), {0, c, s.known(2) / r, r, s.known(3) / r, r});
      return s.result(s.reshape(s.transpose(x, {0, 1, 3, 5, 2, 4}),
                                {0, c * r * r, s.known(2) / r, s.known(3) / r}));
    }
    const std::int64_t g = s.integer("groups");
    const std::string x = s.reshape(s.in(), {0, g, c / g, s.known(2), s.known(3)});
    s.result(s.reshape(s.transpose(x, {0, 2, 1, 3, 4}), {0, c, s.known(2), s.known(3)}));
  }
  static void grid_sample(step& s) {
    if (s.rank() != 4) s.refuse(" of an input that has not 4 dimensions");
    s.result("GridSample", {s.in(0), s.in(1)},
             {{"mode", s.text("mode")},
              {"padding_mode", s.text("outside")},
              {"align_corners", std::int64_t{s.is("align_corners")}}});
  }

  // ---- element-wise operations and reductions ----

  static void elementwise(step& s) {
    struct named {
      std::string_view name, op;
    };
    static constexpr named ops[]{
        {"neg", "Neg"}, {"exp", "Exp"},     {"log", "Log"},    {"sqrt", "Sqrt"},
        {"abs", "Abs"}, {"sign", "Sign"},   {"erf", "Erf"},    {"reciprocal", "Reciprocal"},
        {"add", "Add"}, {"sub", "Sub"},     {"mul", "Mul"},    {"div", "Div"},
        {"pow", "Pow"}, {"minimum", "Min"}, {"maximum", "Max"}};
    static constexpr named comparisons[]{{"eq", "Equal"},   {"ne", "Equal"},
                                         {"lt", "Less"},    {"le", "LessOrEqual"},
                                         {"gt", "Greater"}, {"ge", "GreaterOrEqual"}};
    const std::string f = s.text("f");
    const cpu::loop_step& given = s.call().step;
    strings x;
    for (std::size_t i = 0, input = 0; i < given.operands; ++i)
      x.push_back((given.numbers >> i & 1) != 0 && f != "clamp" ? s.real(given.number[i])
                  : (given.numbers >> i & 1) != 0               ? std::string()
                                                                : s.in(input++));
    for (const named& o : ops)
      if (o.name == f) return s.result(o.op, x);
    for (const named& o : comparisons)
      if (o.name == f) {
        const std::string holds = s.node(o.op, x);
        return s.result(s.cast_real(f == "ne" ? s.node("Not", {holds}) : holds));
      }
    if (f == "rsqrt") return s.result("Reciprocal", {s.node("Sqrt", x)});
    if (f == "square") return s.result("Mul", {x[0], x[0]});
    if (f == "where") {
      x[0] = s.cast(x[0], onnx_type::boolean);
      return s.result("Where", x);
    }
    if (f != "clamp") s.refuse(" with f=" + f);
    for (std::size_t i = 1; i < 3; ++i)
      if (std::isfinite(given.number[i])) x[i] = s.real(given.number[i]);
    s.result("Clip", x);
  }
  static void reduction(step& s) {
    const std::string f = s.text("f");
    const integers dims = s.numbers("dim");
    const std::int64_t keeps = s.is("keepdim");
    const double p = s.call().step.number[0];
    const auto reduce = [&](std::string_view op, const std::string& x, std::int64_t keepdims) {
      attributes a{{"keepdims", keepdims}};
      if (op == "ReduceSum") return s.node(op, {x, dims.empty() ? "" : s.ints(dims)}, a);
      if (!dims.empty()) a.emplace_back("axes", dims);
      return s.node(op, {x}, a);
    };
    const auto simple = [&](std::string_view op) { s.result(reduce(op, s.in(), keeps)); };
    if (f == "sum") return simple("ReduceSum");
    if (f == "mean") return simple("ReduceMean");
    if (f == "max") return simple("ReduceMax");
    if (f == "min") return simple("ReduceMin");
    if (f == "logsumexp") return simple("ReduceLogSumExp");
    if (f == "norm" && p == 1) return simple("ReduceL1");
    if (f == "norm" && p == 2) return simple("ReduceL2");
    if (f == "norm") {
      const std::string x = s.node("Abs", {s.in()});
      if (p == std::numeric_limits<double>::infinity())
        return s.result(reduce("ReduceMax", x, keeps));
      if (p == -std::numeric_limits<double>::infinity())
        return s.result(reduce("ReduceMin", x, keeps));
      if (p == 0) s.refuse(" with f=norm of the order 0");
      return s.result("Pow",
                      {reduce("ReduceSum", s.node("Pow", {x, s.real(p)}), keeps), s.real(1 / p)});
    }
    const std::string off = s.node("Sub", {s.in(), reduce("ReduceMean", s.in(), 1)});
    const std::string squares = s.node("Mul", {off, off});
    if (p == 0) return s.result(reduce("ReduceMean", squares, keeps));
    double n = 1;
    for (std::size_t d = 0; d < s.in_shape().rank(); ++d) {
      bool counts = dims.empty();
      for (std::int64_t of : dims) counts = counts || step::at(of < 0 ? of + s.rank() : of) == d;
      if (counts) n *= static_cast<double>(s.known(d));
    }
    s.result("Div", {reduce("ReduceSum", squares, keeps), s.real(n - p)});
  }
  static void arg_extreme(step& s) {
    const integers dims = s.numbers("dim");
    std::string x = s.in();
    const std::int64_t keeps = s.is("keepdim");
    if (dims.empty()) x = s.reshape(x, {-1});
    std::string y =
        s.node(s.text("f") == "argmax" ? "ArgMax" : "ArgMin", {x},
               {{"axis", dims.empty() ? 0 : dims[0]}, {"keepdims", dims.empty() ? 0 : keeps}});
    if (dims.empty() && keeps != 0) y = s.reshape(y, integers(step::at(s.rank()), 1));
    s.result(s.cast_real(y));
  }
  static void index(step& s) {
    const std::string f = s.text("f");
    const std::int64_t d = s.integer("dim");
    if (f == "gather") return s.result("GatherElements", {s.in(0), s.in(1)}, {{"axis", d}});
    if (f == "index_select") return s.result("Gather", {s.in(0), s.in(1)}, {{"axis", d}});
    if (f == "scatter_add")
      return s.result("ScatterElements", {s.in(0), s.in(1), s.in(2)},
                      {{"axis", d}, {"reduction", "add"}});
    const std::string n = s.scalar(s.integer("num_classes"));
    s.result(s.cast_real(s.node("OneHot", {s.in(), n, s.ints({0, 1})})));
  }
  static void arange_like(step& s) {
    const std::string n = s.node("Gather", {s.node("Shape", {s.in()}), s.scalar(s.axis("dim"))});
    s.result(s.cast_real(s.node("Range", {s.scalar(0), n, s.scalar(1)})));
  }

  // ---- tables and positions ----

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
  /// Adds the rows of a table, one for each element of a sequence.
  static void add_rows(step& s, std::string rows) {
    if (s.rank() == 3 && !s.is("batch_first")) rows = s.node("Unsqueeze", {rows, s.ints({1})});
    s.result("Add", {s.in(), rows});
  }
  static std::size_t length_dim(step& s) { return s.rank() == 3 && s.is("batch_first") ? 1 : 0; }
  static void learned_positions(step& s) {
    const std::string n =
        s.slice(s.node("Shape", {s.in()}), 0, static_cast<std::int64_t>(length_dim(s)),
                static_cast<std::int64_t>(length_dim(s)) + 1);
    add_rows(s, s.node("Slice", {s.parameter("weight"), s.ints({0}), n, s.ints({0})}));
  }
  static void sinusoidal_encoding(step& s) {
    const dim_t length = s.known(length_dim(s)), width = s.known(step::at(s.rank() - 1));
    std::vector<double> table(step::at(length * width));
    for (dim_t l = 0; l < length; ++l)
      for (dim_t j = 0; j < width; ++j) {
        const double angle =
            static_cast<double>(l) *
            std::pow(10000.0, -static_cast<double>(j / 2 * 2) / static_cast<double>(width));
        table[step::at(l * width + j)] = j % 2 == 0 ? std::sin(angle) : std::cos(angle);
      }
    add_rows(s, s.reals(table, {length, width}));
  }

  // ---- recurrence ----

  /// Layers of LSTM, GRU or RNN. ONNX has the gates in the order i o f c and z r h.
  static void recurrent(step& s) {
    const std::string_view kind = s.call().kind;
    const bool is_cell = kind.ends_with("_cell"), is_lstm = kind.starts_with("lstm"),
               is_gru = kind.starts_with("gru"), is_packed = s.is("packed"),
               batch_first = s.is("batch_first");
    s.refuse_option("proj_size");
    s.refuse_option("stateful");
    const std::int64_t layers = s.integer("num_layers", 1), hidden = s.integer("hidden_size"),
                       directions = s.is("bidirectional") ? 2 : 1;
    const integers order = is_lstm  ? integers{0, 3, 1, 2}
                           : is_gru ? integers{1, 0, 2}
                                    : integers{0};
    const std::size_t states = is_lstm ? 2 : 1, first_state = is_packed ? 2 : 1;
    const bool has_states = s.inputs() > first_state;
    const bool unbatched = s.rank() == (is_cell ? 1 : 2);
    const auto batched = [&](std::string x) {
      return unbatched ? s.node("Unsqueeze", {x, s.ints({is_cell ? 0 : 1})}) : x;
    };
    const auto unbatch = [&](std::string x) {
      return unbatched ? s.node("Squeeze", {x, s.ints({is_cell ? 0 : 1})}) : x;
    };
    const auto with_time = [&](const std::string& x) {
      return is_cell ? s.node("Unsqueeze", {x, s.ints({0})}) : x;
    };
    std::string x = with_time(batched(s.in()));
    if (batch_first && !unbatched) x = s.transpose(x, {1, 0, 2});
    const std::string lengths = is_packed ? s.cast(s.in(1), onnx_type::int32) : std::string();
    strings initial, final_states[2];
    for (std::size_t i = 0; has_states && i < states; ++i)
      initial.push_back(with_time(batched(s.in(first_state + i))));
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      strings w, r, b;
      for (std::int64_t d = 0; d < directions; ++d) {
        const std::string end =
            is_cell ? std::string() : "_l" + std::to_string(layer) + (d == 1 ? "_reverse" : "");
        w.push_back("weight_ih" + end);
        r.push_back("weight_hh" + end);
        b.push_back("bias_ih" + end);
        b.push_back("bias_hh" + end);
      }
      strings in{x, s.stacked(w, order), s.stacked(r, order), s.stacked(b, order, true), lengths};
      for (const std::string& state : initial)
        in.push_back(layers == 1 ? state
                                 : s.slice(state, 0, layer * directions, (layer + 1) * directions));
      attributes a{{"hidden_size", hidden},
                   {"direction", directions == 2 ? "bidirectional" : "forward"}};
      if (is_gru) a.emplace_back("linear_before_reset", one);
      if (!is_gru && !is_lstm)
        a.emplace_back("activations", strings(step::at(directions),
                                              s.text("nonlinearity") == "relu" ? "Relu" : "Tanh"));
      const strings y = s.nodes(is_lstm ? "LSTM" : is_gru ? "GRU" : "RNN", in, 1 + states, a);
      x = s.reshape(s.transpose(y[0], {0, 2, 1, 3}), {0, 0, directions * hidden});
      for (std::size_t i = 0; i < states; ++i) final_states[i].push_back(y[1 + i]);
    }
    if (!is_cell) {
      if (batch_first && !unbatched) x = s.transpose(x, {1, 0, 2});
      s.result(unbatch(x), 0);
    }
    for (std::size_t i = 0; i < states; ++i) {
      std::string h = layers == 1 ? final_states[i][0]
                                  : s.node("Concat", final_states[i], {{"axis", std::int64_t{0}}});
      if (is_cell) h = s.node("Squeeze", {h, s.ints({0})});
      s.result(unbatch(h), i + (is_cell ? 0 : 1));
    }
  }

  // ---- attention ----

  /// Heads of attention over projected q, k and v: [N, L, E], or [L, N, E].
  static std::string attend(step& s, std::string q, std::string k, std::string v,
                            std::int64_t embed, bool batch_first, bool causal,
                            const std::string& masked, const std::string& added,
                            std::string* weights) {
    const std::int64_t heads = s.integer("num_heads"), each = embed / heads;
    const auto split = [&](const std::string& x, bool swapped) {
      const std::string y = s.reshape(x, {0, 0, heads, each});
      if (swapped) return s.transpose(y, batch_first ? integers{0, 2, 3, 1} : integers{1, 2, 3, 0});
      return s.transpose(y, batch_first ? integers{0, 2, 1, 3} : integers{1, 2, 0, 3});
    };
    q = s.node("Mul", {q, s.real(1 / std::sqrt(static_cast<double>(each)))});
    std::string scores = s.node("MatMul", {split(q, false), split(k, true)});
    if (!added.empty()) scores = s.node("Add", {scores, added});
    const auto mask = [&](const std::string& ignored) {
      const std::string least = s.real(-std::numeric_limits<double>::infinity());
      scores = s.node("Where", {ignored, least, scores});
    };
    if (!masked.empty()) mask(masked);
    if (causal) {
      const std::string ones = s.node("Expand", {s.real(1), s.node("Shape", {scores})});
      const std::string later = s.node("Trilu", {ones, s.scalar(1)}, {{"upper", one}});
      mask(s.cast(later, onnx_type::boolean));
    }
    const std::string shares = s.node("Softmax", {scores}, {{"axis", std::int64_t{-1}}});
    if (weights != nullptr) *weights = shares;
    const std::string y = s.node("MatMul", {shares, split(v, false)});
    return s.reshape(s.transpose(y, batch_first ? integers{0, 2, 1, 3} : integers{2, 0, 1, 3}),
                     {0, 0, embed});
  }
  static void multihead_attention(step& s) {
    if (s.rank() != 3) s.refuse(" of an input without a batch");
    s.refuse_option("add_bias_kv");
    s.refuse_option("add_zero_attn");
    const std::int64_t embed = s.integer("embed_dim");
    const bool batch_first = s.is("batch_first"), padding = s.is("key_padding_mask"),
               mask = s.has("attn_mask"), additive = s.text("attn_mask") == "additive";
    const std::size_t numbers = s.inputs() - padding - mask;
    strings x(3), w(3), b(3);
    for (std::size_t i = 0; i < 3; ++i) x[i] = s.in(numbers == 1 ? 0 : i);
    const integers thirds{embed, embed, embed};
    const attributes rows{{"axis", std::int64_t{0}}};
    if (const std::string all = s.parameter("in_proj_weight"); !all.empty())
      w = s.nodes("Split", {all, s.ints(thirds)}, 3, rows);
    else
      w = {s.parameter("q_proj_weight"), s.parameter("k_proj_weight"),
           s.parameter("v_proj_weight")};
    if (const std::string all = s.parameter("in_proj_bias"); !all.empty())
      b = s.nodes("Split", {all, s.ints(thirds)}, 3, rows);
    for (std::size_t i = 0; i < 3; ++i) x[i] = s.affine(x[i], 3, w[i], b[i]);
    std::string masked, added;
    if (padding) masked = s.node("Unsqueeze", {s.in(numbers), s.ints({1, 2})});
    if (mask) {
      const std::size_t at = numbers + padding;
      std::string m = s.in(at);
      if (s.in_shape(at).rank() == 3)
        m = s.node("Reshape",
                   {m, s.ints({-1, s.integer("num_heads"), s.in_shape(at)[1], s.in_shape(at)[2]})});
      if (additive)
        added = m;
      else
        masked = masked.empty() ? m : s.node("Or", {masked, m});
    }
    std::string shares;
    const std::string y =
        attend(s, x[0], x[1], x[2], embed, batch_first, s.is("is_causal"), masked, added, &shares);
    const std::string weight = s.parameter("out_proj.weight");
    s.result(s.affine(y, 3, weight, s.parameter("out_proj.bias")));
    if (s.outputs() > 1 && s.has("average_attn_weights"))
      s.result(s.node("Identity", {shares}), 1);
    else if (s.outputs() > 1)
      s.result(
          s.node("ReduceMean", {shares}, {{"axes", integers{1}}, {"keepdims", std::int64_t{0}}}),
          1);
  }
  static void causal_attention(step& s) {
    s.refuse_option("kv_cache");
    s.result(
        attend(s, s.in(0), s.in(1), s.in(2), s.integer("embed_dim"), true, true, "", "", nullptr));
  }

  /// One line for each kind. A kind that is missing has no counterpart.
  static constexpr rule rules[]{
      {"linear", linear},
      {"bilinear", bilinear},
      {"conv", conv},
      {"causal_conv", conv},
      {"conv_transpose", conv_transpose},
      {"matmul", matmul},
      {"einsum", einsum},
      {"max_pool", max_pool},
      {"avg_pool", avg_pool},
      {"lp_pool", lp_pool},
      {"adaptive_avg_pool", adaptive_pool},
      {"adaptive_max_pool", adaptive_pool},
      {"batch_norm", batch_norm},
      {"sync_batch_norm", batch_norm},
      {"instance_norm", instance_norm},
      {"group_norm", group_norm},
      {"layer_norm", layer_norm},
      {"rms_norm", rms_norm},
      {"local_response_norm", local_response_norm},
      {"standard_scaler", standard_scaler},
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
      {"flatten", flatten},
      {"unflatten", reshaped},
      {"view", view},
      {"concat", concat},
      {"stack", stack},
      {"split", split},
      {"rearrange", rearrange},
      {"pad", pad},
      {"zero_pad", pad},
      {"constant_pad", pad},
      {"reflection_pad", pad},
      {"replication_pad", pad},
      {"upsample", upsample},
      {"pixel_shuffle", shuffle},
      {"pixel_unshuffle", shuffle},
      {"channel_shuffle", shuffle},
      {"grid_sample", grid_sample},
      {"elementwise", elementwise},
      {"add",
       [](step& s) {
         s.result("Add", {s.in(0), s.in(1)});
       }},
      {"mul",
       [](step& s) {
         s.result("Mul", {s.in(0), s.in(1)});
       }},
      {"reduction", reduction},
      {"cumsum",
       [](step& s) {
         s.result("CumSum", {s.in(), s.scalar(s.integer("dim"))});
       }},
      {"arg_extreme", arg_extreme},
      {"index", index},
      {"masked_fill",
       [](step& s) {
         s.result("Where", {s.in(1), s.real(s.number("value")), s.in(0)});
       }},
      {"full_like",
       [](step& s) {
         s.result("Expand", {s.real(s.number("value")), s.node("Shape", {s.in()})});
       }},
      {"arange_like", arange_like},
      {"parameter", [](step& s) { s.result(s.parameter("weight")); }},
      {"embedding",
       [](step& s) {
         s.refuse_option("max_norm");
         s.result("Gather", {s.parameter("weight"), s.in()});
       }},
      {"embedding_bag", embedding_bag},
      {"learned_positions", learned_positions},
      {"sinusoidal_encoding", sinusoidal_encoding},
      {"lstm", recurrent},
      {"gru", recurrent},
      {"rnn", recurrent},
      {"lstm_cell", recurrent},
      {"gru_cell", recurrent},
      {"rnn_cell", recurrent},
      {"multihead_attention", multihead_attention},
      {"causal_attention", causal_attention},
  };

  static void write(step& s) {
    for (const std::string_view made : {"weight_norm", "spectral_norm", "orthogonal"})
      if (s.has(made))
        s.refuse(" whose weight " + std::string(made) + " computes; freeze the model first");
    s.refuse_option("int8");
    s.refuse_option("weights");
    const std::string_view kind = family(s.call().kind);
    for (const rule& r : rules)
      if (r.kind == kind) return r.write(s);
    s.refuse("");
  }
};

}  // namespace ikebana::detail
