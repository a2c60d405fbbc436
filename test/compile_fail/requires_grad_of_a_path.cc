// expect: requires_grad takes its patterns in angle brackets: requires_grad<"fc1">\(model, false\)
#include <ikebana/model/initialize.hpp>
#include <ikebana/model/requires_grad.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;

auto model = ike::initialize<float, ike::shape{32, 20}>(ike::linear<20, 10>{}, ike::seed{1});

#ifdef MENDED
void run() { ike::requires_grad<"weight">(model, false); }
#else
void run() { ike::requires_grad(model, "weight", false); }
#endif
