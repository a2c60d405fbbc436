#pragma once

#include <cstddef>
#include <cstdint>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/costs.hpp"
#include "ikebana/cpu/conv/layout.hpp"
#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/conv_geometry.hpp"
#include "ikebana/cpu/detail/quotients.hpp"

namespace ikebana::cpu::detail {

/// What a pass reads, laid out with images, or bands of rows of them, as the lanes of registers:
/// rows of any length then fill these.
template <class T>
struct image_lanes {
  const conv_tiles<T>& tiles;
  const conv_pass& p;
  dim_t rows = 0, bands = 0;  // of a band; of a plane
  bool plain = false;         // lanes are images, which need no zeros around them
  conv_layout layout{};

  static double real(dim_t n) { return static_cast<double>(n); }

  dim_t images() const { return p.batch * p.to[0]; }
  dim_t most_bands() const {
    return p.stride[2] == 1 ? least(p.to[1], parts(2 * tiles.width, images())) : 1;
  }
  void divide(dim_t n) {
    rows = parts(p.to[1], n);
    bands = parts(p.to[1], rows);
  }
  void lay_out() {
    plain = whole() && p.stands();
    layout = conv_layout{p, p.to[2], rows, false, false, conv_costs::line_bytes / dim_t{sizeof(T)}};
    if (!plain) return;
    layout.channel = conv_geometry::volume(p.from);
    layout.slice = p.dilation[0] * p.from[1] * p.from[2];
    layout.pitch = p.from[2];
  }
  bool whole() const { return bands == 1 && p.to[0] == 1; }
  dim_t slots() const { return images() * bands; }
  dim_t blocks() const { return parts(slots(), tiles.width); }
  dim_t positions() const { return rows * p.to[2]; }
  /// Elements of a block's copy, and of what is beside it while it is made.
  dim_t copy_size() const {
    return (layout.channel * p.sources + 2 * conv_tiles<T>::most_registers) * tiles.width;
  }
  dim_t apart_size() const {
    return plain ? 0 : ((whole() ? met() : layout.channel) + 1) * tiles.width;
  }
  /// The elements of a channel up to the last that may be met.
  dim_t met() const { return ((p.met[0] - 1) * p.from[1] + p.met[1] - 1) * p.from[2] + p.met[2]; }

  struct place {
    dim_t image, z, y;
  };
  place slot(dim_t i) const { return {i / bands / p.to[0], i / bands % p.to[0], i % bands * rows}; }

  /// `to` is the copy of `used` slots from number `first` on.
  void copy(const T* source, dim_t first, dim_t used, T* apart, T* to) const {
    const dim_t w = tiles.width, from_plane = conv_geometry::volume(p.from);
    // Of what stands, nothing behind the last element that is met is read.
    const dim_t size = plain ? layout.offset(p.kernel[0] - 1, p.kernel[1] - 1, p.kernel[2] - 1) +
                                   (p.to[1] - 1) * layout.pitch + p.to[2]
                             : layout.planes * layout.y.phases * layout.x.phases * layout.slice;
    for (dim_t c = 0; c < p.sources; ++c, to += layout.channel * w, source += from_plane) {
      if (plain) {
        tiles.pack_across(to, w, source + first * p.source_image, p.source_image, size, used);
        continue;
      }
      if (whole()) {
        tiles.pack_across(apart, w, source + first * p.source_image, p.source_image, met(), used);
        layout.copy_registers(tiles, p, apart, to);
        continue;
      }
      for (dim_t i = 0; i < used; ++i) {
        const place s = slot(first + i);
        layout.copy(tiles, p, 1, source + s.image * p.source_image, s.z, s.y, dim_t{0},
                    apart + i * layout.channel);
      }
      tiles.pack_across(to, w, apart, layout.channel, size, used);
    }
  }
  void list_offsets(std::int32_t* to) const {
    layout.list_offsets(p, p.sources, to);
    for (dim_t i = 0; i < p.sources * p.taps(); ++i)
      to[i] *= static_cast<std::int32_t>(tiles.width);
  }

  /// About how many cycles it takes to carry rows of so many elements to lanes or back.
  double carried(dim_t n, dim_t length) const {
    const double registers = real(length) / real(tiles.width);
    return real(n) * (conv_costs::transposed_element * real(length) +
                      (whole() ? conv_costs::transposed_row
                               : real(tiles.width) * (conv_costs::transposed_element +
                                                      conv_costs::transposed_vector * registers)));
  }
  /// Those of a block's copy.
  double copied() const {
    const auto reach = [&](std::size_t d, dim_t n) {
      return (n - 1) * p.stride[d] + p.dilation[d] * (p.kernel[d] - 1) + 1;
    };
    return carried(p.sources * p.kernel[0] * reach(1, rows), reach(2, p.to[2]));
  }
};

}  // namespace ikebana::cpu::detail
