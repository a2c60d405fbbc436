// Replicas on parts of PyTorch's batches, compared with one process of PyTorch on the full ones
// (test/data/README.md, "data_parallel").

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/optim/sgd.hpp"
#include "ikebana/replicate/launch.hpp"
#include "ikebana/replicate/replicate.hpp"
#include "test/support/load_recorded.hpp"

namespace ike = ikebana;
using ike::dynamic;
using ike::shape;

namespace {

constexpr auto network =
    ike::sequential(ike::lazy_linear<16>{}, ike::tanh{}, ike::lazy_linear<5>{});

ike::state_dict initial(const ike::state_dict& all) {
  ike::state_dict out;
  for (const auto& e : all)
    if (e.name.starts_with("initial/"))
      out.add_view(std::string_view{e.name}.substr(8), e.type, e.extents, e.bytes.data());
  return out;
}

template <class T>
void check_close(const T* a, const T* b, ike::dim_t n, const std::string& what) {
  constexpr double tolerance = std::is_same_v<T, float> ? 1e-6 : 1e-13;
  double most = 0, apart = 0;
  for (ike::dim_t i = 0; i < n; ++i) {
    most = std::max(most, std::fabs(static_cast<double>(b[i])));
    const double d = std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(d <= apart)) apart = d;
  }
  CHECK_MESSAGE(apart <= tolerance * most, what << ": " << apart << " of " << most);
}

template <class T, class Target, shape TargetShape, class Loss>
void check_against_pytorch(const std::string& name, int ranks) {
  CAPTURE(ranks);
  const ike::state_dict all =
      load_recorded(std::is_same_v<T, float> ? "data_parallel_f32" : "data_parallel_f64");
  ike::launch(ike::threads{ranks}, [&](ike::process_group auto& group) {
    auto made = ike::initialize<T, shape{dynamic, 12}>(network, ike::seed{1});
    if (group.rank() == 0) ike::load_state_dict(made, initial(all));
    auto model = ike::replicate(std::move(made), group);
    ike::sgd optimizer{model, {.lr = 0.1, .momentum = 0.9, .nesterov = false}};
    const auto x = all.at("batches/x").view<T, shape{10, 16, 12}>();
    const auto& target = all.at(name + "/target");
    const auto* targets = reinterpret_cast<const Target*>(target.bytes.data());
    const ike::dim_t n = 16 / ranks;
    const ike::dim_t row = target.extents.numel() / 160;
    for (ike::dim_t step = 0; step < 10; ++step) {
      const ike::dim_t first = 16 * step + n * group.rank();
      const ike::tensor_view<const T, shape{dynamic, 12}> mine(x.data() + 12 * first, shape{n, 12});
      shape extents = TargetShape;
      extents[0] = n;
      const ike::tensor_view<const Target, TargetShape> wanted(targets + row * first, extents);
      T loss = model.train_step(mine, wanted, Loss{}, optimizer);
      group.all_reduce(std::span<T>(&loss, 1), ike::reduce_op::avg);
      const auto losses = all.at(name + "/losses").view<T, shape{10}>();
      check_close(&loss, &losses[step], 1, "loss");
      if (step == 0)
        for (std::size_t i = 0; i < decltype(model)::parameter_count; ++i) {
          const auto& p = model.current_program();
          const std::string path{p.path(p.parameters[i]).view()};
          const auto& e = all.at(name + "/grad." + path);
          check_close(model.gradients().data() + model.layout().offsets[i],
                      reinterpret_cast<const T*>(e.bytes.data()), e.extents.numel(), path);
        }
    }
    for (const auto& e : ike::get_state_dict(model))
      check_close(reinterpret_cast<const T*>(e.bytes.data()),
                  reinterpret_cast<const T*>(all.at(name + "/final." + e.name).bytes.data()),
                  e.extents.numel(), e.name);
  });
}

}  // namespace

TEST_CASE_TEMPLATE("1, 2 and 4 replicas train as PyTorch on the full batch, mse_loss", T, float,
                   double) {
  for (int ranks : {1, 2, 4})
    check_against_pytorch<T, T, shape{dynamic, 5}, ike::mse_loss>("mse", ranks);
}

TEST_CASE_TEMPLATE("1, 2 and 4 replicas train as PyTorch on the full batch, cross_entropy", T,
                   float, double) {
  for (int ranks : {1, 2, 4})
    check_against_pytorch<T, std::int64_t, shape{dynamic}, ike::cross_entropy>("cross_entropy",
                                                                               ranks);
}
