#include "ikebana/replicate/policy.hpp"

#include <doctest/doctest.h>

#include <array>
#include <type_traits>

namespace ike = ikebana;
using ike::dim_t;

TEST_CASE("An empty policy is PyTorch's: 1 and 25 MiB, averaging, buffers from rank 0") {
  using policy = ike::replicate_policy<>;
  static_assert(policy::caps == std::array<dim_t, 2>{1 << 20, 25 << 20});
  static_assert(std::is_same_v<policy::hook_type, ike::all_reduce_hook>);
  static_assert(policy::broadcasts_buffers);
  static_assert(policy::syncs_at_start);
  CHECK(ike::is_replicate_policy<policy>);
}

TEST_CASE("Options come in any order") {
  using a = ike::replicate_policy<ike::bucket_cap<ike::MiB(25)>, ike::comm_hook<ike::bf16_compress>,
                                  ike::broadcast_buffers<false>, ike::init_sync<false>>;
  using b = ike::replicate_policy<ike::init_sync<false>, ike::comm_hook<ike::bf16_compress>,
                                  ike::broadcast_buffers<false>, ike::bucket_cap<ike::MiB(25)>>;
  static_assert(a::caps == std::array<dim_t, 1>{25 << 20} && a::caps == b::caps);
  static_assert(std::is_same_v<a::hook_type, ike::bf16_compress>);
  static_assert(std::is_same_v<a::hook_type, b::hook_type>);
  static_assert(!a::broadcasts_buffers && !b::broadcasts_buffers);
  static_assert(!a::syncs_at_start && !b::syncs_at_start);
  CHECK(!ike::is_replicate_policy<int>);
}

TEST_CASE("A list of caps") {
  using policy = ike::replicate_policy<ike::bucket_caps<ike::KiB(1), ike::KiB(4), ike::MiB(1)>>;
  static_assert(policy::caps == std::array<dim_t, 3>{1024, 4096, 1048576});
  CHECK(policy::caps.size() == 3);
}

TEST_CASE("What is no option, or given twice, is found out") {
  using ike::detail::answers;
  CHECK(answers<ike::detail::bucket_caps_key, ike::bucket_cap<1>>);
  CHECK(answers<ike::detail::bucket_caps_key, ike::bucket_caps<1, 2>>);
  CHECK_FALSE(answers<ike::detail::bucket_caps_key, ike::init_sync<true>>);
  CHECK_FALSE(answers<ike::detail::bucket_caps_key, int>);
}
