// expect: cross_entropy expects class indices of type std::int64_t, or a probability for each logit of \[5, 3\], got \[5\]
#include <ikebana/nn/loss.hpp>

namespace ike = ikebana;

auto logits = ike::ones<float, ike::shape{5, 3}>();

#ifdef MENDED
float loss = ike::cross_entropy{}(logits, ike::zeros<std::int64_t, ike::shape{5}>());
#else
float loss = ike::cross_entropy{}(logits, ike::zeros<float, ike::shape{5}>());
#endif
