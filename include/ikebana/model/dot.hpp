#pragma once

#include <cstddef>
#include <string>

#include "ikebana/model/summary.hpp"

namespace ikebana {

/// The network as a Graphviz graph with one node per module and one edge per value, labelled with
/// its shape; steps that are fused into one loop are in a box. `dot -Tsvg network.dot` renders it.
/// Allocates.
template <class Model>
std::string to_dot(const Model& m) {
  const model_summary s = summarize(m);
  const auto quoted = [](const std::string& label) {
    std::string out = "\"";
    for (char c : label) {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
    return out += '"';
  };
  std::string out =
      "digraph network {\n  rankdir=TB;\n  node [shape=box, fontname=\"Helvetica\"];\n";
  std::vector<std::string> made_by;
  std::vector<shape> shapes;
  for (std::size_t i = 0; i < s.inputs.size(); ++i) {
    const std::string id = "input" + std::to_string(i);
    out += "  " + id + " [label=\"input\", shape=ellipse];\n";
    made_by.push_back(id);
    shapes.push_back(s.inputs[i]);
  }
  for (std::size_t k = 0; k < s.rows.size(); ++k) {
    const summary_row& row = s.rows[k];
    const std::string id = "n" + std::to_string(k);
    out += "  " + id +
           " [label=" + quoted(row.path.empty() ? row.module : row.path + ": " + row.module) +
           "];\n";
    for (int v : row.inputs) {
      const auto from = static_cast<std::size_t>(v);
      out += "  " + made_by[from] + " -> " + id +
             " [label=" + quoted(text<128>{}.append(shapes[from]).c_str()) + "];\n";
    }
    for (std::size_t i = 0; i < row.outputs.size(); ++i) {
      made_by.push_back(id);
      shapes.push_back(row.output);
    }
  }
  for (std::size_t k = 0; k < s.rows.size(); ++k) {
    const int loop = s.rows[k].loop;
    bool is_first = loop > 0;
    for (std::size_t j = 0; j < k; ++j) is_first = is_first && s.rows[j].loop != loop;
    if (!is_first) continue;
    const std::string number = std::to_string(loop);
    out += "  subgraph cluster_loop" + number + " { label=\"loop " + number + "\";";
    for (std::size_t j = k; j < s.rows.size(); ++j)
      if (s.rows[j].loop == loop) out += " n" + std::to_string(j) + ';';
    out += " }\n";
  }
  for (std::size_t i = 0; i < s.output_values.size(); ++i) {
    const auto v = static_cast<std::size_t>(s.output_values[i]);
    const std::string id = "output" + std::to_string(i);
    out += "  " + id + " [label=\"output\", shape=ellipse];\n  " + made_by[v] + " -> " + id +
           " [label=" + quoted(text<128>{}.append(shapes[v]).c_str()) + "];\n";
  }
  return out += "}\n";
}

template <any_module M>
auto to_dot(const M&)
    -> decltype(detail::refuse_for<detail::misuse::summary_needs_an_initialized_model, M>());

}  // namespace ikebana
