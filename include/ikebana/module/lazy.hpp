#pragma once

#include <array>
#include <boost/hana/unpack.hpp>
#include <cstddef>
#include <span>
#include <utility>

#include "ikebana/module/lowering.hpp"

namespace ikebana {

namespace detail {

template <any_module M>
constexpr bool leaves_out_dimensions();

}  // namespace detail

/// Whether a dimension of M, or of any module in it, is lazy.
template <any_module M>
inline constexpr bool is_lazy_v = detail::leaves_out_dimensions<M>();

namespace detail {

template <any_module M>
constexpr bool leaves_out_dimensions() {
  if constexpr (composite_module<M>)
    return []<class... C>(const boost::hana::tuple<C...>*) {
      return (false || ... || is_lazy_v<typename unwrap_named<C>::type>);
    }(static_cast<const decltype(M::children)*>(nullptr));
  else if constexpr (requires { M::is_lazy; })
    return M::is_lazy;
  else
    return false;
}

}  // namespace detail

/// A module without lazy dimensions (dynamic ones are allowed).
template <class M>
concept resolved_module = any_module<M> && !is_lazy_v<M>;

namespace detail {

template <any_module M, shape_list In>
struct becomes;

/// The type of the module that M becomes, computed without a value of M.
template <any_module M, shape_list In>
using becomes_t = typename becomes<M, In>::type;

}  // namespace detail

template <shape_list In, any_module M>
constexpr detail::becomes_t<M, In> become(const M& m);

namespace detail {

template <std::size_t Children>
struct child_input_table {
  shape_list of[Children + 1]{};
};

template <any_module M>
constexpr shape_list output_shapes(const shape_list& in);

/// Those of a child of a composition, or of one part of it.
template <class C>
constexpr shape_list child_output_shapes(const shape_list& in, int part) {
  if constexpr (is_alike<C>)
    return infer_leaf(part_value<C>::at(part), in).outputs;
  else
    return output_shapes<typename unwrap_named<C>::type>(in);
}

/// Follows the steps of a composition with the shapes of its values, which are known to be valid,
/// and records the input shapes of each child's first call.
template <std::size_t Steps>
struct input_recorder {
  const wiring_table<Steps>& w;
  child_input_table<Steps> table{};
  shape values[max_arity * (Steps + 1)]{};
  int value_count = 0;
  bool seen[Steps + 1]{};

  constexpr input_recorder(const wiring_table<Steps>& wiring, const shape_list& given) : w{wiring} {
    record(given);
  }

  constexpr shape_list inputs(std::size_t s) {
    shape_list taken;
    for (std::size_t i = 0; i < w.steps[s].input_count; ++i)
      taken.push_back(values[w.steps[s].inputs[i]]);
    const auto c = static_cast<std::size_t>(w.steps[s].child);
    if (!seen[c]) table.of[c] = taken;
    seen[c] = true;
    return taken;
  }
  constexpr void record(const shape_list& made) {
    for (std::size_t o = 0; o < made.size(); ++o) values[value_count++] = made[o];
  }
  constexpr shape_list outputs() const {
    shape_list out;
    for (std::size_t i = 0; i < w.output_count; ++i) out.push_back(values[w.outputs[i]]);
    return out;
  }

