// expect: initialize takes a module without a name; a composition gives its children names: sequential\("fc"_m = linear<4, 2>\{\}\)
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto fc = "fc"_m = ike::linear<20, 10>{};

#ifdef MENDED
auto model = ike::initialize<float, ike::shape{32, 20}>(ike::sequential(fc), ike::seed{1});
#else
auto model = ike::initialize<float, ike::shape{32, 20}>(fc, ike::seed{1});
#endif
