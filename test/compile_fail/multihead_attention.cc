// The token features cannot be divided among the heads.
// expect: attn: multihead_attention expects embed_dim to be a multiple of num_heads = 4, got 10 \(input \[5, 2, 10\]\)
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
