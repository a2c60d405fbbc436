// expect: dynamic_batcher needs a network without state
#include <ikebana/compose/sequential.hpp>
#include <ikebana/deploy/dynamic_batcher.hpp>
#include <ikebana/deploy/freeze.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/nn/lstm.hpp>

namespace ike = ikebana;
using ike::shape;

#ifdef MENDED
constexpr ike::lstm<4, 2, ike::batch_first<true>> lstm{};
#else
constexpr ike::lstm<4, 2, ike::batch_first<true>, ike::stateful<1>> lstm{};
#endif
constexpr auto network = ike::sequential(lstm, ike::linear<2, 1>{});
const auto net =
    ike::freeze(ike::initialize<float, shape{ike::dynamic, 3, 4}>(network, ike::seed{1}));
ike::dynamic_batcher server{net};
