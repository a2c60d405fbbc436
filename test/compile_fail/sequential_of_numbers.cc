// expect: a composition takes modules, such as linear<784, 10>\{\} or relu\{\}, got a number, a string or a pointer
#include <ikebana/compose/sequential.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;
using namespace ike::literals;

#ifdef MENDED
constexpr auto net = ike::sequential(ike::linear<3, 4>{});
#else
constexpr auto net = ike::sequential(3, 4);
#endif
