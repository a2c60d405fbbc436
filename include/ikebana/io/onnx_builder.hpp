#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ikebana/core/dtype.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/fused_loop.hpp"
#include "ikebana/io/onnx_model.hpp"
#include "ikebana/model/state_dict.hpp"

namespace ikebana::detail {

/// A call of a leaf, without its type.
struct onnx_call {
  std::string path;
  std::string_view kind;
  std::string options;  ///< As its `describe` writes them, numbers exactly.
  std::vector<int> inputs, outputs;
  cpu::loop_step step{};  ///< The operands and numbers of element-wise operations and reductions.
};

/// The graph under construction.
struct onnx_builder {
  onnx_model model;
  const state_dict& state;
  const std::vector<shape>& shapes;  ///< By value.
  onnx_type real = onnx_type::float32;
  std::vector<std::string> names;  ///< By value.
  int made = 0;

  std::string fresh(const std::string& path) { return path + ':' + std::to_string(made++); }
};

/// Writes the nodes of one call.
class onnx_step {
 public:
  using strings = std::vector<std::string>;
  using integers = std::vector<std::int64_t>;
  using attributes = std::vector<onnx_attribute>;

  onnx_step(onnx_builder& builder, const onnx_call& call)
      : to_{builder}, call_{call}, name_{call.path.empty() ? std::string(call.kind) : call.path} {}

  const onnx_call& call() const { return call_; }
  std::size_t inputs() const { return call_.inputs.size(); }
  std::size_t outputs() const { return call_.outputs.size(); }
  const std::string& in(std::size_t i = 0) const { return to_.names[at(call_.inputs[i])]; }
  const shape& in_shape(std::size_t i = 0) const { return to_.shapes[at(call_.inputs[i])]; }
  const shape& out_shape(std::size_t i = 0) const { return to_.shapes[at(call_.outputs[i])]; }
  std::int64_t rank() const { return static_cast<std::int64_t>(in_shape().rank()); }
  double epsilon() const {
    return to_.real == onnx_type::float64 ? 2.220446049250313e-16 : 1.1920928955078125e-07;
  }

  // ---- options ----

  /// The values of an option, in the order written; empty if it is missing.
  strings texts(std::string_view option) const {
    strings found;
    std::size_t begin = 0, depth = 0;
    const std::string_view all = call_.options;
    for (std::size_t i = 0; i <= all.size(); ++i) {
      if (i < all.size() && (all[i] == '(' || all[i] == '[')) ++depth;
      if (i < all.size() && (all[i] == ')' || all[i] == ']')) --depth;
      if (i < all.size() && (all[i] != ',' || depth > 0)) continue;
      std::string_view one = all.substr(begin, i - begin);
      begin = i + 1;
      while (one.starts_with(' ')) one.remove_prefix(1);
      const std::size_t equal = one.find('=');
      if (equal == one.npos || one.substr(0, equal) != option) continue;
      one.remove_prefix(equal + 1);
      if (one.starts_with('(') || one.starts_with('[')) {
        one = one.substr(1, one.size() - 2);
        for (std::size_t b = 0; b < one.size();) {
          const std::size_t e = std::min(one.find(", ", b), one.size());
          found.emplace_back(one.substr(b, e - b));
          b = e + 2;
        }
      } else {
        found.emplace_back(one);
      }
    }
    return found;
  }
  bool has(std::string_view option) const { return !texts(option).empty(); }
  std::string text(std::string_view option, std::string_view otherwise = "") const {
    const strings t = texts(option);
    return t.empty() ? std::string(otherwise) : t[0];
  }
  bool is(std::string_view option) const { return text(option) == "true"; }
  double number(std::string_view option, double otherwise = 0) const {
    const strings t = texts(option);
    return t.empty() ? otherwise : std::strtod(t[0].c_str(), nullptr);
  }
  std::int64_t integer(std::string_view option, std::int64_t otherwise = 0) const {
    const strings t = texts(option);
    return t.empty() ? otherwise : std::strtoll(t[0].c_str(), nullptr, 10);
  }
  integers numbers(std::string_view option) const {
    integers n;
    for (const std::string& t : texts(option)) n.push_back(std::strtoll(t.c_str(), nullptr, 10));
    return n;
  }
  /// `count` numbers, for all of which one may stand.
  integers numbers(std::string_view option, std::size_t count, std::int64_t otherwise) const {
    integers n = numbers(option);
    if (n.empty()) n.push_back(otherwise);
    if (n.size() < count) n.resize(count, n[0]);
    return n;
  }

