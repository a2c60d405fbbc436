// expect: two methods have modules of one name that differ in type
#include <ikebana/ikebana.hpp>

namespace ike = ikebana;
using namespace ike::literals;

#ifdef MENDED
constexpr auto other = "fc2"_m = ike::lazy_linear<10>{};
#else
constexpr auto other = "fc1"_m = ike::lazy_linear<10>{};
#endif

constexpr auto both = ike::methods("encode"_m = ike::sequential("fc1"_m = ike::lazy_linear<8>{}),
                                   "decode"_m = ike::sequential(other));
