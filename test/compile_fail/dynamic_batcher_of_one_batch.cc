// expect: dynamic_batcher needs a network of batches of any size
#include <ikebana/deploy/dynamic_batcher.hpp>
#include <ikebana/deploy/freeze.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using ike::shape;

#ifdef MENDED
const auto net =
    ike::freeze(ike::initialize<float, shape{ike::dynamic, 4}>(ike::linear<4, 2>{}, ike::seed{1}));
#else
const auto net =
    ike::freeze(ike::initialize<float, shape{8, 4}>(ike::linear<4, 2>{}, ike::seed{1}));
#endif
ike::dynamic_batcher server{net, {.max_batch_size = 8}};
