// expect: replicate averages the rows of sparse<true> in networks whose backward always reaches all parameters: leave out sparse<true>, or choose and outputs without a gradient
#include <ikebana/compose/choose.hpp>
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
constexpr auto net = ike::choose("a"_m = ike::embedding<50, 3, ike::sparse<sparse> >{},
                                 "b"_m = ike::embedding<50, 3>{});

void on_each_rank(ike::thread_group& group) {
  ike::replicate(ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1}), group);
}
