#pragma once

#include "benchmarks/contest.hpp"

namespace bench {

enum class sequence : unsigned char { attention, encoder_layer, rnn, lstm, gru };

/// A module over (batch, length, width): self-attention with `heads` heads (and 4 * width inner
/// features in an encoder layer), or a recurrent module with `width` hidden units. Inference, or a
/// training step: forward, backward of the mean squared error, SGD.
struct sequence_problem {
  sequence what;
  dim_t batch, length, width, heads;
  bool trains;
  const float* x = nullptr;
  float* result = nullptr;  ///< Unused: each contestant initialises its own weights.

  dim_t size() const { return batch * length * width; }
};

using sequence_peer = peer<sequence_problem>;

sequence_peer torch_sequences();
sequence_peer onednn_sequences();  ///< Recurrent inference.

}  // namespace bench
