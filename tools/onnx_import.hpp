#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ikebana/core/dtype.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/float16.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/io/onnx_model.hpp"
#include "ikebana/model/state_dict.hpp"

// Translates an ONNX file into a network as a type, and its weights.
namespace onnx_import {

namespace ike = ikebana;
using ike::detail::onnx_attribute;
using ike::detail::onnx_model;
using ike::detail::onnx_node;
using ike::detail::onnx_tensor;
using ike::detail::onnx_type;
using integers = std::vector<std::int64_t>;

/// Larger extents are refused.
inline constexpr std::int64_t limit = std::int64_t{1} << 56;

/// The extent of a dimension that only run time knows.
// Not the least number, which files have as the end of a slice.
inline constexpr std::int64_t unknown = std::numeric_limits<std::int64_t>::min() + 0x5eed;

struct constant {
  bool is_real = false;
  bool is_double = false;
  std::string name;
  integers dims;
  std::vector<double> reals;
  integers ints;

  std::size_t size() const { return is_real ? reals.size() : ints.size(); }
};

/// A value of the graph: computed, with the name of its variable, or constant.
struct value {
  std::string code;
  std::optional<integers> dims;  ///< Empty if even the rank is unknown.
  std::optional<constant> fixed;
  bool is_zero = false;  ///< All elements, of a constant whose extents may be unknown.
  std::size_t line = 0;  ///< Of a linear module without a bias yet: its line + 1.
  /// Outputs of a recurrent module in ONNX's layout [L, directions, N, H]: ours is `code`.
  enum { plain, stacked, transposed } layout = plain;
  std::int64_t directions = 1, hidden = 0;
};

struct result {
  std::string header;
  ike::state_dict weights;
};

class translator {
 public:
  translator(const std::string& where, const onnx_model& model, std::string name)
      : where_{where}, model_{model}, name_{std::move(name)} {}

  result run();

 private:
  using rule = void (translator::*)();
  struct named_rule {
    std::string_view op;
    rule translate;
  };
  static const named_rule rules[];

  [[noreturn]] void refuse(const std::string& what) const {
    ike::detail::fail_io(where_, (node_ == nullptr ? std::string()
                                                   : "the node " + ike::detail::in_quotes(label()) +
                                                         " (" + masked(node_->op) + ") ") +
                                     what);
  }
  static std::string masked(const std::string& s) {
    const std::string quoted = ike::detail::in_quotes(s);
    return quoted.substr(1, quoted.size() - 2);
  }
  std::string label() const {
    return !node_->name.empty()      ? node_->name
           : !node_->outputs.empty() ? node_->outputs[0]
                                     : std::string();
  }

  // ---- the node at hand ----

  bool has(std::size_t i) const { return i < node_->inputs.size() && !node_->inputs[i].empty(); }
  value& in(std::size_t i = 0) {
    if (!has(i)) refuse("has no input " + std::to_string(i));
    const auto at = values_.find(node_->inputs[i]);
    if (at == values_.end())
      refuse("reads " + ike::detail::in_quotes(node_->inputs[i]) +
             ", which no node before it makes");
    return at->second;
  }
  const onnx_attribute* attribute(std::string_view name) const {
    for (const onnx_attribute& a : node_->attributes)
      if (a.name == name) return &a;
    return nullptr;
  }
  std::int64_t integer(std::string_view name, std::int64_t otherwise) const {
    const onnx_attribute* const a = attribute(name);
    return a == nullptr ? otherwise : a->i;
  }
  double real(std::string_view name, double otherwise) const {
    const onnx_attribute* const a = attribute(name);
    return a == nullptr ? otherwise : a->f;
  }
  std::string text(std::string_view name, std::string_view otherwise) const {
    const onnx_attribute* const a = attribute(name);
    return a == nullptr ? std::string(otherwise) : a->s;
  }
  /// Of an attribute, or of a constant input.
  std::optional<integers> list(std::string_view name, std::size_t input = 99) {
    if (const onnx_attribute* const a = attribute(name)) return a->ints;
    if (!has(input)) return std::nullopt;
    return ints(input);
  }
  const constant& fixed(std::size_t i) {
    value& v = in(i);
    if (!v.fixed) refuse("needs input " + std::to_string(i) + " to be a constant");
    return *v.fixed;
  }
  const integers& ints(std::size_t i) {
    const constant& c = fixed(i);
    if (c.is_real) refuse("needs whole numbers as input " + std::to_string(i));
    return c.ints;
  }
  std::int64_t whole(std::size_t i) {
    const integers& n = ints(i);
    if (n.size() != 1 || n[0] == unknown) refuse("needs one number as input " + std::to_string(i));
    return n[0];
  }
  std::int64_t rank(std::size_t i = 0) {
    const value& v = in(i);
    if (!v.dims) refuse("has an input whose number of dimensions is not known here");
    return static_cast<std::int64_t>(v.dims->size());
  }
  const integers& dims(std::size_t i = 0) {
    rank(i);
    return *in(i).dims;
  }
  std::int64_t axis_of(std::int64_t d, std::int64_t of_rank) const {
    if (d < -of_rank || d >= of_rank) refuse("has an axis of " + std::to_string(d));
    return d < 0 ? d + of_rank : d;
  }
  std::size_t axis(std::string_view name, std::int64_t otherwise) {
    return at(axis_of(integer(name, otherwise), rank()));
  }
  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
  static bool is_large(std::int64_t i) { return i > limit || i < -limit; }
  /// The product of extents, which may be unknown.
  std::int64_t times(std::int64_t a, std::int64_t b) const {
    if (a == unknown || b == unknown) return unknown;
    if (a < 0 || b < 0 || (b > 0 && a > limit / b)) refuse("makes a tensor that is too large");
    return a * b;
  }

  // ---- C++ ----

  static std::string number(double x) {
    if (std::isinf(x))
      return x > 0 ? "std::numeric_limits<double>::infinity()"
                   : "-std::numeric_limits<double>::infinity()";
    if (std::isnan(x)) return "std::numeric_limits<double>::quiet_NaN()";
    // The shortest text of the float or double.
    char digits[40];
    for (int n = 6; n <= 17; ++n) {
      std::snprintf(digits, sizeof digits, "%.*g", n, x);
      const double back = std::strtod(digits, nullptr);
      if (back == x || (n < 10 && static_cast<float>(back) == static_cast<float>(x) &&
                        static_cast<double>(static_cast<float>(x)) == x))
        break;
    }
    return digits;
  }
  static std::string comma(const integers& n) {
    std::string s;
    for (std::int64_t i : n) s += (s.empty() ? "" : ", ") + std::to_string(i == unknown ? -1 : i);
    return s;
  }
  static std::string shape_of(const integers& dims) {
    std::string s;
    for (std::int64_t d : dims)
      s += (s.empty() ? "" : ", ") + (d == unknown ? "ike::dynamic" : std::to_string(d));
    return "ike::shape{" + s + "}";
  }
  static std::string identifier(std::string_view s) {
    std::string out;
    for (char c : s) out += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
    while (out.starts_with('_')) out.erase(0, 1);
    if (out.empty() || std::isdigit(static_cast<unsigned char>(out[0])) != 0) out = "n" + out;
    return out.substr(0, 60);
  }
  /// A name for a module: that of its weights, or of the node's module (PyTorch writes
  /// "/encoder/fc/MatMul"), or of the kind.
  std::string module_name(const std::string& parameter, std::string_view kind) {
    std::string base(kind);
    if (const std::size_t end = node_->name.rfind('/'); end != std::string::npos && end > 0) {
      const std::size_t begin = node_->name.rfind('/', end - 1);
      base = identifier(
          node_->name.substr(begin == std::string::npos ? 0 : begin + 1, end - (begin + 1)));
    }
    for (std::string_view end : {".weight", ".bias", "_weight"})
      if (parameter.size() > end.size() && parameter.ends_with(end)) {
        base = identifier(parameter.substr(0, parameter.size() - end.size()));
        break;
      }
    std::string name = base;
    for (int i = 2; !module_names_.insert(name).second; ++i) name = base + "_" + std::to_string(i);
    return name;
  }
  void weight(const std::string& path, const constant& c, const integers& dims) {
    weight(path, c.is_double, c.reals, dims);
  }
  void weight(const std::string& path, bool is_double, const std::vector<double>& x,
              const integers& dims) {
    if (dims.size() > ike::shape::max_rank) refuse("has a tensor of more than 8 dimensions");
    ike::shape s;
    for (std::int64_t d : dims) s.push_back(d);
    if (static_cast<std::size_t>(s.numel()) != x.size())
      refuse("has a tensor of " + std::to_string(x.size()) + " elements; expected shape (" +
             comma(dims) + ")");
    is_double_ = is_double_ || is_double;
    weights_.push_back({path, s, x});
  }
  void bind(std::size_t output, value v) {
    if (output >= node_->outputs.size() || node_->outputs[output].empty()) return;
    if (v.dims)
      for (std::int64_t d : *v.dims)
        if (d != unknown && (d < (v.is_zero ? -1 : 0) || d > limit))
          refuse("makes a tensor with an extent of " + std::to_string(d));
    values_[node_->outputs[output]] = std::move(v);
  }
  /// A line that makes one value, output 0.
  void make(const std::string& expression, std::optional<integers> dims) {
    value v;
    v.code = variable();
    v.dims = std::move(dims);
    lines_.push_back("auto " + v.code + " = " + expression + ";");
    if (any_.empty()) any_ = v.code;
    bind(0, std::move(v));
  }
  std::string variable() { return "v" + std::to_string(++variables_); }
  void pass() { bind(0, in()); }
  std::string named(const std::string& name, const std::string& module, const std::string& x) {
    return "\"" + name + "\"_m(" + module + ", " + x + ")";
  }
  /// Input i as an expression; a constant is a parameter of the graph.
  std::string code(std::size_t i = 0) {
    value& v = in(i);
    if (!v.fixed) {
      if (v.code.empty()) refuse("reads a constant whose extents are not known");
      return v.code;
    }
    if (!v.fixed->is_real) refuse("computes with constants that are whole numbers");
    if (any_.empty()) refuse("reads constants alone");
    const std::string name = module_name(v.fixed->name, "constant");
    weight(name + ".weight", *v.fixed, v.fixed->dims);
    return "ike::parameter<\"" + name + "\", " + shape_of(v.fixed->dims) + ">(" + any_ + ")";
  }
  /// The same, but a single number is written out.
  std::string operand(std::size_t i) {
    const value& v = in(i);
    if (v.fixed && v.fixed->size() == 1)
      return number(v.fixed->is_real ? v.fixed->reals[0] : static_cast<double>(v.fixed->ints[0]));
    return code(i);
  }
  static std::optional<integers> broadcast(const std::optional<integers>& a,
                                           const std::optional<integers>& b) {
    if (!a || !b) return std::nullopt;
    integers out(std::max(a->size(), b->size()), 1);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::int64_t x = i < a->size() ? (*a)[a->size() - 1 - i] : 1,
                         y = i < b->size() ? (*b)[b->size() - 1 - i] : 1;
      out[out.size() - 1 - i] = x == 1 ? y : y == 1 ? x : x == unknown ? y : x;
    }
    return out;
  }
  /// Makes an output of a recurrent module what ONNX has: [L, directions, N, H].
  void settle(value& v) {
    if (v.layout == value::plain) return;
    const bool is_stacked = std::exchange(v.layout, value::plain) == value::stacked;
    std::string y = "ike::unflatten<ike::dim<2>, ike::unflattened_size<" +
                    comma({v.directions, v.hidden}) + ">>{}(" + v.code + ")";
    if (is_stacked) y = "ike::permute<0, 2, 1, 3>(" + y + ")";
    v.code = variable();
    lines_.push_back("auto " + v.code + " = " + y + ";");
    if (!v.dims) return;
    const std::int64_t length = (*v.dims)[0], batch = (*v.dims)[1];
    v.dims = is_stacked ? integers{length, v.directions, batch, v.hidden}
                        : integers{length, batch, v.directions, v.hidden};
  }
  static value constant_value(constant c) {
    value v;
    v.dims = c.dims;
    v.fixed = std::move(c);
    return v;
  }
  constant constant_of(const onnx_tensor& t) const;
  bool fold();
  bool fold_elementwise();
  std::optional<integers> einsum_dims(std::string equation);
  void fold_index(const constant& from, const integers& positions, integers dims);

