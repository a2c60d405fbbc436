// expect: ikebana: einsum takes an equation such as "bij,bjk->bik": letters for the dimensions of two operands and of the result, at most 8 each
// line: 6
#include <ikebana/compose/graph.hpp>
#include <ikebana/ops/product.hpp>

namespace ike = ikebana;

#ifdef MENDED
constexpr auto net = ike::graph([](auto x, auto y) { return ike::einsum<"ij,jk->ik">(x, y); });
#else
constexpr auto net = ike::graph([](auto x, auto y) { return ike::einsum<"ij,jk,kl->iil">(x, y); });
#endif
