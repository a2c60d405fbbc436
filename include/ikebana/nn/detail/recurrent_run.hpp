#pragma once

#include <cstddef>
#include <cstdint>

#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/cpu/gemm.hpp"
#include "ikebana/cpu/recurrent.hpp"
#include "ikebana/cpu/reduce.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/nn/detail/sequence_order.hpp"

namespace ikebana::detail {

/// One time step of one direction of one layer, as the gates see it. `extra` is what they keep from
/// forward to backward besides themselves.
template <class T>
struct recurrent_step {
  dim_t sequences, hidden;
  cpu::rows_of<T> gates, extra[2], h, c, from_h;
};
template <class T>
struct recurrent_step_backward {
  dim_t sequences, hidden;
  cpu::rows_of<const T> gates, extra[2], h_before, dy;
  cpu::rows_of<T> dh, dc, dgates, dfrom_h;
};

struct recurrent_sizes {
  dim_t layers, directions, input, hidden, projection, steps, batch;
  bool has_bias, batch_first, packed;

  constexpr dim_t out() const { return projection > 0 ? projection : hidden; }
  constexpr dim_t both() const { return directions * out(); }
};

/// How many elements a module needs for each row (a step of a sequence) and each sequence.
template <class Gates>
struct recurrent_widths {
  dim_t gates, kept, backward, values, sequence;

  explicit constexpr recurrent_widths(const recurrent_sizes& n)
      : gates{Gates::count * n.hidden},
        kept{gates + n.out() + Gates::extra * n.hidden + (n.projection > 0 ? n.hidden : 0)},
        backward{gates * (Gates::separate ? 2 : 1) + n.projection},
        values{(n.layers - 1 + buffers(n) + (n.packed ? 2 : 0)) * n.both()},
        sequence{n.out() + 2 * n.hidden + (Gates::separate ? gates : 0)} {}

  /// The gradients of layers' outputs that are alive at once.
  static constexpr dim_t buffers(const recurrent_sizes& n) {
    return n.layers < 3 ? n.layers - 1 : 2;
  }
};

/// A call of a recurrent module.
template <class T, class Gates>
class recurrent_run {
 public:
  recurrent_run(const context<T>& c, const recurrent_sizes& sizes, double dropout, bool stateful)
      : c_{c},
        n_{sizes},
        w_{sizes},
        dropout_{c.training() ? dropout : 0},
        stateful_{stateful},
        capacity_{n_.steps * n_.batch},
        order_{n_.steps, n_.batch, n_.batch_first} {
    if (n_.packed)
      order_.pack(c.template saved<std::int64_t>(4), c.template saved<std::int64_t>(5));
  }

