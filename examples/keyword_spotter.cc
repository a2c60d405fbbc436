// Spots two "words", a rising and a falling whistle, in a noisy stream. A network of dilated causal
// convolutions learns from short recordings and then hears the stream in blocks of 10 ms, as a
// microphone delivers them; what came before is the state of its lane.

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <numbers>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "ikebana/deploy.hpp"
#include "ikebana/ikebana.hpp"
#include "ikebana/nn/causal_conv1d.hpp"
#include "ikebana/ops.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::dim_t;
using ike::shape;

constexpr dim_t rate = 2000, word = 200, block = 20;  // Samples: in a second, a word, a block.
enum sound : std::int64_t { nothing, rising, falling, steady, ignored = -100 };

// [N, 1, samples]; it hears the last 268 samples.
template <class... Options>
constexpr auto listener = ike::sequential(
    "hear"_m = ike::causal_conv1d<1, 12, ike::kernel<16>, Options...>{},
    "norm1"_m = ike::batch_norm1d<12>{}, ike::relu{},
    "near"_m = ike::causal_conv1d<12, 12, ike::kernel<4>, ike::dilation<4>, Options...>{},
    "norm2"_m = ike::batch_norm1d<12>{}, ike::relu{},
    "far"_m = ike::causal_conv1d<12, 12, ike::kernel<4>, ike::dilation<16>, Options...>{},
    "norm3"_m = ike::batch_norm1d<12>{}, ike::relu{},
    "all"_m = ike::causal_conv1d<12, 12, ike::kernel<4>, ike::dilation<64>, Options...>{},
    "norm4"_m = ike::batch_norm1d<12>{}, ike::relu{},
    "scores"_m = ike::causal_conv1d<12, 3, ike::kernel<1>, Options...>{});
// The scores of three classes at each sample.
template <class... Options>
constexpr auto spotter = ike::graph([](auto x) {
  return ike::reshape<-1, 3>(ike::transpose<1, 2>("listener"_m(listener<Options...>, x)));
});

/// Adds a whistle: from 200 to 600 Hz, back, or at one frequency.
void whistle(std::span<float> at, sound what, std::minstd_rand& random) {
  std::uniform_real_distribution<float> from(-1, 1);
  const float low = 200 + 20 * from(random), high = 600 + 20 * from(random),
              loud = 0.6F + 0.3F * from(random);
  const float begin = what == rising ? low : what == falling ? high : 400 + 200 * from(random);
  const float end = what == rising ? high : what == falling ? low : begin;
  float phase = from(random);
  for (std::size_t i = 0; i < at.size(); ++i) {
    const float t = static_cast<float>(i) / static_cast<float>(at.size());
    phase += (begin + t * (end - begin)) / rate;
    at[i] += loud * std::sin(2 * std::numbers::pi_v<float> * phase) *
             std::sin(std::numbers::pi_v<float> * t);
  }
}

void add_noise(std::span<float> x, std::minstd_rand& random) {
  std::normal_distribution<float> noise(0, 0.1F);
  for (float& sample : x) sample += noise(random);
}

int main() {
  constexpr dim_t recordings = 8, length = 800;
  auto model = ike::initialize<float, shape{recordings, 1, length}>(spotter<>, ike::seed{1});
  ike::adam optimizer{model, {.lr = 1e-2}};
  std::minstd_rand random(1);
  for (int step = 0; step < 300; ++step) {
    ike::tensor<float, shape{recordings, 1, length}> x;
    ike::tensor<std::int64_t, shape{recordings * length}> labels;
    for (dim_t n = 0; n < recordings; ++n) {
      const std::span recording = x.span().subspan(static_cast<std::size_t>(n * length), length);
      add_noise(recording, random);
      for (dim_t begin = 50; begin + 350 < length; begin += 350) {
        const auto what = static_cast<sound>(random() % 4);
        if (what == nothing) continue;
        whistle(recording.subspan(static_cast<std::size_t>(begin), word), what, random);
        if (what == steady) continue;
        // The word is known for 30 ms after its end; near its end, either answer is right.
        const auto at = labels.begin() + n * length + begin;
        std::fill(at + word / 2, at + word + 80, static_cast<std::int64_t>(ignored));
        std::fill(at + word, at + word + 60, static_cast<std::int64_t>(what));
      }
    }
    const float loss = model.train_step(x, labels, ike::cross_entropy{}, optimizer);
    if (step % 100 == 99) std::printf("step %d: loss %.3f\n", step + 1, static_cast<double>(loss));
  }

  // The same weights; every convolution continues where the previous block ended. Norms become part
  // of the weights.
  auto streaming =
      ike::initialize<float, shape{1, 1, block}>(spotter<ike::stateful<1>>, ike::seed{1});
  ike::load_state_dict(streaming, ike::get_state_dict(model));
  const auto net = ike::freeze(streaming);
  auto lane = net.lane();
  ike::prepare_thread();

  // Two minutes of sound.
  std::vector<float> room(120 * rate);
  struct heard {
    sound what;
    dim_t at;
  };
  std::vector<heard> spoken, spotted;
  add_noise(room, random);
  for (dim_t at = 300; at + 500 < static_cast<dim_t>(room.size());
       at += 500 + static_cast<dim_t>(random() % 3000)) {
    const auto what = static_cast<sound>(1 + random() % 3);
    whistle(std::span(room).subspan(static_cast<std::size_t>(at), word), what, random);
    if (what != steady) spoken.push_back({what, at + word});
  }

  const auto begin = std::chrono::steady_clock::now();
  std::array<float, 3> score{};  // Averages of the last 5 ms.
  dim_t quiet_until = 0;
  for (dim_t t = 0; t < static_cast<dim_t>(room.size()); t += block) {
    const auto y = net(lane, ike::tensor_view<const float, shape{1, 1, block}>(room.data() + t));
    for (dim_t i = 0; i < block; ++i) {
      dim_t c = 0;
      for (float& average : score) average += (y(i, c++) - average) / 10;
      if (t + i < quiet_until) continue;
      const auto what = std::max_element(score.begin(), score.end()) - score.begin();
      if (what == nothing) continue;
      spotted.push_back({static_cast<sound>(what), t + i});
      quiet_until = t + i + word;
    }
  }
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;

  std::size_t right = 0;
  for (const heard& s : spotted) {
    const auto said = std::find_if(spoken.begin(), spoken.end(), [&](const heard& w) {
      return w.what == s.what && std::abs(w.at - s.at) <= 100;
    });
    right += said != spoken.end();
    std::printf("%6.2f s  %s%s\n", static_cast<double>(s.at) / rate,
                s.what == rising ? "rising" : "falling", said == spoken.end() ? " (wrong)" : "");
  }
  std::printf("%zu of %zu words spotted, %zu false; %.1f us for each block of 10 ms\n", right,
              spoken.size(), spotted.size() - right,
              took.count() * block / static_cast<double>(room.size()));
  return right * 20 >= spoken.size() * 19 && (spotted.size() - right) * 20 <= spoken.size() ? 0 : 1;
}
