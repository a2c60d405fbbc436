// expect: a view of a temporary tensor would dangle: give the tensor a name
#include <ikebana/core/views.hpp>

namespace ike = ikebana;

float first() {
#ifdef MENDED
  auto x = ike::ones<float, ike::shape{2, 3}>();
  const auto row = ike::select(x, 0);
#else
  const auto row = ike::select(ike::ones<float, ike::shape{2, 3}>(), 0);
#endif
  return row[0];
}
