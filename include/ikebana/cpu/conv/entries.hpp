#pragma once

#include <iterator>

#include "ikebana/cpu/conv/pass.hpp"
#include "ikebana/cpu/conv/plan.hpp"
#include "ikebana/cpu/conv/tiles.hpp"

// What a table of algorithms holds (table.hpp makes them).
namespace ikebana::cpu::detail {

template <class T>
struct conv_table;
template <class T>
struct weights_table;
template <class T>
struct weights_job;

/// One group of a convolution, by one algorithm. Of the direction `data`, p is the pass forward for
/// col2im and im2col, and else one of the passes. False, having done nothing, where its memory does
/// not suffice.
template <class T>
using conv_run = bool (*)(const conv_table<T>& table, const conv_pass& p,
                          const conv_operands<T>& of);
template <class T>
using weights_run = bool (*)(const weights_table<T>& table, const weights_job<T>& job);

/// The algorithms by their number; null where they are not built.
template <class T>
struct conv_table {
  const conv_tiles<T>& (*tiles)();
  conv_run<T> run[std::size(conv_algorithms)];

  bool has(conv_algorithm a) const { return run[static_cast<int>(a)] != nullptr; }
};
template <class T>
struct weights_table {
  const conv_tiles<T>& (*tiles)();
  weights_run<T> run[std::size(conv_algorithms)];

  bool has(conv_algorithm a) const { return run[static_cast<int>(a)] != nullptr; }
};

}  // namespace ikebana::cpu::detail
