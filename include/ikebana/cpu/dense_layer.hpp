#pragma once

#include <cstdint>

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/final_activation.hpp"
#include "ikebana/cpu/gemm/costs.hpp"

namespace ikebana::cpu {

template <class T>
struct gemm_call;

/// One of several layers that are run in one call: y = function(x weight^T + bias), x being what
/// the layer before gave. Row-major; x of (rows, in), weight of (out, in); bias may be null.
template <class T>
struct dense_layer {
  const T* weight = nullptr;
  const T* bias = nullptr;
  T* y = nullptr;  ///< Of a packed layer, there is room for a multiple of 64 bytes.
  /// The bias and the columns of weight, `packed_row()` apart, with zeros in between; null where
  /// the weights are read where they stand.
  T* packed = nullptr;
  dim_t rows = 0, in = 0, out = 0;
  final_activation<T> function{};
  /// What makes the product of a layer that is not packed: detail::make_product.
  void (*product)(const gemm_call<T>&) = nullptr;
  dim_t narrow = INT64_MAX;  ///< `out` of a packed layer.
  /// Room for the transpose of weight, `turned_row()` apart; null where it is not made.
  T* turned = nullptr;
  std::uint64_t turned_stamp = 0;  ///< Of the weights that it is of; 0 for none.

  /// Whether packing pays, of one row; more rows are packed as well, for the same bits.
  constexpr bool is_small() const {
    return in <= detail::gemm_costs::most_packed && out > 0 &&
           out <= detail::gemm_costs::most_packed;
  }
  /// A multiple of one register, or of two.
  constexpr dim_t packed_row() const { return out <= 16 ? 16 : (out + 31) / 32 * 32; }
  /// Rows are read four at a time.
  constexpr dim_t packed_size() const { return ((in + 3) / 4 * 4 + 1) * packed_row(); }
  /// Whether products are faster with the weights transposed, for any number of rows. Used where
  /// they are summed in order either way.
  constexpr bool may_turn() const {
    return in >= detail::gemm_costs::least_turned && out > detail::gemm_costs::least_turned &&
           in * out <= detail::gemm_costs::most_turned;
  }
  /// Whether there is one, of weight as it is now.
  constexpr bool is_turned() const { return turned != nullptr && turned_stamp != 0; }
  constexpr dim_t turned_row() const { return (out + 15) / 16 * 16; }
  constexpr dim_t turned_size() const { return in * turned_row(); }
  /// Of memory that is zero.
  constexpr void pack_to(T* memory) {
    packed = memory;
    narrow = out;
  }
};

/// Layers one after another, and what those that are packed were packed from.
template <class T>
struct dense_chain {
  dense_layer<T>* layers = nullptr;
  dim_t count = 0;
  const T* weights = nullptr;  ///< All that is read for packing, and more.
  T* seen = nullptr;           ///< What they were when they were packed.
  dim_t size = 0;              ///< Of both: a multiple of 64 bytes.
  std::uint64_t stamp = 0;     ///< Of the last weights known to be these; 0 for none.
};

}  // namespace ikebana::cpu
