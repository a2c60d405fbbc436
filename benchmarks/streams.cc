// Streams, one sample in each call: the modules and the model of RTNeural's own benchmarks.
//
//     tools/bazel run //benchmarks:streams -- [--filter 'LSTM']

#include <cstdint>
#include <memory>
#include <string>

#include "benchmarks/stream_peers.hpp"
#include "ikebana/deploy.hpp"
#include "ikebana/ikebana.hpp"
#include "ikebana/nn/causal_conv1d.hpp"
#include "ikebana/nn/gru.hpp"
#include "ikebana/ops.hpp"
#include "test/support/count_allocations.hpp"

namespace {

namespace ike = ikebana;
using namespace ike::literals;
using bench::dim_t, bench::stream, bench::stream_problem;

template <dim_t In, dim_t Out, dim_t Dilation>
using conv = ike::causal_conv1d<In, Out, ike::kernel<3>, ike::dilation<Dilation>, ike::stateful<1>>;

// Convolutions have [N, channels, length], recurrent modules [length, N, width]: at a length of 1,
// a change of shape alone.
constexpr auto mixed = ike::graph([](auto x) {
  auto a = ike::tanh{}("fc1"_m(ike::linear<1, 8>{}, x));
  auto b = ike::tanh{}("conv"_m(conv<8, 4, 2>{}, ike::reshape<1, 8, 1>(a)));
  auto [c, last] = "gru"_m(ike::gru<4, 8, ike::stateful<1>>{}, ike::reshape<1, 1, 4>(b));
  return "fc2"_m(ike::linear<8, 1>{}, c);
});

template <ike::shape In>
bench::timed infer(const auto& module, const stream_problem& p) {
  const auto net = ike::freeze(ike::initialize<float, In>(module, ike::seed{1}));
  using net_type = std::remove_const_t<decltype(net)>;
  struct stream_of_one {
    net_type net;
    typename net_type::lane_type lane;
  };
  auto one = std::make_shared<stream_of_one>(stream_of_one{net, net.lane()});
  return bench::repeated(
      [one, x = ike::tensor_view<const float, In>(p.x)] { one->net(one->lane, x); });
}

bench::timed ours(const stream_problem& p) {
  if (p.what == stream::mixed) return infer<ike::shape{1, 1}>(mixed, p);
  return bench::with_width(p.width, [&]<int N>(std::integral_constant<int, N>) {
    switch (p.what) {
      case stream::dense:
        return infer<ike::shape{1, N}>(ike::sequential("fc"_m = ike::linear<N, N>{}), p);
      case stream::conv1d:
        return infer<ike::shape{1, N, 1}>(ike::sequential("conv"_m = conv<N, N, 1>{}), p);
      case stream::gru:
        return infer<ike::shape{1, 1, N}>(
            ike::sequential("gru"_m = ike::gru<N, N, ike::stateful<1>>{}), p);
      default:
        return infer<ike::shape{1, 1, N}>(
            ike::sequential("lstm"_m = ike::lstm<N, N, ike::stateful<1>>{}), p);
    }
  });
}

double multiply_adds(const stream_problem& p) {
  const auto n = static_cast<double>(p.width);
  switch (p.what) {
    case stream::dense:
      return n * n;
    case stream::conv1d:
      return 3 * n * n;
    case stream::gru:
      return 6 * n * n;
    case stream::lstm:
      return 8 * n * n;
    default:
      return 8 + 8 * 4 * 3 + 3 * 8 * 12 + 8;
  }
}

}  // namespace

int main(int argc, char** argv) {
  bench::contest contest("streams");
  if (const auto code = contest.begin(argc, argv)) return *code;
  contest.count_allocations(allocation_count);
  const bool narrow = ike::cpu::active_instruction_set() == ike::cpu::instruction_set::avx2;
  const auto peers =
      contest.admitted(bench::torch_streams(), bench::onednn_streams(),
                       narrow ? bench::rtneural_avx2_streams() : bench::rtneural_native_streams(),
                       narrow ? bench::eigen_avx2_streams() : bench::eigen_native_streams(),
                       narrow ? bench::loops_avx2_streams() : bench::loops_native_streams());
  const auto measure = [&](stream what, const std::string& name, dim_t width) {
    stream_problem p{what, width};
    const double products = multiply_adds(p);
    contest.measure({.group = "one sample",
                     .name = name,
                     .amount = {.operations = 2 * products, .read = 4 * products}},
                    [&] {
                      auto x = bench::random_array<float>(width, 1);
                      p.x = x.data();
                      auto all = bench::contestants<float, stream_problem>(p, 1, ours, peers);
                      for (auto& c : all) c.floats = {};
                      return bench::field{std::move(all), bench::keep(std::move(x))};
                    });
  };
  static constexpr const char* modules[] = {"dense", "conv1d, kernel 3", "GRU", "LSTM"};
  for (const stream what : {stream::dense, stream::conv1d, stream::gru, stream::lstm})
    for (const dim_t width : {8, 16, 32, 64})
      measure(what, modules[static_cast<int>(what)] + (", width " + std::to_string(width)), width);
  measure(stream::mixed, "dense 8, conv1d 4, GRU 8, dense 1", 1);
  return contest.end();
}
