// expect: ikebana: a tensor has at most 2\^56 elements
#include <ikebana/core/tensor.hpp>

namespace ike = ikebana;

#ifdef MENDED
ike::tensor_view<float, ike::shape{64, 4}> view;
#else
ike::tensor_view<float, ike::shape{ike::dim_t{1} << 62, 4}> view;
#endif
