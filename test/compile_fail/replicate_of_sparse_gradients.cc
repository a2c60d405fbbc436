// expect: replicate averages the rows of sparse<true> by all_reduce, at the end of backward: leave out sparse<true>, or what takes dense gradients: comm_hook, shard_optimizer, mixed_precision, invariant, gradient_accumulation
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/embedding.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/replicate/compress.hpp>
#include <ikebana/replicate/override_at.hpp>
#include <ikebana/replicate/replicate.hpp>
#include <ikebana/replicate/thread_group.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("words"_m = ike::embedding<50, 3, ike::sparse<true> >{},
                                     "fc"_m = ike::lazy_linear<2>{});

using hook = ike::comm_hook<ike::bf16_compress>;
#ifdef MENDED
using policy = ike::replicate_policy<ike::override_at<"fc", hook> >;
#else
using policy = ike::replicate_policy<hook>;
#endif

void on_each_rank(ike::thread_group& group) {
  ike::replicate<policy>(ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1}), group);
}
