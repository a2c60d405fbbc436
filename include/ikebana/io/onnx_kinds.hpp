#pragma once

#include <string>
#include <string_view>

#include "ikebana/io/onnx/activations.hpp"
#include "ikebana/io/onnx/attention.hpp"
#include "ikebana/io/onnx/formulas.hpp"
#include "ikebana/io/onnx/norms.hpp"
#include "ikebana/io/onnx/pools.hpp"
#include "ikebana/io/onnx/products.hpp"
#include "ikebana/io/onnx/recurrence.hpp"
#include "ikebana/io/onnx/rule.hpp"
#include "ikebana/io/onnx/shapes.hpp"
#include "ikebana/io/onnx_builder.hpp"

namespace ikebana::detail {

template <class Rules>
bool write_by(onnx_step& s, std::string_view kind) {
  for (const onnx_rule::rule& r : Rules::rules)
    if (r.kind == kind) {
      r.write(s);
      return true;
    }
  return false;
}

/// Writes a call as ONNX. The rules of each area have one line for each kind; a kind that has none
/// is refused.
inline void write_as_onnx(onnx_step& s) {
  for (const std::string_view made : {"weight_norm", "spectral_norm", "orthogonal", "parametrized"})
    if (s.has(made))
      s.refuse(" whose weight " + std::string(made) + " computes; freeze the model first");
  s.refuse_option("int8");
  s.refuse_option("weights");
  const std::string_view kind = onnx_rule::family(s.call().kind);
  if (!(write_by<onnx_products>(s, kind) || write_by<onnx_pools>(s, kind) ||
        write_by<onnx_norms>(s, kind) || write_by<onnx_activations>(s, kind) ||
        write_by<onnx_shapes>(s, kind) || write_by<onnx_formulas>(s, kind) ||
        write_by<onnx_recurrence>(s, kind) || write_by<onnx_attention>(s, kind)))
    s.refuse("");
}

}  // namespace ikebana::detail
