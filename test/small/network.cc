// A program of constants: one network, chosen by -DMLP, -DCNN or -DLSTM, its weights in read-only
// memory, its lane in static memory. It writes what the network gives, in digits that tell the
// bits. A test compares builds of it, and measures them.
#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <span>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/deploy/embedded.hpp"
#include "ikebana/deploy/freeze.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/conv.hpp"
#include "ikebana/nn/flatten.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/lstm.hpp"
#include "ikebana/nn/pool.hpp"

namespace ike = ikebana;
using namespace ike::literals;
using ike::shape;

namespace {

template <std::size_t N>
constexpr std::array<float, N> numbers() {
  std::array<float, N> x{};
  for (std::size_t i = 0; i < N; ++i) x[i] = static_cast<float>(i * 37 % 64) / 64 - 0.5f;
  return x;
}

#if defined(MLP)
constexpr auto net = ike::sequential("a"_m = ike::lazy_linear<32>{}, "relu"_m = ike::relu{},
                                     "b"_m = ike::lazy_linear<4>{}, "tanh"_m = ike::tanh{});
constexpr shape in{1, 8};
struct weights {
  using value_type = float;
  static constexpr auto data = numbers<420>();
  static constexpr ike::embedded_tensor tensors[] = {{"a.weight", shape{32, 8}, 0},
                                                     {"a.bias", shape{32}, 256},
                                                     {"b.weight", shape{4, 32}, 288},
                                                     {"b.bias", shape{4}, 416}};
};
#elif defined(CNN)
constexpr auto net =
    ike::sequential("a"_m = ike::lazy_conv2d<4, ike::kernel<3> >{}, "relu"_m = ike::relu{},
                    "pool"_m = ike::max_pool2d<ike::kernel<2> >{}, "flatten"_m = ike::flatten{},
                    "b"_m = ike::lazy_linear<3>{});
constexpr shape in{1, 1, 8, 8};
struct weights {
  using value_type = float;
  static constexpr auto data = numbers<151>();
  static constexpr ike::embedded_tensor tensors[] = {{"a.weight", shape{4, 1, 3, 3}, 0},
                                                     {"a.bias", shape{4}, 36},
                                                     {"b.weight", shape{3, 36}, 40},
                                                     {"b.bias", shape{3}, 148}};
};
#elif defined(LSTM)
constexpr auto net = ike::sequential("lstm"_m = ike::lazy_lstm<8, ike::stateful<1> >{},
                                     "out"_m = ike::lazy_linear<1>{});
constexpr shape in{1, 1, 1};
struct weights {
  using value_type = float;
  static constexpr auto data = numbers<361>();
  static constexpr ike::embedded_tensor tensors[] = {
      {"lstm.weight_ih_l0", shape{32, 1}, 0}, {"lstm.weight_hh_l0", shape{32, 8}, 32},
      {"lstm.bias_ih_l0", shape{32}, 288},    {"lstm.bias_hh_l0", shape{32}, 320},
      {"out.weight", shape{1, 8}, 352},       {"out.bias", shape{1}, 360}};
};
#endif

}  // namespace

// The argument: how many bytes of the memory are given.
int main(int count, char** arguments) {
  const auto frozen = ike::freeze<weights, in>(net);
  alignas(64) static std::byte memory[65536];
  const std::size_t given = count > 1 ? std::strtoul(arguments[1], nullptr, 10) : sizeof memory;
  auto lane = frozen.lane(std::span(memory).first(given));
  static ike::tensor<float, in> x;
  for (int call = 0; call < 5; ++call) {
    for (ike::dim_t i = 0; i < x.size(); ++i) x.data()[i] = static_cast<float>(call * 7 + i) / 16;
    const auto y = frozen(lane, x);
    for (ike::dim_t i = 0; i < y.size(); ++i)
      std::printf("%.9g ", static_cast<double>(y.data()[i]));
  }
  std::puts("");
}
