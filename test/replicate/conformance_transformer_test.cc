// After PyTorch's test_replicate_with_fsdp.py.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/nn/transformer_encoder.hpp"
#include "ikebana/nn/transformer_encoder_layer.hpp"
#include "ikebana/optim/adam.hpp"
#include "ikebana/replicate/launch.hpp"
#include "ikebana/replicate/replicate.hpp"
#include "test/replicate/conformance_checks.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dynamic;
using ike::shape;
using ike::threads;

TEST_CASE("replicate_transformer: groups by layer, trained as one model") {
  using layer = ike::transformer_encoder_layer<6, 2, 7>;
  constexpr layer without_dropout{{.dropout = 0}};
  constexpr auto net =
      ike::sequential("encoder"_m = ike::transformer_encoder<3, layer>{without_dropout},
                      "out"_m = ike::lazy_linear<5>{});
  constexpr shape in{4, dynamic, 6};  // [length, batch, width]
  using policy =
      ike::replicate_policy<ike::groups_by_module<"encoder.layers.0", "encoder.layers.2">>;
  for (const int ranks : {1, 2, 3, 4})
    ike::launch(threads{ranks}, [&](ike::thread_group& group) {
      const auto made = ike::initialize<double, in>(net, ike::seed{1});
      auto model = ike::replicate<policy>(made.clone(), group);
      auto local = made.clone();
      ike::adam optimizer{model, {.lr = 1e-2}}, local_optimizer{local, {.lr = 1e-2}};
      const ike::dim_t n = 12 / ranks;
      ike::tensor<double, in> x(shape{4, n, 6});
      ike::tensor<double, shape{4, dynamic, 5}> y(shape{4, n, 5});
      for (std::uint64_t step = 0; step < 3; ++step) {
        const auto all_x = ike::uniform<double, in>(ike::seed{step}, 12);
        const auto all_y = ike::uniform<double, shape{4, dynamic, 5}>(ike::seed{50 + step}, 12);
        for (ike::dim_t i = 0; i < 4; ++i) {
          std::copy_n(all_x.data() + (i * 12 + group.rank() * n) * 6, n * 6, x.data() + i * n * 6);
          std::copy_n(all_y.data() + (i * 12 + group.rank() * n) * 5, n * 5, y.data() + i * n * 5);
        }
        model.train_step(x, y, ike::mse_loss{}, optimizer);
        local.train_step(all_x, all_y, ike::mse_loss{}, local_optimizer);
        CHECK(conformance_checks::are_close(model.gradients(), local.gradients(), 1e-10));
      }
      CHECK(conformance_checks::are_close(model.parameters(), local.parameters(), 1e-8));
    });
}
