#include <doctest/doctest.h>

#include <type_traits>

#include "ikebana/model/gradient_check.hpp"
#include "ikebana/model/state.hpp"
#include "on_threads.hpp"
#include "sync_batch_norm_checks.hpp"
#include "test/support/count_allocations.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dynamic;
using ike::shape;

TEST_CASE("replicas with sync_batch_norm train as one model with the whole batch") {
  on_threads([](auto& group) { sync_batch_norm_checks::trains<float>(group); });
  on_threads([](auto& group) { sync_batch_norm_checks::trains<double>(group); });
}

TEST_CASE("sync_batch_norm takes parts of any size, also none") {
  on_threads([](auto& group) { sync_batch_norm_checks::parts_of_any_size<float>(group); });
  on_threads([](auto& group) { sync_batch_norm_checks::parts_of_any_size<double>(group); });
  on_threads([](auto& group) { sync_batch_norm_checks::one_element(group); });
}

TEST_CASE("convert_sync_batch_norm replaces batch norms by path, with their options") {
  constexpr auto& net = sync_batch_norm_checks::net;
  constexpr auto all = ike::convert_sync_batch_norm(net);
  constexpr auto one = ike::convert_sync_batch_norm<"bn2">(net);
  const auto at = [](const auto& m, auto i) -> const auto& {
    return ike::detail::module_of(boost::hana::at(m.children, i));
  };
  using first = std::remove_cvref_t<decltype(at(all, boost::hana::size_c<1>))>;
  static_assert(std::is_same_v<first, ike::sync_batch_norm2d<3>>);
  CHECK(at(all, boost::hana::size_c<1>).momentum == 0.3);
  using kept = std::remove_cvref_t<decltype(at(one, boost::hana::size_c<1>))>;
  static_assert(std::is_same_v<kept, ike::batch_norm2d<3>>);
  using lazy = std::remove_cvref_t<decltype(at(one, boost::hana::size_c<5>))>;
  static_assert(std::is_same_v<lazy, ike::lazy_sync_batch_norm1d<ike::affine<false>>>);
  constexpr shape images = sync_batch_norm_checks::images;
  auto plain = ike::initialize<float, images>(net, ike::seed{1});
  auto synced = ike::initialize<float, images>(all, ike::seed{2});
  ike::load_state_dict(synced, ike::get_state_dict(plain));
  CHECK(synced["fc.weight"_s][0] == plain["fc.weight"_s][0]);
}

TEST_CASE("without replicas sync_batch_norm is a batch_norm, and its gradients are exact") {
  CHECK(ike::gradient_check(ike::sync_batch_norm2d<3>{},
                            ike::uniform<double, shape{4, 3, 2, 5}>(ike::seed{1}))
            .largest < 1e-6);
  CHECK(ike::gradient_check(ike::sync_batch_norm1d<3, ike::track_running_stats<false>>{},
                            ike::uniform<double, shape{4, 3}>(ike::seed{1}))
            .largest < 1e-6);
}

TEST_CASE("a step with sync_batch_norm does not allocate") {
  on_threads(
      [](auto& group) {
        using namespace sync_batch_norm_checks;
        auto all = ike::replicate(
            ike::initialize<float, images>(ike::convert_sync_batch_norm(net), ike::seed{3}), group);
        ike::sgd optimizer{all, {.lr = 0.1}};
        const auto x = ike::uniform<float, images>(ike::seed{1}, 3);
        const auto t = ike::uniform<float, outputs>(ike::seed{2}, 3);
        for (int i = 0; i < 3; ++i) all.train_step(x, t, ike::mse_loss{}, optimizer);
        const long before = allocation_count_here;
        for (int i = 0; i < 3; ++i) all.train_step(x, t, ike::mse_loss{}, optimizer);
        CHECK(allocation_count_here == before);
      },
      2);
}
