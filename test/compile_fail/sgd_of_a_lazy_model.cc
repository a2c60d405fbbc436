// expect: sgd needs an initialized model
#include <ikebana/compose/sequential.hpp>
#include <ikebana/core/tensor.hpp>
#include <ikebana/model/lazy_model.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/optim/sgd.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<10>{});
ike::lazy_model holder{net, ike::seed{1}};

#ifdef MENDED
auto x = ike::ones<float, ike::shape{32, 20}>();
ike::sgd optimizer{holder.initialize_parameters(x), {.lr = 1e-3}};
#else
ike::sgd optimizer{holder, {.lr = 1e-3}};
#endif
