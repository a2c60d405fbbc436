// The code that the design set out to make possible, as written there.

#include <doctest/doctest.h>

#include <ikebana/ikebana.hpp>
#include <ikebana/replicate.hpp>
#include <sstream>
#include <string>

namespace ike = ikebana;
using namespace ike::literals;

namespace {

constexpr auto lazy_mlp = ike::sequential("fc1"_m = ike::lazy_linear<10>{}, "relu1"_m = ike::relu{},
                                          "fc2"_m = ike::lazy_linear<1>{}, "relu2"_m = ike::relu{});

static_assert(ike::has_uninitialized_params(lazy_mlp));

constexpr auto block = ike::graph([](auto x) {
  auto h = "conv1"_m(ike::lazy_conv2d<64, ike::kernel<3>, ike::padding<1>>{}, x);
  auto g = "bn1"_m(ike::lazy_batch_norm2d<>{}, h);
  return ike::relu{}(g) + x;  // x is used twice: one node, one gradient sum
});

constexpr auto lenet = ike::sequential(
    "conv1"_m = ike::lazy_conv2d<6, ike::kernel<5>, ike::padding<2>>{}, ike::relu{},
    ike::max_pool2d<ike::kernel<2>>{}, "conv2"_m = ike::lazy_conv2d<16, ike::kernel<5>>{},
    ike::relu{}, ike::max_pool2d<ike::kernel<2>>{}, ike::flatten{},
    "fc1"_m = ike::lazy_linear<10>{});

}  // namespace

TEST_CASE("a lazy network is resolved by the compiler, or at its first call") {
  auto mlp = ike::initialize<double, ike::shape{10, 10}>(lazy_mlp, ike::seed{42});
  std::ostringstream printed;
  printed << mlp;
  CHECK(printed.str().find("(fc1): linear(in_features=10, out_features=10, bias=true)") !=
        std::string::npos);
  auto y = mlp(ike::ones<double, ike::shape{10, 10}>());

  ike::lazy_model holder{lazy_mlp, ike::seed{42}};
  auto z = holder(ike::ones<double, ike::shape{10, 10}>());
  CHECK(y(3, 0) == z(3, 0));
}

TEST_CASE("a module of one's own is a function of symbols") {
  auto model = ike::initialize<float, ike::shape{2, 64, 5, 5}>(block, ike::seed{1});
  CHECK(model(ike::ones<float, ike::shape{2, 64, 5, 5}>()).extents() == ike::shape{2, 64, 5, 5});
}

TEST_CASE("training on several replicas changes the type, not the program") {
  const ike::tensor_dataset digits(
      ike::uniform<float, ike::shape{ike::dynamic, 1, 28, 28}>(ike::seed{3}, 12),
      ike::zeros<std::int64_t, ike::shape{ike::dynamic}>(12));
  using policy =
      ike::replicate_policy<ike::bucket_cap<ike::MiB(25)>, ike::comm_hook<ike::bf16_compress>>;
  const auto losses = ike::launch(ike::threads{2}, [&](ike::process_group auto& group) {
    auto model = ike::replicate<policy>(
        ike::initialize<float, ike::shape{ike::dynamic, 1, 28, 28}>(lenet, ike::seed{1}), group);
    auto optimizer = ike::adam{model, {.lr = 1e-3f}};
    float last = 0;
    for (auto [x, t] : ike::progress(
             ike::data_loader(digits, {.batch = 3, .shuffle = ike::seed{7}, .shard = group}),
             {.enabled = false})) {
      auto loss = model.train_step(x, t, ike::cross_entropy{}, optimizer);
      last = loss;
    }
    return last;
  });
  for (float loss : losses) CHECK(loss < 2.5f);
}
