#pragma once

#include <cstddef>
#include <string_view>

#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/loss_reduction.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/symbol.hpp"

namespace ikebana::ops {

/// The mean, the sum or, with reduction::none, the values of a formula of several values of one
/// shape, element by element; nothing is broadcast. The mean of no elements is NaN. A formula has
/// `kind`, `inputs`, the sentence `shapes` for values of different shapes, and
///
///     template <class T>
///     T at(const T (&x)[inputs], T (&slopes)[inputs]) const
///
/// which returns the loss of one element and its derivatives. O(elements); no allocation.
template <class Formula>
struct elementwise_loss {
  static constexpr std::string_view kind = Formula::kind;
  static constexpr kept keeps = kept::input;
  static constexpr std::size_t inputs = Formula::inputs;

  Formula f{};
  ikebana::reduction reduction = ikebana::reduction::mean;

  constexpr bool operator==(const elementwise_loss&) const = default;

  constexpr inferred infer(const shape_list& in) const {
    for (std::size_t i = 1; i < in.size(); ++i)
      if (!compatible(in[0], in[i])) return diagnostic{Formula::shapes, 0, 0, in[0], in[i]};
    return reduces() ? shape{} : in[0];
  }
  constexpr int shape_options() const { return reduces() ? 0 : 1; }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }
  void describe(description& d) const {
    d.add("reduction", std::string_view{detail::name_of_reduction(reduction)});
  }

  template <class T>
  void forward(const context<T>& c) const {
    T x[inputs], unused[inputs];
    double sum = 0;
    const dim_t n = c.input_shape().numel();
    for (dim_t k = 0; k < n; ++k) {
      for (std::size_t i = 0; i < inputs; ++i) x[i] = c.input(i)[k];
      const T value = f.at(x, unused);
      if (!reduces()) c.output()[k] = value;
      sum += static_cast<double>(value);
    }
    if (reduces()) c.output()[0] = static_cast<T>(sum / divisor(n));
  }

  template <class T>
  void backward(const context<T>& c) const {
    T x[inputs], slopes[inputs];
    const dim_t n = c.input_shape().numel();
    T scale = reduces() ? c.output_gradient()[0] / static_cast<T>(divisor(n)) : T{1};
    for (dim_t k = 0; k < n; ++k) {
      for (std::size_t i = 0; i < inputs; ++i) x[i] = c.input(i)[k];
      f.at(x, slopes);
      if (!reduces()) scale = c.output_gradient()[k];
      for (std::size_t i = 0; i < inputs; ++i)
        if (T* const dx = c.input_gradient(i); dx != nullptr) dx[k] = scale * slopes[i];
    }
  }

 private:
  constexpr bool reduces() const { return reduction != ikebana::reduction::none; }
  double divisor(dim_t n) const {
    return reduction == ikebana::reduction::mean ? static_cast<double>(n) : 1;
  }
};

}  // namespace ikebana::ops