  // ---- rules ----

  void unary(const std::string& before, const std::string& after = ")") {
    make(before + code() + after, in().dims);
  }
  template <std::size_t I>
  void function();
  void binary(std::string_view op, bool is_function = false);
  void linear(const std::string& x, const constant& w, bool transposed, std::optional<integers> out,
              const constant* bias);
  void gemm();
  void matmul();
  void einsum();
  void conv();
  void conv_transpose();
  void pool();
  void global_pool();
  void batch_norm();
  void instance_norm();
  void layer_norm();
  void local_response_norm();
  void activation();
  void clip();
  void shrink();
  void prelu();
  void softmax();
  void flatten();
  bool is_joined(const value& x, const integers& to) const;
  void reshape();
  void reshape_to(const integers& to);
  void squeeze();
  void unsqueeze();
  void transpose();
  void concat();
  void split();
  void slice();
  void gather();
  void expand();
  void pad();
  void resize();
  void depth_to_space();
  void reduce();
  void arg_extreme();
  void cumsum();
  void where();
  void logical_not() { unary("1 - ", ""); }
  void constant_of_shape();
  void recurrent();
  void arithmetic();

  integers pads_of(const integers& kernel, bool dilates);
  /// Sides of a window; sides that differ are padded before.
  std::string padded_input(std::size_t n, integers& pads, double fill);
  std::string window(std::size_t n, const integers& kernel, const integers& pads, bool dilates);
  static std::string option(std::string_view name, const integers& n, std::int64_t otherwise) {
    if (std::all_of(n.begin(), n.end(), [&](std::int64_t i) { return i == otherwise; })) return "";
    const bool equal = std::all_of(n.begin(), n.end(), [&](std::int64_t i) { return i == n[0]; });
    return ", ike::" + std::string(name) + "<" + (equal ? std::to_string(n[0]) : comma(n)) + ">";
  }
  integers sized(std::string_view name, std::size_t n, std::int64_t otherwise) const {
    const onnx_attribute* const a = attribute(name);
    integers list = a == nullptr ? integers(n, otherwise) : a->ints;
    if (list.size() != n)
      refuse("has " + std::to_string(list.size()) + " " + std::string(name) + "; expected " +
             std::to_string(n));
    for (std::int64_t i : list)
      if (i < 0 || i > 1'000'000) refuse("has " + std::string(name) + " of " + std::to_string(i));
    return list;
  }
  std::optional<integers> windowed(std::size_t n, std::int64_t channels, const integers& kernel,
                                   const integers& pads, bool dilates, bool ceils) {
    if (!in().dims) return std::nullopt;
    const integers stride = sized("strides", n, 1);
    const integers dilation = dilates ? sized("dilations", n, 1) : integers(n, 1);
    integers out{dims()[0], channels};
    for (std::size_t d = 0; d < n; ++d) {
      const std::int64_t extent = dims()[d + 2];
      if (extent == unknown || stride[d] == 0) {
        out.push_back(unknown);
        continue;
      }
      std::int64_t room = extent + pads[d] + pads[n + d] - dilation[d] * (kernel[d] - 1) - 1;
      if (room < 0) refuse("has a window that is larger than its input");
      std::int64_t to = (room + (ceils ? stride[d] - 1 : 0)) / stride[d] + 1;
      if (ceils && (to - 1) * stride[d] >= extent + pads[d]) --to;
      out.push_back(to);
    }
    return out;
  }

  struct saved_weight {
    std::string path;
    ike::shape extents;
    std::vector<double> x;
  };

  const std::string& where_;
  const onnx_model& model_;
  std::string name_;
  const onnx_node* node_ = nullptr;
  std::map<std::string, value> values_;
  std::map<std::string, int> uses_;
  std::set<std::string> module_names_;
  std::vector<std::string> lines_;
  std::vector<saved_weight> weights_;
  std::string any_;  ///< Some value of the graph, of numbers.
  bool is_double_ = false;
  int variables_ = 0;
};

inline constant translator::constant_of(const onnx_tensor& t) const {
  constant c;
  c.name = t.name;
  c.dims = t.dims;
  const std::string_view bytes = t.bytes();
  const auto n = static_cast<std::size_t>(t.size());
  const auto read = [&]<class T>(T, auto& to) {
    to.resize(n);
    for (std::size_t i = 0; i < n; ++i) {
      T x;
      std::memcpy(&x, bytes.data() + i * sizeof(T), sizeof(T));
      to[i] = static_cast<std::remove_reference_t<decltype(to[0])>>(x);
    }
  };
  c.is_double = t.type == onnx_type::float64;
  c.is_real = c.is_double || t.type == onnx_type::float32 || t.type == onnx_type::float16;
  switch (t.type) {
    case onnx_type::float32:
      read(float{}, c.reals);
      break;
    case onnx_type::float64:
      read(double{}, c.reals);
      break;
    case onnx_type::float16: {
      c.reals.resize(n);
      for (std::size_t i = 0; i < n; ++i) {
        std::uint16_t bits;
        std::memcpy(&bits, bytes.data() + 2 * i, 2);
        c.reals[i] = static_cast<double>(static_cast<float>(std::bit_cast<ike::float16>(bits)));
      }
      break;
    }
    case onnx_type::int64:
      read(std::int64_t{}, c.ints);
      break;
    case onnx_type::int32:
      read(std::int32_t{}, c.ints);
      break;
    case onnx_type::int8:
      read(std::int8_t{}, c.ints);
      break;
    default:
      read(std::uint8_t{}, c.ints);
  }
  return c;
}

// ---- constants, which are computed here ----

inline void translator::fold_index(const constant& from, const integers& positions, integers dims) {
  constant c;
  c.is_real = from.is_real;
  c.is_double = from.is_double;
  c.name = from.name;
  c.dims = std::move(dims);
  for (std::int64_t p : positions) {
    if (p < 0 || at(p) >= from.size()) refuse("has an index out of range");
    if (from.is_real)
      c.reals.push_back(from.reals[at(p)]);
    else
      c.ints.push_back(from.ints[at(p)]);
  }
  bind(0, constant_value(std::move(c)));
}

