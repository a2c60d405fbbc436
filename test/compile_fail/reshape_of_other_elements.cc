// expect: reshape keeps the number of elements
#include <ikebana/core/tensor.hpp>
#include <ikebana/core/views.hpp>

namespace ike = ikebana;

const ike::tensor<float, ike::shape{5, 4}> x;
#ifdef MENDED
const auto y = ike::reshape<ike::shape{10, 2}>(x);
#else
const auto y = ike::reshape<ike::shape{3, 3}>(x);
#endif
