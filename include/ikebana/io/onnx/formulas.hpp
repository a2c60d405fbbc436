#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "ikebana/io/onnx/rule.hpp"

namespace ikebana::detail {

/// Element-wise operations, reductions, indices and constants.
struct onnx_formulas : onnx_rule {
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

  static constexpr rule rules[]{
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
  };
};

}  // namespace ikebana::detail
