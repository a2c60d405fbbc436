// expect: random_split takes the number of samples to train on, not a fraction
#include <ikebana/core/tensor.hpp>
#include <ikebana/io/dataset.hpp>

namespace ike = ikebana;

void split() {
  const ike::tensor_dataset data(ike::uniform<float, ike::shape{10, 3}>(ike::seed{1}),
                                 ike::uniform<float, ike::shape{10, 1}>(ike::seed{2}));
#ifdef MENDED
  const auto parts = ike::random_split(data, 8, ike::seed{3});
#else
  const auto parts = ike::random_split(data, 0.8, ike::seed{3});
#endif
  (void)parts;
}
