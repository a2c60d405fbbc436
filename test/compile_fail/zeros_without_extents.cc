// expect: ikebana: full, zeros, ones, uniform and normal take the extent of each dynamic dimension: zeros<float, shape\{dynamic, 3\}>\(5\)
#include <ikebana/core/tensor.hpp>

namespace ike = ikebana;

#ifdef MENDED
auto x = ike::ones<float, ike::shape{ike::dynamic, 4}>(2);
#else
auto x = ike::ones<float, ike::shape{ike::dynamic, 4}>();
#endif
