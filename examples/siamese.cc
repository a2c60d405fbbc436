// A siamese network: one encoder for two images of digits, and the probability that they show the
// same digit. The pairs are a dataset of one's own, drawn anew in each epoch.

#include <cstdint>
#include <cstdio>
#include <ikebana/ikebana.hpp>
#include <ikebana/io.hpp>
#include <ikebana/ops.hpp>
#include <ikebana/train/fit.hpp>
#include <tuple>

namespace ike = ikebana;
using namespace ike::literals;
using ike::shape;

constexpr auto encoder = ike::sequential("fc1"_m = ike::lazy_linear<64>{}, ike::relu{},
                                         "fc2"_m = ike::lazy_linear<16>{});

constexpr auto siamese = ike::graph<"a", "b">([](auto a, auto b) {
  // One name, so one set of parameters.
  auto difference = ike::abs("encoder"_m(encoder, a) - "encoder"_m(encoder, b));
  return "same"_m(ike::lazy_linear<1>{}, difference);
});

/// Pairs of which one half shows the same digit twice.
struct pairs {
  const ike::tensor<float, shape{ike::dynamic, 64}>& images;
  const ike::tensor<std::int64_t, shape{ike::dynamic}>& labels;

  ike::dim_t size() const { return images.extent(0); }
  auto sample(ike::dim_t i, const ike::random_stream& stream) const {
    const auto words = stream.words(0);
    const bool same = words[0] % 2 == 0;
    ike::dim_t j = words[1] % size();
    while ((labels[j] == labels[i]) != same) j = (j + 1) % size();
    const auto row = [&](ike::dim_t k) {
      return ike::tensor_view<const float, shape{64}>(images.data() + 64 * k);
    };
    ike::tensor<float, shape{1}> target;
    target[0] = same ? 1 : 0;
    return std::tuple(row(i), row(j), std::move(target));
  }
};

int main() {
  const auto table = ike::read_csv<float>("examples/data/digits.csv");
  ike::tensor images = ike::columns<shape{64}>(table);
  for (float& p : images) p /= 16;
  const ike::tensor labels = ike::labels(table, 64);
  const pairs data{images, labels};
  ike::data_loader loader{data, {.batch = 64, .shuffle = ike::seed{1}, .workers = 1}};

  constexpr shape rows{ike::dynamic, 64};
  auto model = ike::initialize<float, rows, rows>(siamese, ike::seed{1});
  ike::adam optimizer{model, {.lr = 3e-3}};
  const auto history =
      ike::fit(model, loader, ike::bce_with_logits{}, optimizer, {.epochs = 30, .log = stdout});
  return history.back().loss < 0.25 ? 0 : 1;
}
