// expect: replicate does not support containers, which have no forward: make a network of what is in it, with sequential or graph
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/replicate/replicate.hpp>
#include <ikebana/replicate/thread_group.hpp>
#include <tuple>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net =
    ike::sequential("fc1"_m = ike::lazy_linear<10>{}, "fc2"_m = ike::lazy_linear<2>{});

void on_each_rank(ike::thread_group& group) {
  auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});
#ifdef MENDED
  ike::replicate(std::move(model), group);
#else
  ike::replicate(std::tuple(std::move(model)), group);
#endif
}
