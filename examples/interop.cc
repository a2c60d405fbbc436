// A network that PyTorch trained, with data from NumPy and from the program's own memory, and back.

#include <cstdio>
#include <filesystem>
#include <ikebana/ikebana.hpp>
#include <ikebana/io/npy.hpp>
#include <ikebana/io/npz.hpp>
#include <ikebana/io/safetensors.hpp>
#include <iostream>
#include <vector>

namespace ike = ikebana;
using namespace ike::literals;
using ike::shape;

constexpr auto net =
    ike::sequential("lstm"_m = ike::lazy_lstm<8>{}, "out"_m = ike::lazy_linear<1>{});
constexpr shape sound{ike::dynamic, 1, 1};  // [time, 1, 1]

int main() {
  // torch.nn.LSTM(1, 8) and torch.nn.Linear(8, 1), saved by safetensors.torch.save_file.
  auto model = ike::initialize<float, sound>(net, ike::seed{1});
  ike::load_state_dict(model, ike::load("examples/data/amplifier.safetensors"));
  model.eval();

  // Memory of the program, seen as a tensor; the result as a std::vector.
  const std::vector<float> samples{0, 0.5F, 1, 0.5F, 0, -0.5F};
  const auto y = model(ike::as_tensor<sound>(samples));
  const std::vector<float> played(y.begin(), y.end());

  // NumPy reads these files: numpy.load("played.npy"), numpy.load("state.npz")["out.weight"].
  const auto scratch = std::filesystem::temp_directory_path() / "ikebana_interop";
  std::filesystem::create_directories(scratch);
  ike::save_npy(scratch / "played.npy", y);
  ike::save_npz(ike::get_state_dict(model), scratch / "state.npz");

  // And the other way around: arrays of NumPy as the state of another model.
  auto other = ike::initialize<float, sound>(net, ike::seed{2});
  ike::load_state_dict(other, ike::load_npz(scratch / "state.npz"));
  const auto recorded = ike::load_npy<float, sound>(scratch / "played.npy");
  const bool same = ike::allclose(other(ike::as_tensor<sound>(samples)), recorded);
  // safetensors.torch.load_file reads this one.
  ike::save(ike::get_state_dict(other), scratch / "state.safetensors");
  std::filesystem::remove_all(scratch);

  std::cout << recorded << '\n';
  return same && played.size() == 6 ? 0 : 1;
}
