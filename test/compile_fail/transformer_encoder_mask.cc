// A mask of four keys for sequences of five.
// expect: layers\.0\.self_attn: multihead_attention expects a key_padding_mask \[2, 5\], got \[2, 4\]
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/transformer_encoder.hpp>

namespace ike = ikebana;

using block = ike::transformer_encoder_layer<ike::lazy, 2, 16, ike::key_padding_mask<true>>;
constexpr ike::transformer_encoder<2, block> net;

#ifdef MENDED
constexpr ike::shape mask{2, 5};
#else
constexpr ike::shape mask{2, 4};
#endif

auto model = ike::initialize<float, ike::shape{5, 2, 8}, mask>(net, ike::seed{1});