  [[noreturn]] void refuse(const std::string& what) const {
    throw error((call_.path.empty() ? std::string() : call_.path + ": ") +
                "ONNX (opset 17) has no counterpart of " + std::string(call_.kind) + what);
  }
  void refuse_option(std::string_view option) const {
    if (const std::string t = text(option); !t.empty() && t != "false")
      refuse(" with " + std::string(option) + '=' + t);
  }

  // ---- parameters and constants ----

  const state_dict::entry* find(std::string_view parameter) const {
    return to_.state.find(path_of(parameter));
  }
  /// A parameter or buffer as it is; empty if there is none.
  std::string parameter(std::string_view name) {
    const state_dict::entry* const e = find(name);
    if (e == nullptr) return {};
    for (const onnx_tensor& t : to_.model.initializers)
      if (t.name == e->name) return e->name;
    onnx_tensor t;
    t.name = e->name;
    t.type = type_of(e->type);
    for (dim_t d : e->extents) t.dims.push_back(d);
    t.data = {reinterpret_cast<const char*>(e->bytes.data()), e->bytes.size()};
    to_.model.initializers.push_back(std::move(t));
    return e->name;
  }
  /// Numbers of the model's type.
  std::string reals(const std::vector<double>& values, integers dims) {
    return constant(
        to_.real, std::move(dims),
        to_.real == onnx_type::float64 ? onnx_bytes<double>(values) : onnx_bytes<float>(values));
  }
  std::string real(double value) { return reals({value}, {}); }
  std::string scales(const std::vector<double>& values) {
    return constant(onnx_type::float32, {static_cast<std::int64_t>(values.size())},
                    onnx_bytes<float>(values));
  }
  std::string ints(const integers& values) {
    return constant(onnx_type::int64, {static_cast<std::int64_t>(values.size())},
                    onnx_bytes<std::int64_t>(values));
  }
  std::string scalar(std::int64_t value) {
    return constant(onnx_type::int64, {}, onnx_bytes<std::int64_t>(integers{value}));
  }
  /// The rows of some parameters of equal shapes, in blocks that are permuted: [count, ...].
  std::string stacked(const strings& parameters, const integers& order, bool joins_rows = false) {
    std::string bytes;
    integers dims;
    onnx_type type = to_.real;
    for (const std::string& name : parameters) {
      const state_dict::entry* const e = find(name);
      if (e == nullptr) return {};
      type = type_of(e->type);
      const std::size_t block = e->bytes.size() / order.size();
      for (std::int64_t o : order)
        bytes.append(reinterpret_cast<const char*>(e->bytes.data()) + at(o) * block, block);
      dims.assign(e->extents.begin(), e->extents.end());
    }
    const auto count = static_cast<std::int64_t>(parameters.size());
    if (joins_rows)
      dims = {count / 2, 2 * dims[0]};
    else
      dims.insert(dims.begin(), count);
    return constant(type, std::move(dims), std::move(bytes));
  }

  // ---- nodes ----

  /// Adds a node with one output, whose name it returns.
  std::string node(std::string_view op, strings inputs, attributes a = {}) {
    return nodes(op, std::move(inputs), 1, std::move(a))[0];
  }
  strings nodes(std::string_view op, strings inputs, std::size_t count, attributes a = {}) {
    onnx_node n;
    n.op = op;
    n.name = to_.fresh(name_ + '/' + n.op);
    while (!inputs.empty() && inputs.back().empty()) inputs.pop_back();
    n.inputs = std::move(inputs);
    for (std::size_t i = 0; i < count; ++i) n.outputs.push_back(to_.fresh(name_));
    n.attributes = std::move(a);
    to_.model.nodes.push_back(n);
    return n.outputs;
  }
  /// Names output i.
  void result(const std::string& name, std::size_t i = 0) {
    to_.names[at(call_.outputs[i])] = name;
  }
  void result(std::string_view op, strings inputs, attributes a = {}) {
    result(node(op, std::move(inputs), std::move(a)));
  }

