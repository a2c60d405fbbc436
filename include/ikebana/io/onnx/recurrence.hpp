#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "ikebana/io/onnx/rule.hpp"

namespace ikebana::detail {

/// LSTM, GRU and RNN.
struct onnx_recurrence : onnx_rule {
  /// Layers of LSTM, GRU or RNN. ONNX has the gates in the order i o f c and z r h.
  static void recurrent(step& s) {
    const std::string_view kind = s.call().kind;
    const bool is_cell = kind.ends_with("_cell"), is_lstm = kind.starts_with("lstm"),
               is_gru = kind.starts_with("gru"), is_packed = s.is("packed"),
               batch_first = s.is("batch_first");
    s.refuse_option("proj_size");
    s.refuse_option("stateful");
    const std::int64_t layers = s.integer("num_layers", 1), hidden = s.integer("hidden_size"),
                       directions = s.is("bidirectional") ? 2 : 1;
    const integers order = is_lstm  ? integers{0, 3, 1, 2}
                           : is_gru ? integers{1, 0, 2}
                                    : integers{0};
    const std::size_t states = is_lstm ? 2 : 1, first_state = is_packed ? 2 : 1;
    const bool has_states = s.inputs() > first_state;
    const bool unbatched = s.rank() == (is_cell ? 1 : 2);
    const auto batched = [&](std::string x) {
      return unbatched ? s.node("Unsqueeze", {x, s.ints({is_cell ? 0 : 1})}) : x;
    };
    const auto unbatch = [&](std::string x) {
      return unbatched ? s.node("Squeeze", {x, s.ints({is_cell ? 0 : 1})}) : x;
    };
    const auto with_time = [&](const std::string& x) {
      return is_cell ? s.node("Unsqueeze", {x, s.ints({0})}) : x;
    };
    std::string x = with_time(batched(s.in()));
    if (batch_first && !unbatched) x = s.transpose(x, {1, 0, 2});
    const std::string lengths = is_packed ? s.cast(s.in(1), onnx_type::int32) : std::string();
    strings initial, final_states[2];
    for (std::size_t i = 0; has_states && i < states; ++i)
      initial.push_back(with_time(batched(s.in(first_state + i))));
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      strings w, r, b;
      for (std::int64_t d = 0; d < directions; ++d) {
        const std::string end =
            is_cell ? std::string() : "_l" + std::to_string(layer) + (d == 1 ? "_reverse" : "");
        w.push_back("weight_ih" + end);
        r.push_back("weight_hh" + end);
        b.push_back("bias_ih" + end);
        b.push_back("bias_hh" + end);
      }
      strings in{x, s.stacked(w, order), s.stacked(r, order), s.stacked(b, order, true), lengths};
      for (const std::string& state : initial)
        in.push_back(layers == 1 ? state
                                 : s.slice(state, 0, layer * directions, (layer + 1) * directions));
      attributes a{{"hidden_size", hidden},
                   {"direction", directions == 2 ? "bidirectional" : "forward"}};
      if (is_gru) a.emplace_back("linear_before_reset", one);
      if (!is_gru && !is_lstm)
        a.emplace_back("activations", strings(step::at(directions),
                                              s.text("nonlinearity") == "relu" ? "Relu" : "Tanh"));
      const strings y = s.nodes(is_lstm ? "LSTM" : is_gru ? "GRU" : "RNN", in, 1 + states, a);
      x = s.reshape(s.transpose(y[0], {0, 2, 1, 3}), {0, 0, directions * hidden});
      for (std::size_t i = 0; i < states; ++i) final_states[i].push_back(y[1 + i]);
    }
    if (!is_cell) {
      if (batch_first && !unbatched) x = s.transpose(x, {1, 0, 2});
      s.result(unbatch(x), 0);
    }
    for (std::size_t i = 0; i < states; ++i) {
      std::string h = layers == 1 ? final_states[i][0]
                                  : s.node("Concat", final_states[i], {{"axis", std::int64_t{0}}});
      if (is_cell) h = s.node("Squeeze", {h, s.ints({0})});
      s.result(unbatch(h), i + (is_cell ? 0 : 1));
    }
  }

  static constexpr rule rules[]{
      {"lstm", recurrent},      {"gru", recurrent},      {"rnn", recurrent},
      {"lstm_cell", recurrent}, {"gru_cell", recurrent}, {"rnn_cell", recurrent},
  };
};

}  // namespace ikebana::detail
