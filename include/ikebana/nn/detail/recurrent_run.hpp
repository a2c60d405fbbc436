#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/dispatch.hpp"
#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/cpu/gemm.hpp"
#include "ikebana/cpu/recurrent.hpp"
#include "ikebana/cpu/reduce.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/nn/detail/product.hpp"
#include "ikebana/nn/detail/recurrent_sizes.hpp"
#include "ikebana/nn/detail/recurrent_step.hpp"
#include "ikebana/nn/detail/sequence_order.hpp"

namespace ikebana::detail {

/// One call of a recurrent module; Packed: of sequences of different lengths.
template <class Context, class Gates, bool Packed>
class recurrent_run {
  using T = typename Context::value_type;

 public:
  recurrent_run(const Context& c, const recurrent_sizes& sizes, double dropout, bool stateful)
      : c_{c},
        n_{sizes},
        w_{sizes},
        dropout_{c.training() ? dropout : 0},
        stateful_{stateful},
        capacity_{n_.steps * n_.batch},
        order_{n_.steps, n_.batch, n_.batch_first} {
    if (Packed) order_.pack(c.template saved<std::int64_t>(5), c.template saved<std::int64_t>(6));
  }

  void forward() {
    const T* x = c_.input(0);
    if (Packed) {
      order_.sort_by_length(c_.template input<std::int64_t>(1));
      x = packed_input();
      order_.each_row([&](dim_t row, dim_t given) {
        copy(1, n_.input, c_.input(0) + given * n_.input, packed_input() + row * n_.input);
      });
    }
    for (dim_t l = 0; l < n_.layers; ++l) {
      T* const y = layer_output(l);
      for (dim_t d = 0; d < n_.directions; ++d) forward(l, d, x, y);
      if (l + 1 < n_.layers && dropout_ > 0) drop(l, y);
      x = y;
    }
    if (Packed) {
      cpu::fill<T>(capacity_ * n_.both(), c_.output(0), T{0});
      order_.each_row([&](dim_t row, dim_t given) {
        copy(1, n_.both(), x + row * n_.both(), c_.output(0) + given * n_.both());
      });
    }
    if (!stateful_) return;
    const dim_t all = n_.layers * n_.directions * n_.batch;
    copy(all, n_.out(), c_.output(1), c_.buffer(0));
    if constexpr (Gates::has_cell) copy(all, n_.hidden, c_.output(2), c_.buffer(1));
  }

  void backward() {
    if constexpr (Packed) order_.count_rows();
    T* const gradients = layer_value(n_.layers - 1 + (Packed ? 1 : 0));
    T* const packed_dy = gradients + w_.buffers(n_) * capacity_ * n_.both();
    const T* dy = c_.output_gradient(0);
    if (Packed) {
      order_.each_row([&](dim_t row, dim_t given) {
        copy(1, n_.both(), dy + given * n_.both(), packed_dy + row * n_.both());
      });
      dy = packed_dy;
    }
    for (dim_t l = n_.layers - 1; l > 0; --l) {
      T* const dx = gradients + l % 2 * (w_.buffers(n_) - 1) * capacity_ * n_.both();
      for (dim_t d = 0; d < n_.directions; ++d) backward(l, d, layer_output(l - 1), dy, dx);
      if (dropout_ > 0) drop(l - 1, dx);
      dy = dx;
    }
    T* dx = c_.input_gradient(0);
    if (dx != nullptr && Packed) dx = packed_input() + capacity_ * n_.input;
    for (dim_t d = 0; d < n_.directions; ++d)
      backward(0, d, Packed ? packed_input() : c_.input(0), dy, dx);
    if (dx != nullptr && Packed) {
      cpu::fill<T>(capacity_ * n_.input, c_.input_gradient(0), T{0});
      order_.each_row([&](dim_t row, dim_t given) {
        copy(1, n_.input, dx + row * n_.input, c_.input_gradient(0) + given * n_.input);
      });
    }
  }

 private:
  using rows = cpu::rows_of<T>;
  static constexpr auto no = cpu::transpose::no, yes = cpu::transpose::yes;

