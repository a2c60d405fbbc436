#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ikebana/io/onnx/rule.hpp"

namespace ikebana::detail {

/// Reshapes, copies, padding and resampling.
struct onnx_shapes : onnx_rule {
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

  static constexpr rule rules[]{
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
  };
};

}  // namespace ikebana::detail
