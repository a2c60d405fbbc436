#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "ikebana/core/dependent.hpp"
#include "ikebana/core/saturated.hpp"
#include "ikebana/model/model.hpp"
#include "ikebana/module/print.hpp"
#include "ikebana/module/refusal.hpp"

namespace ikebana {

/// A row of a summary: one call of one leaf.
struct summary_row {
  std::string path;
  std::string module;  ///< Kind and options: "linear(in_features=64, out_features=10, bias=true)".
  std::string kind;
  shape output{};
  dim_t parameters = 0;
  dim_t multiply_adds = 0;     ///< The largest dim_t if there are more.
  std::vector<int> inputs{};   ///< Values that it reads, for drawing.
  std::vector<int> outputs{};  ///< Values that it defines.
  int loop = 0;                ///< The number of the loop into which it is fused; 0 for none.
  std::string algorithm{};     ///< By which the last forward ran a convolution; "" before.
};

/// Composition and cost of a network, for the largest input so far or, before any, for one sample.
struct model_summary {
  std::vector<summary_row> rows;
  std::vector<shape> inputs;
  std::vector<int> output_values;
  dim_t parameters = 0;
  dim_t multiply_adds = 0;
  dim_t parameter_bytes = 0;
  dim_t buffer_bytes = 0;
  dim_t workspace_bytes = 0;
  dim_t checkpoint_bytes = 0;  ///< By which checkpoints make the workspace smaller.
};

namespace detail {

template <class Row>
struct summarize_leaves {
  const program_node* nodes;
  const program_leaf* leaves;
  const program_parameter* parameters;
  const program_scope* scopes;
  const shape* shapes;
  const bool* first_call;
  std::span<const std::byte> plans;
  std::vector<Row>& rows;
  int k = 0;

