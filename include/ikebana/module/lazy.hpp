#pragma once

#include <array>
#include <boost/hana/unpack.hpp>
#include <cstddef>
#include <span>
#include <utility>

#include "ikebana/module/lowering.hpp"

namespace ikebana {

namespace detail {

/// Whether a dimension of m, or of any module in it, is left out.
template <any_module M>
constexpr bool leaves_out_dimensions(const M& m) {
  if constexpr (composite_module<M>) {
    return boost::hana::unpack(m.children, [](const auto&... child) {
      return (false || ... || leaves_out_dimensions(module_of(child)));
    });
  } else if constexpr (requires { M::is_lazy; }) {
    return M::is_lazy;
  } else {
    return false;
  }
}

}  // namespace detail

/// Whether a dimension of M, or of any module in it, is still left out.
template <any_module M>
inline constexpr bool is_lazy_v = detail::leaves_out_dimensions(M{});

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

/// The type that M becomes for inputs of the shapes In (PyTorch's cls_to_become, with the
/// dimensions filled in).
template <any_module M, shape... In>
using become_t = decltype(become<shape_list{In...}>(std::declval<const M&>()));

/// Paths of parameters and buffers, in PyTorch's order. Structural; iterates over `path_text`.
template <std::size_t N>
struct path_list {
  path_text paths[N + 1]{};

  static constexpr std::size_t size() { return N; }
  static constexpr bool empty() { return N == 0; }
  constexpr const path_text& operator[](std::size_t i) const { return paths[i]; }
  constexpr const path_text* begin() const { return paths; }
  constexpr const path_text* end() const { return paths + N; }
  constexpr bool contains(std::string_view path) const {
    for (const path_text& p : *this)
      if (p.view() == path) return true;
    return false;
  }
};

namespace detail {

/// Notes for each leaf whether a dimension of it is left out.
struct mark_lazy_leaves {
  const program_node* nodes;
  bool* is_lazy;
  int k = 0;

  template <class Leaf>
  constexpr void operator()(const Leaf& leaf) {
    is_lazy[nodes[k++].leaf] = leaves_out_dimensions(leaf);
  }
};

template <program_sizes N, any_module M>
constexpr program_table<bool, N.leaves> lazy_leaves(const program<N>& p, const M& m) {
  program_table<bool, N.leaves> is_lazy{};
  mark_lazy_leaves mark{p.nodes.data(), is_lazy.data()};
  for_each_leaf(m, mark);
  return is_lazy;
}

/// Calls f(leaf, spec) for what is uninitialized: all parameters of a lazy leaf, whose initial
/// values wait for its dimensions, and those of its buffers that have no shape yet.
template <program_sizes N, class F>
constexpr void for_each_uninitialized(const program<N>& p,
                                      const program_table<bool, N.leaves>& is_lazy, F&& f) {
  for (std::size_t l = 0; l < N.leaves; ++l) {
    if (!is_lazy[l]) continue;
    const program_leaf& leaf = p.leaves[l];
    for (std::size_t i = 0; i < leaf.parameter_count; ++i)
      f(leaf, p.parameters[static_cast<std::size_t>(leaf.first_parameter) + i].spec.name);
    for (std::size_t i = 0; i < leaf.buffer_count; ++i) {
      const buffer_spec& spec = p.buffers[static_cast<std::size_t>(leaf.first_buffer) + i].spec;
      if (!spec.extents.is_static()) f(leaf, spec.name);
    }
  }
}

/// A module's own value, of which nothing is left to run time.
template <any_module M>
inline constexpr M module_value{};

template <any_module M>
inline constexpr auto outline_of = outline(module_value<M>);

template <any_module M>
inline constexpr auto lazy_leaves_of = lazy_leaves(outline_of<M>, module_value<M>);

template <any_module M>
inline constexpr std::size_t uninitialized_count = [] {
  std::size_t n = 0;
  for_each_uninitialized(outline_of<M>, lazy_leaves_of<M>, [&](const auto&...) { ++n; });
  return n;
}();

template <any_module M>
inline constexpr auto uninitialized_paths = [] {
  path_list<uninitialized_count<M>> list;
  std::size_t n = 0;
  for_each_uninitialized(outline_of<M>, lazy_leaves_of<M>,
                         [&](const program_leaf& leaf, const char* name) {
                           list.paths[n++] = outline_of<M>.path(leaf, name);
                         });
  return list;
}();

}  // namespace detail

/// The paths of the parameters and buffers of m that have no shape or values yet, because a
/// dimension of their module is left out: "fc1.weight", "fc1.bias", .. A constant expression;
/// recursive.
template <any_module M>
constexpr auto uninitialized_params(const M&) {
  return detail::uninitialized_paths<M>;
}

/// Whether m, or any module in it, has a parameter or buffer that is uninitialized. A constant
/// expression; recursive.
template <any_module M>
constexpr bool has_uninitialized_params(const M&) {
  return is_lazy_v<M> && detail::uninitialized_count<M> > 0;
}

namespace detail {

/// Inputs of nothing but dynamic extents.
constexpr shape_list all_dynamic(std::size_t inputs, std::size_t rank) {
  shape s;
  while (s.rank() < rank) s.push_back(dynamic);
  shape_list list;
  while (list.size() < inputs) list.push_back(s);
  return list;
}

/// The fewest inputs, of the lowest rank, that a leaf takes.
template <leaf_module M>
constexpr shape_list simplest_inputs() {
  for (std::size_t inputs = 1; inputs <= 4; ++inputs)
    for (std::size_t rank = 1; rank <= shape::max_rank; ++rank)
      if (infer_leaf(M{}, all_dynamic(inputs, rank)).ok()) return all_dynamic(inputs, rank);
  return {};
}

/// m with every dimension that is left out made dynamic: what it is before any input, once a state
/// may bring its extents.
template <any_module M>
constexpr auto open_dimensions(const M& m) {
  if constexpr (!is_lazy_v<M>)
    return m;
  else if constexpr (composite_module<M>)
    return boost::hana::unpack(m.children, [](const auto&... child) {
      return M::rebind(
          renamed<std::remove_cvref_t<decltype(child)>>(open_dimensions(module_of(child)))...);
    });
  else
    return ikebana::become<simplest_inputs<M>()>(m);
}

template <any_module M>
using opened_t = decltype(open_dimensions(std::declval<const M&>()));

}  // namespace detail

}  // namespace ikebana
