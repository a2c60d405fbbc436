// expect: accuracy takes scores \[N, classes\] before labels \[N\]
#include <cstdint>
#include <ikebana/core/tensor.hpp>
#include <ikebana/train/metrics.hpp>

namespace ike = ikebana;

void measure() {
  const ike::tensor<float, ike::shape{8, 3}> scores;
  const ike::tensor<std::int64_t, ike::shape{8}> labels;
#ifdef MENDED
  (void)ike::accuracy(scores, labels);
#else
  (void)ike::accuracy(labels, scores);
#endif
}
