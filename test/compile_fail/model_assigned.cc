// expect: a model is not copied: clone\(\) makes a second one, std::move passes this one on
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<10>{});
auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});
auto second = model.clone();

#ifdef MENDED
void run() { second = model.clone(); }
#else
void run() { second = model; }
#endif
