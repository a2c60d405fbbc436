// page: 31 Replicating a module
// expect: replicate needs an initialized model: initialize<T, shape>\(module, seed\) gives one
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/replicate/replicate.hpp>
#include <ikebana/replicate/thread_group.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<10>{});

void on_each_rank(ike::thread_group& group) {
  auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});
#ifdef MENDED
  ike::replicate(std::move(model), group);
#else
  ike::replicate(net, group);
#endif
}
