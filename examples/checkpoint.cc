// Saves and restores states: the best epoch, a checkpoint from which training continues with the
// same bits, and a part of another network.

#include <filesystem>
#include <ikebana/ikebana.hpp>
#include <ikebana/io/safetensors.hpp>
#include <ikebana/train/training_state.hpp>
#include <iostream>
#include <limits>
#include <string>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto backbone =
    ike::sequential("fc"_m = ike::lazy_linear<16>{}, "norm"_m = ike::lazy_batch_norm1d<>{},
                    "tanh"_m = ike::tanh{}, "drop"_m = ike::dropout{.p = 0.1});

/// The backbone with a head of N outputs.
template <ike::dim_t N>
constexpr auto net = ike::sequential("backbone"_m = backbone, "head"_m = ike::lazy_linear<N>{});

constexpr ike::shape rows{ike::dynamic, 4};

int main() {
  const auto path = std::filesystem::temp_directory_path() / "ikebana_checkpoint.safetensors";
  const auto x = ike::uniform<float, ike::shape{32, 4}>(ike::seed{1});
  const auto y = ike::uniform<float, ike::shape{32, 2}>(ike::seed{2});
  auto model = ike::initialize<float, rows>(net<2>, ike::seed{3});
  ike::adam optimizer{model, {.lr = 1e-2}};
  const auto epoch = [&](auto& m, auto& o) {
    float loss = 0;
    for (int i = 0; i < 10; ++i) loss = m.train_step(x, y, ike::mse_loss{}, o);
    return loss;
  };

  // A snapshot keeps the best state. get_state_dict would show the current one.
  ike::state_dict best;
  float least = std::numeric_limits<float>::infinity();
  for (int e = 0; e < 5; ++e) {
    const float loss = epoch(model, optimizer);
    if (loss < least) {
      least = loss;
      best = model.snapshot();
    }
  }
  ike::load_state_dict(model, best);

  // Saves everything that training needs to continue, atomically, in one file.
  ike::save(ike::get_training_state(model, optimizer), path);

  // In another process, the same network and optimizer continue with the same bits.
  auto resumed = ike::initialize<float, rows>(net<2>, ike::seed{4});
  ike::adam same{resumed, {.lr = 1e-2}};
  ike::load_training_state(resumed, same, ike::load(path));
  const bool goes_on = epoch(model, optimizer) == epoch(resumed, same);

  // Another learning rate is an error unless the program chooses which one to use.
  ike::adam slower{resumed, {.lr = 1e-3}};
  bool is_refused = false;
  try {
    ike::load_training_state(resumed, slower, ike::load(path));
  } catch (const ike::state_error& e) {
    is_refused = e.mismatched.size() == 1;
    std::cout << e.what() << "\n";
  }
  ike::load_training_state(resumed, slower, ike::load(path), ike::saved_options::ignore);

  // Loads only the backbone into a network with another head.
  auto tuned = ike::initialize<float, rows>(net<7>, ike::seed{5});
  ike::load_state_dict(tuned, best, ike::only<"backbone">);
  // Copies every tensor that matches and returns the names of the others.
  const ike::state_differences left = ike::load_state_dict(tuned, best, {.strict = false});
  for (const std::string& name : left.mismatched) std::cout << name << " is of another shape\n";

  std::filesystem::remove(path);
  const bool has_backbone = tuned["backbone.fc.weight"_s][0] ==
                            best.at("backbone.fc.weight").view<float, ike::shape{16, 4}>()[0];
  return goes_on && is_refused && has_backbone && left.mismatched.size() == 2 ? 0 : 1;
}
