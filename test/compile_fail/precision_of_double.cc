// expect: precision takes bf16, for a model of float whose products are rounded
// line: 5
// max-lines: 27
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/model/precision.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<10>{});

#ifdef MENDED
using element = ike::precision<ike::bf16>;
#else
using element = ike::precision<double>;
#endif

auto model = ike::initialize<element, ike::shape{32, 20}>(net, ike::seed{1});
