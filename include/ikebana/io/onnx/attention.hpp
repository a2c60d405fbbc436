#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "ikebana/io/onnx/rule.hpp"

namespace ikebana::detail {

/// Attention, and the positions that it is given.
struct onnx_attention : onnx_rule {
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

  static constexpr rule rules[]{
      {"learned_positions", learned_positions},
      {"sinusoidal_encoding", sinusoidal_encoding},
      {"multihead_attention", multihead_attention},
      {"causal_attention", causal_attention},
  };
};

}  // namespace ikebana::detail
