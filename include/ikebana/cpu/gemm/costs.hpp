#pragma once

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/targets.hpp"

/// The constants of the choice among algorithms of products, and of their blocks.
namespace ikebana::cpu::detail::gemm_costs {

// ---- The order of summation follows from these, so only sizes are compared with them. ----

/// Dot products serve sums of at least so many vectors, and results of up to so many rows or
/// columns,
inline constexpr dim_t least_dot_vectors = 2, most_dot_rows = 8;
/// and copy so many bytes of a factor to rows of so many vectors, which at least so many others
/// read.
inline constexpr dim_t most_copied = dim_t{256} * 1024, least_copied_vectors = 2, least_readers = 4;
/// Where a row must have the same bits among any number of others, dot products serve sums of at
/// least so many vectors: of these, many rows lose little, and one row would lose much by packed
/// panels.
inline constexpr dim_t least_lane_terms = 16;

// ---- These change no bits. ----

/// The columns of a block of a transposed product, which is small enough for the first-level cache.
inline constexpr dim_t transposed_columns = 256;
/// Steps, beyond two for each column, that do not pay for transposing the result.
inline constexpr dim_t most_not_transposed = 2;
/// op(b) is near if it takes so many quarters of the second-level cache.
inline constexpr dim_t near_quarters = 3;
/// How often a packed op(b) is moved: read and written once each.
inline constexpr dim_t moves_of_packing = 2;
/// The steps of a block where op(b) is near, so that the first-level cache holds a strip of a;
/// where it is far, so that the processor prefetches as many rows; for one or two rows of a, fewer
/// of them where they have more bytes together.
inline constexpr dim_t near_depth = 384, far_depth = 64, thin_far_depth = 8, thin_rows = 2,
                       thin_far_bytes = dim_t{32} * 1024;
/// Of so few steps, time goes into writing the result, by tiles with long rows.
inline constexpr dim_t most_shallow = 4;
/// Columns of a are packed where its rows have more bytes: each is another page or set of the
/// cache.
inline constexpr dim_t most_direct_row = 512;
/// A packed op(b) of at most so many bytes is one panel.
inline constexpr dim_t one_panel = dim_t{256} * 1024;
/// Products of at most so many rows, columns and steps run without a plan.
inline constexpr dim_t most_small_rows = 1024, most_small_columns = 128, most_small_depth = 64;

/// How many rows ahead packing prefetches; how many rows of a turned factor are filled at a time;
/// of how few rows or columns a factor is turned one element at a time.
inline constexpr dim_t prefetched_rows = 6, turned_rows = 64, most_turned_singly = 4;

// ---- Layers that run in one call. ----

/// Of at most so many inputs and outputs, weights are packed.
inline constexpr dim_t most_packed = 64;
/// Of so many inputs and more outputs, and of so many weights at most, weights that are not packed
/// are transposed.
inline constexpr dim_t least_turned = 32, most_turned = dim_t{1} << 20;

// ---- Threads. ----

/// How many multiply-adds are worth a thread's while.
inline constexpr dim_t products_for_thread = dim_t{1} << 20,
                       bf16_products_for_thread = 8 * products_for_thread;
/// Multiply-adds that take as long as an element of an activation; rows of a recurrent product that
/// threads share out together, as many as tiles have at most.
inline constexpr dim_t products_for_activation = 16, shared_recurrent_rows = 8;
/// Threads share columns from so many rows and columns on, in units of as many columns as tiles
/// take, and else rows: more of them where these are short.
inline constexpr dim_t least_shared_rows = 9, least_shared_columns = 96, column_unit = 48,
                       row_unit = 24, short_row_unit = 192;

}  // namespace ikebana::cpu::detail::gemm_costs
