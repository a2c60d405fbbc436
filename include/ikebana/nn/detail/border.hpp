#pragma once

#include <cstddef>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/pad.hpp"
#include "ikebana/module/named.hpp"
#include "ikebana/nn/detail/spatial.hpp"

namespace ikebana::detail {

/// Checks that `pad` positions beyond the edges of a dimension have elements to read.
template <literal Name, std::size_t Spatial>
constexpr diagnostic check_border(cpu::border border, const shape& in, dim_t extent, dim_t pad) {
  if (pad == 0 || border == cpu::border::constant) return {};
  if (border == cpu::border::reflect && extent <= pad)
    return {joined<Name, digit<Spatial>,
                   "d expects spatial extents of at least {expected} (more than the padding, which "
                   "reflects), got {got} (input {input})">,
            pad + 1, extent, in};
  if (border == cpu::border::circular && extent < pad)
    return {joined<Name, digit<Spatial>,
                   "d expects spatial extents of at least {expected} (the padding, which is "
                   "circular), got {got} (input {input})">,
            pad, extent, in};
  if (extent == 0)
    return {joined<Name, digit<Spatial>,
                   "d expects spatial extents of at least {expected} (padding replicates the "
                   "edge), got {got} (input {input})">,
            1, 0, in};
  return {};
}

}  // namespace ikebana::detail
