#pragma once

#include "benchmarks/contest.hpp"

namespace bench {

enum class sequence : unsigned char { attention, encoder_layer, rnn, lstm, gru };

/// A module over (batch, length, width): self-attention with so many heads (and 4 width inside of
/// an encoder layer), or a recurrent module with as many hidden units as `width`. Inference, or a
/// training step: forward, backward from the mean squared error, SGD.
struct sequence_problem {
  sequence what;
  dim_t batch, length, width, heads;
  bool trains;
  const float* x = nullptr;
  float* result = nullptr;  ///< Not used: weights are drawn by each contestant.

  dim_t size() const { return batch * length * width; }
};

using sequence_peer = peer<sequence_problem>;

sequence_peer torch_sequences();
sequence_peer onednn_sequences();  ///< Recurrent inference.

}  // namespace bench
