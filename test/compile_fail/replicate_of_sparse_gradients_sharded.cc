// expect: replicate averages the rows of sparse<true> by all_reduce, at the end of backward: leave out sparse<true>
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/embedding.hpp>
#include <ikebana/replicate/replicate.hpp>
#include <ikebana/replicate/thread_group.hpp>

namespace ike = ikebana;
using namespace ike::literals;

#ifdef MENDED
constexpr bool sparse = false;
#else
constexpr bool sparse = true;
#endif
constexpr auto net = ike::sequential("words"_m = ike::embedding<50, 3, ike::sparse<sparse> >{});

void on_each_rank(ike::thread_group& group) {
  ike::replicate<ike::replicate_policy<ike::shard_optimizer<true> > >(
      ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1}), group);
}
