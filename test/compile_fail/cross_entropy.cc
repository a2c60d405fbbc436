// expect: cross_entropy expects a target extent of 5, got 4 \(logits \[5, 3\], target \[4\]\)
#include <ikebana/nn/loss.hpp>

namespace ike = ikebana;

auto logits = ike::ones<float, ike::shape{5, 3}>();

#ifdef MENDED
float loss = ike::cross_entropy{}(logits, ike::zeros<std::int64_t, ike::shape{5}>());
#else
float loss = ike::cross_entropy{}(logits, ike::zeros<std::int64_t, ike::shape{4}>());
#endif
