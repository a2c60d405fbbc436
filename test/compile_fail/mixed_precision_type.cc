// expect: mixed_precision expects float, double, bfloat16, float16 or void for each type
#include <ikebana/replicate/mixed_precision.hpp>

namespace ike = ikebana;

#ifdef MENDED
using mixed = ike::mixed_precision<ike::float16, float>;
#else
using mixed = ike::mixed_precision<short, float>;
#endif

static_assert(mixed::casts_inputs);
