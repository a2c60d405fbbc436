// expect: checkpoint takes a module: checkpoint\(sequential\(..\)\)
#include <ikebana/compose/checkpoint.hpp>
#include <ikebana/model/initialize.hpp>
#include <ikebana/nn/linear.hpp>

namespace ike = ikebana;

constexpr auto fc = ike::linear<4, 4>{};
#ifdef MENDED
auto model = ike::initialize<float, ike::shape{2, 4}>(ike::checkpoint(fc), ike::seed{1});
#else
auto model = ike::checkpoint(ike::initialize<float, ike::shape{2, 4}>(fc, ike::seed{1}));
#endif
