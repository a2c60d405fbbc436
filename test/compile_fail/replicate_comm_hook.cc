// expect: comm_hook expects a hook: a type with .result., start\(bucket, group\) that returns a handle, and finish\(bucket, group\)
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/replicate/replicate.hpp>
#include <ikebana/replicate/thread_group.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("fc1"_m = ike::lazy_linear<10>{});

struct my_hook {
  static constexpr ike::hook_result result = ike::hook_result::average;
  template <class T, class G>
  auto start(ike::gradient_bucket<T> bucket, G& group) {
    return group.all_reduce_async(bucket.data, ike::reduce_op::avg);
  }
#ifdef MENDED
  template <class T, class G>
  void finish(ike::gradient_bucket<T>, G&) {}
#endif
};

void on_each_rank(ike::thread_group& group) {
  using policy = ike::replicate_policy<ike::comm_hook<my_hook>>;
  auto model =
      ike::replicate<policy>(ike::initialize<float, ike::shape{32, 20}>(net, ike::seed{1}), group);
  model.zero_grad();
}