  struct weights {
    std::size_t ih, hh, bias_ih, bias_hh, hr;
  };
  weights weights_of(dim_t l, dim_t d) const {
    const std::size_t bias = n_.has_bias ? 2 : 0, projection = n_.projection > 0 ? 1 : 0;
    const auto first = static_cast<std::size_t>(l * n_.directions + d) * (2 + bias + projection);
    return {first, first + 1, first + 2, first + 3, first + 2 + bias};
  }

  template <class U>
  cpu::rows_of<U> rows_at(U* data, dim_t width, dim_t t) const {
    return {data + order_.first(t) * width, order_.row_step() * width};
  }

  /// Rows that direction d of layer l keeps for backward, from element `offset` of each row on.
  T* kept(dim_t l, dim_t d, dim_t offset) const {
    return c_.template saved<T>(0) + ((l * n_.directions + d) * w_.kept + offset) * capacity_;
  }
  T* h_before(dim_t l, dim_t d) const { return kept(l, d, w_.gates); }
  T* extra(dim_t l, dim_t d, dim_t i) const {
    return kept(l, d, w_.gates + n_.out() + i * n_.hidden);
  }
  T* layer_value(dim_t i) const { return c_.template saved<T>(2) + i * capacity_ * n_.both(); }
  T* layer_output(dim_t l) const {
    return l + 1 < n_.layers || Packed ? layer_value(l) : c_.output(0);
  }
  T* packed_input() const { return c_.template saved<T>(7); }
  /// Per sequence: h and c, or their gradients, and other scratch.
  T* sequence_scratch(dim_t offset) const { return c_.template saved<T>(3) + offset * n_.batch; }

  static void copy(dim_t m, dim_t width, const T* from, T* to) {
    std::memcpy(to, from, static_cast<std::size_t>(m * width) * sizeof(T));
  }

  void drop(dim_t l, T* y) const {
    const dim_t n = order_.rows() * n_.both();
    cpu::dropout<T>(n, y, y, dropout_, c_.random(),
                    static_cast<std::uint64_t>(l * capacity_ * n_.both()));
  }

  /// Loads the state from `from` (null: zeros), in the input's order of sequences, into `to`, in
  /// the order of computation.
  void load_state(dim_t width, const T* from, rows to) const {
    for (dim_t b = 0; b < n_.batch; ++b) {
      if (from == nullptr)
        std::memset(to[b], 0, static_cast<std::size_t>(width) * sizeof(T));
      else
        copy(1, width, from + (Packed ? order_.given(b) : b) * width, to[b]);
    }
  }
  void store_state(dim_t width, const T* from, T* to) const {
    if (!Packed) return copy(n_.batch, width, from, to);
    for (dim_t b = 0; b < n_.batch; ++b)
      copy(1, width, from + b * width, to + order_.given(b) * width);
  }

  std::size_t first_state() const { return Packed ? 2 : 1; }
  const T* initial_state(std::size_t i) const {
    if (stateful_) return c_.buffer(i);
    return c_.input_count() > first_state() ? c_.input(first_state() + i) : nullptr;
  }
  static const T* moved(const T* p, dim_t by) { return p == nullptr ? p : p + by; }

  /// The weights of `columns` sums, packed for products of a few rows. A stateful module keeps them
  /// from call to call and compares them with the parameter, so that a caller who changes it need
  /// not say so.
  const T* packed_weights(dim_t l, dim_t d, bool of_input, dim_t columns, const T* w) const {
    const dim_t size = cpu::packed_recurrent_size(w_.gates, columns), length = w_.gates * columns;
    if (!(stateful_ && n_.is_small())) {
      T* const to = c_.template saved<T>(4) + (of_input ? n_.packed_hh_size(w_.gates) : 0);
      cpu::pack_recurrent<T>(w_.gates, columns, w, to);
      return to;
    }
    T* const kept = c_.buffer(Gates::has_cell ? 2 : 1) +
                    (l * n_.directions + d) * n_.kept_weights(w_.gates) +
                    (of_input ? 16 + 2 * n_.packed_hh_size(w_.gates) : 0);
    const auto set = static_cast<T>(cpu::active_instruction_set());
    if (kept[0] != set ||
        std::memcmp(kept + 16, w, static_cast<std::size_t>(length) * sizeof(T)) != 0) {
      kept[0] = set;
      copy(1, length, w, kept + 16);
      cpu::pack_recurrent<T>(w_.gates, columns, w, kept + 16 + size);
    }
    return kept + 16 + size;
  }

