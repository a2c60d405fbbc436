// expect: invariant computes each slice of a batch by itself, and sync_batch_norm needs the whole
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/sync_batch_norm.hpp>
#include <ikebana/replicate/invariant.hpp>
#include <ikebana/replicate/replicate.hpp>
#include <ikebana/replicate/thread_group.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("bn"_m = ike::sync_batch_norm1d<20>{});

#ifdef MENDED
using policy = ike::replicate_policy<>;
#else
using policy = ike::replicate_policy<ike::invariant<4> >;
#endif

void on_each_rank(ike::thread_group& group) {
  ike::replicate<policy>(ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1}), group);
}
