// expect: ikebana: the result of einsum has only labels of its operands
// line: 6
#include <ikebana/compose/graph.hpp>
#include <ikebana/ops/product.hpp>

namespace ike = ikebana;

#ifdef MENDED
constexpr auto net = ike::graph([](auto x, auto y) { return ike::einsum<"ij,jk->ik">(x, y); });
#else
constexpr auto net = ike::graph([](auto x, auto y) { return ike::einsum<"ij,jk->il">(x, y); });
#endif