  void forward(dim_t l, dim_t d, const T* x, T* y) const {
    const weights w = weights_of(l, d);
    const dim_t in = l == 0 ? n_.input : n_.both(), out = n_.out(), hidden = n_.hidden;
    const dim_t first = (l * n_.directions + d) * n_.batch, steps = order_.steps();
    const T* const bias = n_.has_bias ? c_.parameter(w.bias_hh) : nullptr;
    const T* const bias_ih = n_.has_bias ? c_.parameter(w.bias_ih) : nullptr;
    T* const gates = kept(l, d, 0);
    if (n_.is_small() && l == 0 && !rounds_products(c_))
      cpu::recurrent_product<T>(order_.rows(), w_.gates, in,
                                packed_weights(l, d, true, in, c_.parameter(w.ih)), bias_ih,
                                {x, in}, {gates, w_.gates}, false);
    else
      product(c_, no, yes, order_.rows(), w_.gates, in, x, in, c_.parameter(w.ih), in, T{0}, gates,
              w_.gates, bias_ih);
    // Packing costs as much as several products of a few rows, unless everything fits in L1.
    const T* const packed = (steps >= 8 || n_.is_small()) && !rounds_products(c_)
                                ? packed_weights(l, d, false, out, c_.parameter(w.hh))
                                : nullptr;

    const auto step_at = [&](dim_t s) { return d == 0 ? s : steps - 1 - s; };
    const auto before_at = [&](dim_t s) { return rows_at(h_before(l, d), out, step_at(s)); };
    // The state before each step is kept for backward; the state after the last step goes to the
    // output. With packed sequences, which end at different steps, the running state has scratch of
    // its own.
    const rows last{Packed ? sequence_scratch(0) : c_.output(1) + first * out, out};
    load_state(out, moved(initial_state(0), first * out), Packed ? last : before_at(0));
    rows cell{};
    if constexpr (Gates::has_cell) {
      cell = {Packed ? sequence_scratch(out) : c_.output(2) + first * hidden, hidden};
      load_state(hidden, moved(initial_state(1), first * hidden), cell);
    }
    for (dim_t s = 0; s < steps; ++s) {
      const dim_t t = step_at(s), m = order_.sequences(t);
      const rows before = before_at(s);
      const rows after = Packed || s + 1 == steps ? last : before_at(s + 1);
      if (Packed) cpu::move_rows<T>(m, out, last, before);
      const rows y_rows = rows_at(y + d * out, n_.both(), t);
      recurrent_step<T> step{m,      hidden, rows_at(gates, w_.gates, t), {}, after, cell, {},
                             before, y_rows};
      for (dim_t i = 0; i < Gates::extra; ++i) step.extra[i] = rows_at(extra(l, d, i), hidden, t);
      if (n_.projection > 0) step.h = step.y = rows_at(extra(l, d, Gates::extra), hidden, t);
      if constexpr (Gates::separate) step.from_h = {sequence_scratch(out + 2 * hidden), w_.gates};
      const rows sums = Gates::separate ? step.from_h : step.gates;
      if (packed != nullptr)
        cpu::recurrent_product<T>(m, w_.gates, out, packed, bias, before, sums, !Gates::separate);
      else
        product(c_, no, yes, m, w_.gates, out, before.data, before.step, c_.parameter(w.hh), out,
                Gates::separate ? T{0} : T{1}, sums.data, sums.step, bias);
      Gates::forward(step);
      if (n_.projection == 0) continue;
      product(c_, no, yes, m, out, hidden, step.h.data, step.h.step, c_.parameter(w.hr), hidden,
              T{0}, after.data, after.step);
      cpu::move_rows<T>(m, out, after, y_rows);
    }
    if (!Packed) return;
    store_state(out, last.data, c_.output(1) + first * out);
    if constexpr (Gates::has_cell) store_state(hidden, cell.data, c_.output(2) + first * hidden);
  }