/// Computes a node of constants, and the shapes of values. False if it is another node.
inline bool translator::fold() {
  const std::string& op = node_->op;
  if (op == "Constant") {
    const onnx_attribute* const a = node_->attributes.empty() ? nullptr : &node_->attributes[0];
    if (a == nullptr) refuse("has no value");
    constant c;
    if (!a->tensors.empty())
      c = constant_of(a->tensors[0]);
    else if (a->name == "value_int")
      c.ints = {a->i};
    else if (a->name == "value_ints")
      c.ints = a->ints, c.dims = {static_cast<std::int64_t>(a->ints.size())};
    else if (a->name == "value_float")
      c.is_real = true, c.reals = {a->f};
    else
      refuse("has the value " + ike::detail::in_quotes(a->name) + ", which is not read");
    bind(0, constant_value(std::move(c)));
    return true;
  }
  if (op == "Shape") {
    constant c;
    c.ints = dims();
    c.dims = {rank()};
    bind(0, constant_value(std::move(c)));
    return true;
  }
  for (std::size_t i = 0; i < node_->inputs.size(); ++i)
    if (has(i) && !in(i).fixed) return false;
  if (node_->inputs.empty()) return false;
  const constant& x = fixed(0);
  if (op == "Identity" || op == "Cast") {
    constant c = x;
    if (op == "Cast") {
      const auto to = static_cast<onnx_type>(integer("to", 1));
      const bool real = to == onnx_type::float32 || to == onnx_type::float64;
      if (real && !c.is_real) c.reals.assign(c.ints.begin(), c.ints.end());
      if (!real && c.is_real) {
        for (double r : c.reals)
          if (!(std::abs(r) < 9e15)) refuse("casts a number that is too large");
        c.ints.assign(c.reals.begin(), c.reals.end());
      }
      c.is_real = real;
      c.is_double = to == onnx_type::float64;
    }
    bind(0, constant_value(std::move(c)));
    return true;
  }
  if (op == "Unsqueeze" || op == "Squeeze") {
    constant c = x;
    const std::optional<integers> axes = list("axes", 1);
    if (op == "Unsqueeze") {
      const auto rank = static_cast<std::int64_t>(c.dims.size() + (axes ? axes->size() : 0));
      integers sorted;
      for (std::int64_t a : axes.value_or(integers{})) sorted.push_back(axis_of(a, rank));
      std::sort(sorted.begin(), sorted.end());
      for (std::int64_t a : sorted) {
        if (at(a) > c.dims.size()) refuse("has an axis of " + std::to_string(a));
        c.dims.insert(c.dims.begin() + a, 1);
      }
    } else {
      integers kept;
      for (std::size_t d = 0; d < c.dims.size(); ++d) {
        bool taken = !axes && c.dims[d] == 1;
        for (std::int64_t a : axes.value_or(integers{}))
          taken = taken || at(axis_of(a, static_cast<std::int64_t>(c.dims.size()))) == d;
        if (!taken) kept.push_back(c.dims[d]);
        if (taken && c.dims[d] != 1) refuse("takes away a dimension that has not one element");
      }
      c.dims = kept;
    }
    bind(0, constant_value(std::move(c)));
    return true;
  }
  if (op == "Concat") {
    if (x.is_real) return false;
    constant c;
    for (std::size_t i = 0; i < node_->inputs.size(); ++i) {
      if (fixed(i).dims.size() != 1) return false;
      c.ints.insert(c.ints.end(), ints(i).begin(), ints(i).end());
    }
    c.dims = {static_cast<std::int64_t>(c.ints.size())};
    bind(0, constant_value(std::move(c)));
    return true;
  }
  if (op == "Gather") {
    if (x.dims.size() != 1 || fixed(1).is_real) return false;
    integers positions = ints(1);
    for (std::int64_t& p : positions) p = p < 0 ? p + static_cast<std::int64_t>(x.size()) : p;
    fold_index(x, positions, fixed(1).dims);
    return true;
  }
  if (op == "Transpose") {
    integers order(x.dims.size());
    std::iota(order.rbegin(), order.rend(), 0);
    if (const onnx_attribute* const a = attribute("perm")) order = a->ints;
    integers dims, steps(x.dims.size(), 1);
    if (order.size() != x.dims.size()) refuse("has a perm of another length than its input's");
    for (std::size_t d = x.dims.size(); d-- > 1;) steps[d - 1] = steps[d] * x.dims[d];
    std::vector<bool> met(order.size(), false);
    for (std::int64_t o : order) {
      if (o < 0 || at(o) >= order.size() || met[at(o)]) refuse("has a perm that is none");
      met[at(o)] = true;
      dims.push_back(x.dims[at(o)]);
    }
    integers positions(x.size()), index(order.size(), 0);
    for (std::int64_t& p : positions) {
      p = 0;
      for (std::size_t d = 0; d < order.size(); ++d) p += index[d] * steps[at(order[d])];
      for (std::size_t d = order.size(); d-- > 0;) {
        if (++index[d] < dims[d]) break;
        index[d] = 0;
      }
    }
    fold_index(x, positions, dims);
    return true;
  }
  if (op == "Slice" || op == "Split") {
    if (x.dims.empty()) return false;
    const auto size = static_cast<std::int64_t>(x.size());
    if (op == "Split") {
      const auto axes = axis_of(integer("axis", 0), static_cast<std::int64_t>(x.dims.size()));
      if (axes != 0 || x.dims[0] == 0) return false;
      const std::int64_t row = size / x.dims[0];
      integers parts =
          list("split", 1)
              .value_or(integers(node_->outputs.size(),
                                 x.dims[0] / static_cast<std::int64_t>(node_->outputs.size())));
      std::int64_t first = 0;
      for (std::size_t o = 0; o < node_->outputs.size() && o < parts.size(); ++o) {
        if (parts[o] < 0 || parts[o] > x.dims[0] - first) refuse("has parts that do not fit");
        constant c;
        c.is_real = x.is_real, c.is_double = x.is_double, c.dims = x.dims, c.dims[0] = parts[o];
        c.name = x.name;
        if (x.is_real)
          c.reals.assign(x.reals.begin() + first * row, x.reals.begin() + (first + parts[o]) * row);
        else
          c.ints.assign(x.ints.begin() + first * row, x.ints.begin() + (first + parts[o]) * row);
        first += parts[o];
        bind(o, constant_value(std::move(c)));
      }
      return true;
    }
    // Along the first dimension, forwards or backwards.
    if (!has(2) || (has(3) ? ints(3).size() != 1 ||
                                 axis_of(whole(3), static_cast<std::int64_t>(x.dims.size())) != 0
                           : x.dims.size() != 1))
      return false;
    const std::int64_t step = has(4) ? whole(4) : 1, rows = x.dims[0];
    if (step != 1 && step != -1) return false;
    const auto clamp = [&](std::int64_t i) {
      return step > 0 ? std::clamp(i < 0 ? i + rows : i, std::int64_t{0}, rows)
                      : std::clamp(i < 0 ? i + rows : i, std::int64_t{-1}, rows - 1);
    };
    integers positions, dims = x.dims;
    const std::int64_t row = rows == 0 ? 0 : size / rows, end = clamp(whole(2));
    dims[0] = 0;
    for (std::int64_t i = clamp(whole(1)); step > 0 ? i < end : i > end; i += step, ++dims[0])
      for (std::int64_t k = 0; k < row; ++k) positions.push_back(i * row + k);
    fold_index(x, positions, dims);
    return true;
  }
  if (op == "Reshape") {
    constant c = x;
    c.dims = ints(1);
    std::int64_t found = -1, known = 1;
    for (std::size_t d = 0; d < c.dims.size(); ++d) {
      if (c.dims[d] == 0 && d < x.dims.size()) c.dims[d] = x.dims[d];
      if (c.dims[d] == -1)
        found = static_cast<std::int64_t>(d);
      else if (c.dims[d] < 0 || c.dims[d] > limit || (c.dims[d] > 0 && known > limit / c.dims[d]))
        refuse("makes a shape that is none");
      else
        known *= c.dims[d];
    }
    const auto size = static_cast<std::int64_t>(x.size());
    if (found >= 0) c.dims[at(found)] = known == 0 ? 0 : size / known;
    if (found >= 0 ? known == 0 || size % known != 0 : known != size)
      refuse("makes a shape of another number of elements");
    bind(0, constant_value(std::move(c)));
    return true;
  }
  if (op == "ConstantOfShape") {
    const onnx_attribute* const a = attribute("value");
    if (a == nullptr || a->tensors.empty()) return false;
    constant c = constant_of(a->tensors[0]);
    if (c.is_real || c.size() != 1) return false;
    std::int64_t n = 1;
    for (std::int64_t d : ints(0)) {
      if (d < 0 || d > 1'000'000 || n * d > 1'000'000) return false;
      n *= d;
    }
    c.dims = ints(0);
    c.ints.assign(at(n), c.ints[0]);
    bind(0, constant_value(std::move(c)));
    return true;
  }
  if (op == "Range") {
    if (x.is_real) return false;
    const std::int64_t first = whole(0), end = whole(1), step = whole(2);
    if (step == 0 || is_large(first) || is_large(end) || is_large(step) ||
        (end - first) / step > 1'000'000)
      refuse("has a range that is too long");
    constant c;
    for (std::int64_t i = first; step > 0 ? i < end : i > end; i += step) c.ints.push_back(i);
    c.dims = {static_cast<std::int64_t>(c.ints.size())};
    bind(0, constant_value(std::move(c)));
    return true;
  }
  if ((op == "Add" || op == "Sub" || op == "Mul" || op == "Div") && !x.is_real &&
      !fixed(1).is_real && (x.size() == 1 || fixed(1).size() == 1 || x.size() == fixed(1).size())) {
    constant c;
    const constant& y = fixed(1);
    const std::size_t n = std::max(x.size(), y.size());
    if (x.size() == 0 || y.size() == 0) return false;
    for (std::size_t i = 0; i < n; ++i) {
      const std::int64_t a = x.ints[x.size() == 1 ? 0 : i], b = y.ints[y.size() == 1 ? 0 : i];
      if (a == unknown || b == unknown || is_large(a) || is_large(b) || (op == "Div" && b == 0) ||
          (op == "Mul" && a != 0 && std::abs(b) > limit / std::abs(a)))
        c.ints.push_back(unknown);
      else
        c.ints.push_back(op == "Add" ? a + b : op == "Sub" ? a - b : op == "Mul" ? a * b : a / b);
    }
    c.dims = x.size() >= y.size() ? x.dims : y.dims;
    bind(0, constant_value(std::move(c)));
    return true;
  }
  return fold_elementwise();
}

/// Arithmetic and comparisons of constants, as a mask is made.
inline bool translator::fold_elementwise() {
  struct operation {
    std::string_view op;
    double (*f)(double, double);
    bool compares;
  };
  static constexpr operation all[]{
      {"Add", [](double a, double b) { return a + b; }, false},
      {"Sub", [](double a, double b) { return a - b; }, false},
      {"Mul", [](double a, double b) { return a * b; }, false},
      {"Div", [](double a, double b) { return a / b; }, false},
      {"Equal", [](double a, double b) { return a == b ? 1.0 : 0.0; }, true},
      {"Less", [](double a, double b) { return a < b ? 1.0 : 0.0; }, true},
      {"LessOrEqual", [](double a, double b) { return a <= b ? 1.0 : 0.0; }, true},
      {"Greater", [](double a, double b) { return a > b ? 1.0 : 0.0; }, true},
      {"GreaterOrEqual", [](double a, double b) { return a >= b ? 1.0 : 0.0; }, true}};
  const bool chooses = node_->op == "Where";
  const auto* const found = std::find_if(std::begin(all), std::end(all),
                                         [&](const operation& o) { return o.op == node_->op; });
  const std::size_t operands = chooses ? 3 : 2;
  if ((!chooses && found == std::end(all)) || node_->inputs.size() != operands) return false;
  std::optional<integers> dims = integers{};
  for (std::size_t i = 0; i < operands; ++i) {
    const constant& x = fixed(i);
    if (x.is_real != !(chooses && i == 0)) return false;
    if (std::find(x.ints.begin(), x.ints.end(), unknown) != x.ints.end() && !x.is_real)
      return false;
    dims = broadcast(dims, x.dims);
  }
  std::int64_t size = 1;
  for (std::int64_t d : *dims) {
    if (d < 0 || d > 1'000'000 || size * d > 1'000'000) return false;
    size *= d;
  }
  for (std::size_t i = 0; i < operands; ++i)
    for (std::size_t d = 0; d < fixed(i).dims.size(); ++d)
      if (const std::int64_t own = fixed(i).dims[d];
          own != 1 && own != (*dims)[dims->size() - fixed(i).dims.size() + d])
        refuse("reads constants whose extents do not fit");
  /// Element k of the result's extents.
  const auto element = [&](std::size_t i, std::int64_t k) {
    const constant& x = fixed(i);
    std::size_t position = 0, step = 1;
    for (std::size_t d = dims->size(); d-- > 0; k /= std::max<std::int64_t>((*dims)[d], 1)) {
      const std::size_t before = dims->size() - x.dims.size();
      if (d < before) break;
      const std::int64_t own = x.dims[d - before];
      if (own != 1) position += step * at(k % own);
      step *= at(own);
    }
    return x.is_real ? x.reals[position] : static_cast<double>(x.ints[position]);
  };
  constant c;
  c.is_real = chooses || !found->compares;
  c.is_double = fixed(chooses ? 1 : 0).is_double;
  c.dims = *dims;
  for (std::int64_t k = 0; k < size; ++k) {
    const double y =
        chooses ? element(element(0, k) != 0 ? 1 : 2, k) : found->f(element(0, k), element(1, k));
    if (!c.is_real)
      c.ints.push_back(y != 0);
    else
      c.reals.push_back(c.is_double ? y : double{static_cast<float>(y)});
  }
  bind(0, constant_value(std::move(c)));
  return true;
}

