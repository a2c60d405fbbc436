// expect: replicate_policy is given two options that say the same thing, such as two bucket_cap
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/replicate/replicate.hpp>
#include <ikebana/replicate/thread_group.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<10>{});

void on_each_rank(ike::thread_group& group) {
#ifdef MENDED
  using policy = ike::replicate_policy<ike::bucket_cap<ike::MiB(1)>, ike::init_sync<false>>;
#else
  using policy = ike::replicate_policy<ike::bucket_cap<ike::MiB(1)>, ike::bucket_caps<64, 128>>;
#endif
  auto model =
      ike::replicate<policy>(ike::initialize<float, ike::shape{4, 20}>(net, ike::seed{1}), group);
}
