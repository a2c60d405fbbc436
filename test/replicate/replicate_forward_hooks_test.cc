#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/model/hooks.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/replicate/launch.hpp"
#include "ikebana/replicate/replicate.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::shape;

TEST_CASE("a replica has the hooks of its model") {
  constexpr auto net = ike::sequential("fc"_m = ike::lazy_linear<2>{});
  ike::launch(ike::threads{2}, [&](ike::thread_group& group) {
    auto model = ike::initialize<float, shape{3, 4}>(net, ike::seed{1});
    std::vector<std::string> log;
    model.register_forward_pre_hook("fc"_s,
                                    [&](const ike::module_call&) { log.push_back("before"); });
    auto replica = ike::replicate(std::move(model), group);
    auto after = replica.register_forward_hook(
        "fc"_s, [&](const ike::module_call&) { log.push_back("after"); });
    replica.register_state_dict_hook([](ike::state_dict& d) { d.set_metadata("by", "a hook"); });
    replica.register_load_state_dict_pre_hook(
        [](ike::state_dict& d) { d.rename("old.weight", "fc.weight"); });
    int loads = 0;
    replica.register_load_state_dict_post_hook([&](const ike::state_dict&) { ++loads; });
    const auto x = ike::ones<float, shape{3, 4}>();
    replica(x);
    after.remove();
    replica(x);
    CHECK(log == std::vector<std::string>{"before", "after", "before"});
    ike::state_dict dict = ike::get_state_dict(replica).clone();
    CHECK(dict.find_metadata("by") != nullptr);
    dict.rename("fc.weight", "old.weight");
    ike::load_state_dict(replica, dict);
    CHECK(loads == 1);
  });
}
