// expect: map_tensors cannot rebuild this container
// line: 5
// errors-clang: 2
// max-lines: 25
#include <array>
#include <ikebana/replicate/utils/map_tensors.hpp>
#include <span>

namespace ike = ikebana;
using row = ike::tensor<float, ike::shape{2}>;

void halve(std::array<row, 3>& rows) {
  const auto half = [](row t) {
    for (float& x : t) x /= 2;
    return t;
  };
#ifdef MENDED
  rows = ike::map_tensors(half, rows);
#else
  ike::map_tensors(half, std::span{rows});
#endif
}
