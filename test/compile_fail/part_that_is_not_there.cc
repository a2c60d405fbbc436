// expect: encodr: is not the path of a part; there are encode, decode, fc1, fc2
#include <ikebana/ikebana.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto both = ike::methods("encode"_m = ike::sequential("fc1"_m = ike::lazy_linear<8>{}),
                                   "decode"_m = ike::sequential("fc2"_m = ike::lazy_linear<10>{}));
auto model = ike::initialize<float, ike::shape{32, 10}, ike::shape{32, 8}>(both, ike::seed{1});

#ifdef MENDED
auto part = model.part<"encode">();
#else
auto part = model.part<"encodr">();
#endif