  template <class Leaf>
  [[gnu::noinline]] void operator()(const Leaf& leaf) {
    const program_node& node = nodes[k];
    const program_leaf& entry = leaves[node.leaf];
    Row row;
    row.path = scope_path(scopes, entry.scope).view();
    row.module = to_string(leaf);
    row.kind = Leaf::kind;
    shape_list in, out;
    for (std::size_t i = 0; i < node.input_count; ++i) {
      in.push_back(shapes[node.inputs[i]]);
      row.inputs.push_back(node.inputs[i]);
    }
    for (std::size_t i = 0; i < node.output_count; ++i) {
      const int v = node.first_output + static_cast<int>(i);
      out.push_back(shapes[v]);
      row.outputs.push_back(v);
    }
    row.output = out[0];
    if (first_call[k])
      for (std::size_t i = 0; i < entry.parameter_count; ++i)
        row.parameters +=
            parameters[entry.first_parameter + static_cast<int>(i)].spec.extents.numel();
    if constexpr (requires { leaf.multiply_adds(in, out); })
      row.multiply_adds = leaf.multiply_adds(in, out);
    if constexpr (plan_bytes<Leaf>() > 0)
      row.algorithm = leaf.algorithm(plans.subspan(node.first_plan, plan_bytes<Leaf>()));
    rows.push_back(row);
    ++k;
  }
};

template <class = void>
std::string grouped(dim_t n) {
  const std::string digits = std::to_string(n);
  std::string out;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i != 0 && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

}  // namespace detail

/// The summary of a model as data. `summary` formats it as a table, `to_dot` as a drawing.
/// Allocates.
template <class Model>
model_summary summarize(const Model& m) {
  using T = typename Model::value_type;
  constexpr program_sizes n = std::remove_cvref_t<decltype(m.current_program())>::sizes;
  detail::dependent<model_summary, Model> out;
  shape_list in = m.current_inputs();
  for (std::size_t i = 0; i < in.size(); ++i)
    for (std::size_t d = 0; d < in[i].rank(); ++d)
      if (in[i][d] < 0) in[i][d] = 1;
  const auto p = lower<n>(m.module(), in);
  program_table<bool, n.nodes> first_call{};
  program_table<bool, n.leaves> seen{};
  for (std::size_t k = 0; k < n.nodes; ++k) {
    bool& s = seen[static_cast<std::size_t>(p.nodes[k].leaf)];
    first_call[k] = !s;
    s = true;
  }
  detail::summarize_leaves<summary_row> visit{p.nodes.data(),  p.leaves.data(), p.parameters.data(),
                                              p.scopes.data(), p.values.data(), first_call.data(),
                                              m.plans(),       out.rows};
  detail::for_each_leaf(m.module(), visit);
  for (const summary_row& row : out.rows) {
    out.parameters += row.parameters;
    out.multiply_adds = (saturated{out.multiply_adds} + row.multiply_adds).value;
  }
  for (std::size_t i = 0; i < in.size(); ++i) out.inputs.push_back(in[i]);
  for (std::size_t i = 0; i < p.output_count; ++i) out.output_values.push_back(p.outputs[i]);
  out.parameter_bytes = out.parameters * static_cast<dim_t>(sizeof(T));
  out.buffer_bytes = static_cast<dim_t>(m.buffers().size());
  const auto plan = plan_memory<T>(p, in.size());
  out.workspace_bytes = plan.bytes;
  if constexpr (n.checkpoints > 0) {
    auto plain = p;
    for (program_node& node : plain.nodes) node.checkpoint = -1;
    out.checkpoint_bytes = plan_memory<T>(plain, in.size()).bytes - plan.bytes;
  }
  for (std::size_t k = 0; k < n.nodes && m.fuses(); ++k)
    out.rows[k].loop = plan.fusion.calls[k].loop;
  return out;
}

/// A table: path, module, output shape, parameters and multiply-adds of every module, and totals
/// with the bytes of the parameters and of the workspace of a training step. Steps with the same
/// `loop` are fused: one pass over memory. A convolution has the algorithm of the last forward, if
/// there was one. Allocates.
template <class X = void>
std::string to_string(const model_summary& s) {
  using row_text = std::array<detail::dependent<std::string, X>, 5>;
  std::vector<row_text> table{{"path", "module", "output", "parameters", "multiply-adds"}};
  for (const summary_row& row : s.rows)
    table.push_back({row.path,
                     row.loop > 0 ? row.kind + " (loop " + std::to_string(row.loop) + ')'
                     : !row.algorithm.empty() ? row.kind + " (" + row.algorithm + ')'
                                              : row.kind,
                     std::string{text<128>{}.append(row.output).view()},
                     detail::grouped(row.parameters), detail::grouped(row.multiply_adds)});
  table.push_back(
      {"total", "", "", detail::grouped(s.parameters), detail::grouped(s.multiply_adds)});
  std::array<std::size_t, 5> width{};
  for (const row_text& row : table)
    for (std::size_t c = 0; c < 5; ++c)
      width[c] = row[c].size() > width[c] ? row[c].size() : width[c];
  std::size_t line = 8;
  for (std::size_t w : width) line += w;
  std::string out;
  for (std::size_t r = 0; r < table.size(); ++r) {
    if (r == 1 || r + 1 == table.size()) out.append(line, '-') += '\n';
    std::string text_line;
    for (std::size_t c = 0; c < 5; ++c) {
      const std::string padding(width[c] - table[r][c].size(), ' ');
      text_line += c >= 3 ? padding + table[r][c] : table[r][c] + padding;
      if (c < 4) text_line += "  ";
    }
    out += text_line += '\n';
  }
  out += "input";
  for (const shape& in : s.inputs) out += std::string{" "} + text<128>{}.append(in).c_str();
  out += ", parameters " + detail::grouped(s.parameter_bytes) + " bytes, buffers " +
         detail::grouped(s.buffer_bytes) + " bytes, workspace " +
         detail::grouped(s.workspace_bytes) + " bytes";
  if (s.checkpoint_bytes != 0)
    out += " (" + detail::grouped(s.checkpoint_bytes) + " saved by checkpoints)";
  return out += '\n';
}

/// The summary of a model as a table. Allocates.
template <class Model>
std::string summary(const Model& m) {
  return to_string(summarize(m));
}

namespace detail::misuse {
IKEBANA_MISUSE(summary_needs_an_initialized_model,
               "summary and to_dot need an initialized model: initialize<T, shape>(module, seed) "
               "gives one");
}  // namespace detail::misuse

template <any_module M>
auto summarize(const M&)
    -> decltype(detail::refuse_for<detail::misuse::summary_needs_an_initialized_model, M>());
template <any_module M>
auto summary(const M&)
    -> decltype(detail::refuse_for<detail::misuse::summary_needs_an_initialized_model, M>());

}  // namespace ikebana
