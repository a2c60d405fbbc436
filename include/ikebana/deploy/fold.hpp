#pragma once

#include <algorithm>
#include <array>
#include <boost/hana/tuple.hpp>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "ikebana/compose/replace_leaves.hpp"
#include "ikebana/compose/replace_steps.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/broadcast.hpp"
#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/cpu/loop_step.hpp"
#include "ikebana/deploy/channel_map.hpp"
#include "ikebana/deploy/find_folds.hpp"
#include "ikebana/model/plan/value_uses.hpp"
#include "ikebana/module/alike.hpp"
#include "ikebana/module/arithmetic.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/lower_module.hpp"
#include "ikebana/module/lowering.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/named.hpp"
#include "ikebana/module/program.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/nn/identity.hpp"
#include "ikebana/ops/constant.hpp"
#include "ikebana/ops/elementwise.hpp"

namespace ikebana::detail {

/// Stands where a dropout was, or a norm or a scaling that is now part of weights. It costs
/// nothing: no call of it runs if it may overwrite its input.
struct folded_away {
  static constexpr std::string_view kind = "identity";
  static constexpr kept keeps = kept::nothing;
  static constexpr bool in_place = true;
  static constexpr bool is_identity_in_evaluation = true;
  static constexpr bool takes_residual = true;

  constexpr inferred infer(const shape& in) const { return in; }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }

  template <class T>
  void forward(const context<T>& c) const {
    const dim_t n = c.output_shape().numel();
    if (n == 0) return;
    if (c.residual() != nullptr)
      cpu::add<T>(n, c.input(), c.residual(), c.output());
    else if (c.output() != c.input())
      std::memcpy(c.output(), c.input(), static_cast<std::size_t>(n) * sizeof(T));
  }
  template <class T>
  void backward(const context<T>& c) const {
    if (c.input_gradient() != nullptr && c.input_gradient() != c.output_gradient())
      std::copy_n(c.output_gradient(), c.output_shape().numel(), c.input_gradient());
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

template <class Leaf>
concept frozen_from = requires(const Leaf& m) {
  m.trainable();
  Leaf::is_frozen;
};
template <class Leaf>
concept folds_itself = !frozen_from<Leaf> && requires(const Leaf& m) {
  m.folded();
};

/// Whether a frozen network has other parameters in the place of the leaf's.
template <class Leaf>
inline constexpr bool computes_weights = folds_itself<Leaf>;
template <frozen_from Leaf>
inline constexpr bool computes_weights<Leaf> =
    folds_itself<std::remove_cvref_t<decltype(std::declval<const Leaf&>().trainable())>>;

/// The leaf with parameters that a frozen network computes once.
template <leaf_module Leaf>
constexpr auto plain(const Leaf& leaf) {
  if constexpr (frozen_from<Leaf>) {
    return plain(leaf.trainable());
  } else if constexpr (folds_itself<Leaf>) {
    // One reparametrisation of another stays: its own parameters have no memory.
    if constexpr (folds_itself<std::remove_cvref_t<decltype(leaf.folded())>>)
      return leaf;
    else
      return std::remove_cvref_t<decltype(leaf.folded())>(leaf.folded());
  } else {
    return leaf;
  }
}
template <leaf_module Leaf>
using plain_t = decltype(plain(std::declval<const Leaf&>()));

template <class Leaf>
concept takes_bias = requires(const plain_t<Leaf>& m) {
  m.with_bias();
};
template <class Leaf>
concept folding_norm = requires {
  requires bool{plain_t<Leaf>::is_channel_norm};
  requires !folds_itself<plain_t<Leaf>>;
};
template <class Leaf>
concept maps_elements = requires(const plain_t<Leaf>& m) {
  m.template element_map<float>(nullptr, nullptr, dim_t{});
};
template <class Leaf>
inline constexpr bool is_formula = std::is_same_v<Leaf, add> || std::is_same_v<Leaf, mul> ||
                                   std::is_same_v<Leaf, ops::elementwise>;
template <class Leaf>
inline constexpr bool gives_parameter = false;
template <shape Extents>
inline constexpr bool gives_parameter<ops::parameter<Extents>> = true;
template <class Leaf>
concept drops_out = requires {
  requires bool{Leaf::is_identity_in_evaluation};
  requires parameter_count<Leaf>()
  == 0 && buffer_count<Leaf>() == 0;
};

/// Stands where a parameter was that is now part of weights. Nothing reads its value.
struct folded_parameter {
  static constexpr std::string_view kind = "identity";
  static constexpr kept keeps = kept::nothing;
  static constexpr bool is_source = true;

  constexpr inferred infer(const shape&) const { return shape{0}; }
  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }
  template <class T>
  void forward(const context<T>&) const {}
  template <class T>
  void backward(const context<T>&) const {}
};

/// Marks the leaves that are alike others in a graph, and whose values their types determine.
template <any_module M>
constexpr void mark_steps(bool* leaves);
template <class C, bool IsGraph>
constexpr void mark_steps_of_child(bool* leaves) {
  if constexpr (is_alike<C>)
    *leaves = IsGraph && C::is_empty;
  else
    mark_steps<typename unwrap_named<C>::type>(leaves);
}
template <any_module M>
constexpr void mark_steps([[maybe_unused]] bool* leaves) {
  if constexpr (composite_module<M>)
    []<class... C, std::size_t... I>(const boost::hana::tuple<C...>*, std::index_sequence<I...>,
                                     bool* first) {
      constexpr const auto& numbered = numbered_children_of<M>;
      constexpr bool is_graph = requires { typename M::trace; };
      for (std::size_t n = 0; n < numbered.size(); ++n)
        static_cast<void>(
            ((static_cast<int>(I) == numbered[n].child &&
              (mark_steps_of_child<C, is_graph>(first + children_of<M>.starts[n].leaf), true)) ||
             ...));
    }(static_cast<const decltype(M::children)*>(nullptr),
      std::make_index_sequence<child_count<M>>{}, leaves);
}

/// Finds what the leaves of a network are to the weights of others.
template <std::size_t N>
struct find_abilities {
  const program_node* nodes;
  int k = 0;
  std::array<fold_ability, N + 1> of{};
  std::array<bool, N + 1> is_step{};

