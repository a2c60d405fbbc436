// expect: replicate was already applied to this model
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/replicate/replicate.hpp>
#include <ikebana/replicate/thread_group.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<10>{});

void on_each_rank(ike::thread_group& group) {
  auto model = ike::replicate(ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1}), group);
#ifdef MENDED
  model.zero_grad();
#else
  ike::replicate(std::move(model), group);
#endif
}