inline void translator::constant_of_shape() {
  value v;
  double fill = 0;
  if (const onnx_attribute* const a = attribute("value"); a != nullptr && !a->tensors.empty()) {
    const constant c = constant_of(a->tensors[0]);
    if (c.size() == 1) fill = c.is_real ? c.reals[0] : static_cast<double>(c.ints[0]);
  }
  if (fill != 0) refuse("fills with another number than 0, which is not translated");
  v.dims = ints(0);
  v.is_zero = true;
  bind(0, std::move(v));
}

// ---- products ----

inline void translator::linear(const std::string& x, const constant& w, bool transposed,
                               std::optional<integers> out, const constant* bias) {
  if (w.dims.size() != 2 || !w.is_real) refuse("needs weights of 2 dimensions");
  const std::int64_t rows = w.dims[transposed ? 0 : 1], columns = w.dims[transposed ? 1 : 0];
  const std::string name = module_name(w.name, "linear");
  std::vector<double> weights = w.reals;
  if (!transposed)
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c)
        weights[at(r * columns + c)] = w.reals[at(c * rows + r)];
  weight(name + ".weight", w.is_double, weights, {rows, columns});
  if (bias != nullptr) weight(name + ".bias", *bias, {rows});
  const std::string type = "ike::linear<" + std::to_string(columns) + ", " + std::to_string(rows);
  make(named(name, type + (bias == nullptr ? ", ike::bias<false>>{}" : ">{}"), x), std::move(out));
  if (bias == nullptr) values_[node_->outputs[0]].line = lines_.size();
}

inline void translator::gemm() {
  if (real("alpha", 1) != 1 || real("beta", 1) != 1 || integer("transA", 0) != 0)
    refuse("has an alpha, beta or transA, which is not translated");
  const constant& w = fixed(1);
  const bool transposed = integer("transB", 0) != 0;
  std::optional<integers> out;
  if (w.dims.size() != 2) refuse("needs weights of 2 dimensions");
  out = integers{in().dims && !in().dims->empty() ? (*in().dims)[0] : unknown,
                 w.dims[transposed ? 0 : 1]};
  if (has(2) && in(2).fixed && fixed(2).dims != integers{(*out)[1]})
    refuse("needs a bias of one dimension");
  linear(code(), w, transposed, out, has(2) ? &fixed(2) : nullptr);
}

inline void translator::matmul() {
  if (in(1).fixed && in(1).fixed->dims.size() == 2) {
    std::optional<integers> out = in().dims;
    if (out && !out->empty()) out->back() = fixed(1).dims[1];
    return linear(code(), fixed(1), false, out, nullptr);
  }
  std::optional<integers> out;
  if (in(0).dims && in(1).dims && rank(0) >= 2 && rank(1) >= 2) {
    integers a = dims(0), b = dims(1);
    const std::int64_t row = a[a.size() - 2], column = b.back();
    a.resize(a.size() - 2), b.resize(b.size() - 2);
    out = broadcast(a, b);
    out->push_back(row), out->push_back(column);
  }
  const std::string a = code(0);
  make("ike::matmul(" + a + ", " + code(1) + ")", out);
}

inline void translator::einsum() {
  const std::string equation = text("equation", "");
  for (char c : equation)
    if (std::isalpha(static_cast<unsigned char>(c)) == 0 && c != ',' && c != '-' && c != '>' &&
        c != ' ')
      refuse("has an equation with other signs than letters");
  const std::string a = code(0);
  make("ike::einsum<\"" + equation + "\">(" + a + ", " + code(1) + ")", einsum_dims(equation));
}

/// Those of the result, each that of a dimension with its letter; none if one is not known.
inline std::optional<integers> translator::einsum_dims(std::string equation) {
  std::erase(equation, ' ');
  const std::size_t comma = equation.find(','), arrow = equation.find("->");
  if (arrow == equation.npos || comma > arrow) return std::nullopt;
  const std::string terms[]{equation.substr(0, comma),
                            equation.substr(comma + 1, arrow - comma - 1)};
  for (std::size_t i = 0; i < 2; ++i)
    if (!in(i).dims || in(i).dims->size() != terms[i].size()) return std::nullopt;
  integers out;
  for (const char letter : equation.substr(arrow + 2)) {
    std::int64_t extent = unknown;
    bool is_found = false;
    for (std::size_t i = 0; i < 2; ++i)
      if (const std::size_t d = terms[i].find(letter); d != std::string::npos) {
        is_found = true;
        if (extent == unknown) extent = (*in(i).dims)[d];
      }
    if (!is_found) return std::nullopt;
    out.push_back(extent);
  }
  return out;
}

/// What is added to each side of a window's input: Keras leaves it to auto_pad.
inline integers translator::pads_of(const integers& kernel, bool dilates) {
  const std::size_t n = kernel.size();
  const std::string how = text("auto_pad", "NOTSET");
  if (how == "NOTSET") return sized("pads", 2 * n, 0);
  integers pads(2 * n, 0);
  if (how == "VALID") return pads;
  if ((how != "SAME_UPPER" && how != "SAME_LOWER") || at(rank()) != n + 2)
    refuse("has an auto_pad of " + masked(how));
  const integers strides = sized("strides", n, 1);
  const integers dilation = dilates ? sized("dilations", n, 1) : integers(n, 1);
  for (std::size_t d = 0; d < n; ++d) {
    const std::int64_t extent = dims()[d + 2], reach = dilation[d] * (kernel[d] - 1) + 1;
    if (strides[d] < 1 || (extent == unknown && strides[d] > 1))
      refuse("has an auto_pad of an extent that is not known");
    const std::int64_t rest = strides[d] == 1 ? 1 : (extent + strides[d] - 1) % strides[d] + 1;
    const std::int64_t sum = std::max(std::int64_t{0}, reach - rest);
    pads[d] = how == "SAME_UPPER" ? sum / 2 : sum - sum / 2;
    pads[n + d] = sum - pads[d];
  }
  return pads;
}

inline std::string translator::padded_input(std::size_t n, integers& pads, double fill) {
  bool symmetric = true;
  for (std::size_t d = 0; d < n; ++d) symmetric = symmetric && pads[d] == pads[n + d];
  if (symmetric) return code();
  std::string sides;
  for (std::size_t d = n; d-- > 0;)
    sides +=
        (sides.empty() ? "" : ", ") + std::to_string(pads[d]) + ", " + std::to_string(pads[n + d]);
  pads.assign(2 * n, 0);
  const std::string padded = variable();
  lines_.push_back("auto " + padded + " = ike::pad<" + sides + ">(" + code() + ", " + number(fill) +
                   ");");
  return padded;
}

inline std::string translator::window(std::size_t n, const integers& kernel, const integers& pads,
                                      bool dilates) {
  std::string s = option("kernel", kernel, 0).substr(2);
  // In ours, the strides of a pool default to the kernel.
  const bool is_pool = attribute("kernel_shape") != nullptr && node_->op.ends_with("Pool");
  s += option("stride", sized("strides", n, 1), is_pool ? 0 : 1);
  s += option("padding", integers(pads.begin(), pads.begin() + static_cast<std::ptrdiff_t>(n)), 0);
  if (dilates) s += option("dilation", sized("dilations", n, 1), 1);
  return s;
}

inline void translator::conv() {
  const constant& w = fixed(1);
  if (w.dims.size() < 3 || w.dims.size() > 5 || !w.is_real)
    refuse("needs weights of 3 to 5 dimensions");
  const std::size_t n = w.dims.size() - 2;
  const integers kernel(w.dims.begin() + 2, w.dims.end());
  for (std::int64_t k : kernel)
    if (k < 1 || k > 1'000'000) refuse("has a kernel of " + std::to_string(k));
  integers pads = pads_of(kernel, true);
  const std::int64_t groups = integer("group", 1);
  if (groups < 1 || groups > w.dims[0] || w.dims[0] % groups != 0)
    refuse("has a group that is none");
  const std::optional<integers> out = windowed(n, w.dims[0], kernel, pads, true, false);
  const std::string x = padded_input(n, pads, 0);
  const std::string name = module_name(w.name, "conv");
  weight(name + ".weight", w, w.dims);
  if (has(2)) weight(name + ".bias", fixed(2), {w.dims[0]});
  make(named(name,
             "ike::conv" + std::to_string(n) + "d<" + std::to_string(times(w.dims[1], groups)) +
                 ", " + std::to_string(w.dims[0]) + ", " + window(n, kernel, pads, true) +
                 option("groups", {groups}, 1) + (has(2) ? "" : ", ike::bias<false>") + ">{}",
             x),
       out);
}

inline void translator::conv_transpose() {
  const constant& w = fixed(1);
  if (w.dims.size() < 3 || w.dims.size() > 5 || !w.is_real)
    refuse("needs weights of 3 to 5 dimensions");
  if (attribute("output_shape") != nullptr) refuse("has an output_shape, which is not translated");
  const std::size_t n = w.dims.size() - 2;
  const integers kernel(w.dims.begin() + 2, w.dims.end());
  for (std::int64_t k : kernel)
    if (k < 1 || k > 1'000'000) refuse("has a kernel of " + std::to_string(k));
  if (text("auto_pad", "NOTSET") != "NOTSET") refuse("has an auto_pad, which is not translated");
  integers pads = sized("pads", 2 * n, 0);
  for (std::size_t d = 0; d < n; ++d)
    if (pads[d] != pads[n + d]) refuse("has pads that differ from side to side");
  const std::int64_t groups = integer("group", 1);
  if (groups < 1 || groups > (std::int64_t{1} << 20)) refuse("has a group that is none");
  const std::int64_t channels = times(w.dims[1], groups);
  const integers stride = sized("strides", n, 1), dilation = sized("dilations", n, 1),
                 more = sized("output_padding", n, 0);
  std::optional<integers> out;
  if (in().dims && at(rank()) == n + 2) {
    out = integers{dims()[0], channels};
    for (std::size_t d = 0; d < n; ++d)
      out->push_back(dims()[d + 2] == unknown
                         ? unknown
                         : times(std::max(dims()[d + 2], std::int64_t{1}) - 1, stride[d]) -
                               2 * pads[d] + dilation[d] * (kernel[d] - 1) + more[d] + 1);
  }
  const std::string name = module_name(w.name, "conv_transpose"), x = padded_input(n, pads, 0);
  weight(name + ".weight", w, w.dims);
  if (has(2)) weight(name + ".bias", fixed(2), {channels});
  make(named(name,
             "ike::conv_transpose" + std::to_string(n) + "d<" + std::to_string(w.dims[0]) + ", " +
                 std::to_string(channels) + ", " + window(n, kernel, pads, true) +
                 option("output_padding", more, 0) + option("groups", {groups}, 1) +
                 (has(2) ? "" : ", ike::bias<false>") + ">{}",
             x),
       out);
}

