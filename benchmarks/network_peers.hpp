#pragma once

#include "benchmarks/contest.hpp"

namespace bench {

enum class net : unsigned char {
  mlp,          ///< 784-128-64-10, relu
  lenet,        ///< 1x28x28: conv 6, 5x5, padding 2; pool; conv 16, 5x5; pool; 120-84-10
  transformer,  ///< An encoder layer: width 64, 4 heads, 32 positions, 256 inside, no dropout
  dense,        ///< 1-8-8-1, tanh
  lstm,         ///< One step of a sequence of single values: LSTM of 16, dense
};

enum class use : unsigned char { inference, sgd, adam };

/// Inference of a whole network, or a training step: cross entropy of 10 classes, or the mean
/// squared error for the transformer.
struct network_problem {
  net network;
  use what;
  dim_t batch;
  const float* x = nullptr;
  float* result = nullptr;  ///< Unused: each contestant initialises its own weights.

  dim_t row() const {
    return network == net::transformer                    ? dim_t{32} * 64
           : network == net::mlp || network == net::lenet ? dim_t{784}
                                                          : dim_t{1};
  }
};

using network_peer = peer<network_problem>;

network_peer torch_networks();
network_peer dlib_networks();
network_peer mlpack_networks();
network_peer rtneural_native_networks();
network_peer rtneural_avx2_networks();
network_peer eigen_native_networks();
network_peer eigen_avx2_networks();

}  // namespace bench
