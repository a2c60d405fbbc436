// page: 16 A target of another shape
// expect: mse_loss expects a target of shape \[5, 3\], got \[5\]
#include <ikebana/nn/loss.hpp>

namespace ike = ikebana;

auto prediction = ike::ones<float, ike::shape{5, 3}>();

#ifdef MENDED
float loss = ike::mse_loss{}(prediction, ike::zeros<float, ike::shape{5, 3}>());
#else
float loss = ike::mse_loss{}(prediction, ike::zeros<float, ike::shape{5}>());
#endif
