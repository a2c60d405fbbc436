// expect: frozen takes a module, before it is initialized: initialize<T, shape>\(frozen<"fc1">\(net\), seed\{1\}\); for a model there is requires_grad<"fc1">\(model, false\)
#include <ikebana/compose/frozen.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/model/requires_grad.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;

auto model = ike::initialize<float, ike::shape{32, 20}>(ike::linear<20, 10>{}, ike::seed{1});

#ifdef MENDED
void run() { ike::requires_grad<"weight">(model, false); }
#else
void run() { ike::frozen<"weight">(model); }
#endif
