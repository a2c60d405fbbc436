// expect: the model expects an input \[dynamic, 4\], got \[dynamic, 1, 4\]
#include <ikebana/deploy/dynamic_batcher.hpp>
#include <ikebana/deploy/freeze.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using ike::shape;

const auto net =
    ike::freeze(ike::initialize<float, shape{ike::dynamic, 4}>(ike::linear<4, 2>{}, ike::seed{1}));
ike::dynamic_batcher server{net};
const auto x = ike::ones<float, shape{1, 4}>();
#ifdef MENDED
const auto y = server(ike::tensor_view<const float, shape{4}>(x.data()));
#else
const auto y = server(x);
#endif
