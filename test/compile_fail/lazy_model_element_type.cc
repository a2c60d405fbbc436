// expect: input 0: expects elements of type double, got float
#include <ikebana/compose/sequential.hpp>
#include <ikebana/core/tensor.hpp>
#include <ikebana/model/lazy_model.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<10>{});
ike::lazy_model holder{net, ike::seed{1}, ike::element_type<double>{}};
#ifdef MENDED
auto x = ike::ones<double, ike::shape{32, 20}>();
#else
auto x = ike::ones<float, ike::shape{32, 20}>();
#endif
void call() { holder(x); }
