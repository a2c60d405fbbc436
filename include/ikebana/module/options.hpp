#pragma once

#include <array>
#include <cstddef>

#include "ikebana/core/shape.hpp"

namespace ikebana {

namespace detail {
struct kernel_option;
struct stride_option;
struct padding_option;
struct padding_mode_option;
struct output_padding_option;
struct dilation_option;
struct groups_option;
struct bias_option;
struct dim_option;
struct ceil_mode_option;
struct return_indices_option;
struct count_include_pad_option;
struct divisor_override_option;
struct output_size_option;
struct padding_idx_option;
struct scale_grad_by_freq_option;
struct sparse_option;
struct affine_option;
struct track_running_stats_option;
struct sections_option;
struct elementwise_affine_option;
struct num_layers_option;
struct batch_first_option;
struct bidirectional_option;
struct proj_size_option;
struct packed_option;
struct stateful_option;
struct kv_cache_option;
struct kdim_option;
struct vdim_option;
struct is_causal_option;
struct key_padding_mask_option;
struct attn_mask_option;
struct need_weights_option;
struct average_attn_weights_option;
struct add_bias_kv_option;
struct add_zero_attn_option;
struct norm_first_option;
struct activation_option;

/// An upper bound of extents, strides and padding, so that sums of them do not overflow.
inline constexpr dim_t option_limit = dim_t{1} << 31;
}  // namespace detail

// Options of modules are types, given in any order. Those with one value per spatial dimension take
// one number for all dimensions or one for each: kernel<3>, kernel<3, 5>.

/// The extents of the window of a convolution or a pooling.
template <dim_t... N>
struct kernel {
  using option = detail::kernel_option;
  static_assert(((N < detail::option_limit) && ...), "ikebana: kernel takes numbers below 2^31");
  static constexpr std::array<dim_t, sizeof...(N)> values{N...};
};

/// The distance between two windows, in positions.
template <dim_t... N>
struct stride {
  using option = detail::stride_option;
  static_assert(((N < detail::option_limit) && ...), "ikebana: stride takes numbers below 2^31");
  static constexpr std::array<dim_t, sizeof...(N)> values{N...};
};

/// The number of positions added at both ends of each spatial dimension.
template <dim_t... N>
struct padding {
  using option = detail::padding_option;
  static_assert(((N < detail::option_limit) && ...), "ikebana: padding takes numbers below 2^31");
  static constexpr std::array<dim_t, sizeof...(N)> values{N...};
};

/// padding='same' of convolutions: pads so that each spatial extent is preserved; an odd element
/// goes after the input.
struct same_padding {
  using option = detail::padding_option;
  static constexpr std::array<dim_t, 1> values{-1};
};

/// padding='valid': no padding.
struct valid_padding : padding<0> {};

/// The extension of a transposed convolution's output at the end of each spatial dimension.
template <dim_t... N>
struct output_padding {
  using option = detail::output_padding_option;
  static_assert(((N < detail::option_limit) && ...),
                "ikebana: output_padding takes numbers below 2^31");
  static constexpr std::array<dim_t, sizeof...(N)> values{N...};
};

/// The distance between two positions of a window; 1: adjacent.
template <dim_t... N>
struct dilation {
  using option = detail::dilation_option;
  static_assert(((N < detail::option_limit) && ...), "ikebana: dilation takes numbers below 2^31");
  static constexpr std::array<dim_t, sizeof...(N)> values{N...};
};

/// The number of groups of channels that are convolved separately.
template <dim_t N>
struct groups {
  using option = detail::groups_option;
  static constexpr dim_t value = N;
};

/// Whether the module adds a bias.
template <bool B>
struct bias {
  using option = detail::bias_option;
  static constexpr bool value = B;
};

/// The dimension that a module works along; negative counts from the end.
template <dim_t N>
struct dim {
  using option = detail::dim_option;
  static constexpr dim_t value = N;
};

/// Whether output extents are rounded up, so that the last pooling window may reach beyond the
/// padded input.
template <bool B>
struct ceil_mode {
  using option = detail::ceil_mode_option;
  static constexpr bool value = B;
};

/// Whether an average counts the padding.
template <bool B>
struct count_include_pad {
  using option = detail::count_include_pad_option;
  static constexpr bool value = B;
};

/// The divisor of averages, instead of the number of positions.
template <dim_t N>
struct divisor_override {
  using option = detail::divisor_override_option;
  static constexpr dim_t value = N;
};

/// In output_size: the extent of the input.
inline constexpr dim_t unchanged = -3;

/// Whether the places of maxima are a second output.
template <bool B>
struct return_indices {
  using option = detail::return_indices_option;
  static constexpr bool value = B;
};

/// The output extents of an adaptive pooling.
template <dim_t... N>
struct output_size {
  using option = detail::output_size_option;
  static constexpr std::array<dim_t, sizeof...(N)> values{N...};
};

/// The index of an embedding that is padding; negative counts from the end.
template <dim_t N>
struct padding_idx {
  using option = detail::padding_idx_option;
  static constexpr dim_t value = N;
};

/// Whether the gradient of an embedding's row is divided by the number of its occurrences in the
/// batch.
template <bool B>
struct scale_grad_by_freq {
  using option = detail::scale_grad_by_freq_option;
  static constexpr bool value = B;
};

/// Whether the gradient of a table consists of the rows that the batch selects, so that a step
/// costs what these do.
template <bool B>
struct sparse {
  using option = detail::sparse_option;
  static constexpr bool value = B;
};

/// Whether a norm has a weight and a bias per channel.
template <bool B>
struct affine {
  using option = detail::affine_option;
  static constexpr bool value = B;
};

/// Whether a norm keeps running statistics, which it then uses in evaluation.
template <bool B>
struct track_running_stats {
  using option = detail::track_running_stats_option;
  static constexpr bool value = B;
};

/// Whether a norm has a weight, and a bias if it has one, for each normalised element.
template <bool B>
struct elementwise_affine {
  using option = detail::elementwise_affine_option;
  static constexpr bool value = B;
};

/// The number of layers, of which each takes the output sequence of the one before.
template <dim_t N>
struct num_layers {
  using option = detail::num_layers_option;
  static constexpr dim_t value = N;
};

/// Whether the batch comes before the sequence: [N, L, features] instead of [L, N, features].
template <bool B>
struct batch_first {
  using option = detail::batch_first_option;
  static constexpr bool value = B;
};

/// Whether a second recurrence runs from the end; the outputs of both are concatenated.
template <bool B>
struct bidirectional {
  using option = detail::bidirectional_option;
  static constexpr bool value = B;
};

/// The number of features that an LSTM's hidden state is projected to; 0 for no projection.
template <dim_t N>
struct proj_size {
  using option = detail::proj_size_option;
  static constexpr dim_t value = N;
};

/// Whether each sequence of a batch has its own length.
template <bool B>
struct packed {
  using option = detail::packed_option;
  static constexpr bool value = B;
};

/// The number of parallel sequences whose state is carried from call to call; 0 for none.
template <dim_t Batch>
struct stateful {
  using option = detail::stateful_option;
  static constexpr dim_t value = Batch;
};

/// Memory for the keys and values of Batch parallel sequences of at most Length steps; no memory if
/// Batch is 0.
template <dim_t Batch, dim_t Length>
struct kv_cache {
  using option = detail::kv_cache_option;
  static constexpr dim_t batch = Batch, length = Length;
};

/// The numbers of features of keys and of values, if they differ from those of queries. A number,
/// `lazy` or `dynamic`.
template <dim_t N>
struct kdim {
  using option = detail::kdim_option;
  static constexpr dim_t value = N;
};

template <dim_t N>
struct vdim {
  using option = detail::vdim_option;
  static constexpr dim_t value = N;
};

/// Whether element i of a sequence attends only to elements up to i.
template <bool B>
struct is_causal {
  using option = detail::is_causal_option;
  static constexpr bool value = B;
};

/// Whether there is an input of bools that marks the ignored keys of each sample.
template <bool B>
struct key_padding_mask {
  using option = detail::key_padding_mask_option;
  static constexpr bool value = B;
};

/// The elements of an attention mask: true where a key is ignored, or a number that is added to the
/// score. With `none`, the default, there is no mask.
enum class mask_kind : unsigned char { boolean, additive, none };

/// The input that masks pairs of query and key.
template <mask_kind K>
struct attn_mask {
  using option = detail::attn_mask_option;
  static constexpr mask_kind value = K;
};

/// Whether attention weights are an output.
template <bool B>
struct need_weights {
  using option = detail::need_weights_option;
  static constexpr bool value = B;
};

/// Whether these are averaged over the heads.
template <bool B>
struct average_attn_weights {
  using option = detail::average_attn_weights_option;
  static constexpr bool value = B;
};

/// Whether there is one more key and value, parameters, for all sequences.
template <bool B>
struct add_bias_kv {
  using option = detail::add_bias_kv_option;
  static constexpr bool value = B;
};

/// Whether there is one more key and value of zeros.
template <bool B>
struct add_zero_attn {
  using option = detail::add_zero_attn_option;
  static constexpr bool value = B;
};

/// Whether a block normalises its input instead of its output.
template <bool B>
struct norm_first {
  using option = detail::norm_first_option;
  static constexpr bool value = B;
};

/// The module between the two linear layers: activation<gelu<>>.
template <class M>
struct activation {
  using option = detail::activation_option;
  using type = M;
};

/// The sizes of the parts into which a dimension is split.
template <dim_t... N>
struct sections {
  using option = detail::sections_option;
  static constexpr std::array<dim_t, sizeof...(N)> values{N...};
};

}  // namespace ikebana
