#include <doctest/doctest.h>

#include "ikebana/optim/sgd.hpp"
#include "ikebana/replicate/launch.hpp"
#include "test/replicate/policy_checks.hpp"
#include "test/support/count_allocations.hpp"

namespace ike = ikebana;
namespace checks = policy_checks;
using namespace ike::literals;

namespace {

template <class Policy, class Net, class Input, class Gradient>
void check_steps(const Net& net, const Input& input, const Gradient& gradient) {
  const auto counts = ike::launch(ike::threads{2}, [&](ike::thread_group& group) {
    auto model = ike::replicate<Policy>(net(), group);
    ike::sgd optimizer{model, {.lr = 0.1}};
    const auto step = [&] {
      for (int m = 0; m < 3; ++m) {
        model.set_requires_gradient_sync(m > 0);
        model.set_is_last_backward(m == 2);
        model(input);
        model.backward(gradient);
      }
      model.step(optimizer);
      model.zero_grad();
    };
    step();
    step();
    group.barrier();
    const long before = allocation_count.load();
    for (int i = 0; i < 10; ++i) step();
    group.barrier();
    const long after = allocation_count.load();
    group.barrier();  // No rank returns, and allocates, before all have read.
    return after - before;
  });
  for (const long n : counts) CHECK(n == 0);
}

}  // namespace

TEST_CASE("steps allocate nothing, whatever the policy") {
  using everything = ike::replicate_policy<
      ike::groups_by_module<"fc1", "fc2">, ike::delay_all_reduce<"fc2.bias">, ike::ignored<"act">,
      ike::override_at<"fc3", ike::comm_hook<ike::bf16_compress>, ike::bucket_cap<1>>,
      ike::gradient_divide_factor<3>, ike::gradient_accumulation<double>>;
  check_steps<everything>([] { return checks::made<float>(); },
                          ike::uniform<float, checks::rows>(ike::seed{1}, 3),
                          ike::ones<float, ike::shape{ike::dynamic, 5}>(3));
  using buffers = ike::replicate_policy<
      ike::ignored<"norm.running_var">,
      ike::buffer_comm_hook<ike::average_buffers, ike::buffer_hook_location::before_forward>>;
  check_steps<buffers>(
      [] { return ike::initialize<float, checks::images>(checks::normed, ike::seed{1}); },
      ike::uniform<float, checks::images>(ike::seed{1}, 3),
      ike::ones<float, ike::shape{ike::dynamic, 5}>(3));
}
