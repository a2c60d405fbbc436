// expect: unpack_arguments is given 3 names for 2 values
#include <ikebana/replicate/utils/pack_arguments.hpp>
#include <tuple>

namespace ike = ikebana;
using tensor = ike::tensor<float, ike::shape{2}>;

void call(const tensor& x, const tensor& y) {
#ifdef MENDED
  ike::unpack_arguments(std::tie(x, y), ike::names_of_arguments<"x", "y">);
#else
  ike::unpack_arguments(std::tie(x, y), ike::names_of_arguments<"x", "y", "z">);
#endif
}
