// Trains a classifier of images, is interrupted, and goes on as if it had not been: the second
// process ends with the bits of an uninterrupted one.

#include <cstdio>
#include <filesystem>
#include <ikebana/ikebana.hpp>
#include <ikebana/optim/averaged_model.hpp>
#include <ikebana/train/checkpointer.hpp>

namespace ike = ikebana;

constexpr auto net =
    ike::sequential(ike::lazy_conv2d<8, ike::kernel<3>, ike::padding<1>>{},
                    ike::lazy_batch_norm2d<>{}, ike::relu{}, ike::max_pool2d<ike::kernel<2>>{},
                    ike::flatten<>{}, ike::dropout{.p = 0.2}, ike::lazy_linear<2>{});

/// Images with a bright upper half, or a bright left half.
auto two_kinds() {
  auto x = ike::uniform<float, ike::shape{96, 1, 8, 8}>(ike::seed{1});
  auto t = ike::zeros<std::int64_t, ike::shape{96}>();
  for (ike::dim_t n = 0; n < 96; ++n) {
    t[n] = n % 2;
    for (ike::dim_t i = 0; i < 32; ++i)
      x(n, 0, t[n] == 0 ? i / 8 : i % 8, t[n] == 0 ? i % 8 : i / 8) += 1;
  }
  return ike::tensor_dataset(std::move(x), std::move(t));
}

/// Trains until that step, from the newest checkpoint if there is one. Returns the last loss.
float train(const std::filesystem::path& directory, int last_step) {
  const auto data = two_kinds();
  auto model = ike::initialize<float, ike::shape{16, 1, 8, 8}>(net, ike::seed{2});
  ike::adamw optimizer{model, {.lr = 0.01}};
  ike::lr_scheduler schedule{optimizer, ike::cosine_annealing_lr{.t_max = 60}};
  ike::data_loader loader{data, {.batch = 16, .shuffle = ike::seed{3}}};
  ike::averaged_model average{model, {.decay = 0.9}};

  ike::checkpointer run{directory, model, optimizer, schedule, loader, average};
  if (run.resume()) std::printf("resumed at step %d\n", static_cast<int>(schedule.last_epoch()));
  float loss = 0;
  while (schedule.last_epoch() < last_step)
    for (auto [x, t] : loader) {
      loss = model.train_step(x, t, ike::cross_entropy{}, optimizer);
      average.update_parameters(model);
      schedule.step();
      if (schedule.last_epoch() % 10 == 0) run.save();
      if (schedule.last_epoch() == last_step) break;
    }
  return loss;
}

int main() {
  const auto scratch = std::filesystem::temp_directory_path() / "ikebana_resumed_run";
  std::filesystem::remove_all(scratch);
  const float whole = train(scratch / "whole", 60);
  train(scratch / "parts", 34);
  const float resumed = train(scratch / "parts", 60);
  std::filesystem::remove_all(scratch);
  std::printf("loss %.5f, resumed %.5f\n", static_cast<double>(whole),
              static_cast<double>(resumed));
  return resumed == whole && whole < 0.2F ? 0 : 1;
}
