#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "ikebana/io/onnx/rule.hpp"

namespace ikebana::detail {

/// Pools.
struct onnx_pools : onnx_rule {
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

  static constexpr rule rules[]{
      {"max_pool", max_pool},
      {"avg_pool", avg_pool},
      {"lp_pool", lp_pool},
      {"adaptive_avg_pool", adaptive_pool},
      {"adaptive_max_pool", adaptive_pool},
  };
};

}  // namespace ikebana::detail
