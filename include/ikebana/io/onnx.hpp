#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/io/onnx_builder.hpp"
#include "ikebana/io/onnx_kinds.hpp"
#include "ikebana/io/onnx_model.hpp"
#include "ikebana/model/model.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/module/lowering.hpp"
#include "ikebana/module/print.hpp"

// Networks as ONNX files.
namespace ikebana {

namespace detail {

/// Lists the calls of the leaves.
struct list_onnx_calls {
  program_view program;
  std::vector<onnx_call>& calls;
  std::size_t k = 0;

  template <class Leaf>
  [[gnu::noinline]] void operator()(const Leaf& leaf) {
    onnx_call c = begin(Leaf::kind);
    if constexpr (requires(description & d) { leaf.describe(d); }) {
      description d{"dynamic", 17};
      leaf.describe(d);
      c.options = d.text();
    }
    if constexpr (requires { leaf.loop_step(); }) c.step = leaf.loop_step();
    calls.push_back(std::move(c));
  }
  onnx_call begin(std::string_view kind) {
    const program_node& node = program.nodes[k++];
    onnx_call c;
    c.path = program.path(program.leaves[node.leaf]).view();
    c.kind = kind;
    for (std::size_t i = 0; i < node.input_count; ++i) c.inputs.push_back(node.inputs[i]);
    for (std::size_t i = 0; i < node.output_count; ++i)
      c.outputs.push_back(node.first_output + static_cast<int>(i));
    return c;
  }
};

template <class = void>
onnx_value onnx_value_of(const std::string& name, const shape& s, onnx_type type) {
  onnx_value v{name, type, {}};
  for (std::size_t d = 0; d < s.rank(); ++d)
    v.dims.push_back(s[d] >= 0 ? onnx_dim{s[d], {}}
                     : d == 0  ? onnx_dim{-1, "batch"}
                               : onnx_dim{-1, name + "_dim" + std::to_string(d)});
  return v;
}

/// Gives a value the name of an output. Values that other outputs, inputs or parameters are, get it
/// by an Identity.
template <class = void>
void name_output(onnx_model& m, std::string& value, const std::string& name, bool is_taken) {
  bool is_made = false;
  for (onnx_node& n : m.nodes)
    for (std::string& o : n.outputs) is_made = is_made || o == value;
  if (!is_made || is_taken) {
    m.nodes.push_back({"Identity", name + "/Identity", {}, {value}, {name}, {}});
    return;
  }
  for (onnx_node& n : m.nodes) {
    for (std::string& o : n.outputs)
      if (o == value) o = name;
    for (std::string& i : n.inputs)
      if (i == value) i = name;
  }
  value = name;
}

template <class = void>
void save_onnx(const program_view& p, std::size_t inputs, const std::vector<onnx_call>& calls,
               const state_dict& state, onnx_type real, const std::filesystem::path& path) {
  const std::vector<shape> shapes(p.values, p.values + p.n.values);
  onnx_builder b{{}, state, shapes, real, std::vector<std::string>(p.n.values)};
  b.model.opset = 17;
  b.model.producer = "ikebana";
  b.model.graph_name = "network";
  constexpr std::string_view of_choice = ": ONNX (opset 17) has no counterpart of choose";
  if (p.n.choices > 0)
    throw error(std::string(p.path(p.choices[0]).view()) + std::string(of_choice));
  for (std::size_t i = 0; i < inputs; ++i) {
    b.names[i] = inputs == 1 ? "input" : "input" + std::to_string(i);
    const onnx_type type = p.kinds[i] == element_kind::real    ? real
                           : p.kinds[i] == element_kind::index ? onnx_type::int64
                                                               : onnx_type::boolean;
    b.model.inputs.push_back(onnx_value_of(b.names[i], shapes[i], type));
  }
  for (const onnx_call& c : calls) {
    onnx_step step(b, c);
    write_as_onnx(step);
  }
  for (std::size_t i = 0; i < p.output_count; ++i) {
    const auto v = static_cast<std::size_t>(p.outputs[i]);
    const std::string name = p.output_count == 1 ? "output" : "output" + std::to_string(i);
    bool is_taken = false;
    for (const onnx_value& o : b.model.outputs) is_taken = is_taken || o.name == b.names[v];
    const std::string old = b.names[v];
    name_output(b.model, b.names[v], name, is_taken);
    for (std::string& n : b.names)
      if (n == old) n = b.names[v];
    b.model.outputs.push_back(onnx_value_of(name, shapes[v], real));
  }
  write_onnx(b.model, path);
}

template <std::size_t Inputs, class Net>
void save_onnx(const Net& net, const shape_list& inputs, const state_dict& state,
               const std::filesystem::path& path) {
  using M = typename Net::module_type;
  using T = typename Net::value_type;
  const auto p = std::make_unique<program<sizes_of<M>(Inputs)>>();
  lower_into(*p, net.module(), inputs);
  std::vector<onnx_call> calls;
  list_onnx_calls list{p->view(), calls};
  for_each_leaf(net.module(), list);
  save_onnx(p->view(), Inputs, calls, state,
            std::is_same_v<T, double> ? onnx_type::float64 : onnx_type::float32, path);
}

/// A frozen network, whose header is above this one.
template <class Net>
concept frozen_network = requires(const Net& net) {
  net.state();
  net.lane();
  Net::input_shapes;
};

}  // namespace detail

/// Writes a model as an ONNX file (opset 17), as it is in evaluation mode. Initializers have the
/// names of the state dict, and its layouts, but those of recurrent modules, whose gates ONNX
/// orders otherwise. A dynamic first dimension is the dimension parameter "batch".
///
/// The file appears completely or not at all. Before anything is written, a module without a
/// counterpart is an error that names its path and kind; so are options that ONNX lacks, and shapes
/// that it needs and that are dynamic. Throws io_error if the file cannot be written or would have
/// 2 GiB. O(parameters); allocates, but no copy of the parameters beyond those of recurrent
/// modules.
template <model_element E, resolved_module M, shape... In>
void save_onnx(const model<E, M, In...>& m, const std::filesystem::path& path) {
  detail::save_onnx<sizeof...(In)>(m, shape_list{In...}, detail::views_of_state(m), path);
}

/// The same of a frozen network, in which norms are part of the weights before them.
template <detail::frozen_network Net>
void save_onnx(const Net& net, const std::filesystem::path& path) {
  detail::save_onnx<Net::input_count>(net, Net::input_shapes, net.state(), path);
}

}  // namespace ikebana
