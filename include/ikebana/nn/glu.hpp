#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/option_set.hpp"
#include "ikebana/module/options.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/nn/softmax.hpp"

namespace ikebana {

/// The first half of a dimension times the sigmoid of the second (Dauphin et al., Language Modeling
/// with Gated Convolutional Networks, 2016). Its extent is halved. Option: dim<N> (default -1).
/// O(elements); no allocation.
template <class... Options>
struct glu {
  static_assert(detail::option_set<dim<-1>>::template accepts<Options...>,
                "ikebana: glu takes the option dim, once");

  static constexpr std::string_view kind = "glu";
  static constexpr kept keeps = kept::input;
  static constexpr dim_t along_dim = detail::option_or<dim<-1>, Options...>::value;

  constexpr inferred infer(const shape& in) const {
    const auto rank = static_cast<dim_t>(in.rank());
    if (along_dim < -rank || along_dim >= rank)
      return diagnostic{
          "glu expects a dim within {expected} dimensions, got {number} (input {input})", rank,
          along_dim, in};
    const auto d = static_cast<std::size_t>(along_dim < 0 ? along_dim + rank : along_dim);
    if (in[d] < 0) return in;
    if (in[d] % 2 != 0)
      return diagnostic{"glu expects an extent divisible by {expected}, got {got} (input {input})",
                        2, in[d], in};
    return in.with(d, in[d] / 2);
  }

  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  void describe(description& d) const { d.add("dim", std::to_string(along_dim)); }

  template <class T>
  void forward(const context<T>& c) const {
    const halves h(c.output_shape());
    const T* x = c.input();
    T* y = c.output();
    for (dim_t i = 0; i < h.outer; ++i, x += 2 * h.each, y += h.each) {
      cpu::sigmoid_forward<T>(h.each, x + h.each, y);
      cpu::multiply<T>(h.each, x, y, y);
    }
  }

  template <class T>
  void backward(const context<T>& c) const {
    T* dx = c.input_gradient();
    if (dx == nullptr) return;
    const halves h(c.output_shape());
    const T *x = c.input(), *dy = c.output_gradient();
    for (dim_t i = 0; i < h.outer; ++i, x += 2 * h.each, dx += 2 * h.each, dy += h.each) {
      T *const gated = dx, *const gate = dx + h.each;
      cpu::sigmoid_forward<T>(h.each, x + h.each, gated);
      cpu::multiply<T>(h.each, x, dy, gate);
      cpu::sigmoid_backward<T>(h.each, gated, gate, gate);
      cpu::multiply<T>(h.each, dy, gated, gated);
    }
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }

 private:
  /// The output as `outer` blocks, of each of which the input has two halves.
  struct halves {
    dim_t outer, each;
    explicit halves(const shape& out) : outer{0}, each{0} {
      const detail::along a(out, along_dim);
      outer = a.outer;
      each = a.n * a.inner;
    }
  };
};

}  // namespace ikebana
