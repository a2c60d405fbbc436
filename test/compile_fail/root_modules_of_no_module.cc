// expect: layer.fc2: is not the path of a module
#include <ikebana/compose/sequential.hpp>
#include <ikebana/nn/linear.hpp>
#include <ikebana/replicate/utils/root_modules.hpp>

namespace ike = ikebana;
using namespace ike::literals;

constexpr auto net = ike::sequential("layer"_m = ike::sequential("fc1"_m = ike::linear<2, 2>{}));

#ifdef MENDED
constexpr auto roots = ike::root_modules<"layer", "layer.fc1">(net);
#else
constexpr auto roots = ike::root_modules<"layer", "layer.fc2">(net);
#endif
static_assert(roots.size() == 1);
