// expect: bakbone: is not the path of a module; there are backbone, backbone.fc, head
#include <ikebana/compose/frozen.hpp>
#include <ikebana/compose/sequential.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net =
    ike::sequential("backbone"_m = ike::sequential("fc"_m = ike::lazy_linear<10>{}),
                    "head"_m = ike::linear<10, 2>{});

void make() {
#ifdef MENDED
  constexpr auto part = ike::frozen<"backbone">(net);
#else
  constexpr auto part = ike::frozen<"bakbone">(net);
#endif
  static_cast<void>(part);
}
