#pragma once

#include <string_view>

#include "ikebana/cpu/recurrent.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/option_set.hpp"
#include "ikebana/module/options.hpp"
#include "ikebana/nn/detail/recurrent.hpp"

namespace ikebana {

namespace detail {

struct lstm_gates {
  static constexpr literal kind_literal{"lstm"};
  static constexpr std::string_view kind = "lstm";
  static constexpr const char* wrong_length =
      "lstm expects lengths between 1 and {expected}, got {number}";
  static constexpr dim_t count = 4;
  static constexpr dim_t extra = 2;  // c before the step, tanh of c after it
  static constexpr bool has_cell = true;
  static constexpr bool separate = false;

  static void describe(description&) {}

  template <class T>
  static void forward(const recurrent_step<T>& s) {
    cpu::lstm_gates<T>(s.sequences, s.hidden, s.gates, s.c, s.extra[0], s.extra[1], s.h, s.y);
  }
  template <class T>
  static void backward(const recurrent_step_backward<T>& s) {
    cpu::lstm_gates_backward<T>(s.sequences, s.hidden, s.gates, s.extra[0], s.extra[1], s.dh, s.dy,
                                s.dc, s.dgates);
  }
};

struct lstm_family {
  template <class... Options>
  struct gates_for {
    static_assert(
        option_set<num_layers<1>, bias<true>, batch_first<false>, bidirectional<false>,
                   proj_size<0>, packed<false>, stateful<0>>::template accepts<Options...>,
        "ikebana: lstm takes the options num_layers, bias, batch_first, bidirectional, proj_size, "
        "packed and stateful, each once");
    using type = lstm_gates;
  };
};

}  // namespace detail

/// Long short-term memory (Hochreiter and Schmidhuber, 1997), PyTorch's LSTM:
/// i, f, o = sigmoid and g = tanh of W_i. x + b_i. + W_h. h + b_h., c = f c + i g, h = o tanh(c);
/// with proj_size<P> (Sak et al., 2014) h = W_hr (o tanh(c)), of P features.
/// Inputs: x [, lengths] [, h_0, c_0]; outputs: y, h_n, c_n. Options: those of `recurrent`,
/// proj_size<N> (0, below hidden_size).
///
/// Parameters of layer 0, and likewise of each further layer and `_reverse` direction: weight_ih_l0
/// (4 hidden_size, input_size), weight_hh_l0 (4 hidden_size, proj_size or hidden_size), bias_ih_l0,
/// bias_hh_l0 (4 hidden_size) unless bias<false>, weight_hr_l0 (proj_size, hidden_size) with a
/// projection; rows in the order i, f, g, o; all initialised uniformly within 1 /
/// sqrt(hidden_size). In is a number, `lazy` or `dynamic`.
template <dim_t In, dim_t Hidden, class... Options>
using lstm = recurrent<detail::lstm_family, In, Hidden, Options...>;

/// An lstm whose input_size is inferred from the first input.
template <dim_t Hidden, class... Options>
using lazy_lstm = lstm<lazy, Hidden, Options...>;

}  // namespace ikebana