inline void translator::pool() {
  const onnx_attribute* const a = attribute("kernel_shape");
  const std::size_t n = a == nullptr ? 0 : a->ints.size();
  if (n < 1 || n > 3) refuse("has a window that has not 1 to 3 dimensions");
  if (node_->outputs.size() > 1 && !node_->outputs[1].empty())
    refuse("has indices as an output, which are not translated");
  if (in().dims && at(rank()) != n + 2) refuse("has an input that has not the window's dimensions");
  const integers kernel = sized("kernel_shape", n, 1);
  const bool is_max = node_->op == "MaxPool", is_lp = node_->op == "LpPool",
             ceils = integer("ceil_mode", 0) != 0;
  integers pads = pads_of(kernel, is_max);
  const std::optional<integers> out =
      windowed(n, in().dims ? dims()[1] : unknown, kernel, pads, is_max, ceils);
  const bool counts = integer("count_include_pad", 0) != 0;
  if (!is_max && !is_lp && !counts)
    for (std::size_t d = 0; d < n; ++d)
      if (pads[d] != pads[n + d]) refuse("has pads that differ from side to side");
  const std::string x =
      padded_input(n, pads, is_max ? -std::numeric_limits<double>::infinity() : 0);
  std::string type = std::string(is_max  ? "ike::max_pool"
                                 : is_lp ? "ike::lp_pool"
                                         : "ike::avg_pool") +
                     std::to_string(n) + "d<" + window(n, kernel, pads, is_max);
  if (ceils) type += ", ike::ceil_mode<true>";
  if (!is_max && !is_lp && !counts &&
      std::any_of(pads.begin(), pads.end(), [](std::int64_t p) { return p != 0; }))
    type += ", ike::count_include_pad<false>";
  make(type + ">{" + (is_lp ? number(static_cast<double>(integer("p", 2))) : "") + "}(" + x + ")",
       out);
}

inline void translator::global_pool() {
  const std::int64_t n = rank() - 2;
  if (n < 1 || n > 3) refuse("has an input that has not 3 to 5 dimensions");
  integers out = dims();
  std::fill(out.begin() + 2, out.end(), 1);
  make(std::string(node_->op == "GlobalMaxPool" ? "ike::adaptive_max_pool"
                                                : "ike::adaptive_avg_pool") +
           std::to_string(n) + "d<ike::output_size<1>>{}(" + code() + ")",
       out);
}

// ---- norms ----

inline void translator::batch_norm() {
  const std::int64_t n = rank();
  if (n < 2 || n > 5) refuse("has an input that has not 2 to 5 dimensions");
  const constant& scale = fixed(1);
  const integers channels{static_cast<std::int64_t>(scale.size())};
  const std::string name = module_name(scale.name, "bn");
  static constexpr const char* parts[]{"", ".weight", ".bias", ".running_mean", ".running_var"};
  for (std::size_t i = 1; i < 5; ++i) weight(name + parts[i], fixed(i), channels);
  make(named(name,
             "ike::batch_norm" + std::to_string(n == 2 ? 1 : n - 2) + "d<" + comma(channels) +
                 ">{" + number(real("epsilon", 1e-5)) + "}",
             code()),
       dims());
}

inline void translator::instance_norm() {
  const std::int64_t n = rank() - 2;
  if (n < 1 || n > 3) refuse("has an input that has not 3 to 5 dimensions");
  const constant& scale = fixed(1);
  const integers channels{static_cast<std::int64_t>(scale.size())};
  const std::string name = module_name(scale.name, "instance_norm");
  weight(name + ".weight", scale, channels);
  weight(name + ".bias", fixed(2), channels);
  make(named(name,
             "ike::instance_norm" + std::to_string(n) + "d<" + comma(channels) +
                 ", ike::affine<true>>{" + number(real("epsilon", 1e-5)) + "}",
             code()),
       dims());
}

inline void translator::layer_norm() {
  const constant& scale = fixed(1);
  const std::string name = module_name(scale.name, "layer_norm");
  weight(name + ".weight", scale, scale.dims);
  if (has(2)) weight(name + ".bias", fixed(2), scale.dims);
  make(named(name,
             "ike::layer_norm<" + shape_of(scale.dims) + (has(2) ? "" : ", ike::bias<false>") +
                 ">{" + number(real("epsilon", 1e-5)) + "}",
             code()),
       in().dims);
}

inline void translator::local_response_norm() {
  make("ike::local_response_norm<" + std::to_string(integer("size", 1)) + ">{" +
           number(real("alpha", 1e-4)) + ", " + number(real("beta", 0.75)) + ", " +
           number(real("bias", 1)) + "}(" + code() + ")",
       in().dims);
}

// ---- element by element ----

inline void translator::activation() {
  const std::string& op = node_->op;
  struct named {
    std::string_view op, code;
  };
  static constexpr named plain[]{{"Relu", "ike::relu{}("},
                                 {"Tanh", "ike::tanh{}("},
                                 {"Sigmoid", "ike::sigmoid{}("},
                                 {"Softplus", "ike::softplus{}("},
                                 {"Softsign", "ike::softsign{}("},
                                 {"Selu", "ike::selu{}("},
                                 {"HardSwish", "ike::hardswish{}("},
                                 {"Mish", "ike::mish{}("},
                                 {"Neg", "-("},
                                 {"Exp", "ike::exp("},
                                 {"Log", "ike::log("},
                                 {"Sqrt", "ike::sqrt("},
                                 {"Abs", "ike::abs("},
                                 {"Sign", "ike::sign("},
                                 {"Erf", "ike::erf("},
                                 {"Reciprocal", "ike::reciprocal("}};
  for (const named& n : plain)
    if (n.op == op) return unary(std::string(n.code));
  const double alpha = real("alpha", op == "LeakyRelu" ? 0.01 : op == "HardSigmoid" ? 0.2 : 1);
  if (op == "HardSigmoid") {
    const double beta = real("beta", 0.5);
    if (std::abs(alpha - 1.0 / 6) < 1e-6 && beta == 0.5) return unary("ike::hard_sigmoid{}(");
    return unary("ike::clamp(" + number(alpha) + " * ", " + " + number(beta) + ", 0, 1)");
  }
  unary(std::string(op == "LeakyRelu" ? "ike::leaky_relu{"
                    : op == "Elu"     ? "ike::elu{"
                                      : "ike::celu{") +
        number(alpha) + "}(");
}

inline void translator::clip() {
  double low = -std::numeric_limits<double>::infinity(), high = -low;
  const auto read = [&](std::size_t i, double& to) {
    if (!has(i)) return;
    if (!fixed(i).is_real || fixed(i).size() != 1) refuse("needs one number as a limit");
    to = fixed(i).reals[0];
  };
  read(1, low), read(2, high);
  unary("ike::clamp(", ", " + number(low) + ", " + number(high) + ")");
}

inline void translator::shrink() {
  const double bias = real("bias", 0), lambda = real("lambd", 0.5);
  if (bias != 0 && bias != lambda) refuse("has a bias that is neither 0 nor lambd");
  unary(std::string(bias == 0 ? "ike::hardshrink{" : "ike::softshrink{") + number(lambda) + "}(");
}

inline void translator::prelu() {
  const constant& slope = fixed(1);
  const std::string name = module_name(slope.name, "prelu");
  const auto n = static_cast<std::int64_t>(slope.size());
  const std::int64_t first = slope.dims.empty() ? 1 : slope.dims[0];
  if (n < 1 || (n != 1 && first != n && (slope.dims.size() < 2 || slope.dims[1] != n)))
    refuse("has slopes that are not one, or one for each channel");
  weight(name + ".weight", slope, {n});
  make(named(name, "ike::prelu<" + std::to_string(n) + ">{}", code()), in().dims);
}

inline void translator::softmax() {
  if (model_.opset < 13 && model_.opset != 0) refuse("of an opset before 13 is not translated");
  make("ike::" + std::string(node_->op == "Softmax" ? "softmax" : "log_softmax") + "<ike::dim<" +
           std::to_string(integer("axis", -1)) + ">>{}(" + code() + ")",
       in().dims);
}

inline void translator::arithmetic() {
  struct named {
    std::string_view op, sign;
    bool is_function;
  };
  static constexpr named all[]{
      {"Add", " + ", false},          {"Sub", " - ", false},     {"Mul", " * ", false},
      {"Div", " / ", false},          {"Pow", "ike::pow", true}, {"Min", "ike::minimum", true},
      {"Max", "ike::maximum", true},  {"Equal", " == ", false},  {"Less", " < ", false},
      {"LessOrEqual", " <= ", false}, {"Greater", " > ", false}, {"GreaterOrEqual", " >= ", false}};
  if (node_->inputs.size() != 2) refuse("has not two inputs");
  if (node_->op == "Add")
    for (std::size_t i = 0; i < 2; ++i) {
      // The bias of a linear module that nothing else reads.
      const value& x = in(i);
      const value& b = in(1 - i);
      if (x.line == 0 || !b.fixed || uses_[node_->inputs[i]] != 1 || !b.fixed->is_real) continue;
      std::string& line = lines_[x.line - 1];
      constexpr std::string_view without = ", ike::bias<false>>{}";
      const std::size_t cut = line.find(without);
      if (cut == line.npos || !x.dims || b.fixed->dims != integers{x.dims->back()}) continue;
      line.replace(cut, without.size(), ">{}");
      const std::size_t begin = line.find('"') + 1;
      weight(line.substr(begin, line.find('"', begin) - begin) + ".bias", *b.fixed, b.fixed->dims);
      value v = x;
      v.line = 0;
      return bind(0, std::move(v));
    }
  for (const named& n : all) {
    if (n.op != node_->op) continue;
    if (in(0).fixed && in(1).fixed) refuse("reads constants alone");
    if ((n.op == "Mul" && node_->inputs[0] == node_->inputs[1]) ||
        (n.op == "Pow" && !in(0).fixed && in(1).fixed && operand(1) == "2"))
      return unary("ike::square(");
    const std::string a = operand(0), b = operand(1);
    const std::string sign(n.sign);
    return make(n.is_function ? sign + "(" + a + ", " + b + ")" : a + sign + b,
                broadcast(in(0).dims, in(1).dims));
  }
}

inline void translator::where() {
  const std::string c = code(0), a = operand(1);
  make("ike::where(" + c + ", " + a + ", " + operand(2) + ")",
       broadcast(broadcast(in(0).dims, in(1).dims), in(2).dims));
}

// ---- shapes ----

inline void translator::flatten() {
  const std::int64_t axis = integer("axis", 1);
  if (axis != 1) refuse("has another axis than 1");
  std::optional<integers> out;
  if (in().dims && !dims().empty()) {
    std::int64_t rest = 1;
    for (std::size_t d = 1; d < dims().size(); ++d) rest = times(rest, dims()[d]);
    out = integers{dims()[0], rest};
  }
  make("ike::flatten<>{}(" + code() + ")", out);
}

