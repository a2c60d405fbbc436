// note: (use of deleted function|call to deleted constructor)
// note: a_replica_is_not_copied_but_its_state
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/replicate/replicate.hpp>
#include <ikebana/replicate/thread_group.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net =
    ike::sequential("fc1"_m = ike::lazy_linear<10>{}, "fc2"_m = ike::lazy_linear<2>{});

void on_each_rank(ike::thread_group& group) {
  auto model = ike::replicate(ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1}), group);
#ifdef MENDED
  auto other = std::move(model);
#else
  auto other = model;
#endif
  other.zero_grad();
}
