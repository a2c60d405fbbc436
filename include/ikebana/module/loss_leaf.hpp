#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "ikebana/core/shape.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/loss_reduction.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/symbol.hpp"

namespace ikebana::detail {

/// A loss as a leaf of a graph, whose inputs are a prediction and a target: of shape [] if the loss
/// reduces its values, else with a value for each element or row. `Loss` has
///
/// - `static constexpr std::string_view name`;
/// - `check` or `check_shapes`, as every loss (nn/loss.hpp);
/// - `static constexpr shape value_shape(const shape& x, const shape& target)`, that of the values;
/// - `template <class U> void check_values(const shape& x, const shape& target, const U*) const`,
///   which throws error if the target's values, or the options, are invalid;
/// - `template <class T, class U> T run(const loss_call<T, U>&) const`;
/// - if a gradient can go back to the target, `template <class T> void target_gradient(const
///   loss_call<T, T>&, T factor) const`.
template <class Loss, element_kind Kind>
struct loss_leaf;

/// The arguments of a loss. With reduction::none, it writes `values`, unless null, and the
/// gradients of value i times `weights[i]`; else it returns the loss. `gradient` may be null.
template <class T, class U>
struct loss_call {
  const shape& extents;
  const shape& target_extents;
  const T* x;
  const U* target;
  T* gradient = nullptr;
  T* values = nullptr;
  const T* weights = nullptr;
};

template <class Loss, element_kind Kind>
struct loss_leaf {
  static constexpr std::string_view kind = Loss::name;
  static constexpr kept keeps = kept::input;
  template <class T>
  using element = std::conditional_t<Kind == element_kind::index, std::int64_t, T>;

  Loss loss{};

  constexpr bool operator==(const loss_leaf&) const = default;

  static constexpr element_kind input_kind(std::size_t i, std::size_t) {
    return i == 1 ? Kind : element_kind::real;
  }

  constexpr inferred infer(const shape& x, const shape& target) const {
    diagnostic wrong;
    if constexpr (requires { Loss::template check_shapes<element<float>>(x, target); })
      wrong = Loss::template check_shapes<element<float>>(x, target);
    else
      wrong = Loss::check(x, target);
    if (!wrong.ok()) return wrong;
    return reduces() ? shape{} : Loss::template value_shape<element<float>>(x, target);
  }
  constexpr int shape_options() const { return reduces() ? 0 : 1; }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }
  void describe(description& d) const {
    d.add("reduction", std::string_view{name_of_reduction(loss.reduction)});
  }

  template <class T>
  void validate(const context<T>& c) const {
    loss.check_values(c.input_shape(0), c.input_shape(1), c.template input<element<T>>(1));
  }

  template <class T>
  void forward(const context<T>& c) const {
    auto call = call_of(c);
    if (!reduces()) call.values = c.output();
    const T value = loss.run(call);
    if (reduces()) c.output()[0] = value;
  }

  template <class T>
  void backward(const context<T>& c) const {
    auto call = call_of(c);
    const T above = reduces() ? c.output_gradient()[0] : T{1};
    if (!reduces()) call.weights = c.output_gradient();
    if (T* const dx = c.input_gradient(0); dx != nullptr) {
      call.gradient = dx;
      loss.run(call);
      if (above != T{1})
        for (dim_t i = 0; i < c.input_shape(0).numel(); ++i) dx[i] *= above;
    }
    if constexpr (Kind == element_kind::real)
      if (T* const dt = c.input_gradient(1); dt != nullptr) {
        call.gradient = dt;
        loss.target_gradient(call, above);
      }
  }

 private:
  constexpr bool reduces() const { return loss.reduction != reduction::none; }

  template <class T>
  loss_call<T, element<T>> call_of(const context<T>& c) const {
    return {c.input_shape(0), c.input_shape(1), c.input(0), c.template input<element<T>>(1)};
  }
};

/// Applies a loss to values of a graph. If it takes class indices or probabilities, a target that
/// is an input of the graph has indices, and one that is computed has probabilities.
template <class Loss, class X, class Target>
constexpr auto apply_loss(const Loss& loss, const X& x, const Target& target) {
  constexpr element_kind kind = [] {
    if constexpr (requires { Loss::target_kind; })
      return Loss::target_kind;
    else
      return std::is_same_v<Target, symbol<child_set<>>> ? element_kind::index : element_kind::real;
  }();
  return apply(loss_leaf<Loss, kind>{loss}, x, target);
}

}  // namespace ikebana::detail
