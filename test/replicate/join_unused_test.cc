// A join of replicas whose backward may leave parameters out.

#include <doctest/doctest.h>

#include <cstddef>
#include <span>

#include "ikebana/replicate/launch.hpp"
#include "test/replicate/join_checks.hpp"
#include "test/replicate/unused_checks.hpp"

namespace ike = ikebana;

namespace {

/// Rank 0 has one batch, the others three; all go through `chosen(step)`.
template <class Policy, class Group, class Chosen>
void branches(Group& group, const Chosen& chosen) {
  const ike::sgd_options options{.lr = 0.1, .momentum = 0.9};
  auto model = ike::replicate<Policy>(unused_checks::fresh<double>(), group);
  auto alone = unused_checks::fresh<double>();
  ike::sgd optimizer{model, options}, optimizer_alone{alone, options};
  model.join(optimizer, [&] {
    for (int s = 0; s < (group.rank() == 0 ? 1 : 3); ++s) {
      model.zero_grad();
      unused_checks::backward(model, group.rank(), s, chosen(s));
      model.step(optimizer);
    }
  });
  for (int s = 0; s < (group.size() == 1 ? 1 : 3); ++s) {
    alone.zero_grad();
    for (int r = s == 0 ? 0 : 1; r < group.size(); ++r)
      unused_checks::backward(alone, r, s, chosen(s));
    for (double& g : alone.gradients()) g /= group.size();
    optimizer_alone.step();
  }
  join_checks::check_close<double>(model.parameters(), alone.parameters(), 1e-14);
  join_checks::check_same_everywhere(std::span<const double>{model.parameters()}, group);
  join_checks::check_same_everywhere(std::span<const std::byte>{optimizer.state()[1].bytes}, group);
}

}  // namespace

TEST_CASE("a rank that is through chooses no branch: what nobody reaches stays absent") {
  using ike::find_unused_parameters, ike::static_graph, ike::skip_unused;
  for (int ranks : {1, 2, 4}) {
    CAPTURE(ranks);
    ike::launch(ike::threads{ranks}, [](ike::thread_group& group) {
      branches<unused_checks::policy<find_unused_parameters<true>>>(group,
                                                                    [](int s) { return s % 2; });
      branches<unused_checks::policy<find_unused_parameters<true>, skip_unused<true>>>(
          group, [](int s) { return s % 2; });
      branches<unused_checks::policy<static_graph<true>>>(group, [](int) { return 1; });
    });
  }
}
