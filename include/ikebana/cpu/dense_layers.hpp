#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "ikebana/cpu/dense_layer.hpp"
#include "ikebana/cpu/gemm.hpp"

namespace ikebana::cpu::detail {

template <class T>
[[gnu::noinline]] void run_plain_layer(const dense_layer<T>& l, const T* x) {
  const bool turned = l.is_turned();
  const gemm_epilogue<T> then{.bias = l.bias, .function = l.function};
  l.product({l.rows, l.out, l.in, x, l.in, turned ? l.turned : l.weight,
             turned ? l.turned_row() : l.in, l.y, l.out, &then, T(1), T(0), transpose::no,
             turned ? transpose::no : transpose::yes, gemm_order::by_columns_and_terms});
}

/// Packs the layers of a chain anew.
template <class T>
[[gnu::noinline, gnu::cold]] void pack_dense_layers(const dense_chain<T>& chain) {
  std::memcpy(chain.seen, chain.weights, static_cast<std::size_t>(chain.size) * sizeof(T));
  for (dim_t i = 0; i < chain.count; ++i) {
    const dense_layer<T>& l = chain.layers[i];
    if (l.packed == nullptr) continue;
    const dim_t row = l.packed_row();
    for (dim_t j = 0; j < l.out; ++j) {
      l.packed[j] = l.bias == nullptr ? T(0) : l.bias[j];
      for (dim_t p = 0; p < l.in; ++p) l.packed[(p + 1) * row + j] = l.weight[j * l.in + p];
    }
    // A single column lies in the first row as well: all beyond column 0 is of no consequence.
    if (l.out == 1 && l.in <= row) std::copy_n(l.weight, l.in, l.packed + row);
  }
}

}  // namespace ikebana::cpu::detail

#define IKEBANA_CPU_BODY "ikebana/cpu/dense_layers-inl.hpp"
#define IKEBANA_CPU_SETS 2
#include "ikebana/cpu/detail/foreach_target.hpp"

namespace ikebana::cpu {

/// Runs layers one after another, all of the same rows: one call, for where a call takes as long as
/// a layer. Each writes its y. The packed ones are packed anew where the weights are others than
/// the last time: they are compared, unless `stamp` is not 0 and that of the last time. Beyond
/// `out`, what is packed must be 0 from the beginning.
template <class T>
void run_dense_chain(const T* x, dense_chain<T>& chain, std::uint64_t stamp) {
  IKEBANA_CPU_DISPATCH_AVX(dense_layers<T>)(x, chain, stamp);
}
IKEBANA_CPU_KERNEL(run_dense_chain)

}  // namespace ikebana::cpu
