#pragma once

#include <iterator>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/conv/layout.hpp"
#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv/plan.hpp"
#include "ikebana/cpu/conv/tiles.hpp"
#include "ikebana/cpu/conv_geometry.hpp"

// What a plan consists of, and a table of algorithms (table.hpp makes them).
namespace ikebana::cpu::detail {

/// How a pass is divided: into bands of so many channels, columns and rows.
struct band_sizes {
  dim_t channels = 0, columns = 0, rows = 0;
  conv_layout layout{};
};

/// A part of a convolution: a pass by one algorithm. Plain data, which callers may keep. Of the
/// gradient of the weights, and of that of the input by im2col, the pass is the one forward.
struct conv_step {
  conv_pass pass;
  conv_algorithm algorithm = conv_algorithm::bands;
  conv_offsets group{};  ///< Of its operands, from one group to the next.
  band_sizes bands{};
};

/// Without operands: whether the algorithm has memory for the step, in which it writes how it
/// divides it. With them: runs one group of a step for which it had.
template <class T>
using conv_entry = bool (*)(const conv_table<T>& table, conv_step& step,
                            const conv_operands<T>* of);

/// The algorithms for one direction by their number; empty where they are not built.
template <class T>
struct conv_table {
  const conv_tiles<T>& (*tiles)();
  conv_entry<T> entries[std::size(conv_algorithms)];
  /// By those for few channels a group. False, having done nothing, where none has memory.
  bool (*by_groups)(const conv_geometry& g, const conv_operands<T>& of);

  const conv_entry<T>& entry(conv_algorithm a) const { return entries[static_cast<int>(a)]; }
  bool has(conv_algorithm a) const { return entry(a) != nullptr; }
  void remove(conv_algorithm a) { entries[static_cast<int>(a)] = nullptr; }
};

}  // namespace ikebana::cpu::detail
