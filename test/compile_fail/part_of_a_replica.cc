// expect: a replicated model has no parts: replicate a model of the part alone
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/model/part.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/replicate/replicate.hpp>
#include <ikebana/replicate/thread_group.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto fc = ike::linear<20, 10>{};
constexpr auto net = ike::sequential("fc"_m = fc);

void on_each_rank(ike::thread_group& group) {
#ifdef MENDED
  auto model = ike::replicate(ike::initialize<float, ike::shape{32, 20}>(fc, ike::seed{1}), group);
  model.zero_grad();
#else
  auto model = ike::replicate(ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1}), group);
  model.part<"fc">();
#endif
}