  template <class Leaf>
  constexpr void operator()(const Leaf& leaf) {
    const auto l = static_cast<std::size_t>(nodes[k++].leaf);
    fold_ability& is = of[l];
    ++is.calls;
    if constexpr (takes_bias<Leaf>) {
      is.weight_rank = plain(leaf).parameters()[0].extents.rank();
      if constexpr (requires { plain_t<Leaf>::adds_zeros; }) {
        is.knows_channels = true;
        is.adds_zeros = plain_t<Leaf>::adds_zeros;
      }
      if constexpr (requires { plain_t<Leaf>::transposed_groups; })
        is.transposed_groups = plain_t<Leaf>::transposed_groups;
    }
    is.is_parameter = gives_parameter<plain_t<Leaf>>;
    is.computes_weights = computes_weights<Leaf>;
    if constexpr (folding_norm<Leaf>) is.maps = fold_ability::map::channels;
    if constexpr (maps_elements<Leaf>) is.maps = fold_ability::map::last;
    if constexpr (is_formula<Leaf>) {
      if (!is_step[l]) return;
      is.maps = fold_ability::map::formula;
      const cpu::loop_step step = leaf.loop_step();
      is.f = static_cast<cpu::tensor_op>(step.f);
      is.operands = step.operands;
      is.numbers = step.numbers;
    }
  }
};

/// What of M is folded into weights, for inputs of the shapes In: norms and scalings that read the
/// output of a leaf with weights, which nothing else reads, or whose result such a leaf alone
/// reads, channel by channel.
template <any_module M, shape... In>
struct folding {
  static constexpr const auto& p = lowered_of<M, In...>;
  static constexpr std::size_t leaves = std::remove_cvref_t<decltype(p)>::sizes.leaves;

