#pragma once

#include <string_view>

#include "ikebana/cpu/recurrent.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/option_set.hpp"
#include "ikebana/module/options.hpp"
#include "ikebana/nn/detail/recurrent.hpp"

namespace ikebana {

namespace detail {

struct gru_gates {
  static constexpr literal kind_literal{"gru"};
  static constexpr std::string_view kind = "gru";
  static constexpr const char* wrong_length =
      "gru expects lengths between 1 and {expected}, got {number}";
  static constexpr dim_t count = 3;
  static constexpr dim_t extra = 1;  // W_hn h + b_hn
  static constexpr bool has_cell = false;
  static constexpr bool separate = true;

  static void describe(description&) {}

  template <class T>
  static void forward(const recurrent_step<T>& s) {
    cpu::gru_gates<T>(s.sequences, s.hidden, s.gates, s.from_h, s.extra[0], s.before, s.h, s.y);
  }
  template <class T>
  static void backward(const recurrent_step_backward<T>& s) {
    cpu::gru_gates_backward<T>(s.sequences, s.hidden, s.gates, s.extra[0], s.h_before, s.dh, s.dy,
                               s.dgates, s.dfrom_h);
  }
};

struct gru_family {
  template <class... Options>
  struct gates_for {
    static_assert(
        option_set<num_layers<1>, bias<true>, batch_first<false>, bidirectional<false>,
                   packed<false>, stateful<0>>::template accepts<Options...>,
        "ikebana: gru takes the options num_layers, bias, batch_first, bidirectional, packed "
        "and stateful, each once");
    using type = gru_gates;
  };
};

}  // namespace detail

/// Gated recurrent unit (Cho et al., 2014), PyTorch's GRU: r, z = sigmoid(W_i. x + b_i. + W_h. h +
/// b_h.), n = tanh(W_in x + b_in + r (W_hn h + b_hn)), h = (1 - z) n + z h.
/// Inputs: x [, lengths] [, h_0]; outputs: y, h_n. Options: those of `recurrent`.
///
/// Parameters of layer 0, and likewise of each further layer and `_reverse` direction: weight_ih_l0
/// (3 hidden_size, input_size), weight_hh_l0 (3 hidden_size, hidden_size), bias_ih_l0, bias_hh_l0
/// (3 hidden_size) unless bias<false>; rows in the order r, z, n; all initialised uniformly within
/// 1 / sqrt(hidden_size). In is a number, `lazy` or `dynamic`.
template <dim_t In, dim_t Hidden, class... Options>
using gru = recurrent<detail::gru_family, In, Hidden, Options...>;

/// A gru whose input_size is inferred from the first input.
template <dim_t Hidden, class... Options>
using lazy_gru = gru<lazy, Hidden, Options...>;

}  // namespace ikebana
