// Prices of flats from a CSV file with a column of text and missing values.

#include <cstdio>
#include <ikebana/ikebana.hpp>
#include <ikebana/io.hpp>
#include <ikebana/io/safetensors.hpp>
#include <ikebana/nn/standard_scaler.hpp>

namespace ike = ikebana;
using namespace ike::literals;

// Two inputs: numbers, and the district, one column for each.
constexpr auto net = ike::graph<"numbers", "district">([](auto numbers, auto district) {
  auto scaled = "scale"_m(ike::lazy_standard_scaler{}, numbers);
  auto h =
      ike::relu{}("fc1"_m(ike::lazy_linear<32>{}, ike::concat<ike::dim<1>>{}(scaled, district)));
  return "out"_m(ike::lazy_linear<1>{}, h);
});

int main() {
  const auto flats = ike::read_table("examples/data/flats.csv");
  const auto numbers = flats.matrix<float>({"area", "floor", "built"}, ike::missing_as{4.f});
  const auto district = flats.categories("district");  // labels, and the names they stand for
  const auto districts = flats.one_hot<float>("district", district.names);
  auto price = flats.matrix<float>({"price"});
  const auto prices = ike::column_statistics(price);
  for (float& p : price) p = (p - prices.mean[0]) / prices.deviation[0];

  const ike::dim_t rows = flats.rows(), trained = 320;
  auto model = ike::initialize<float, ike::shape{ike::dynamic, 3}, ike::shape{ike::dynamic, 5}>(
      net, ike::seed{1});
  const auto of_numbers = ike::column_statistics(ike::slice(numbers, 0, trained));
  model.buffer("scale.mean"_s) = ike::reshape<ike::shape{3}>(of_numbers.mean);
  model.buffer("scale.deviation"_s) = ike::reshape<ike::shape{3}>(of_numbers.deviation);

  ike::adamw optimizer{model, {.lr = 1e-2}};
  for (int epoch = 0; epoch < 60; ++epoch)
    for (ike::dim_t i = 0; i < trained; i += 32)
      model.train_step(
          ike::inputs(ike::slice(numbers, i, i + 32), ike::slice(districts, i, i + 32)),
          ike::slice(price, i, i + 32), ike::mse_loss{}, optimizer);

  model.eval();
  const double r2 =
      ike::r2_score(model(ike::slice(numbers, trained, rows), ike::slice(districts, trained, rows)),
                    ike::slice(price, trained, rows));
  std::printf("%lld flats never seen: R2 %.3f\n", static_cast<long long>(rows - trained), r2);
  return r2 > 0.9 ? 0 : 1;
}
