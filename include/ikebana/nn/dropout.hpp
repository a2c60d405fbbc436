#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "ikebana/core/error.hpp"
#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/symbol.hpp"

namespace ikebana {

namespace detail {
/// Its name appears in the message about a constant expression that calls it.
[[noreturn]] inline void a_probability_is_between_0_and_1(double p) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%g", p);
  throw_error(error(std::string("a probability is between 0 and 1, got ") + digits));
}
}  // namespace detail

/// A number between 0 and 1. The constructor throws error for any other value, NaN included; in a
/// constant expression, that is a compile-time error.
class probability {
 public:
  constexpr probability(double p) : value_{p} {
    if (!(p >= 0 && p <= 1)) detail::a_probability_is_between_0_and_1(p);
  }
  constexpr operator double() const { return value_; }

 private:
  double value_;
};

/// In training, each element becomes 0 with probability p and is scaled by 1 / (1 - p) otherwise
/// (Srivastava et al., Dropout, 2014); in evaluation it is unchanged. The mask is a function of
/// seed, path, step and element index, and is computed again in backward instead of being stored.
/// O(elements); no allocation.
struct dropout {
  static constexpr std::string_view kind = "dropout";
  static constexpr kept keeps = kept::nothing;
  static constexpr bool is_random = true;
  static constexpr bool in_place = true;
  static constexpr bool is_identity_in_evaluation = true;
  static constexpr bool takes_residual = true;

  probability p = 0.5;

  constexpr inferred infer(const shape& in) const { return in; }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  void describe(description& d) const { d.add("p", static_cast<double>(p)); }

  template <class T>
  void forward(const context<T>& c) const {
    const dim_t n = c.output_shape().numel();
    const T *x = c.input(), *added = c.residual();
    T* y = c.output();
    if (added == nullptr) return apply_mask(c, 0, n, x, y);
    // The residual is added while the block is in L1.
    constexpr dim_t block = 2048;
    for (dim_t i = 0; i < n; i += block) {
      const dim_t count = n - i < block ? n - i : block;
      apply_mask(c, i, count, x + i, y + i);
      cpu::add<T>(count, y + i, added + i, y + i);
    }
  }

  template <class T>
  void backward(const context<T>& c) const {
    if (c.input_gradient() != nullptr)
      apply_mask(c, 0, c.output_shape().numel(), c.output_gradient(), c.input_gradient());
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }

 private:
  template <class T>
  void apply_mask(const context<T>& c, dim_t first, dim_t n, const T* from, T* to) const {
    if (c.training() && p > 0)
      cpu::dropout<T>(n, from, to, p, c.random(), static_cast<std::uint64_t>(first));
    else if (n > 0 && from != to)
      std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(T));
  }
};

}  // namespace ikebana
