// Whole networks: inference and training steps in float, and the number of calls of operator new.
//
//     tools/bazel run //benchmarks:networks -- [--filter 'LeNet']

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/contest.hpp"
#include "benchmarks/lenet.hpp"
#include "benchmarks/network_peers.hpp"
#include "ikebana/ikebana.hpp"
#include "test/support/count_allocations.hpp"

namespace {

namespace ike = ikebana;
using namespace ike::literals;
using bench::dim_t, bench::net, bench::network_problem, bench::use;

constexpr auto mlp = ike::sequential("fc1"_m = ike::lazy_linear<128>{}, ike::relu{},
                                     "fc2"_m = ike::lazy_linear<64>{}, ike::relu{},
                                     "fc3"_m = ike::lazy_linear<10>{});
constexpr auto transformer = ike::sequential(
    "layer"_m = ike::transformer_encoder_layer<64, 4, 256, ike::batch_first<true>>{{.dropout = 0}});
constexpr auto dense =
    ike::sequential("fc1"_m = ike::linear<1, 8>{}, ike::tanh{}, "fc2"_m = ike::linear<8, 8>{},
                    ike::tanh{}, "fc3"_m = ike::linear<8, 1>{});
constexpr auto lstm = ike::sequential("lstm"_m = ike::lstm<1, 16, ike::stateful<1>>{},
                                      "dense"_m = ike::linear<16, 1>{});

constexpr ike::shape flat(dim_t batch) { return {batch, 784}; }
constexpr ike::shape images(dim_t batch) { return {batch, 1, 28, 28}; }

template <ike::shape In>
std::shared_ptr<ike::tensor<float, In>> input(const network_problem& p) {
  auto x = std::make_shared<ike::tensor<float, In>>();
  for (dim_t i = 0; i < x->size(); ++i) (*x)[i] = p.x[i];
  return x;
}

template <ike::shape In>
bench::timed infer(const auto& network, const network_problem& p) {
  auto model = std::make_shared<decltype(ike::initialize<float, In>(network, ike::seed{1}))>(
      ike::initialize<float, In>(network, ike::seed{1}));
  model->eval();
  return bench::repeated([model, x = input<In>(p)] { (*model)(*x); });
}

template <ike::shape In, ike::shape Target, class Label>
bench::timed train(const auto& network, const network_problem& p, auto loss) {
  auto model = std::make_shared<decltype(ike::initialize<float, In>(network, ike::seed{1}))>(
      ike::initialize<float, In>(network, ike::seed{1}));
  auto t = std::make_shared<ike::tensor<Label, Target>>();
  for (dim_t i = 0; i < t->size(); ++i) (*t)[i] = static_cast<Label>(i % 10);
  const auto step = [=, x = input<In>(p)](auto optimizer) {
    return bench::repeated([=] { model->train_step(*x, *t, loss, *optimizer); });
  };
  if (p.what == use::adam) {
    using adam = decltype(ike::adam{*model, {.lr = 1e-3}});
    return step(std::make_shared<adam>(ike::adam{*model, {.lr = 1e-3}}));
  }
  using sgd = decltype(ike::sgd{*model, {.lr = 0.01}});
  return step(std::make_shared<sgd>(ike::sgd{*model, {.lr = 0.01}}));
}

template <dim_t Batch>
bench::timed classify(const network_problem& p) {
  constexpr ike::shape labels{Batch};
  if (p.network == net::mlp)
    return p.what == use::inference
               ? infer<flat(Batch)>(mlp, p)
               : train<flat(Batch), labels, std::int64_t>(mlp, p, ike::cross_entropy{});
  return p.what == use::inference ? infer<images(Batch)>(bench::small_lenet, p)
                                  : train<images(Batch), labels, std::int64_t>(
                                        bench::small_lenet, p, ike::cross_entropy{});
}

bench::timed ours(const network_problem& p) {
  switch (p.network) {
    case net::mlp:
    case net::lenet:
      return p.batch == 1 ? classify<1>(p) : p.batch == 32 ? classify<32>(p) : classify<128>(p);
    case net::transformer: {
      constexpr ike::shape in{16, 32, 64};
      return p.what == use::inference ? infer<in>(transformer, p)
                                      : train<in, in, float>(transformer, p, ike::mse_loss{});
    }
    case net::dense:
      return infer<ike::shape{1, 1}>(dense, p);
    default:
      return infer<ike::shape{1, 1, 1}>(lstm, p);
  }
}

struct sizes {
  double multiply_adds;  // Per sample.
  double parameters;
  double first;  // Multiply-adds of the first layer, whose input needs no gradient.
};

constexpr sizes of(net n) {
  switch (n) {
    case net::mlp:
      return {784 * 128 + 128 * 64 + 64 * 10, 109'386, 784 * 128};
    case net::lenet:
      return {28 * 28 * 6 * 25 + 100 * 16 * 150 + 400 * 120 + 120 * 84 + 84 * 10, 61'706,
              28 * 28 * 6 * 25};
    case net::transformer:
      return {32 * (4 * 64 * 64 + 2 * 64 * 256) + 2 * 32 * 32 * 64, 49'984, 0};
    case net::dense:
      return {8 + 64 + 8, 97, 0};
    default:
      return {64 * 17 + 16, 64 * 17 + 128 + 17, 0};
  }
}

constexpr network_problem problems[] = {{net::mlp, use::inference, 1},
                                        {net::mlp, use::inference, 32},
                                        {net::mlp, use::sgd, 32},
                                        {net::mlp, use::adam, 32},
                                        {net::mlp, use::sgd, 128},
                                        {net::lenet, use::inference, 1},
                                        {net::lenet, use::inference, 32},
                                        {net::lenet, use::sgd, 32},
                                        {net::lenet, use::adam, 32},
                                        {net::lenet, use::sgd, 128},
                                        {net::transformer, use::inference, 16},
                                        {net::transformer, use::sgd, 16},
                                        {net::dense, use::inference, 1},
                                        {net::lstm, use::inference, 1}};

std::string describe(const network_problem& p) {
  static constexpr const char* networks[] = {"MLP 784-128-64-10", "LeNet 1x28x28",
                                             "transformer encoder layer d64 h4 s32 ff256",
                                             "dense 1-8-8-1, tanh", "LSTM 16 + dense"};
  static constexpr const char* uses[] = {"inference", "training, SGD", "training, Adam"};
  return std::string{networks[static_cast<int>(p.network)]} + ", " +
         uses[static_cast<int>(p.what)] + ", batch " + std::to_string(p.batch);
}

}  // namespace

int main(int argc, char** argv) {
  bench::contest contest("networks");
  if (const auto code = contest.begin(argc, argv)) return *code;
  contest.count_allocations(allocation_count);
  const bool narrow = ike::cpu::active_instruction_set() == ike::cpu::instruction_set::avx2;
  const auto peers =
      contest.admitted(bench::torch_networks(), bench::dlib_networks(), bench::mlpack_networks(),
                       narrow ? bench::rtneural_avx2_networks() : bench::rtneural_native_networks(),
                       narrow ? bench::eigen_avx2_networks() : bench::eigen_native_networks());
  for (const network_problem& problem : problems) {
    const sizes s = of(problem.network);
    const double batch = static_cast<double>(problem.batch);
    const bool trains = problem.what != use::inference;
    const double multiply_adds = batch * (trains ? 3 * s.multiply_adds - s.first : s.multiply_adds);
    contest.measure({.group = trains ? "training" : "inference",
                     .name = describe(problem),
                     .amount = {.operations = 2 * multiply_adds,
                                .read = 4 * s.parameters,
                                .written = trains ? 4 * s.parameters : 0}},
                    [&] {
                      auto x = bench::random_array<float>(problem.batch * problem.row(), 1);
                      network_problem p = problem;
                      p.x = x.data();
                      auto all = bench::contestants<float, network_problem>(p, 1, ours, peers);
                      for (auto& c : all) c.floats = {};
                      return bench::field{std::move(all), bench::keep(std::move(x))};
                    });
  }
  return contest.end();
}