  // ---- what several kinds need ----

  std::string cast(const std::string& x, onnx_type to) {
    return node("Cast", {x}, {{"to", static_cast<std::int64_t>(to)}});
  }
  std::string cast_real(const std::string& x) { return cast(x, to_.real); }
  std::string transpose(const std::string& x, integers order) {
    return node("Transpose", {x}, {{"perm", std::move(order)}});
  }
  std::string slice(const std::string& x, std::int64_t axis, std::int64_t first, std::int64_t last,
                    std::int64_t step = 1) {
    return node("Slice", {x, ints({first}), ints({last}), ints({axis}), ints({step})});
  }
  std::string reshape(const std::string& x, const integers& dims) {
    return node("Reshape", {x, ints(dims)});
  }
  /// x, of the shape `from`, in the shape `to`. An unknown extent is copied or found.
  std::string reshape(const std::string& x, const shape& from, const shape& to) {
    integers dims;
    bool copies = true, found = false, has_zero = false;
    for (std::size_t d = 0; d < to.rank(); ++d) {
      copies = copies && d < from.rank() && from[d] == to[d];
      has_zero = has_zero || to[d] == 0;
      if (to[d] >= 0) {
        dims.push_back(to[d]);
      } else if (copies && from[d] < 0) {
        dims.push_back(0);
      } else {
        if (found) refuse(" with several extents that are unknown");
        found = true;
        dims.push_back(-1);
      }
    }
    if (!has_zero) return reshape(x, dims);
    for (std::size_t d = 0; d < to.rank(); ++d)
      if (to[d] < 0) refuse(" with extents that are unknown and others of 0");
    return node("Reshape", {x, ints(dims)}, {{"allowzero", std::int64_t{1}}});
  }
  /// x W^T + b over the last dimension.
  std::string affine(const std::string& x, std::size_t of_rank, const std::string& weight,
                     const std::string& bias) {
    if (of_rank == 2) return node("Gemm", {x, weight, bias}, {{"transB", std::int64_t{1}}});
    const std::string y = node("MatMul", {x, transpose(weight, {1, 0})});
    return bias.empty() ? y : node("Add", {y, bias});
  }
  /// [C] as [C, 1, ..], to be broadcast along the dimensions behind the channels.
  std::string per_channel(const std::string& parameter, std::int64_t channels) {
    integers dims{channels};
    for (std::int64_t d = 2; d < rank(); ++d) dims.push_back(1);
    return reshape(parameter, dims);
  }
  std::int64_t axis(std::string_view option, std::int64_t otherwise = -1) const {
    const std::int64_t d = integer(option, otherwise);
    return d < 0 ? d + rank() : d;
  }
  std::int64_t known(std::size_t d) const {
    if (in_shape()[d] < 0) refuse(" of an extent that is unknown");
    return in_shape()[d];
  }

  template <class Integer>
  static std::size_t at(Integer i) {
    return static_cast<std::size_t>(i);
  }

 private:
  std::string path_of(std::string_view parameter) const {
    return call_.path.empty() ? std::string(parameter) : call_.path + '.' + std::string(parameter);
  }
  onnx_type type_of(dtype t) const {
    switch (t) {
      case dtype::float32:
        return onnx_type::float32;
      case dtype::float64:
        return onnx_type::float64;
      case dtype::int64:
        return onnx_type::int64;
      case dtype::int32:
        return onnx_type::int32;
      default:
        refuse(" with parameters of " + std::string(name(t)));
    }
  }
  std::string constant(onnx_type type, integers dims, std::string bytes) {
    onnx_tensor t;
    t.name = to_.fresh(name_ + "/constant");
    t.type = type;
    t.dims = std::move(dims);
    t.own = std::move(bytes);
    to_.model.initializers.push_back(t);
    return t.name;
  }

  onnx_builder& to_;
  const onnx_call& call_;
  std::string name_;
};

}  // namespace ikebana::detail