  void forward() {
    const T* x = c_.input(0);
    if (n_.packed) {
      const auto* lengths = c_.template input<std::int64_t>(1);
      for (dim_t b = 0; b < n_.batch; ++b)
        if (lengths[b] < 1 || lengths[b] > n_.steps)
          throw shape_error(diagnostic{Gates::wrong_length, n_.steps, lengths[b]});
      order_.sort_by_length(lengths);
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
    if (n_.packed) {
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
    if (n_.packed) order_.count_rows();
    T* const gradients = layer_value(n_.layers - 1 + (n_.packed ? 1 : 0));
    T* const packed_dy = gradients + w_.buffers(n_) * capacity_ * n_.both();
    const T* dy = c_.output_gradient(0);
    if (n_.packed) {
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
    if (dx != nullptr && n_.packed) dx = packed_input() + capacity_ * n_.input;
    for (dim_t d = 0; d < n_.directions; ++d)
      backward(0, d, n_.packed ? packed_input() : c_.input(0), dy, dx);
    if (dx != nullptr && n_.packed) {
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

  /// Rows of what direction d of layer l keeps for backward, `offset` elements of each row further.
  T* kept(dim_t l, dim_t d, dim_t offset) const {
    return c_.template saved<T>(0) + ((l * n_.directions + d) * w_.kept + offset) * capacity_;
  }
  T* h_before(dim_t l, dim_t d) const { return kept(l, d, w_.gates); }
  T* extra(dim_t l, dim_t d, dim_t i) const {
    return kept(l, d, w_.gates + n_.out() + i * n_.hidden);
  }
  T* layer_value(dim_t i) const { return c_.template saved<T>(2) + i * capacity_ * n_.both(); }
  T* layer_output(dim_t l) const {
    return l + 1 < n_.layers || n_.packed ? layer_value(l) : c_.output(0);
  }
  T* packed_input() const { return c_.template saved<T>(6); }
  /// Per sequence: h, c, or their gradients, and others.
  T* sequence_scratch(dim_t offset) const { return c_.template saved<T>(3) + offset * n_.batch; }

  static void copy(dim_t m, dim_t width, const T* from, T* to) {
    cpu::move_rows<T>(m, width, {from, width}, {to, width});
  }

  void drop(dim_t l, T* y) const {
    const dim_t n = order_.rows() * n_.both();
    cpu::dropout<T>(n, y, y, dropout_, c_.random(),
                    static_cast<std::uint64_t>(l * capacity_ * n_.both()));
  }

  /// The state in the order of the sequences: loaded from `from` (null: zeros) in the input's
  /// order.
  void load_state(dim_t width, const T* from, T* to) const {
    if (from == nullptr) return cpu::fill<T>(n_.batch * width, to, T{0});
    if (!n_.packed) return copy(n_.batch, width, from, to);
    for (dim_t b = 0; b < n_.batch; ++b)
      copy(1, width, from + order_.given(b) * width, to + b * width);
  }
  void store_state(dim_t width, const T* from, T* to) const {
    if (!n_.packed) return copy(n_.batch, width, from, to);
    for (dim_t b = 0; b < n_.batch; ++b)
      copy(1, width, from + b * width, to + order_.given(b) * width);
  }

  std::size_t first_state() const { return n_.packed ? 2 : 1; }
  const T* initial_state(std::size_t i) const {
    if (stateful_) return c_.buffer(i);
    return c_.input_count() > first_state() ? c_.input(first_state() + i) : nullptr;
  }
  static const T* moved(const T* p, dim_t by) { return p == nullptr ? p : p + by; }

  void forward(dim_t l, dim_t d, const T* x, T* y) const {
    const weights w = weights_of(l, d);
    const dim_t in = l == 0 ? n_.input : n_.both(), out = n_.out(), hidden = n_.hidden;
    const dim_t first = (l * n_.directions + d) * n_.batch;
    const T* const bias = n_.has_bias ? c_.parameter(w.bias_hh) : nullptr;
    T* const gates = kept(l, d, 0);
    cpu::gemm<T>(no, yes, order_.rows(), w_.gates, in, T{1}, x, in, c_.parameter(w.ih), in, T{0},
                 gates, w_.gates, n_.has_bias ? c_.parameter(w.bias_ih) : nullptr);

    T* const h = n_.packed ? sequence_scratch(0) : c_.output(1) + first * out;
    T* cell = nullptr;
    load_state(out, moved(initial_state(0), first * out), h);
    if constexpr (Gates::has_cell) {
      cell = n_.packed ? sequence_scratch(out) : c_.output(2) + first * hidden;
      load_state(hidden, moved(initial_state(1), first * hidden), cell);
    }
    for (dim_t s = 0; s < order_.steps(); ++s) {
      const dim_t t = d == 0 ? s : order_.steps() - 1 - s, m = order_.sequences(t);
      cpu::move_rows<T>(m, out, {h, out}, rows_at(h_before(l, d), out, t));
      recurrent_step<T> step{m, hidden, rows_at(gates, w_.gates, t), {}, {h, out}, {cell, hidden},
                             {}};
      for (dim_t i = 0; i < Gates::extra; ++i) step.extra[i] = rows_at(extra(l, d, i), hidden, t);
      if (n_.projection > 0) step.h = rows_at(extra(l, d, Gates::extra), hidden, t);
      if constexpr (Gates::separate) step.from_h = {sequence_scratch(out + 2 * hidden), w_.gates};
      const rows sums = Gates::separate ? step.from_h : step.gates;
      cpu::gemm<T>(no, yes, m, w_.gates, out, T{1}, h, out, c_.parameter(w.hh), out,
                   Gates::separate ? T{0} : T{1}, sums.data, sums.step, bias);
      Gates::forward(step);
      if (n_.projection > 0)
        cpu::gemm<T>(no, yes, m, out, hidden, T{1}, step.h.data, step.h.step, c_.parameter(w.hr),
                     hidden, T{0}, h, out);
      cpu::move_rows<T>(m, out, {h, out}, rows_at(y + d * out, n_.both(), t));
    }
    if (!n_.packed) return;
    store_state(out, h, c_.output(1) + first * out);
    if constexpr (Gates::has_cell) store_state(hidden, cell, c_.output(2) + first * hidden);
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
    load_state(out, c_.output_gradient(1) + first * out, dh);
    if constexpr (Gates::has_cell)
      load_state(hidden, c_.output_gradient(2) + first * hidden, dcell);
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
        cpu::gemm<T>(no, no, m, hidden, out, T{1}, projected.data, projected.step,
                     c_.parameter(w.hr), hidden, T{0}, dfull, hidden);
      }
      Gates::backward(step);
      cpu::gemm<T>(no, no, m, out, w_.gates, T{1}, step.dfrom_h.data, step.dfrom_h.step,
                   c_.parameter(w.hh), out, Gates::separate ? T{1} : T{0}, dh, out);
    }
    if (c_.input_count() > first_state()) {
      if (T* to = c_.input_gradient(first_state())) store_state(out, dh, to + first * out);
      if constexpr (Gates::has_cell)
        if (T* to = c_.input_gradient(first_state() + 1))
          store_state(hidden, dcell, to + first * hidden);
    }

    const T keep = c_.accumulate() ? T{1} : T{0};
    cpu::gemm<T>(yes, no, w_.gates, in, order_.rows(), T{1}, dgates, w_.gates, x, in, keep,
                 c_.parameter_gradient(w.ih), in);
    cpu::gemm<T>(yes, no, w_.gates, out, order_.rows(), T{1}, dfrom_h, w_.gates, h_before(l, d),
                 out, keep, c_.parameter_gradient(w.hh), out);
    if (n_.has_bias) {
      cpu::column_sums<T>(order_.rows(), w_.gates, dgates, w_.gates,
                          c_.parameter_gradient(w.bias_ih), c_.accumulate());
      cpu::column_sums<T>(order_.rows(), w_.gates, dfrom_h, w_.gates,
                          c_.parameter_gradient(w.bias_hh), c_.accumulate());
    }
    if (n_.projection > 0)
      cpu::gemm<T>(yes, no, out, hidden, order_.rows(), T{1}, dprojected, out,
                   extra(l, d, Gates::extra), hidden, keep, c_.parameter_gradient(w.hr), hidden);
    if (dx != nullptr)
      cpu::gemm<T>(no, no, order_.rows(), in, w_.gates, T{1}, dgates, w_.gates, c_.parameter(w.ih),
                   in, d == 0 ? T{0} : T{1}, dx, in);
  }

  const context<T>& c_;
  const recurrent_sizes n_;
  const recurrent_widths<Gates> w_;
  double dropout_;
  bool stateful_;
  dim_t capacity_;
  sequence_order order_;
};

}  // namespace ikebana::detail
