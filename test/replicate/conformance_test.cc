// PyTorch's tests of replicate and DistributedDataParallel, under their names, that are in no other
// file here; docs/replicate.md lists all.

#include <doctest/doctest.h>

#include "ikebana/replicate/launch.hpp"
#include "test/replicate/conformance_checks.hpp"
#include "test/replicate/on_threads.hpp"

namespace ike = ikebana;
namespace checks = conformance_checks;
using ike::threads;

TEST_CASE("replicate_single_module") {
  on_threads([](auto& group) { checks::single_module<float>(group); });
}

TEST_CASE("replicate_with_kwargs") {
  on_threads([](auto& group) { checks::with_kwargs<double>(group); });
}

TEST_CASE("train_parity_single_group, against a network and Adam written out") {
  on_threads([](auto& group) { checks::train_parity<double>(group); });
  on_threads([](auto& group) { checks::train_parity<float>(group); });
}

TEST_CASE("compile_cpu, cpu_no_sync and backward_only: what the compiler knows changes no bit") {
  on_threads([](auto& group) {
    checks::compiled<float>(group, false);
    checks::compiled<float>(group, true);
  });
}

TEST_CASE("compile_bf16 and compile_fp16: gradients of a network in half precision") {
  on_threads([](auto& group) {
    checks::compiled_in_half_precision<ike::bfloat16>(group);
    checks::compiled_in_half_precision<ike::float16>(group);
  });
}

TEST_CASE("to_float64_after_init") {
  on_threads([](auto& group) { checks::to_float64(group); });
}

TEST_CASE("param_registration_after_forward and after_backward") {
  on_threads([](auto& group) {
    checks::param_registration<double, ike::replicate_policy<>>(group);
    checks::param_registration<double, ike::replicate_policy<ike::groups_by_module<"fc1", "norm">>>(
        group);
  });
}

TEST_CASE("grads_same_across_ranks_with_no_sync") {
  on_threads([](auto& group) { checks::grads_same_across_ranks_with_no_sync<double>(group); });
}

TEST_CASE("ddp_namedtuple: several outputs") {
  on_threads([](auto& group) { checks::several_outputs<double>(group); });
}

TEST_CASE("ddp_build_debug_param_to_name_mapping") {
  on_threads([](auto& group) { checks::parameter_names<double>(group); });
}

TEST_CASE("replicate_tp_device_mesh: along one dimension of a mesh") {
  on_threads([](auto& group) { checks::along_a_mesh<double>(group); });
}
