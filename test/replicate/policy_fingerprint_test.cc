#include "ikebana/replicate/policy_fingerprint.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/replicate/launch.hpp"
#include "ikebana/replicate/post_local_sgd.hpp"
#include "ikebana/replicate/powersgd.hpp"
#include "ikebana/replicate/replicate.hpp"
#include "ikebana/replicate/trace.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::comm_hook;
using ike::gradient_divide_factor;
using ike::replicate_policy;
using ike::shape;
using ike::threads;

namespace {

constexpr auto net =
    ike::sequential("fc1"_m = ike::lazy_linear<5>{}, "fc2"_m = ike::lazy_linear<2>{});

auto made() { return ike::initialize<float, shape{6, 3}>(net, ike::seed{1}); }

/// The message of the state_error on each rank when f(group) replicates a model; empty if none.
template <class F>
std::vector<std::string> heard(int ranks, F f) {
  return ike::launch(threads{ranks}, [&](ike::thread_group& group) -> std::string {
    try {
      f(group);
    } catch (const ike::state_error& e) {
      return e.what();
    }
    return {};
  });
}

/// The messages if rank 1 of 3 has the policy B and the others A.
template <class A, class B>
std::vector<std::string> heard_of() {
  return heard(3, [](ike::thread_group& group) {
    if (group.rank() == 1)
      static_cast<void>(ike::replicate<B>(made(), group));
    else
      static_cast<void>(ike::replicate<A>(made(), group));
  });
}

const std::vector<std::string> nothing(3);

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("Policies that differ are refused on every rank, though their collectives are the same") {
  const auto texts = heard_of<replicate_policy<ike::bucket_cap<64>, gradient_divide_factor<7>>,
                              replicate_policy<gradient_divide_factor<5>, ike::bucket_cap<64>>>();
  CAPTURE(texts[0]);
  CHECK(texts[0].starts_with("replicate: rank 0 and rank 1 have different policies: rank 0 has "));
  CHECK(contains(texts[0], "gradient_divide_factor<7"));
  CHECK(contains(texts[0], ", rank 1 has "));
  CHECK(contains(texts[0], "gradient_divide_factor<5"));
  CHECK_FALSE(contains(texts[0], "bucket_cap"));
  CHECK(texts[1] == texts[0]);
  CHECK(texts[2] == texts[0]);
}

TEST_CASE("An option that one rank lacks is named, and so is another number of shards") {
  const auto texts = heard_of<replicate_policy<>, replicate_policy<comm_hook<ike::noop_hook>>>();
  CAPTURE(texts[2]);
  CHECK(contains(texts[2], "rank 0 has no option that the other has not, rank 1 has "));
  CHECK(contains(texts[2], "noop_hook"));
  const auto shards =
      heard_of<replicate_policy<ike::invariant<6>>, replicate_policy<ike::invariant<12>>>();
  CHECK(contains(shards[0], "invariant<6"));
  CHECK(contains(shards[1], "invariant<12"));
}

TEST_CASE("The order of options is of no account, nor which ranks are traced") {
  CHECK(heard_of<replicate_policy<ike::bucket_cap<64>, gradient_divide_factor<5>>,
                 replicate_policy<gradient_divide_factor<5>, ike::bucket_cap<64>>>() == nothing);
  CHECK(heard_of<replicate_policy<>, replicate_policy<ike::traced<64>>>() == nothing);
}

TEST_CASE("What is said of a hook at run time is compared") {
  const auto with = [](auto of_rank) {
    return heard(3, [&](ike::thread_group& group) {
      auto hook = of_rank(group.rank());
      static_cast<void>(ike::replicate<replicate_policy<comm_hook<decltype(hook)>>>(
          made(), group, std::move(hook)));
    });
  };
  const std::string differs =
      "replicate: rank 0 and rank 1 have different policies: the options are the same, but not "
      "their values at run time (those of the comm_hook, or set_gradient_divide_factor)";
  const std::vector<std::string> all(3, differs);
  CHECK(with([](int r) { return ike::powersgd{{.rank = 1 + r % 2}}; }) == all);
  CHECK(with([](int r) { return ike::powersgd{{.min_compression_rate = 1.5 + r % 2}}; }) == all);
  CHECK(with([](int r) { return ike::powersgd{{.error_feedback = r % 2 == 0}}; }) == all);
  CHECK(with([](int r) { return ike::powersgd{{.warm_start = r % 2 == 0}}; }) == all);
  CHECK(with([](int r) {
          return ike::powersgd{{.seed = ike::seed{static_cast<std::uint64_t>(r % 2)}}};
        }) == all);
  CHECK(with([](int r) {
          return ike::bf16_compress_wrapper<ike::powersgd>{ike::powersgd{{.rank = 1 + r % 2}}};
        }) == all);
  CHECK(with([](int r) { return ike::post_local_sgd{5 + r % 2}; }) == all);
  CHECK(with([](int) { return ike::powersgd{{.rank = 3}}; }) == nothing);
}

TEST_CASE("Divisors that were set at run time are compared in a new group") {
  for (const bool same : {false, true}) {
    const auto texts = heard(3, [same](ike::thread_group& group) {
      auto model = ike::replicate(made(), group);
      if (same || group.rank() == 1) model.set_gradient_divide_factor(3);
      ike::thread_group other = group.split(0, 0);
      model.set_process_group(other);
    });
    CHECK(texts[0].starts_with("set_process_group: rank 0 and rank 1 have different policies") !=
          same);
    CHECK(texts[1] == texts[0]);
    CHECK(texts[2] == texts[0]);
  }
}