  struct tables {
    std::array<fold_target, leaves + 1> into{};
    std::array<bool, leaves + 1> needs_bias{};
    bool changes_weights = false;  ///< Those of the folded network are not those of M.
  };
  static constexpr tables found = [] {
    constexpr program_sizes n = std::remove_cvref_t<decltype(p)>::sizes;
    tables t;
    find_abilities<leaves> known{p.nodes.data()};
    mark_steps<M>(known.is_step.data());
    const M m{};
    for_each_leaf(m, known);
    program_table<value_use, n.values> uses{};
    find_uses(p.view(), uses.data());
    fold_finder(p.view(), known.of.data(), uses.data(), t.into.data(), t.needs_bias.data()).run();
    for (std::size_t l = 0; l < leaves; ++l)
      t.changes_weights |= t.into[l].leaf >= 0 || known.of[l].computes_weights;
    return t;
  }();
  /// By leaf.
  static constexpr const auto& into = found.into;

  template <std::size_t L, leaf_module Leaf>
  static constexpr auto replace(const Leaf& leaf) {
    if constexpr (into[L].leaf >= 0 && gives_parameter<plain_t<Leaf>>)
      return folded_parameter{};
    else if constexpr (into[L].leaf >= 0 && into[L].reads_caller)
      return identity{};
    else if constexpr (into[L].leaf >= 0 || drops_out<Leaf>)
      return folded_away{};
    else if constexpr (found.needs_bias[L])
      return plain(leaf).with_bias();
    else
      return plain(leaf);
  }
  /// What stands in a graph for formulas. The caller's input is not overwritten, but is a view.
  using replacements = detail::replacements<folded_away, identity>;
  static constexpr step_replacement step(std::size_t l) {
    if (into[l].leaf < 0) return {};
    return {into[l].reads_caller ? 1 : 0, into[l].x};
  }

  /// The module that inference runs. Its leaves have the order of M's.
  static constexpr auto fold(const M& m) { return replace_leaves<folding>(m); }
  using type = decltype(fold(std::declval<const M&>()));
};

/// Copies the persistent buffers `from` of a leaf to those of `to`, a leaf of `made`.
template <class T>
void copy_persistent_buffers(const program_view& made, const program_leaf& to,
                             const std::byte* const* from, std::byte* const* made_buffers) {
  for (int i = 0; i < static_cast<int>(to.buffer_count); ++i) {
    const buffer_spec& spec = made.buffers[to.first_buffer + i].spec;
    const std::size_t size = spec.follows_model ? sizeof(T) : size_of(spec.type);
    if (spec.persistent && spec.extents.numel() > 0)
      std::memcpy(made_buffers[to.first_buffer + i], from[i],
                  static_cast<std::size_t>(spec.extents.numel()) * size);
  }
}

/// Writes the parameters and buffers of a folded network.
template <class T>
struct fold_values {
  const program_node* nodes;
  const program_leaf* from;
  const T* const* parameters;
  const std::byte* const* buffers;
  const program_view& made;
  T* const* made_parameters;
  std::byte* const* made_buffers;
  const fold_target* into;  ///< folding::into
  /// By leaf: the elements of a parameter that is folded, and what maps the input of weights.
  std::vector<std::span<const T>> given = std::vector<std::span<const T>>(made.n.leaves);
  std::vector<channel_map> before = std::vector<channel_map>(made.n.leaves);
  int k = 0;

  template <class Leaf>
  [[gnu::noinline]] void operator()(const Leaf& leaf) {
    const int l = nodes[k++].leaf;
    write(leaf, l, parameters + from[l].first_parameter, buffers + from[l].first_buffer);
  }

