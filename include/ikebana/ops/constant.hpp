#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>

#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/describe.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/named.hpp"
#include "ikebana/module/parameter.hpp"
#include "ikebana/module/symbol.hpp"

// Values of a graph through which no gradient goes on, and parameters of its own. O(elements); no
// allocation.
namespace ikebana {

namespace ops {

/// Nothing goes back to an input whose shape alone is used.
template <class T>
void write_no_gradient(const context<T>& c) {
  if (T* const dx = c.input_gradient(); dx != nullptr)
    for (dim_t i = 0, n = c.input_shape().numel(); i < n; ++i) dx[i] = T{};
}

/// The input, with a gradient of 0. A view: it copies nothing.
struct stop_gradient {
  static constexpr std::string_view kind = "stop_gradient";
  static constexpr bool is_view = true;
  static constexpr kept keeps = kept::nothing;

  constexpr bool operator==(const stop_gradient&) const = default;
  static constexpr bool stops_gradient() { return true; }
  constexpr inferred infer(const shape& in) const { return in; }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }
};

/// One number in the shape of the input.
struct full_like {
  static constexpr std::string_view kind = "full_like";
  static constexpr bool is_source = true;
  static constexpr kept keeps = kept::nothing;

  double value = 0;

  constexpr bool operator==(const full_like&) const = default;
  constexpr inferred infer(const shape& in) const { return in; }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }
  void describe(description& d) const { d.add("value", value); }

  template <class T>
  void forward(const context<T>& c) const {
    T* const y = c.output();
    for (dim_t i = 0, n = c.output_shape().numel(); i < n; ++i) y[i] = static_cast<T>(value);
  }
  template <class T>
  void backward(const context<T>& c) const {
    write_no_gradient(c);
  }
};

/// 0, 1, .. up to the extent of a dimension of the input.
struct arange_like {
  static constexpr std::string_view kind = "arange_like";
  static constexpr bool is_source = true;
  static constexpr kept keeps = kept::nothing;

  dim_t dim = -1;

  constexpr bool operator==(const arange_like&) const = default;
  constexpr inferred infer(const shape& in) const {
    const auto rank = static_cast<dim_t>(in.rank());
    if (dim >= rank || dim < -rank)
      return diagnostic{
          "arange_like expects a dim within {expected} dimensions, got {number} (input {input})",
          rank, dim, in};
    return shape{in[static_cast<std::size_t>(dim < 0 ? dim + rank : dim)]};
  }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }
  void describe(description& d) const { d.add("dim", std::to_string(dim)); }

  template <class T>
  void forward(const context<T>& c) const {
    T* const y = c.output();
    for (dim_t i = 0, n = c.output_shape().numel(); i < n; ++i) y[i] = static_cast<T>(i);
  }
  template <class T>
  void backward(const context<T>& c) const {
    write_no_gradient(c);
  }
};

/// A parameter, whatever the input is.
template <shape Extents>
struct parameter {
  static_assert(Extents.is_static(), "ikebana: the extents of a parameter are numbers");

  static constexpr std::string_view kind = "parameter";
  static constexpr bool is_source = true;
  static constexpr kept keeps = kept::nothing;

  initializer init = initializer::constant(1);

  constexpr inferred infer(const shape&) const { return Extents; }
  constexpr std::array<parameter_spec, 1> parameters() const {
    return {{{"weight", Extents, init}}};
  }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  template <class T>
  void forward(const context<T>& c) const {
    if (const dim_t n = Extents.numel(); n > 0)
      std::memcpy(c.output(), c.parameter(0), static_cast<std::size_t>(n) * sizeof(T));
  }
  template <class T>
  void backward(const context<T>& c) const {
    const dim_t n = Extents.numel();
    const T* const dy = c.output_gradient();
    T* const d = c.parameter_gradient(0);
    if (c.accumulate())
      cpu::axpy(n, T{1}, dy, d);
    else if (n > 0)
      std::memcpy(d, dy, static_cast<std::size_t>(n) * sizeof(T));
    write_no_gradient(c);
  }
};

}  // namespace ops

/// A parameter of the graph's own, `parameter<"scale", shape{64}>(x)`: its path is "scale.weight".
/// x is any value of the graph, which is not read. It starts with ones unless `init` says
/// otherwise.
template <detail::literal Name, shape Extents, symbolic X>
constexpr auto parameter(const X& x, initializer init = initializer::constant(1)) {
  using leaf = ops::parameter<Extents>;
  return apply(named<detail::hana_string_t<Name>, leaf>{leaf{init}}, x);
}

/// x, through which no gradient goes back: torch.Tensor.detach. A view, O(1).
template <symbolic X>
constexpr auto stop_gradient(const X& x) {
  return apply(ops::stop_gradient{}, x);
}

/// A constant in the shape of x: torch.full_like. Where shapes are broadcast, a number will do.
template <symbolic X>
constexpr auto full_like(const X& x, double value) {
  return apply(ops::full_like{value}, x);
}

/// 0, 1, .. up to the extent of a dimension of x: torch.arange(x.size(dim)). From it come masks,
/// `unsqueeze<1>(i) >= i`, and positions.
template <dim_t Dim = -1, symbolic X>
constexpr auto arange_like(const X& x) {
  return apply(ops::arange_like{Dim}, x);
}

}  // namespace ikebana
