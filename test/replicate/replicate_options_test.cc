#include <doctest/doctest.h>

#include "ikebana/replicate/launch.hpp"
#include "test/replicate/on_threads.hpp"
#include "test/replicate/policy_checks.hpp"

namespace ike = ikebana;
namespace checks = policy_checks;
using ike::threads;

namespace {

template <class... Options>
using policy = ike::replicate_policy<Options...>;
using ike::gradient_divide_factor;

}  // namespace

TEST_CASE(
    "replicate_ignore_module: an ignored module is each rank's own, by path or by predicate") {
  on_threads([](ike::thread_group& group) {
    return checks::ignore_module<policy<ike::ignored<"fc2">>>(group) +
           checks::ignore_module<policy<ike::ignored_if<checks::is_middle>>>(group);
  });
}

TEST_CASE("delayed parameters have one reduction of their own") {
  on_threads([](ike::thread_group& group) { return checks::delay(group); });
}

TEST_CASE("gradient_divide_factor divides the sum, once, whatever was reduced before") {
  on_threads([](ike::thread_group& group) {
    using factor = gradient_divide_factor<3>;
    using compressing = ike::comm_hook<ike::bf16_compress>;
    return checks::divide_factor<policy<factor>, double>(group, 3, 1e-14) +
           checks::divide_factor<policy<gradient_divide_factor<1, 2>, ike::bucket_cap<300>>, float>(
               group, 0.5, 1e-6) +
           checks::divide_factor<policy<factor, compressing>, float>(group, 3, 3e-2) +
           checks::divide_factor<policy<factor, ike::delay_all_reduce<"">>, double>(group, 3,
                                                                                    1e-14) +
           checks::divide_factor<policy<>, double>(group, group.size(), 1e-14);
  });
}

TEST_CASE("override_at gives a module its own hook, caps, divisor and flag") {
  on_threads([](ike::thread_group& group) {
    return checks::overrides(group) + checks::staged_override(group);
  });
}

TEST_CASE("gradient_accumulation<double> sums float gradients in double") {
  on_threads([](ike::thread_group& group) { return checks::wide_accumulation(group); });
}

TEST_CASE("buffers: a hook, before forward or after backward, and what is ignored") {
  on_threads([](ike::thread_group& group) {
    return checks::buffer_hook<ike::buffer_hook_location::after_backward>(group) +
           checks::buffer_hook<ike::buffer_hook_location::before_forward>(group) +
           checks::ignored_buffers(group);
  });
}
