// expect: transformer_encoder_layer takes the options activation, norm_first, batch_first, bias, is_causal, key_padding_mask and attn_mask, each once
// errors-clang: 2
#include <ikebana/nn/transformer_encoder_layer.hpp>

namespace ike = ikebana;

#ifdef MENDED
inline constexpr ike::transformer_encoder_layer<8, 2, 16, ike::norm_first<true>> net;
#else
inline constexpr ike::transformer_encoder_layer<8, 2, 16, ike::need_weights<true>> net;
#endif