  void backward(dim_t l, dim_t d, const T* x, const T* dy, T* dx) const {
    const weights w = weights_of(l, d);
    const dim_t in = l == 0 ? n_.input : n_.both(), out = n_.out(), hidden = n_.hidden;
    const dim_t first = (l * n_.directions + d) * n_.batch;
    T* const dh = sequence_scratch(0);
    T* const dcell = sequence_scratch(out);
    T* const dfull = sequence_scratch(out + hidden);
    T* const dgates = c_.template saved<T>(1);
    T* const dfrom_h = Gates::separate ? dgates + capacity_ * w_.gates : dgates;
    T* const dprojected = dfrom_h + capacity_ * w_.gates;
    load_state(out, c_.output_gradient(1) + first * out, {dh, out});
    if constexpr (Gates::has_cell)
      load_state(hidden, c_.output_gradient(2) + first * hidden, {dcell, hidden});
    for (dim_t s = order_.steps() - 1; s >= 0; --s) {
      const dim_t t = d == 0 ? s : order_.steps() - 1 - s, m = order_.sequences(t);
      recurrent_step_backward<T> step{m,
                                      hidden,
                                      rows_at(kept(l, d, 0), w_.gates, t),
                                      {},
                                      rows_at(h_before(l, d), out, t),
                                      rows_at(dy + d * out, n_.both(), t),
                                      {dh, out},
                                      {dcell, hidden},
                                      rows_at(dgates, w_.gates, t),
                                      rows_at(dfrom_h, w_.gates, t)};
      for (dim_t i = 0; i < Gates::extra; ++i) step.extra[i] = rows_at(extra(l, d, i), hidden, t);
      if (n_.projection > 0) {
        const rows projected = rows_at(dprojected, out, t);
        cpu::move_rows<T>(m, out, step.dh, projected);
        cpu::move_rows<T>(m, out, step.dy, projected, true);
        step.dh = {dfull, hidden};
        step.dy = {};
        product(c_, no, no, m, hidden, out, projected.data, projected.step, c_.parameter(w.hr),
                hidden, T{0}, dfull, hidden);
      }
      Gates::backward(step);
      product(c_, no, no, m, out, w_.gates, step.dfrom_h.data, step.dfrom_h.step,
              c_.parameter(w.hh), out, Gates::separate ? T{1} : T{0}, dh, out);
    }
    if (c_.input_count() > first_state()) {
      if (T* to = c_.input_gradient(first_state())) store_state(out, dh, to + first * out);
      if constexpr (Gates::has_cell)
        if (T* to = c_.input_gradient(first_state() + 1))
          store_state(hidden, dcell, to + first * hidden);
    }

    const T keep = c_.accumulate() ? T{1} : T{0};
    product(c_, yes, no, w_.gates, in, order_.rows(), dgates, w_.gates, x, in, keep,
            c_.parameter_gradient(w.ih), in);
    product(c_, yes, no, w_.gates, out, order_.rows(), dfrom_h, w_.gates, h_before(l, d), out, keep,
            c_.parameter_gradient(w.hh), out);
    if (n_.has_bias) {
      cpu::column_sums<T>(order_.rows(), w_.gates, dgates, w_.gates,
                          c_.parameter_gradient(w.bias_ih), c_.accumulate());
      cpu::column_sums<T>(order_.rows(), w_.gates, dfrom_h, w_.gates,
                          c_.parameter_gradient(w.bias_hh), c_.accumulate());
    }
    if (n_.projection > 0)
      product(c_, yes, no, out, hidden, order_.rows(), dprojected, out, extra(l, d, Gates::extra),
              hidden, keep, c_.parameter_gradient(w.hr), hidden);
    if (dx != nullptr)
      product(c_, no, no, order_.rows(), in, w_.gates, dgates, w_.gates, c_.parameter(w.ih), in,
              d == 0 ? T{0} : T{1}, dx, in);
  }

  const Context& c_;
  const recurrent_sizes n_;
  const recurrent_widths<Gates> w_;
  double dropout_;
  bool stateful_;
  dim_t capacity_;
  sequence_order order_;
};

}  // namespace ikebana::detail
