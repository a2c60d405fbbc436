// expect: ikebana: in a graph, a module that gives several values gives a std::tuple: auto \[y, h, c\] = "lstm"_m\(lstm<4, 8>\{\}, x\); the next one takes y
// line: 6
#include <ikebana/compose/graph.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/nn/lstm.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::graph([](auto x) {
#ifdef MENDED
  auto [y, h, c] = "lstm"_m(ike::lazy_lstm<4>{}, x);
#else
  auto y = "lstm"_m(ike::lazy_lstm<4>{}, x);
#endif
  return "fc"_m(ike::lazy_linear<2>{}, y);
});
