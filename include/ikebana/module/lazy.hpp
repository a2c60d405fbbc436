#pragma once

#include <boost/hana/unpack.hpp>
#include <cstddef>
#include <utility>

#include "ikebana/module/lowering.hpp"

namespace ikebana {

/// Whether a dimension of m, or of any module in it, is still left out, so that it has no
/// parameters yet. A constant expression; recursive.
template <any_module M>
constexpr bool has_uninitialized_params(const M& m) {
  if constexpr (composite_module<M>) {
    return boost::hana::unpack(m.children, [](const auto&... child) {
      return (false || ... || has_uninitialized_params(detail::module_of(child)));
    });
  } else if constexpr (requires { M::is_lazy; }) {
    return M::is_lazy;
  } else {
    return false;
  }
}

template <any_module M>
inline constexpr bool is_lazy_v = has_uninitialized_params(M{});

/// A module whose every dimension is known (or known to be dynamic).
template <class M>
concept resolved_module = any_module<M> && !is_lazy_v<M>;

template <shape_list In, any_module M>
constexpr auto become(const M& m);

namespace detail {

template <std::size_t Children>
struct child_input_table {
  shape_list of[Children + 1]{};
};

/// Follows the steps of a composition with the shapes of its values, and notes what each child sees
/// first.
template <std::size_t Steps>
struct input_recorder {
  child_input_table<Steps> table{};
  shape local[max_arity * (Steps + 1)]{};
  int local_count = 0;
  bool seen[Steps + 1]{};

  template <class M, class Step>
  constexpr void run(const M& m, const Step& step) {
    shape_list in;
    for (std::size_t i = 0; i < step.input_count; ++i) in.push_back(local[step.inputs[i]]);
    const auto c = static_cast<std::size_t>(step.child);
    if (!seen[c]) table.of[c] = in;
    seen[c] = true;
    const inferred made = infer(m, in);
    for (std::size_t o = 0; o < made.outputs.size(); ++o) local[local_count++] = made.outputs[o];
  }
};

/// The shapes that each child of M sees first, for the given inputs of M.
template <composite_module M>
constexpr auto child_inputs(const shape_list& in) {
  constexpr auto w = M::wiring();
  input_recorder<w.size()> recorder;
  for (int i = 0; i < w.inputs; ++i)
    recorder.local[recorder.local_count++] = in[static_cast<std::size_t>(i)];
  boost::hana::unpack(M{}.children, [&](const auto&... child) {
    if constexpr (w.in_order(sizeof...(child))) {
      // Each child runs once, in order.
      std::size_t s = 0;
      (recorder.run(module_of(child), w.steps[s++]), ...);
    } else {
      for (std::size_t s = 0; s < w.size(); ++s) {
        int i = 0;
        ((i++ == w.steps[s].child ? recorder.run(module_of(child), w.steps[s]) : void()), ...);
      }
    }
  });
  return recorder.table;
}

template <composite_module M, shape_list In>
inline constexpr auto child_inputs_v = child_inputs<M>(In);

template <class M, shape_list In, class Indices>
struct rebind_children;
template <class M, shape_list In, std::size_t... I>
struct rebind_children<M, In, std::index_sequence<I...>> {
  template <class... C>
  constexpr auto operator()(const C&... child) const {
    return M::rebind(renamed<C>(ikebana::become<child_inputs_v<M, In>.of[I]>(module_of(child)))...);
  }
};

template <class... C>
std::index_sequence_for<C...> indices_of(const boost::hana::tuple<C...>&);

template <class M, shape_list In, std::size_t... I>
constexpr auto become_leaf(const M& m, std::index_sequence<I...>) {
  return m.template become<In[I]...>();
}

}  // namespace detail

/// The module that m becomes for inputs of these shapes: every lazy dimension is replaced by what
/// they bring, names and options are kept. m itself where nothing is lazy. A constant expression.
template <shape_list In, any_module M>
constexpr auto become(const M& m) {
  if constexpr (!is_lazy_v<M>)
    return m;
  else if constexpr (composite_module<M>)
    return boost::hana::unpack(
        m.children, detail::rebind_children<M, In, decltype(detail::indices_of(m.children))>{});
  else
    return detail::become_leaf<M, In>(m, std::make_index_sequence<In.size()>{});
}

/// The type that M becomes for one input of shape In (PyTorch's cls_to_become, with the dimensions
/// filled in).
template <any_module M, shape... In>
using become_t = decltype(become<shape_list{In...}>(std::declval<const M&>()));

}  // namespace ikebana
