// expect: clip_grad_norm takes a model and the largest norm: clip_grad_norm\(model, 1.0\)
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/optim/clip_grad.hpp>

namespace ike = ikebana;

auto model = ike::initialize<float, ike::shape{32, 20}>(ike::linear<20, 10>{}, ike::seed{1});

#ifdef MENDED
const double norm = ike::clip_grad_norm(model, 1.0);
#else
const double norm = ike::clip_grad_norm(model);
#endif
