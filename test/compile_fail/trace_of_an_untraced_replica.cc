// expect: trace_of needs a replica whose replicate_policy has traced<>
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/replicate/replicate.hpp>
#include <ikebana/replicate/thread_group.hpp>
#include <ikebana/replicate/trace.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<10>{});

#ifdef MENDED
using policy = ike::replicate_policy<ike::traced<>>;
#else
using policy = ike::replicate_policy<>;
#endif

std::size_t on_each_rank(ike::thread_group& group) {
  auto model =
      ike::replicate<policy>(ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1}), group);
  return ike::trace_of(model).size();
}