inline void translator::reshape_to(const integers& given) {
  integers to = given;
  int open = 0;
  std::int64_t known = 1, of_input = 1, unknowns = 0;
  for (std::size_t d = 0; d < to.size(); ++d) {
    if (to[d] == 0 && integer("allowzero", 0) == 0) to[d] = at(rank()) > d ? dims()[d] : unknown;
    if (to[d] < -1 && to[d] != unknown) refuse("makes a shape that is none");
    if (to[d] > 0 && known > limit / to[d]) refuse("makes a shape that is none");
    if (to[d] >= 0) known *= to[d];
  }
  if (in().dims)
    for (std::int64_t d : dims()) {
      if (d > 0 && of_input > limit / d) refuse("has an input that is too large");
      unknowns += d == unknown;
      of_input *= d == unknown ? 1 : d;
    }
  std::int64_t unknown_outputs = 0;
  for (std::int64_t d : to) unknown_outputs += d == unknown;
  // -1 is what is left if the unknown extents are the same on both sides.
  for (std::int64_t& d : to)
    if (d == -1)
      d = in().dims && unknowns == unknown_outputs && known > 0 && of_input % known == 0
              ? of_input / known
              : unknown;
  for (std::int64_t d : to) open += d == unknown;
  if (open > 1) refuse("makes a shape with more than one extent that is not known");
  make("ike::reshape<" + comma(to) + ">(" + code() + ")", to);
}

/// Whether a reshape of [L, N, directions, H] to these extents joins the directions, as ours does.
inline bool translator::is_joined(const value& x, const integers& to) const {
  const integers joined{x.dims ? (*x.dims)[0] : unknown, x.dims ? (*x.dims)[1] : unknown,
                        x.directions * x.hidden};
  if (to.size() != joined.size()) return false;
  std::int64_t rest = 0;
  for (std::size_t d = 0; d < to.size(); ++d) {
    rest += to[d] == -1;
    if (to[d] == 0 ? d == 2 || integer("allowzero", 0) != 0 : to[d] != -1 && to[d] != joined[d])
      return false;
  }
  return rest <= 1;
}

inline void translator::reshape() {
  value& x = in();
  if (x.layout == value::transposed && is_joined(x, ints(1))) {
    value y = x;
    y.layout = value::plain;
    return bind(0, std::move(y));
  }
  settle(x);
  reshape_to(ints(1));
}

inline void translator::squeeze() {
  const std::optional<integers> axes = list("axes", 1);
  if (!axes) refuse("has no axes");
  value& x = in();
  if (x.layout == value::stacked && x.directions == 1 && *axes == integers{1}) {
    value y = x;
    y.layout = value::plain;
    return bind(0, std::move(y));
  }
  settle(x);
  std::optional<integers> out;
  if (x.dims) {
    out = integers{};
    for (std::size_t d = 0; d < x.dims->size(); ++d) {
      bool taken = false;
      for (std::int64_t a : *axes) taken = taken || at(axis_of(a, rank())) == d;
      if (!taken) out->push_back(dims()[d]);
    }
  }
  make("ike::squeeze<" + comma(*axes) + ">(" + code() + ")", out);
}

inline void translator::unsqueeze() {
  const std::optional<integers> axes = list("axes", 1);
  if (!axes) refuse("has no axes");
  std::optional<integers> out;
  if (in().dims) {
    out = dims();
    const auto all = rank() + static_cast<std::int64_t>(axes->size());
    integers sorted;
    for (std::int64_t a : *axes) sorted.push_back(axis_of(a, all));
    std::sort(sorted.begin(), sorted.end());
    for (std::int64_t a : sorted) {
      if (at(a) > out->size()) refuse("has an axis of " + std::to_string(a));
      out->insert(out->begin() + a, 1);
    }
  }
  if (in().is_zero) {
    value v = in();
    v.dims = out;
    return bind(0, std::move(v));
  }
  make("ike::unsqueeze<" + comma(*axes) + ">(" + code() + ")", out);
}

inline void translator::transpose() {
  const onnx_attribute* const a = attribute("perm");
  value& x = in();
  if (a == nullptr) refuse("has no perm");
  if (x.layout == value::stacked && a->ints == integers{0, 2, 1, 3}) {
    value y = x;
    y.layout = value::transposed;
    return bind(0, std::move(y));
  }
  settle(x);
  std::optional<integers> out;
  if (x.dims) {
    out = integers{};
    if (a->ints.size() != x.dims->size()) refuse("has a perm of another length than its input's");
    for (std::int64_t p : a->ints) out->push_back(dims()[at(axis_of(p, rank()))]);
  }
  make("ike::permute<" + comma(a->ints) + ">(" + code() + ")", out);
}

inline void translator::concat() {
  const std::size_t n = node_->inputs.size();
  if (n == 0 || n > 8) refuse("has not 1 to 8 inputs");
  bool is_zero = true;
  for (std::size_t i = 0; i < n; ++i) is_zero = in(i).is_zero && is_zero;
  if (is_zero) {
    value v = in();
    v.dims.reset();
    return bind(0, std::move(v));
  }
  std::string x;
  std::optional<integers> out = in().dims;
  std::int64_t along = integer("axis", 0);
  for (std::size_t i = 0; i < n; ++i) {
    x += (i == 0 ? "" : ", ") + code(i);
    if (!out || !in(i).dims || in(i).dims->size() != out->size()) {
      out.reset();
      continue;
    }
    const std::size_t d = at(axis_of(along, static_cast<std::int64_t>(out->size())));
    if (i > 0)
      (*out)[d] = (*out)[d] == unknown || dims(i)[d] == unknown ? unknown : (*out)[d] + dims(i)[d];
  }
  make("ike::concat<ike::dim<" + std::to_string(along) + ">>{}(" + x + ")", out);
}

inline void translator::split() {
  const std::size_t d = axis("axis", 0);
  const std::size_t parts = node_->outputs.size();
  std::optional<integers> sizes = list("split", 1);
  if (!sizes) {
    if (dims()[d] == unknown || parts == 0 || dims()[d] % static_cast<std::int64_t>(parts) != 0)
      refuse("has parts whose extents are not known");
    sizes = integers(parts, dims()[d] / static_cast<std::int64_t>(parts));
  }
  if (sizes->size() != parts) refuse("has other outputs than parts");
  std::int64_t first = 0;
  const std::string x = code();
  const integers whole_dims = dims();
  for (std::size_t i = 0; i < parts; ++i) {
    const std::int64_t n = (*sizes)[i];
    if (n < 0 || n > limit - first) refuse("has parts that do not fit");
    value v;
    v.code = variable();
    v.dims = whole_dims;
    (*v.dims)[d] = n;
    if (!node_->outputs[i].empty() && uses_.contains(node_->outputs[i]))
      lines_.push_back("auto " + v.code + " = ike::narrow<" + std::to_string(d) + ">(" + x + ", " +
                       std::to_string(first) + ", " + std::to_string(n) + ");");
    first += n;
    bind(i, std::move(v));
  }
}

inline void translator::slice() {
  if (in().is_zero) {
    value v = in();
    v.dims.reset();
    return bind(0, std::move(v));
  }
  const integers first = ints(1), last = ints(2);
  integers axes(first.size()), steps(first.size(), 1);
  std::iota(axes.begin(), axes.end(), 0);
  if (has(3)) axes = ints(3);
  if (has(4)) steps = ints(4);
  if (last.size() != first.size() || axes.size() != first.size() || steps.size() != first.size())
    refuse("has starts, ends, axes and steps of different lengths");
  std::string x = code();
  std::optional<integers> out = in().dims;
  for (std::size_t i = 0; i < first.size(); ++i) {
    const std::int64_t a = out ? axis_of(axes[i], static_cast<std::int64_t>(out->size())) : axes[i];
    if (first[i] == unknown || last[i] == unknown) refuse("has limits that are not known");
    if (steps[i] == -1 && first[i] == -1 && last[i] < -(std::int64_t{1} << 30)) {
      x = "ike::flip<" + std::to_string(a) + ">(" + x + ")";
      continue;
    }
    if (steps[i] < 1) refuse("has a step below 1");
    const std::int64_t end = std::clamp(last[i], -limit, limit),
                       begin = std::clamp(first[i], -limit, limit);
    x = "ike::slice<" + std::to_string(a) + ">(" + x + ", " + std::to_string(begin) +
        (end < limit || steps[i] != 1 ? ", " + std::to_string(end) : "") +
        (steps[i] == 1 ? "" : ", " + std::to_string(steps[i])) + ")";
    if (!out) continue;
    std::int64_t& n = (*out)[at(a)];
    if (n == unknown) continue;
    const auto within = [&](std::int64_t k) {
      return std::clamp(k < 0 ? k + n : k, std::int64_t{0}, n);
    };
    n = std::max(std::int64_t{0}, (within(end) - within(begin) + steps[i] - 1) / steps[i]);
  }
  make(x, out);
}

inline void translator::gather() {
  const std::int64_t along = integer("axis", 0);
  if (in(0).fixed && !in(1).fixed) {
    const constant& table = fixed(0);
    if (along != 0 || table.dims.size() != 2 || !table.is_real)
      refuse("reads a table that has not 2 dimensions");
    const std::string name = module_name(table.name, "embedding");
    weight(name + ".weight", table, table.dims);
    std::optional<integers> out = in(1).dims;
    if (out) out->push_back(table.dims[1]);
    return make(named(name, "ike::embedding<" + comma(table.dims) + ">{}", code(1)), out);
  }
  std::optional<integers> out = in().dims;
  const std::size_t d = at(axis_of(along, rank()));
  if (in(1).fixed) {
    const integers& i = ints(1);
    if (i.size() != 1 || i[0] == unknown) refuse("reads several constant indices");
    out->erase(out->begin() + static_cast<std::ptrdiff_t>(d));
    const std::string x =
        "ike::select<" + std::to_string(d) + ">(" + code() + ", " + std::to_string(i[0]) + ")";
    if (fixed(1).dims.empty()) return make(x, out);
    out->insert(out->begin() + static_cast<std::ptrdiff_t>(d), 1);
    return make("ike::unsqueeze<" + std::to_string(d) + ">(" + x + ")", out);
  }
  (*out)[d] = rank(1) == 1 ? dims(1)[0] : unknown;
  const std::string x = code(0);
  make("ike::index_select<" + std::to_string(d) + ">(" + x + ", " + code(1) + ")", out);
}

