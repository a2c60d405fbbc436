#pragma once

#include <string_view>

#include "ikebana/module/module.hpp"
#include "ikebana/module/symbol.hpp"

namespace ikebana {

/// y = x, for an input of any shape: a placeholder for a module that is left out. A view: it copies
/// nothing.
struct identity {
  static constexpr std::string_view kind = "identity";
  static constexpr kept keeps = kept::nothing;
  static constexpr bool is_view = true;

  constexpr inferred infer(const shape& in) const { return in; }

  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

}  // namespace ikebana
