#include <doctest/doctest.h>

#include <cstdint>
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
#include "ikebana/replicate/mixed_precision.hpp"
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

TEST_CASE("gradient hooks of a replica, in numbers of its model or in smaller ones") {
  constexpr auto net =
      ike::sequential("fc1"_m = ike::lazy_linear<4>{}, "fc2"_m = ike::lazy_linear<2>{});
  constexpr shape in{3, 4};
  const auto run = [&]<class Policy>(Policy) {
    ike::launch(ike::threads{2}, [&](ike::thread_group& group) {
      const auto x = ike::uniform<float, in>(ike::seed{static_cast<std::uint64_t>(group.rank())});
      const auto gradient = ike::ones<float, shape{3, 2}>();
      auto plain = ike::replicate<Policy>(ike::initialize<float, in>(net, ike::seed{1}), group);
      auto hooked = ike::replicate<Policy>(ike::initialize<float, in>(net, ike::seed{1}), group);
      std::vector<std::string> log;
      hooked.register_full_backward_hook("fc2"_s, [&](const ike::module_gradients& g) {
        log.push_back("after");
        CHECK(g.output_gradient<float>()[0] == 1);
        for (float& v : g.writable_input_gradient<float>()) v *= 2;
      });
      hooked.register_forward_pre_hook("fc1"_s, [](const ike::module_call& c) {
        for (float& v : c.writable_input<float>()) v /= 2;
      });
      for (auto* model : {&plain, &hooked}) {
        (*model)(x);
        model->backward(gradient);
      }
      CHECK(log.size() == 1);
      // The factor of the hook and that of the gradient cancel: half the input, twice the gradient.
      for (ike::dim_t i = 0; i < 16; ++i)
        CHECK(hooked.gradient("fc1.weight"_s)[i] == plain.gradient("fc1.weight"_s)[i]);
      for (ike::dim_t i = 0; i < 4; ++i)
        CHECK(hooked.gradient("fc1.bias"_s)[i] == 2 * plain.gradient("fc1.bias"_s)[i]);
    });
  };
  run(ike::replicate_policy<>{});
  run(ike::replicate_policy<ike::mixed_precision<ike::bf16, ike::bf16>>{});
}