inline void translator::expand() {
  const integers& to = ints(1);
  if (in().is_zero || (in().fixed && in().fixed->is_real &&
                       std::all_of(in().fixed->reals.begin(), in().fixed->reals.end(),
                                   [](double x) { return x == 0; }))) {
    value v;
    v.is_zero = true;
    v.dims = to;
    return bind(0, std::move(v));
  }
  if (in().fixed && in().fixed->size() == 1)
    for (const auto& [name, other] : values_)
      if (!other.fixed && !other.code.empty() && other.layout == value::plain && other.dims == to)
        return make("ike::full_like(" + other.code + ", " + operand(0) + ")", to);
  const std::optional<integers> out = broadcast(in().dims, to);
  integers extents = to;
  for (std::size_t d = 0; d < to.size(); ++d) {
    const std::size_t missing = to.size() - std::min(to.size(), at(rank()));
    if (to[d] == unknown || (to[d] == 1 && d >= missing)) extents[d] = -1;
  }
  make("ike::expand<" + comma(extents) + ">(" + code() + ")", out);
}

inline void translator::pad() {
  const integers sides = ints(1);
  const std::size_t n = sides.size() / 2;
  const std::string how = text("mode", "constant");
  if (sides.size() % 2 != 0 || (in().dims && at(rank()) != n) || n > 8 || n == 0)
    refuse("has pads of another number of dimensions than its input's");
  std::size_t first = 0;
  while (first + 1 < n && sides[first] == 0 && sides[n + first] == 0) ++first;
  std::string code_of;
  std::optional<integers> out = in().dims;
  for (std::size_t d = 0; d < n; ++d) {
    if (sides[d] < 0 || sides[n + d] < 0 || sides[d] > 1'000'000 || sides[n + d] > 1'000'000)
      refuse("has pads below 0, or too large");
    if (out && (*out)[d] != unknown) (*out)[d] += sides[d] + sides[n + d];
  }
  for (std::size_t d = n; d-- > first;)
    code_of += (code_of.empty() ? "" : ", ") + std::to_string(sides[d]) + ", " +
               std::to_string(sides[n + d]);
  if (how == "constant") {
    const std::string fill = has(2) ? operand(2) : "0";
    return make("ike::pad<" + code_of + ">(" + code() + ", " + fill + ")", out);
  }
  if ((how != "reflect" && how != "edge") || n < 3 || first < 2)
    refuse("has the mode " + masked(how) + ", which is translated for spatial dimensions alone");
  code_of.clear();
  for (std::size_t d = n; d-- > 2;)
    code_of += (code_of.empty() ? "" : ", ") + std::to_string(sides[d]) + ", " +
               std::to_string(sides[n + d]);
  make(std::string(how == "edge" ? "ike::replication_pad" : "ike::reflection_pad") +
           std::to_string(n - 2) + "d<ike::padding<" + code_of + ">>{}(" + code() + ")",
       out);
}

inline void translator::resize() {
  const std::string how = text("mode", "nearest"),
                    where = text("coordinate_transformation_mode", "half_pixel");
  const std::int64_t n = rank() - 2;
  if (n < 1 || n > 3) refuse("has an input that has not 3 to 5 dimensions");
  std::string options;
  integers out = dims();
  if (has(3)) {
    const integers to = ints(3);
    if (to.size() != out.size()) refuse("has sizes of another number of dimensions");
    options = "ike::output_size<" + comma({to.begin() + 2, to.end()}) + ">";
    for (std::size_t d = 2; d < out.size(); ++d) {
      if (to[d] < 1) refuse("has sizes that are not known");
      out[d] = to[d];
    }
  } else {
    const constant& scales = fixed(2);
    if (!scales.is_real || scales.size() != out.size() || scales.reals[0] != 1 ||
        scales.reals[1] != 1)
      refuse("has scales of another number of dimensions, or of the batch or the channels");
    options = "ike::scale_factor<";
    for (std::size_t d = 2; d < out.size(); ++d) {
      const double f = scales.reals[d];
      if (!(f > 0 && f < 1e6)) refuse("has a scale that is none");
      options += (d == 2 ? "" : ", ") + number(f);
      if (out[d] != unknown && out[d] > limit / 1'000'000) refuse("has an input that is too large");
      if (out[d] != unknown)
        out[d] = static_cast<std::int64_t>(std::floor(static_cast<double>(out[d]) * f));
    }
    options += ">";
  }
  const bool aligned = where == "align_corners";
  if (how == "nearest") {
    const std::string rounding = text("nearest_mode", "round_prefer_floor");
    if (where == "asymmetric" && rounding == "floor")
      options += ", ike::mode<\"nearest\">";
    else if (where == "half_pixel" && rounding == "round_prefer_ceil")
      options += ", ike::mode<\"nearest-exact\">";
    else
      refuse("has a nearest mode that is not translated");
  } else {
    if (how != "linear" && how != "cubic") refuse("has an unknown mode");
    if (how == "cubic" && (n != 2 || std::abs(real("cubic_coeff_a", -0.75) + 0.75) > 1e-6))
      refuse("has a cubic mode that is not translated");
    if (!aligned && where != "half_pixel" && where != "pytorch_half_pixel")
      refuse("has a coordinate_transformation_mode that is not translated");
    static constexpr const char* linear[]{"linear", "bilinear", "trilinear"};
    options += std::string(", ike::mode<\"") + (how == "cubic" ? "bicubic" : linear[n - 1]) + "\">";
    if (aligned) options += ", ike::align_corners<true>";
  }
  make("ike::upsample<" + options + ">{}(" + code() + ")", out);
}

inline void translator::depth_to_space() {
  const std::int64_t r = integer("blocksize", 1);
  if (text("mode", "DCR") != "CRD" || rank() != 4 || r < 1 || r > 1024)
    refuse("is translated for the mode CRD and 4 dimensions alone");
  integers out = dims();
  if (out[1] != unknown) out[1] /= r * r;
  for (std::size_t d : {std::size_t{2}, std::size_t{3}}) out[d] = times(out[d], r);
  make("ike::pixel_shuffle<" + std::to_string(r) + ">{}(" + code() + ")", out);
}

inline void translator::reduce() {
  struct named {
    std::string_view op, code, rest;
  };
  static constexpr named all[]{{"ReduceSum", "sum", ""},
                               {"ReduceMean", "mean", ""},
                               {"ReduceMax", "max", ""},
                               {"ReduceMin", "min", ""},
                               {"ReduceLogSumExp", "logsumexp", ""},
                               {"ReduceL1", "norm", ", 1.0"},
                               {"ReduceL2", "norm", ", 2.0"}};
  const integers axes = list("axes", 1).value_or(integers{});
  const bool keeps = integer("keepdims", 1) != 0;
  std::optional<integers> out;
  if (in().dims) {
    out = integers{};
    for (std::size_t d = 0; d < dims().size(); ++d) {
      bool reduced = axes.empty();
      for (std::int64_t a : axes) reduced = reduced || at(axis_of(a, rank())) == d;
      if (!reduced)
        out->push_back(dims()[d]);
      else if (keeps)
        out->push_back(1);
    }
  }
  for (const named& n : all)
    if (n.op == node_->op)
      make("ike::" + std::string(n.code) + "<" + comma(axes) + ">(" + code() + std::string(n.rest) +
               (keeps ? ", ike::keepdim)" : ")"),
           out);
}

inline void translator::arg_extreme() {
  const std::size_t d = axis("axis", 0);
  integers out = dims();
  const bool keeps = integer("keepdims", 1) != 0;
  if (keeps)
    out[d] = 1;
  else
    out.erase(out.begin() + static_cast<std::ptrdiff_t>(d));
  make("ike::" + std::string(node_->op == "ArgMax" ? "argmax" : "argmin") + "<" +
           std::to_string(d) + ">(" + code() + (keeps ? ", ike::keepdim)" : ")"),
       out);
}

inline void translator::cumsum() {
  if (integer("exclusive", 0) != 0 || integer("reverse", 0) != 0) refuse("is exclusive or reverse");
  make("ike::cumsum<" + std::to_string(axis_of(whole(1), rank())) + ">(" + code() + ")", dims());
}

// ---- recurrence ----

inline void translator::recurrent() {
  const bool is_lstm = node_->op == "LSTM", is_gru = node_->op == "GRU";
  const std::string kind = is_lstm ? "lstm" : is_gru ? "gru" : "rnn";
  const constant &w = fixed(1), &r = fixed(2);
  const std::string direction = text("direction", "forward");
  const std::int64_t directions = direction == "bidirectional" ? 2 : 1;
  const std::int64_t gates = is_lstm ? 4 : is_gru ? 3 : 1;
  if (direction == "reverse" || integer("layout", 0) != 0 || has(4))
    refuse("is reverse, or has a layout or lengths, which are not translated");
  if (is_gru && integer("linear_before_reset", 0) == 0)
    refuse("resets before the product, as PyTorch's and ours does not");
  if (w.dims.size() != 3 || r.dims.size() != 3 || w.dims[0] != directions ||
      r.dims[0] != directions || !w.is_real || !r.is_real || r.dims[1] != gates * r.dims[2] ||
      w.dims[1] != r.dims[1])
    refuse("has weights of shapes that do not fit");
  const std::int64_t hidden = r.dims[2], inputs = w.dims[2];
  bool is_relu = false;
  if (const onnx_attribute* const a = attribute("activations")) {
    const std::vector<std::string> usual = is_lstm
                                               ? std::vector<std::string>{"Sigmoid", "Tanh", "Tanh"}
                                           : is_gru ? std::vector<std::string>{"Sigmoid", "Tanh"}
                                                    : std::vector<std::string>{"Tanh"};
    is_relu = !is_lstm && !is_gru && !a->strings.empty() && a->strings[0] == "Relu";
    for (std::size_t i = 0; i < a->strings.size(); ++i)
      if (a->strings[i] != (is_relu ? "Relu" : usual[i % usual.size()]))
        refuse("has activations that are not translated");
  }
  const bool has_bias = has(3);
  if (has_bias && (fixed(3).dims != integers{directions, 2 * gates * hidden} || !fixed(3).is_real))
    refuse("has biases of a shape that does not fit");
  // Ours are i f g o and r z n; ONNX's are i o f c and z r h.
  const integers order = is_lstm ? integers{0, 2, 3, 1} : is_gru ? integers{1, 0, 2} : integers{0};
  const std::string name = module_name("", kind);
  const auto part = [&](const constant& c, std::int64_t first, std::int64_t row) {
    std::vector<double> x;
    for (std::int64_t o : order) {
      const std::int64_t begin = first + o * hidden * row;
      x.insert(x.end(), c.reals.begin() + begin, c.reals.begin() + begin + hidden * row);
    }
    return x;
  };
  for (std::int64_t d = 0; d < directions; ++d) {
    const std::string end = d == 1 ? "_l0_reverse" : "_l0";
    const std::int64_t rows = gates * hidden;
    weight(name + ".weight_ih" + end, w.is_double, part(w, d * rows * inputs, inputs),
           {rows, inputs});
    weight(name + ".weight_hh" + end, r.is_double, part(r, d * rows * hidden, hidden),
           {rows, hidden});
    if (!has_bias) continue;
    weight(name + ".bias_ih" + end, w.is_double, part(fixed(3), 2 * d * rows, 1), {rows});
    weight(name + ".bias_hh" + end, w.is_double, part(fixed(3), (2 * d + 1) * rows, 1), {rows});
  }
  std::string x = code();
  for (std::size_t i = 5; i < (is_lstm ? 7u : 6u); ++i) {
    if (!has(i)) continue;
    const value& v = in(i);
    const bool zero =
        v.is_zero || (v.fixed && std::all_of(v.fixed->reals.begin(), v.fixed->reals.end(),
                                             [](double e) { return e == 0; }));
    if (zero != in(5).is_zero && !(zero && in(5).fixed)) refuse("has one initial state of two");
    if (!zero) x += ", " + code(i);
  }
  const std::string y = variable(), h = variable(), c = is_lstm ? variable() : std::string();
  lines_.push_back("auto [" + y + ", " + h + (is_lstm ? ", " + c : "") + "] = " +
                   named(name,
                         "ike::" + kind + "<" + std::to_string(inputs) + ", " +
                             std::to_string(hidden) +
                             (is_relu ? ", ike::nonlinearity<\"relu\">" : "") +
                             (has_bias ? "" : ", ike::bias<false>") +
                             (directions == 2 ? ", ike::bidirectional<true>" : "") + ">{}",
                         x) +
                   ";");
  value out;
  out.code = y;
  out.layout = value::stacked;
  out.directions = directions;
  out.hidden = hidden;
  const std::optional<integers> of_x = in().dims;
  const bool known = of_x && of_x->size() == 3;
  if (known) out.dims = integers{(*of_x)[0], (*of_x)[1], directions * hidden};
  bind(0, std::move(out));
  for (std::size_t i = 1; i < (is_lstm ? 3u : 2u); ++i) {
    value state;
    state.code = i == 1 ? h : c;
    if (known) state.dims = integers{directions, (*of_x)[1], hidden};
    bind(i, std::move(state));
  }
}

