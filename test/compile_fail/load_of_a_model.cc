// expect: load takes a path and returns a state: load_state_dict\(model, load\(path\)\)
#include <ikebana/compose/sequential.hpp>
#include <ikebana/io/safetensors.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/model/state.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<10>{});
auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});

#ifdef MENDED
void run() { ike::load_state_dict(model, ike::load("model.safetensors")); }
#else
void run() { ike::load(model, "model.safetensors"); }
#endif
