// The code in README.md as one program.

#include <cmath>
#include <ikebana/ikebana.hpp>
#include <ikebana/io/safetensors.hpp>
#include <ikebana/replicate.hpp>
#include <iostream>

namespace ike = ikebana;
using namespace ike::literals;

// A network is a type. Input dimensions are left out; they are inferred from the input's shape.
constexpr auto net =
    ike::sequential("fc1"_m = ike::lazy_linear<32>{}, ike::relu{}, "fc2"_m = ike::lazy_linear<3>{});

// A custom module. Values are symbolic: the graph is a type, and backward is derived from it.
constexpr auto block = ike::graph([](auto x) {
  auto h = "conv1"_m(ike::lazy_conv2d<64, ike::kernel<3>, ike::padding<1>>{}, x);
  auto g = "bn1"_m(ike::lazy_batch_norm2d<>{}, h);
  return ike::relu{}(g) + x;  // x is used twice: one node, one gradient sum
});

constexpr auto image_net = ike::sequential("block"_m = block, ike::avg_pool2d<ike::kernel<4>>{},
                                           ike::flatten{}, "fc"_m = ike::lazy_linear<3>{});

/// Points of three classes on three arms of a spiral.
auto spirals(ike::dim_t count) {
  auto x = ike::zeros<float, ike::shape{ike::dynamic, 2}>(count);
  auto t = ike::zeros<std::int64_t, ike::shape{ike::dynamic}>(count);
  for (ike::dim_t i = 0; i < count; ++i) {
    t[i] = i % 3;
    const double r = static_cast<double>(i) / static_cast<double>(count);
    const double angle = 4 * r + 2.1 * static_cast<double>(t[i]);
    x(i, 0) = static_cast<float>(r * std::cos(angle));
    x(i, 1) = static_cast<float>(r * std::sin(angle));
  }
  return ike::tensor_dataset(std::move(x), std::move(t));
}

int main() {
  const auto data = spirals(600);

  // Shapes are inferred and checked by the compiler; weights depend on seed and path alone.
  auto model = ike::initialize<float, ike::shape{ike::dynamic, 2}>(net, ike::seed{1});
  auto optimizer = ike::adam{model, {.lr = 1e-2}};
  ike::data_loader batches(data, {.batch = 32, .shuffle = ike::seed{2}});
  for (int epoch = 0; epoch < 40; ++epoch)
    for (auto [x, t] : batches) model.train_step(x, t, ike::cross_entropy{}, optimizer);
  std::cout << ike::summary(model) << "accuracy "
            << ike::accuracy(model(data.features()), data.targets()) << "\n";
  const double alone = ike::accuracy(model(data.features()), data.targets());

  // The same on two replicas: the type changes, the program does not.
  using policy =
      ike::replicate_policy<ike::bucket_cap<ike::MiB(25)>, ike::comm_hook<ike::bf16_compress>>;
  double together = 0;
  ike::launch(ike::threads{2}, [&](ike::process_group auto& group) {
    auto replica = ike::replicate<policy>(
        ike::initialize<float, ike::shape{ike::dynamic, 2}>(net, ike::seed{1}), group);
    auto adam = ike::adam{replica, {.lr = 1e-2}};
    ike::data_loader loader(data, {.batch = 16, .shuffle = ike::seed{2}, .shard = group});
    for (int epoch = 0; epoch < 40; ++epoch)
      for (auto [x, t] : ike::progress(loader, {.label = "epoch", .enabled = false}))
        replica.train_step(x, t, ike::cross_entropy{}, adam);
    if (group.rank() == 0) {
      together = ike::accuracy(replica(data.features()), data.targets());
      ike::save(ike::get_state_dict(replica), "spirals.safetensors");
    }
  });
  std::cout << "accuracy on two replicas " << together << "\n";

  ike::load_state_dict(model, ike::load("spirals.safetensors"));
  const double loaded = ike::accuracy(model(data.features()), data.targets());

  auto images = ike::initialize<float, ike::shape{8, 64, 8, 8}>(image_net, ike::seed{1});
  const auto scores = images(ike::ones<float, ike::shape{8, 64, 8, 8}>());
  return loaded == together && alone > 0.9 && together > 0.9 && scores.extent(1) == 3 ? 0 : 1;
}
