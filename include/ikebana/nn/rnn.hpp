#pragma once

#include <string_view>

#include "ikebana/cpu/recurrent.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/named.hpp"
#include "ikebana/module/option_set.hpp"
#include "ikebana/module/options.hpp"
#include "ikebana/nn/detail/recurrent.hpp"

namespace ikebana {

namespace detail {
struct nonlinearity_option;
}  // namespace detail

/// The activation of a simple recurrent module: nonlinearity<"tanh"> or nonlinearity<"relu">.
template <detail::literal How>
struct nonlinearity {
  using option = detail::nonlinearity_option;
  static constexpr std::string_view value{How.data, How.size()};
};

namespace detail {

template <bool Rectified>
struct rnn_gates {
  static constexpr literal kind_literal{"rnn"};
  static constexpr std::string_view kind = "rnn";
  static constexpr const char* wrong_length =
      "rnn expects lengths between 1 and {expected}, got {number}";
  static constexpr dim_t count = 1;
  static constexpr dim_t extra = 0;
  static constexpr bool has_cell = false;
  static constexpr bool separate = false;

  static void describe(description& d) {
    if (Rectified) d.add("nonlinearity", std::string_view{"relu"});
  }

  template <class T>
  static void forward(const recurrent_step<T>& s) {
    cpu::rnn_gates<T>(s.sequences, s.hidden, Rectified, s.gates, s.h, s.y);
  }
  template <class T>
  static void backward(const recurrent_step_backward<T>& s) {
    cpu::rnn_gates_backward<T>(s.sequences, s.hidden, Rectified, s.gates, s.dh, s.dy, s.dgates);
  }
};

template <class... Options>
constexpr bool is_rectified() {
  constexpr std::string_view how = option_or<nonlinearity<"tanh">, Options...>::value;
  static_assert(how == "tanh" || how == "relu",
                "ikebana: rnn takes nonlinearity<\"tanh\"> or nonlinearity<\"relu\">");
  return how == "relu";
}

struct rnn_family {
  template <class... Options>
  struct gates_for {
    static_assert(
        option_set<num_layers<1>, bias<true>, batch_first<false>, bidirectional<false>,
                   nonlinearity<"tanh">, packed<false>, stateful<0>>::template accepts<Options...>,
        "ikebana: rnn takes the options num_layers, bias, batch_first, bidirectional, "
        "nonlinearity, packed and stateful, each once");
    using type = rnn_gates<is_rectified<Options...>()>;
  };
};

}  // namespace detail

/// The simple recurrent network (Elman, 1990), PyTorch's RNN: h = tanh(W_ih x + b_ih + W_hh h +
/// b_hh), or max(., 0) with nonlinearity<"relu">.
/// Inputs: x [, lengths] [, h_0]; outputs: y, h_n. Options: those of `recurrent`, and
/// nonlinearity<"tanh">.
///
/// Parameters of layer 0, and likewise of each further layer and `_reverse` direction: weight_ih_l0
/// (hidden_size, input_size), weight_hh_l0 (hidden_size, hidden_size), bias_ih_l0, bias_hh_l0
/// (hidden_size) unless bias<false>; all initialised uniformly within 1 / sqrt(hidden_size). In is
/// a number, `lazy` or `dynamic`.
template <dim_t In, dim_t Hidden, class... Options>
using rnn = recurrent<detail::rnn_family, In, Hidden, Options...>;

/// An rnn whose input_size is inferred from the first input.
template <dim_t Hidden, class... Options>
using lazy_rnn = rnn<lazy, Hidden, Options...>;

}  // namespace ikebana
