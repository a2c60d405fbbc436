// Trains a classifier of digits, is interrupted, and goes on as if it had not been: it ends with
// the bits of an uninterrupted run, shifted images and dropout included.

#include <cstdio>
#include <filesystem>
#include <ikebana/ikebana.hpp>
#include <ikebana/io.hpp>
#include <ikebana/optim/averaged_model.hpp>
#include <ikebana/train/checkpointer.hpp>

namespace ike = ikebana;

constexpr auto net =
    ike::sequential(ike::lazy_conv2d<8, ike::kernel<3>, ike::padding<1>>{},
                    ike::lazy_batch_norm2d<>{}, ike::relu{}, ike::max_pool2d<ike::kernel<2>>{},
                    ike::flatten<>{}, ike::dropout{.p = 0.2}, ike::lazy_linear<10>{});

auto digits() {
  const auto table = ike::read_csv<float>("examples/data/digits.csv");
  auto images = ike::columns<ike::shape{1, 8, 8}>(table);
  for (float& pixel : images) pixel /= 16;
  return ike::tensor_dataset(std::move(images), ike::labels(table, 64));
}

/// Trains until that step, from the newest checkpoint if there is one. Returns the last loss.
float train(const std::filesystem::path& directory, int last_step) {
  const auto data = ike::transformed(digits(), ike::random_crop<8, 8>{.padding = 1});
  auto model = ike::initialize<float, ike::shape{ike::dynamic, 1, 8, 8}>(net, ike::seed{2});
  ike::adamw optimizer{model, {.lr = 0.01}};
  ike::lr_scheduler schedule{optimizer, ike::cosine_annealing_lr{.t_max = 300}};
  ike::data_loader loader{data, {.batch = 32, .shuffle = ike::seed{3}, .workers = 1}};
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
  const float whole = train(scratch / "whole", 300);
  train(scratch / "parts", 134);
  const float resumed = train(scratch / "parts", 300);
  std::filesystem::remove_all(scratch);
  std::printf("loss %.5f, resumed %.5f\n", static_cast<double>(whole),
              static_cast<double>(resumed));
  return resumed == whole && whole < 1 ? 0 : 1;
}
