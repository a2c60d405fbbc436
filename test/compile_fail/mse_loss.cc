// expect-gcc: shape_mismatch<.*"mse_loss expects a target of shape \[5, 3\], got \[5\]"
// expect-clang: path<>
#include <ikebana/nn/loss.hpp>

namespace ike = ikebana;

auto prediction = ike::ones<float, ike::shape{5, 3}>();

#ifdef MENDED
float loss = ike::mse_loss{}(prediction, ike::zeros<float, ike::shape{5, 3}>());
#else
float loss = ike::mse_loss{}(prediction, ike::zeros<float, ike::shape{5}>());
#endif
