#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

#include "ikebana/core/number_format.hpp"
#include "ikebana/module/lowering.hpp"
#include "ikebana/replicate/utils/root_modules.hpp"

namespace ikebana::detail {

/// The formats of one leaf. `output` applies to values that leave the module `at`.
struct leaf_precision {
  number_format param = number_format::full, reduce = number_format::full,
                output = number_format::full;
  bool casts_inputs = true;
  std::string_view at{};
};

struct model_precision {
  number_format param = number_format::full, output = number_format::full,
                buffer = number_format::full;
  bool rounds_buffers = false;
  bool casts_inputs = true;
};

/// The format of every value of a network, and where values are cast. Propagates precisions from
/// the inputs to the outputs.
///
/// A template, so that it is compiled only where it is used.
template <class>
class basic_precision_plan {
 public:
  struct node {
    std::size_t leaf;
    number_format output;
    bool computes;  ///< Not a view of a value that is rounded already.
    std::size_t first_entry, end_entry;
  };
  struct value {
    number_format to = number_format::full;  ///< The format of its numbers and of its gradient.
    number_format leaving = number_format::full;  ///< The format when it leaves a module.
  };
  /// A value that is used in another precision.
  struct cast {
    std::size_t value;
    number_format to;
  };

  basic_precision_plan() = default;

  std::vector<int> calls;  ///< By leaf.
  std::vector<node> nodes;
  std::vector<value> values;
  std::vector<std::size_t> output_values;
  std::vector<cast> inputs, entries, outputs;  ///< Of the model; of nodes.

  /// `leaves` is indexed by leaf of the program.
  template <class Program>
  basic_precision_plan(const Program& p, const std::vector<leaf_precision>& leaves,
                       const model_precision& whole) {
    calls.resize(leaves.size());
    values.resize(Program::sizes.values);
    const std::size_t first = Program::sizes.nodes == 0
                                  ? values.size()
                                  : static_cast<std::size_t>(p.nodes[0].first_output);
    for (std::size_t v = 0; v < first; ++v) {
      if (p.kinds[v] != element_kind::real || !whole.casts_inputs) continue;
      values[v].to = whole.param;
      if (whole.param != number_format::full) inputs.push_back({v, whole.param});
    }
    for (const program_node& from : p.all_nodes()) {
      const auto leaf = static_cast<std::size_t>(from.leaf);
      const leaf_precision& own = leaves[leaf];
      ++calls[leaf];
      const bool joins = from.choice >= 0;
      node n{leaf, own.param, !from.is_view && !joins, entries.size(), entries.size()};
      for (std::size_t i = 0; i < from.input_count && n.computes; ++i) {
        const auto v = static_cast<std::size_t>(from.inputs[i]);
        if (p.kinds[v] != element_kind::real || !own.casts_inputs ||
            contained(values[v].to, own.param))
          continue;
        bool is_there = false;
        for (std::size_t e = n.first_entry; e < entries.size(); ++e)
          is_there = is_there || entries[e].value == v;
        if (!is_there) entries.push_back({v, own.param});
      }
      n.end_entry = entries.size();
      for (std::size_t i = 0; i < from.output_count; ++i) {
        value& out = values[static_cast<std::size_t>(from.first_output) + i];
        out.to = n.output;
        if (!n.computes) {
          out.to = values[static_cast<std::size_t>(from.inputs[0])].to;
          for (std::size_t j = 1; j < from.input_count; ++j)
            if (values[static_cast<std::size_t>(from.inputs[j])].to != out.to)
              out.to = number_format::full;
        }
        if (own.output != number_format::full && leaves_module(p, from, i, own.at)) {
          out.leaving = own.output;
          if (!contained(out.to, out.leaving)) out.to = out.leaving;
        }
      }
      nodes.push_back(n);
    }
    for (std::size_t i = 0; i < p.output_count; ++i) {
      const auto v = static_cast<std::size_t>(p.outputs[i]);
      if (std::find(output_values.begin(), output_values.end(), v) != output_values.end()) continue;
      output_values.push_back(v);
      if (!contained(values[v].to, whole.output)) outputs.push_back({v, whole.output});
    }
  }

 private:
  /// Whether output i of a node is used outside the module at this path.
  template <class Program>
  static bool leaves_module(const Program& p, const program_node& from, std::size_t i,
                            std::string_view at) {
    const int v = from.first_output + static_cast<int>(i);
    for (std::size_t o = 0; o < p.output_count; ++o)
      if (p.outputs[o] == v) return true;
    for (const program_node& other : p.all_nodes())
      for (std::size_t j = 0; j < other.input_count; ++j)
        if (other.inputs[j] == v &&
            !is_at_or_below(p.path(p.leaves[static_cast<std::size_t>(other.leaf)]).view(), at))
          return true;
    return false;
  }
};
using precision_plan = basic_precision_plan<void>;

}  // namespace ikebana::detail
