// expect: a hook of forward takes a const module_call& and returns nothing: it writes to writable_input\(\) and writable_output\(\)
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc"_m = ike::lazy_linear<10>{});
auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});

#ifdef MENDED
auto handle = model.register_forward_pre_hook("fc"_s, [](const ike::module_call& c) {
  for (float& v : c.writable_input<float>()) v += 1;
});
#else
auto handle = model.register_forward_pre_hook("fc"_s, [](const ike::module_call&) {
  return ike::ones<float, ike::shape{32, 20}>();
});
#endif