 private:
  template <class Leaf>
  void write(const Leaf& leaf, int l, const T* const* p, const std::byte* const* b) {
    if constexpr (frozen_from<Leaf>) {
      const T* own[Leaf::own_parameters + 1]{};
      for (std::size_t i = 0; i < Leaf::own_parameters; ++i)
        own[i] = reinterpret_cast<const T*>(b[i]);
      write(leaf.trainable(), l, own, b + Leaf::own_parameters);
    } else {
      if constexpr (gives_parameter<Leaf>)
        if (into[l].leaf >= 0) {
          given[at(l)] = {p[0], at(leaf.infer(shape{}).outputs[0].numel())};
          return;
        }
      if constexpr (folding_norm<Leaf> || maps_elements<Leaf> || is_formula<Leaf>)
        if (into[l].leaf >= 0) return fold(map_of(leaf, into[l], p, b), into[l]);
      const program_leaf& to = made.leaves[l];
      T* const* const to_parameters = made_parameters + to.first_parameter;
      if constexpr (!std::is_same_v<plain_t<Leaf>, Leaf>) {
        leaf.template fold_parameters<T>(p, b, to_parameters);
      } else if constexpr (parameter_count<Leaf>() > 0) {
        // A bias that the leaf did not have is zero.
        for (std::size_t i = 0; i < parameter_count<Leaf>(); ++i)
          std::copy_n(p[i], extents_of(to, i).numel(), to_parameters[i]);
      }
      copy_persistent_buffers<T>(made, to, b, made_buffers);
      if constexpr (takes_bias<Leaf>)
        if (!before[at(l)].is_identity())
          before[at(l)].map_inputs(extents_of(to, 0), to_parameters[0], bias_of(to));
    }
  }

  static std::size_t at(std::integral auto i) { return static_cast<std::size_t>(i); }
  const shape& extents_of(const program_leaf& leaf, std::size_t i) const {
    return made.parameters[at(leaf.first_parameter) + i].spec.extents;
  }
  T* bias_of(const program_leaf& leaf) const {
    return leaf.parameter_count > 1 ? made_parameters[leaf.first_parameter + 1] : nullptr;
  }

  /// A leaf that reads the input of weights comes before them.
  void fold(const channel_map& map, const fold_target& target) {
    const program_leaf& to = made.leaves[target.leaf];
    if (target.is_before)
      before[at(target.leaf)].then(map);
    else
      map.map_outputs(extents_of(to, 0), target.transposed_groups,
                      made_parameters[to.first_parameter], bias_of(to));
  }

  template <class Leaf>
  channel_map map_of(const Leaf& leaf, const fold_target& target, const T* const* p,
                     const std::byte* const* b) const {
    channel_map map = channel_map::empty();
    if constexpr (is_formula<Leaf>) {
      const cpu::loop_step step = leaf.loop_step();
      const auto f = static_cast<cpu::tensor_op>(step.f);
      const bool first = step.numbers == 0 ? target.x == 0 : (step.numbers & 1) == 0;
      if (target.parameter < 0)
        map.push(channel_map::of(f, first, step.number[first && step.operands > 1 ? 1 : 0]));
      else
        for (const T number : given[at(target.parameter)])
          map.push(channel_map::of(f, first, static_cast<double>(number)));
    } else {
      const dim_t n = leaf.buffers()[0].extents.numel();
      for (dim_t c = 0; c < n; ++c) {
        if constexpr (maps_elements<Leaf>) {
          const auto [scale, shift] = leaf.template element_map<T>(p, b, c);
          map.push({scale, shift});
        } else {
          map.push(norm_at(leaf, p, b, c));
        }
      }
    }
    return map;
  }

  template <class Norm>
  static std::pair<double, double> norm_at(const Norm& norm, const T* const* p,
                                           const std::byte* const* b, dim_t c) {
    const auto of = [&](int i) { return static_cast<double>(reinterpret_cast<const T*>(b[i])[c]); };
    double scale = 1 / std::sqrt(of(1) + norm.eps), shift = 0;
    if constexpr (Norm::is_affine) {
      scale *= static_cast<double>(p[0][c]);
      shift = static_cast<double>(p[1][c]);
    }
    return {scale, shift - of(0) * scale};
  }
};

}  // namespace ikebana::detail
