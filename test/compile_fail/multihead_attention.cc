// The features of the tokens cannot be shared out among the heads.
// expect-gcc: shape_mismatch<.*"attn: multihead_attention expects embed_dim to be a multiple of num_heads = 4, got 10 \(input \[5, 2, 10\]\)"
// expect-clang: path<'a', 't', 't', 'n'>, ikebana::expected<4>, ikebana::got<10>
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/multihead_attention.hpp>

namespace ike = ikebana;
using namespace ike::literals;

#ifdef MENDED
constexpr auto net = ike::sequential("attn"_m = ike::lazy_multihead_attention<5>{});
#else
constexpr auto net = ike::sequential("attn"_m = ike::lazy_multihead_attention<4>{});
#endif

auto model = ike::initialize<float, ike::shape{5, 2, 10}>(net, ike::seed{1});
