// expect: replicate sums dense gradients: leave out sparse<true> of the network's embeddings
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/embedding.hpp>
#include <ikebana/replicate/replicate.hpp>
#include <ikebana/replicate/thread_group.hpp>

namespace ike = ikebana;
using namespace ike::literals;

#ifdef MENDED
constexpr auto net = ike::sequential("words"_m = ike::embedding<50, 3>{});
#else
constexpr auto net = ike::sequential("words"_m = ike::embedding<50, 3, ike::sparse<true> >{});
#endif

void on_each_rank(ike::thread_group& group) {
  ike::replicate(ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1}), group);
}
