// expect: replicate needs an initialized model: initialize<T, shape>\(module, seed\) gives one
#include <ikebana/compose/sequential.hpp>
#include <ikebana/core/tensor.hpp>
#include <ikebana/model/lazy_model.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/replicate/replicate.hpp>
#include <ikebana/replicate/thread_group.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<10>{});

void on_each_rank(ike::thread_group& group) {
  ike::lazy_model holder{net, ike::seed{1}};
#ifdef MENDED
  const auto x = ike::ones<float, ike::shape{32, 20}>();
  ike::replicate(holder.initialize_parameters(x).clone(), group);
#else
  ike::replicate(std::move(holder), group);
#endif
}
