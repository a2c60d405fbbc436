#pragma once

#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/targets.hpp"

/// The constants by which convolutions are planned, with their units; bytes are those of copies
/// that are to stay in a level of the cache. Found by measuring on AMD Zen 4 and 5; sums are
/// divided by them, so that they depend on no cache that was found.
namespace ikebana::cpu::detail::conv_costs {

inline constexpr dim_t kib = 1024;
inline constexpr dim_t line_bytes = 64;

// Work for a thread: multiply-adds, and those of planes, each of which is little.
inline constexpr dim_t multiply_adds_for_thread = dim_t{1} << 20,
                       plane_multiply_adds_for_thread = 300000;

/// Parts of the work for each thread, where they can be divided further; of a thread's own work.
inline constexpr dim_t parts_for_thread = 2, jobs_for_thread = 4;

// Winograd. Elements of a vector, channels and positions that pay for the transforms:
inline constexpr dim_t least_winograd_lanes = 8;
inline constexpr dim_t least_winograd_channels = 16, full_winograd_channels = 32;
inline constexpr dim_t least_winograd_positions = 144, least_positions_of_few_channels = 256;
/// elements of transformed weights, of which many pay for more positions,
inline constexpr dim_t many_transformed = dim_t{3} << 20, most_transformed = dim_t{10} << 20;
inline constexpr dim_t least_positions_of_many = 400;
/// and channels whose transformed tiles fit any thread's scratch.
inline constexpr dim_t most_winograd_sources = 1024;
/// Channels that are multiplied at once, and so many that weights are waited for.
inline constexpr dim_t winograd_depth = 64, many_winograd_sources = 128;
/// Positions are computed in whole tiles: thirds of them that must be wanted, but for so many
/// positions, and tenths where results are few, which must also fill their registers.
inline constexpr dim_t wanted_thirds = 2, spared_positions = 64, wanted_tenths = 7;
/// For the gradient of the weights: channels that pay for it, halves of a vector of results,
/// vectors of a plane, products for each lane, and sevenths of the tiles that must be wanted,
inline constexpr dim_t least_winograd_sources = 8, least_result_halves = 3, least_plane_vectors = 6,
                       least_lane_products = 32, wanted_sevenths = 5;
/// positions of all images,
inline constexpr dim_t least_positions_of_weights = 144;
/// and tiles, tiles of a row, results and channels of a job, channels at once.
inline constexpr dim_t winograd_tiles = 56, winograd_segment = 48, winograd_results = 64,
                       winograd_channels = 256, winograd_channels_at_once = 16;

// im2col: positions of an image so few that any pays, and with strides, many channels, or gathered
// from several images; the products that take as long as an element that is scattered, or copied;
inline constexpr dim_t few_positions = 8, most_positions = 64, many_channels = 64,
                       scattered_products = 8, copied_products = 6;
/// positions and elements of several images, and of a block of one; columns of its product.
inline constexpr dim_t gathered_positions = 256, gathered_elements = 480 * kib,
                       most_block_positions = 1024, block_elements = 64 * kib, block_columns = 256;

// Images in lanes: channels, of which more repay that receptive fields are gathered; quarters of
// the lanes that images must fill; bytes of what is copied for a line, which each thread keeps, and
// of a band's lines, in the second-level cache.
inline constexpr dim_t most_image_channels = 32, filled_quarters = 3, most_line_bytes = 8192 * kib,
                       lanes_bytes = 512 * kib;

// Bands. Bytes of the copy and of the results, in the second-level cache; elements of what is
// copied at once, in the first; products of a result at once.
inline constexpr dim_t copied_bytes = 208 * kib, out_bytes = 208 * kib,
                       first_level_elements = 4 * kib, most_depth = 16 * kib;
/// Rows of a band below which channels are divided first; tiles of the smallest band.
inline constexpr dim_t few_band_rows = 4, least_band_tiles = 2;

// Depthwise: products of a group at most, and where a matrix product would copy much; groups from
// which any kernel pays; bytes of a band in lanes, of vectors of a cache line and narrower ones.
inline constexpr dim_t most_group_products = 4, most_copied_products = 16, least_lane_groups = 8;
inline constexpr dim_t wide_band_bytes = 112 * kib, narrow_band_bytes = 40 * kib;
/// Rows that are too narrow for gradients of the weights by planes.
inline constexpr dim_t narrow_row = 4;

}  // namespace ikebana::cpu::detail::conv_costs