inline const translator::named_rule translator::rules[]{
    {"Gemm", &translator::gemm},
    {"MatMul", &translator::matmul},
    {"Einsum", &translator::einsum},
    {"Conv", &translator::conv},
    {"ConvTranspose", &translator::conv_transpose},
    {"MaxPool", &translator::pool},
    {"AveragePool", &translator::pool},
    {"LpPool", &translator::pool},
    {"GlobalAveragePool", &translator::global_pool},
    {"GlobalMaxPool", &translator::global_pool},
    {"BatchNormalization", &translator::batch_norm},
    {"InstanceNormalization", &translator::instance_norm},
    {"LayerNormalization", &translator::layer_norm},
    {"LRN", &translator::local_response_norm},
    {"Relu", &translator::activation},
    {"Tanh", &translator::activation},
    {"Sigmoid", &translator::activation},
    {"Softplus", &translator::activation},
    {"Softsign", &translator::activation},
    {"Selu", &translator::activation},
    {"HardSwish", &translator::activation},
    {"Mish", &translator::activation},
    {"HardSigmoid", &translator::activation},
    {"LeakyRelu", &translator::activation},
    {"Elu", &translator::activation},
    {"Celu", &translator::activation},
    {"Neg", &translator::activation},
    {"Exp", &translator::activation},
    {"Log", &translator::activation},
    {"Sqrt", &translator::activation},
    {"Abs", &translator::activation},
    {"Sign", &translator::activation},
    {"Erf", &translator::activation},
    {"Reciprocal", &translator::activation},
    {"Clip", &translator::clip},
    {"Shrink", &translator::shrink},
    {"PRelu", &translator::prelu},
    {"Softmax", &translator::softmax},
    {"LogSoftmax", &translator::softmax},
    {"Identity", &translator::pass},
    {"Dropout", &translator::pass},
    {"Cast", &translator::pass},
    {"Add", &translator::arithmetic},
    {"Sub", &translator::arithmetic},
    {"Mul", &translator::arithmetic},
    {"Div", &translator::arithmetic},
    {"Pow", &translator::arithmetic},
    {"Min", &translator::arithmetic},
    {"Max", &translator::arithmetic},
    {"Equal", &translator::arithmetic},
    {"Less", &translator::arithmetic},
    {"LessOrEqual", &translator::arithmetic},
    {"Greater", &translator::arithmetic},
    {"GreaterOrEqual", &translator::arithmetic},
    {"Not", &translator::logical_not},
    {"Where", &translator::where},
    {"Flatten", &translator::flatten},
    {"Reshape", &translator::reshape},
    {"Squeeze", &translator::squeeze},
    {"Unsqueeze", &translator::unsqueeze},
    {"Transpose", &translator::transpose},
    {"Concat", &translator::concat},
    {"Split", &translator::split},
    {"Slice", &translator::slice},
    {"Gather", &translator::gather},
    {"Expand", &translator::expand},
    {"Pad", &translator::pad},
    {"Resize", &translator::resize},
    {"DepthToSpace", &translator::depth_to_space},
    {"ReduceSum", &translator::reduce},
    {"ReduceMean", &translator::reduce},
    {"ReduceMax", &translator::reduce},
    {"ReduceMin", &translator::reduce},
    {"ReduceLogSumExp", &translator::reduce},
    {"ReduceL1", &translator::reduce},
    {"ReduceL2", &translator::reduce},
    {"ArgMax", &translator::arg_extreme},
    {"ArgMin", &translator::arg_extreme},
    {"CumSum", &translator::cumsum},
    {"ConstantOfShape", &translator::constant_of_shape},
    {"LSTM", &translator::recurrent},
    {"GRU", &translator::recurrent},
    {"RNN", &translator::recurrent},
};

inline result translator::run() {
  for (const onnx_tensor& t : model_.initializers) values_[t.name] = constant_value(constant_of(t));
  std::string arguments, shapes;
  std::size_t count = 0;
  for (const auto& i : model_.inputs) count += !values_.contains(i.name);
  for (const auto& i : model_.inputs) {
    if (values_.contains(i.name)) continue;
    const std::string number =
        count == 1 ? std::string()
                   : std::to_string(std::count(arguments.begin(), arguments.end(), 'a'));
    value v;
    v.code = "x" + number;
    v.dims = integers{};
    for (const auto& d : i.dims) v.dims->push_back(d.value < 0 ? unknown : d.value);
    if (v.dims->size() > ike::shape::max_rank) refuse("an input has more than 8 dimensions");
    is_double_ = is_double_ || i.type == onnx_type::float64;
    const bool is_real = i.type == onnx_type::float32 || i.type == onnx_type::float64;
    if (any_.empty() && is_real) any_ = v.code;
    arguments += (arguments.empty() ? "auto " : ", auto ") + v.code;
    shapes += "inline constexpr ike::shape input" + number + shape_of(*v.dims).substr(10) + ";\n";
    values_[i.name] = std::move(v);
  }
  if (count == 0 || count > 8) refuse("has not 1 to 8 inputs");
  if (model_.outputs.empty() || model_.outputs.size() > 8) refuse("has not 1 to 8 outputs");
  // Nodes that an output depends on. A file has them in order.
  std::vector<bool> is_needed(model_.nodes.size(), false);
  for (const auto& o : model_.outputs) ++uses_[o.name];
  for (std::size_t k = model_.nodes.size(); k-- > 0;) {
    const onnx_node& n = model_.nodes[k];
    for (const std::string& o : n.outputs) is_needed[k] = is_needed[k] || uses_.contains(o);
    if (is_needed[k])
      for (const std::string& i : n.inputs) ++uses_[i];
  }
  for (std::size_t k = 0; k < model_.nodes.size(); ++k) {
    if (!is_needed[k]) continue;
    node_ = &model_.nodes[k];
    if (node_->outputs.empty()) refuse("has no output");
    if (!node_->domain.empty() && node_->domain != "ai.onnx")
      refuse("is of the domain " + masked(node_->domain) + ", which is not translated");
    if (fold()) continue;
    const auto* const r = std::find_if(std::begin(rules), std::end(rules),
                                       [&](const named_rule& n) { return n.op == node_->op; });
    if (r == std::end(rules)) refuse("is an operator that is not translated");
    // These have cases of their own.
    if (!(node_->op == "Transpose" || node_->op == "Squeeze" || node_->op == "Reshape"))
      for (const std::string& i : node_->inputs)
        if (const auto read = values_.find(i); read != values_.end()) settle(read->second);
    (this->*r->translate)();
  }
  node_ = nullptr;
  std::string returned;
  for (const auto& o : model_.outputs) {
    const auto at = values_.find(o.name);
    if (at == values_.end() || at->second.code.empty() || at->second.fixed)
      refuse("the output " + ike::detail::in_quotes(o.name) + " is computed by no node");
    settle(at->second);
    returned += (returned.empty() ? "" : ", ") + at->second.code;
  }
  result r;
  for (const saved_weight& w : weights_) {
    std::byte* const to = r.weights.add_owned(
        w.path, is_double_ ? ike::dtype::float64 : ike::dtype::float32, w.extents);
    for (std::size_t i = 0; i < w.x.size(); ++i)
      if (is_double_) {
        reinterpret_cast<double*>(to)[i] = w.x[i];
      } else {
        reinterpret_cast<float*>(to)[i] = static_cast<float>(w.x[i]);
      }
  }
  std::string& h = r.header;
  h = "// Made by tools/onnx_import of " + masked(where_.substr(where_.find_last_of('/') + 1)) +
      ".\n#pragma once\n\n#include <limits>\n#include <tuple>\n\n#include <ikebana/ikebana.hpp>\n"
      "#include <ikebana/nn.hpp>\n#include <ikebana/ops.hpp>\n\nnamespace " +
      name_ +
      " {\n\nnamespace ike = ikebana;\nusing element = " + (is_double_ ? "double" : "float") +
      ";\n" + shapes + "\ninline constexpr auto network = ike::graph([](" + arguments +
      ") {\n  using namespace ike::literals;\n";
  for (const std::string& line : lines_) h += "  " + line + "\n";
  h += "  return " + (model_.outputs.size() == 1 ? returned : "std::tuple(" + returned + ")") +
       ";\n});\n\n}  // namespace " + name_ + "\n";
  return r;
}

/// The network and the weights of an ONNX file. Throws io_error for what is not one, or has nodes
/// that are not translated.
inline result import_onnx(const std::string& where, std::string bytes, std::string name) {
  const onnx_model m = ike::detail::parse_onnx(where, std::move(bytes));
  return translator(where, m, std::move(name)).run();
}

}  // namespace onnx_import
