// The linear's output does not match the lstm's input.
// expect: lstm: lstm expects input_size = 4, got 6 \(input \[5, 2, 6\]\)
#include <ikebana/compose/graph.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/nn/lstm.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::graph([](auto x) {
  const auto h = "fc"_m(ike::lazy_linear<6>{}, x);
#ifdef MENDED
  const auto [y, h_n, c_n] = "lstm"_m(ike::lstm<6, 3>{}, h);
#else
  const auto [y, h_n, c_n] = "lstm"_m(ike::lstm<4, 3>{}, h);
#endif
  return y;
});

auto model = ike::initialize<float, ike::shape{5, 2, 7}>(net, ike::seed{1});
