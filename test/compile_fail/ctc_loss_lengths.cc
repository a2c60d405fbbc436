// expect: ctc_loss expects a length for each sample of \[20, 8, 30\], of inputs and of targets, got \[7\]
#include <ikebana/ikebana.hpp>
#include <ikebana/nn/ctc_loss.hpp>

namespace ike = ikebana;
using namespace ike::literals;

auto model = ike::initialize<float, ike::shape{20, 8, 10}>(
    ike::sequential("fc"_m = ike::lazy_linear<30>{}, ike::log_softmax<ike::dim<-1>>{}),
    ike::seed{1});
ike::tensor<float, ike::shape{20, 8, 10}> x;
ike::tensor<std::int64_t, ike::shape{8, 5}> targets;
ike::tensor<std::int64_t, ike::shape{8}> of_targets;
#ifdef MENDED
ike::tensor<std::int64_t, ike::shape{8}> of_inputs;
#else
ike::tensor<std::int64_t, ike::shape{7}> of_inputs;
#endif

void step() {
  model.loss_backward(x, ike::inputs(targets, of_inputs, of_targets), ike::ctc_loss{});
}
