// Attention, encoder layers, recurrent modules: float, inference and training steps.
//
//     tools/bazel run //benchmarks:sequences -- [--filter 'LSTM']

#include <memory>
#include <string>

#include "benchmarks/contest.hpp"
#include "benchmarks/sequence_peers.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/gru.hpp"
#include "ikebana/nn/identity.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/nn/lstm.hpp"
#include "ikebana/nn/multihead_attention.hpp"
#include "ikebana/nn/rnn.hpp"
#include "ikebana/nn/transformer_encoder_layer.hpp"
#include "ikebana/optim/sgd.hpp"

namespace {

namespace ike = ikebana;
using bench::dim_t, bench::sequence, bench::sequence_problem;

template <dim_t Width>
bench::timed run(const sequence_problem& p, const auto& module) {
  constexpr ike::shape any{ike::dynamic, ike::dynamic, Width};
  // The identity takes the first of several outputs.
  const auto network = ike::sequential(module, ike::identity{});
  using model_type = decltype(ike::initialize<float, any>(network, ike::seed{1}));
  using tensor = ike::tensor<float, any>;
  auto model = std::make_shared<model_type>(ike::initialize<float, any>(network, ike::seed{1}));
  auto x = std::make_shared<tensor>(ike::shape{p.batch, p.length, Width});
  std::copy_n(p.x, p.size(), x->data());
  if (!p.trains) {
    model->eval();
    return bench::repeated([=] { (*model)(*x); });
  }
  auto target = std::make_shared<tensor>(ike::shape{p.batch, p.length, Width});
  using sgd = decltype(ike::sgd{*model, {.lr = 0.01}});
  auto optimizer = std::make_shared<sgd>(ike::sgd{*model, {.lr = 0.01}});
  return bench::repeated([=] { model->train_step(*x, *target, ike::mse_loss{}, *optimizer); });
}

using first = ike::batch_first<true>;

template <dim_t Width, dim_t Heads>
bench::timed attend(const sequence_problem& p) {
  if (p.what == sequence::attention)
    return run<Width>(p, ike::multihead_attention<Width, Heads, first>{});
  return run<Width>(p,
                    ike::transformer_encoder_layer<Width, Heads, 4 * Width, first>{{.dropout = 0}});
}

template <dim_t Width>
bench::timed recur(const sequence_problem& p) {
  if (p.what == sequence::rnn) return run<Width>(p, ike::rnn<Width, Width, first>{});
  if (p.what == sequence::lstm) return run<Width>(p, ike::lstm<Width, Width, first>{});
  return run<Width>(p, ike::gru<Width, Width, first>{});
}

bench::timed ours(const sequence_problem& p) {
  if (p.what <= sequence::encoder_layer)
    return p.width == 64 ? attend<64, 4>(p) : attend<512, 8>(p);
  return p.width == 16 ? recur<16>(p) : p.width == 64 ? recur<64>(p) : recur<256>(p);
}

double multiply_adds(const sequence_problem& p) {
  const double rows = static_cast<double>(p.batch * p.length), width = static_cast<double>(p.width),
               length = static_cast<double>(p.length);
  const double square = rows * width * width, scores = 2 * rows * length * width;
  switch (p.what) {
    case sequence::attention:
      return 4 * square + scores;
    case sequence::encoder_layer:
      return 12 * square + scores;
    case sequence::rnn:
      return 2 * square;
    case sequence::lstm:
      return 8 * square;
    default:
      return 6 * square;
  }
}

constexpr sequence_problem problems[] = {{sequence::attention, 16, 32, 64, 4, false},
                                         {sequence::attention, 1, 128, 64, 4, false},
                                         {sequence::attention, 1, 512, 512, 8, false},
                                         {sequence::attention, 1, 2048, 64, 4, false},
                                         {sequence::encoder_layer, 16, 32, 64, 4, false},
                                         {sequence::encoder_layer, 1, 128, 512, 8, false},
                                         {sequence::rnn, 16, 32, 64, 1, false},
                                         {sequence::lstm, 1, 32, 16, 1, false},
                                         {sequence::lstm, 16, 32, 64, 1, false},
                                         {sequence::lstm, 1, 64, 256, 1, false},
                                         {sequence::lstm, 32, 32, 256, 1, false},
                                         {sequence::gru, 1, 32, 16, 1, false},
                                         {sequence::gru, 16, 32, 64, 1, false},
                                         {sequence::gru, 32, 32, 256, 1, false}};

}  // namespace

int main(int argc, char** argv) {
  bench::contest contest("sequences");
  if (const auto code = contest.begin(argc, argv)) return *code;
  static constexpr const char* names[] = {"attention", "encoder layer", "RNN", "LSTM", "GRU"};
  const auto peers = contest.admitted(bench::torch_sequences(), bench::onednn_sequences());
  for (const bool trains : {false, true})
    for (sequence_problem p : problems) {
      p.trains = trains;
      const bool attends = p.what <= sequence::encoder_layer;
      const double values = 4 * static_cast<double>(p.size());
      contest.measure({.group = std::string{attends ? "attention" : "recurrent"} +
                                (trains ? ", training step" : ", inference"),
                       .name = std::string{names[static_cast<int>(p.what)]} + ", batch " +
                               std::to_string(p.batch) + ", length " + std::to_string(p.length) +
                               ", width " + std::to_string(p.width) +
                               (attends ? ", " + std::to_string(p.heads) + " heads" : ""),
                       .amount = {.operations = 2 * (trains ? 3 : 1) * multiply_adds(p),
                                  .read = values,
                                  .written = values}},
                      [&] {
                        auto x = bench::random_array<float>(p.size(), 1);
                        p.x = x.data();
                        auto all = bench::contestants<float, sequence_problem>(p, 1, ours, peers);
                        for (auto& c : all) c.floats = {};
                        return bench::field{std::move(all), bench::keep(std::move(x))};
                      });
    }
  return contest.end();
}
