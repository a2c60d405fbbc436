// page: 30 A group taken by value
// expect: launch calls f\(group\) with a thread_group&: take it by reference
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/nn/loss.hpp>
#include <ikebana/optim/adam.hpp>
#include <ikebana/replicate/launch.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<10>{});
auto model = ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1});
ike::tensor<float, ike::shape{32, 20}> x;

#ifdef MENDED
void run() {
  ike::launch(ike::threads{2}, [](ike::thread_group& group) { static_cast<void>(group.rank()); });
}
#else
void run() {
  ike::launch(ike::threads{2}, [](ike::thread_group group) { static_cast<void>(group.rank()); });
}
#endif
