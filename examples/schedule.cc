// Trains with a learning rate that warms up and then falls, stops in the middle, and continues with
// the same bits.

#include <cstdio>
#include <filesystem>
#include <ikebana/ikebana.hpp>
#include <ikebana/io/safetensors.hpp>
#include <ikebana/train/training_state.hpp>

namespace ike = ikebana;

constexpr auto net = ike::sequential(ike::lazy_linear<32>{}, ike::tanh{}, ike::lazy_linear<1>{});
constexpr ike::shape rows{ike::dynamic, 3};

int main() {
  const auto path = std::filesystem::temp_directory_path() / "ikebana_schedule.safetensors";
  const auto x = ike::uniform<float, ike::shape{64, 3}>(ike::seed{1});
  auto y = ike::zeros<float, ike::shape{64, 1}>();
  for (ike::dim_t i = 0; i < 64; ++i) y(i, 0) = x(i, 0) * x(i, 1) - x(i, 2);

  auto model = ike::initialize<float, rows>(net, ike::seed{2});
  ike::adamw optimizer{model, {.lr = 0.02}};
  // A warm-up of 50 steps, then half a cosine.
  const ike::sequential_lr warm_up_and_cosine{
      ike::linear_lr{.start_factor = 0.1, .total_iters = 50},
      ike::cosine_annealing_lr{.t_max = 450, .eta_min = 1e-4}};
  ike::lr_scheduler schedule{optimizer, warm_up_and_cosine};

  float loss = 0;
  for (int step = 0; step < 500; ++step) {
    if (step % 50 == 0)
      std::printf("step %3d  lr %.5f  loss %.5f\n", step, schedule.get_last_lr(),
                  static_cast<double>(loss));
    // Half-way, the model, the optimizer and the schedule are saved together.
    if (step == 250) ike::save(ike::get_training_state(model, optimizer, schedule), path);
    loss = model.train_step(x, y, ike::mse_loss{}, optimizer);
    schedule.step();
  }

  // Another process continues at step 250 and ends with the same bits.
  auto resumed = ike::initialize<float, rows>(net, ike::seed{3});
  ike::adamw other{resumed, {.lr = 0.02}};
  ike::lr_scheduler same{other, warm_up_and_cosine};
  ike::load_training_state(resumed, other, same, ike::load(path));
  float again = 0;
  while (same.last_epoch() < 500) {
    again = resumed.train_step(x, y, ike::mse_loss{}, other);
    same.step();
  }
  std::filesystem::remove(path);
  std::printf("loss %.5f, resumed %.5f\n", static_cast<double>(loss), static_cast<double>(again));
  return loss < 0.02F && again == loss ? 0 : 1;
}
