#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include "ikebana/module/context.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/parameter.hpp"
#include "ikebana/nn/detail/spatial.hpp"

namespace ikebana::detail {

template <class M>
constexpr bool is_lazy_leaf() {
  if constexpr (requires { M::is_lazy; })
    return M::is_lazy;
  else
    return false;
}

/// The index of the parameter of M with this name; the number of parameters if there is none.
template <class M>
constexpr std::size_t parameter_index(std::string_view name) {
  std::size_t i = 0;
  if constexpr (parameter_count<M>() > 0)
    for (const parameter_spec& p : M{}.parameters()) {
      if (p.name == name) break;
      ++i;
    }
  return i;
}

/// A weight viewed as (outer, channels, inner), its channels being one of its dimensions.
struct channel_sizes {
  dim_t outer = 1, channels = 1, inner = 1;

  constexpr channel_sizes(const shape& weight, std::size_t dim)
      : outer{weight.numel(0, dim)},
        channels{weight[dim]},
        inner{weight.numel(dim + 1, weight.rank())} {}
  /// The whole weight as one channel.
  constexpr explicit channel_sizes(const shape& weight) : inner{weight.numel()} {}
};

/// A leaf M whose parameter `Name` is computed from other parameters before each forward. Its
/// parameters are M's without that one, followed by the others; all else is M's.
template <leaf_module M, literal Name>
struct reparametrized : M {
  static constexpr bool is_lazy = false;
  static constexpr bool is_layer = false;
  static constexpr bool skips_parameter_gradients = false;

  constexpr reparametrized() = default;
  constexpr explicit reparametrized(const M& m) : M(m) {}

  constexpr void bind_state([[maybe_unused]] std::span<const shape> parameters,
                            [[maybe_unused]] std::span<const shape> buffers) {
    if constexpr (requires(M & m) { m.bind_state(parameters, buffers); })
      M::bind_state(inner_table<shape>(parameters.data(), parameters.back()),
                    buffers.first(inner_buffers));
  }

  /// M, for inference: with the parameters that fold_parameters writes it gives the same.
  constexpr const M& folded() const { return *this; }

 protected:
  static constexpr std::size_t inner_parameters = parameter_count<M>();
  static constexpr std::size_t inner_saved = saved_count<M>();
  static constexpr std::size_t inner_buffers = buffer_count<M>();
  static constexpr std::size_t replaced =
      parameter_index<M>(std::string_view{Name.data, Name.size()});
  static constexpr bool is_found = replaced < inner_parameters;

  static constexpr bool has_dim(dim_t dim) {
    if constexpr (is_found)
      return dim >= 0 && dim < static_cast<dim_t>(M{}.parameters()[replaced].extents.rank());
    else
      return false;
  }

  /// Its gradient has all rows, even if M would list those of its own.
  constexpr parameter_spec computed() const {
    parameter_spec p = M::parameters()[replaced];
    p.rows_in = -1;
    return p;
  }

  /// The specs of M's other parameters, with room for `Added` more.
  template <std::size_t Added>
  constexpr std::array<parameter_spec, inner_parameters - 1 + Added> other_parameters() const {
    std::array<parameter_spec, inner_parameters - 1 + Added> out{};
    const auto inner = M::parameters();
    for (std::size_t i = 0, n = 0; i < inner_parameters; ++i)
      if (i != replaced) out[n++] = inner[i];
    return out;
  }

  /// The same, and last a parameter `name` with the extents and the initial values of the computed
  /// one.
  constexpr auto parameters_and(const char* name) const {
    auto out = other_parameters<1>();
    parameter_spec& original = out.back();
    original = computed();
    if (*original.drawn_as == '\0') original.drawn_as = original.name;
    original.name = name;
    return out;
  }

  /// What M saves, with room for `Added` more.
  template <std::size_t Added>
  constexpr std::array<saved_spec, inner_saved + Added> inner_saved_and(
      [[maybe_unused]] const shape_list& in) const {
    std::array<saved_spec, inner_saved + Added> out{};
    if constexpr (inner_saved > 0) {
      const auto inner = M::saved(in);
      for (std::size_t i = 0; i < inner_saved; ++i) out[i] = inner[i];
    }
    return out;
  }

  /// A table with one entry per parameter of M, taken from this module's table; `own` is the entry
  /// of the computed parameter.
  template <class P>
  static constexpr std::array<P, inner_parameters> inner_table(const P* table, const P& own) {
    std::array<P, inner_parameters> out{};
    for (std::size_t i = 0, n = 0; i < inner_parameters; ++i)
      out[i] = i == replaced ? own : table[n++];
    return out;
  }

  /// Copies all parameters of M but the computed one.
  template <class T>
  void copy_others(const T* const* from, T* const* to) const {
    const auto inner = M::parameters();
    for (std::size_t i = 0, n = 0; i < inner_parameters; ++i)
      if (i != replaced) std::copy_n(from[n++], inner[i].extents.numel(), to[i]);
  }

  template <class Context, class T = typename Context::value_type>
  void run_inner_forward(Context c, T* weight) const {
    const auto parameters = inner_table<T*>(c.parameters, weight);
    c.parameters = parameters.data();
    c.stamp = 0;
    M::forward(c);
  }

  /// Overwrites dweight, whether or not the model accumulates gradients.
  template <class Context, class T = typename Context::value_type>
  void run_inner_backward(Context c, T* weight, T* dweight, dim_t size) const {
    // A leaf that lists rows writes no others.
    if (c.accumulating || M::parameters()[replaced].rows_in >= 0)
      for (dim_t i = 0; i < size; ++i) dweight[i] = T{0};
    const auto parameters = inner_table<T*>(c.parameters, weight);
    const auto gradients = inner_table<T*>(c.gradients, dweight);
    c.parameters = parameters.data();
    c.stamp = 0;
    c.gradients = gradients.data();
    M::backward(c);
  }

  template <class T>
  void finish_inner(T* const* parameters, T* weight, std::byte* const* buffers) const {
    const auto inner = inner_table<T*>(parameters, weight);
    if constexpr (requires(const M& m) {
                    m.template finish_initialization<T>(inner.data(), buffers);
                  })
      M::template finish_initialization<T>(inner.data(), buffers);
  }
};

}  // namespace ikebana::detail
