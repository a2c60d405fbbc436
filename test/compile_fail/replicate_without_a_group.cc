// expect: replicate takes a model and a group, which outlives it
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/replicate/replicate.hpp>
#include <ikebana/replicate/thread_group.hpp>

namespace ike = ikebana;

auto model = ike::initialize<float, ike::shape{32, 20}>(ike::linear<20, 10>{}, ike::seed{1});
#ifdef MENDED
void run(ike::thread_group& group) { ike::replicate(model.clone(), group); }
#else
void run(ike::thread_group&) { ike::replicate(model.clone()); }
#endif