  template <class... C>
  constexpr void run(const boost::hana::tuple<C...>*) {
    if (w.in_order(sizeof...(C))) {
      [[maybe_unused]] std::size_t s = 0;
      ((record(child_output_shapes<C>(inputs(s), w.steps[s].part)), ++s), ...);
      return;
    }
    for (std::size_t s = 0; s < Steps; ++s) {
      [[maybe_unused]] int i = 0;
      static_cast<void>(((i++ == w.steps[s].child &&
                          (record(child_output_shapes<C>(inputs(s), w.steps[s].part)), true)) ||
                         ...));
    }
  }
};

template <composite_module M>
constexpr auto record_inputs(const shape_list& in) {
  input_recorder<wiring_of<M>.size()> recorder(wiring_of<M>, in);
  recorder.run(static_cast<const decltype(M::children)*>(nullptr));
  return recorder;
}

/// The output shapes of a type of module. Computes only shapes, without a program or paths, so that
/// the cost per leaf does not grow with the depth.
template <any_module M>
constexpr shape_list output_shapes(const shape_list& in) {
  if constexpr (requires { M::observed_paths; })
    return infer(M{}, in).outputs;
  else if constexpr (composite_module<M>)
    return record_inputs<M>(in).outputs();
  else
    return infer_leaf(M{}, in).outputs;
}

/// The input shapes of the first call of each child of M, for the given inputs of M.
template <composite_module M, shape_list In>
inline constexpr auto child_inputs_v = record_inputs<M>(In).table;

/// Replaces the module of a child, which may be named, by M.
template <class C, class M>
struct rename : std::type_identity<M> {};
template <class Name, class Old, class M>
struct rename<named<Name, Old>, M> : std::type_identity<named<Name, M>> {};

template <class Graph, class Old, class M>
struct rename<alike<Graph, Old>, M> : std::type_identity<alike<Graph, Old>> {};

template <class C, shape_list In>
constexpr auto become_child(const C& child) {
  if constexpr (is_alike<C>)
    return child;
  else
    return renamed<C>(ikebana::become<In>(module_of(child)));
}

template <class M, shape_list In, class Indices>
struct rebind_children;
template <class M, shape_list In, std::size_t... I>
struct rebind_children<M, In, std::index_sequence<I...>> {
  template <class... C>
  constexpr auto operator()(const C&... child) const {
    return M::rebind(become_child<C, child_inputs_v<M, In>.of[I]>(child)...);
  }
  template <class... C>
  static auto of(const boost::hana::tuple<C...>*) -> decltype(M::rebind(
      std::declval<typename rename<
          C, becomes_t<typename unwrap_named<C>::type, child_inputs_v<M, In>.of[I]>>::type>()...));
};

template <class... C>
std::index_sequence_for<C...> indices_of(const boost::hana::tuple<C...>&);

template <class M, shape_list In>
using children_rebinder =
    rebind_children<M, In, decltype(indices_of(std::declval<const M&>().children))>;

template <class M, shape_list In, std::size_t... I>
constexpr auto become_leaf(const M& m, std::index_sequence<I...>) {
  return m.template become<In[I]...>();
}

template <any_module M, shape_list In>
struct becomes : std::type_identity<M> {};
template <any_module M, shape_list In>
requires(is_lazy_v<M> && !composite_module<M>) struct becomes<M, In>
    : std::type_identity<decltype(become_leaf<M, In>(std::declval<const M&>(),
                                                     std::make_index_sequence<In.size()>{}))> {
};
template <any_module M, shape_list In>
requires(is_lazy_v<M>&& composite_module<M>) struct becomes<M, In>
    : std::type_identity<decltype(children_rebinder<M, In>::of(
          static_cast<const decltype(M::children)*>(nullptr)))> {
};

/// The value of a module whose settings are all known at compile time.
template <any_module M>
inline constexpr M module_value{};

}  // namespace detail

/// The module that m resolves to for inputs of these shapes: every lazy dimension is replaced by
/// the extent of the input; names and options are kept. Returns m itself if nothing is lazy. A
/// constant expression.
template <shape_list In, any_module M>
constexpr detail::becomes_t<M, In> become(const M& m) {
  if constexpr (!is_lazy_v<M>)
    return m;
  else if constexpr (detail::is_stateless<detail::becomes_t<M, In>>())
    // The type determines the module, so that it is not made child by child.
    return detail::module_value<detail::becomes_t<M, In>>;
  else if constexpr (composite_module<M>)
    return boost::hana::unpack(m.children, detail::children_rebinder<M, In>{});
  else
    return detail::become_leaf<M, In>(m, std::make_index_sequence<In.size()>{});
}

/// The type that M resolves to for inputs of the shapes In (PyTorch's cls_to_become, with the
/// dimensions filled in).
template <any_module M, shape... In>
using become_t = detail::becomes_t<M, shape_list{In...}>;

/// A list of paths of parameters and buffers, in PyTorch's order. Structural; iterates over
/// `path_text`.
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

/// Records for each leaf whether one of its dimensions is lazy.
struct mark_lazy_leaves {
  const program_node* nodes;
  bool* is_lazy;
  int k = 0;

  template <class Leaf>
  constexpr void operator()(const Leaf&) {
    is_lazy[nodes[k++].leaf] = is_lazy_v<Leaf>;
  }
};

template <program_sizes N, any_module M>
constexpr program_table<bool, N.leaves> lazy_leaves(const program<N>& p, const M& m) {
  program_table<bool, N.leaves> is_lazy{};
  mark_lazy_leaves mark{p.nodes.data(), is_lazy.data()};
  for_each_leaf(m, mark);
  return is_lazy;
}

/// Calls f(leaf, spec) for everything uninitialized: all parameters of a lazy leaf, whose initial
/// values depend on its dimensions, and those of its buffers whose shape is unknown.
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
/// dimension of their module is lazy: "fc1.weight", "fc1.bias", .. A constant expression;
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

/// Inputs with dynamic extents only.
constexpr shape_list all_dynamic(std::size_t inputs, std::size_t rank) {
  shape s;
  while (s.rank() < rank) s.push_back(dynamic);
  shape_list list;
  while (list.size() < inputs) list.push_back(s);
  return list;
}

/// The fewest inputs, and of those the lowest rank, that a leaf accepts.
template <leaf_module M>
constexpr shape_list simplest_inputs() {
  for (std::size_t inputs = 1; inputs <= 4; ++inputs)
    for (std::size_t rank = 1; rank <= shape::max_rank; ++rank)
      if (infer_leaf(M{}, all_dynamic(inputs, rank)).ok()) return all_dynamic(inputs, rank);
  return {};
}

template <any_module M>
constexpr auto open_dimensions(const M& m);

template <class C>
constexpr auto open_child(const C& child) {
  if constexpr (is_alike<C>)
    return child;
  else
    return renamed<C>(open_dimensions(module_of(child)));
}

/// m with every lazy dimension made dynamic: its form before any input, when a state can supply the
/// extents.
template <any_module M>
constexpr auto open_dimensions(const M& m) {
  if constexpr (!is_lazy_v<M>)
    return m;
  else if constexpr (composite_module<M>)
    return boost::hana::unpack(
        m.children, []<class... C>(const C&... child) { return M::rebind(open_child(child)...); });
  else
    return ikebana::become<simplest_inputs<M>()>(m);
}

template <any_module M>
using opened_t = decltype(open_dimensions(std::declval<const M&>()));

}  // namespace detail

}  // namespace ikebana
