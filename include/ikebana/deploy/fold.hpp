#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <utility>

#include "ikebana/compose/replace_leaves.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/deploy/fuse_weights.hpp"
#include "ikebana/model/plan/value_uses.hpp"
#include "ikebana/module/context.hpp"
#include "ikebana/module/lowering.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/program.hpp"
#include "ikebana/module/symbol.hpp"

namespace ikebana::detail {

/// Stands where a dropout was, or a norm that is now part of the weights before it. It costs
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
concept drops_out = requires {
  requires bool{Leaf::is_identity_in_evaluation};
  requires parameter_count<Leaf>()
  == 0 && buffer_count<Leaf>() == 0;
};

/// What is known of the leaves of a network, in the order in which they are declared.
template <std::size_t N>
struct leaf_abilities {
  const program_node* nodes;
  int k = 0;
  std::array<int, N + 1> calls{};
  std::array<std::size_t, N + 1> weight_rank{};  ///< Of those that take a bias; else 0.
  std::array<bool, N + 1> is_norm{};

  template <class Leaf>
  constexpr void operator()(const Leaf& leaf) {
    const auto l = static_cast<std::size_t>(nodes[k++].leaf);
    ++calls[l];
    if constexpr (takes_bias<Leaf>) weight_rank[l] = plain(leaf).parameters()[0].extents.rank();
    is_norm[l] = folding_norm<Leaf>;
  }
};

/// Which norms of M are folded, for inputs of the shapes In: those that read the output of a leaf
/// with weights, which nothing else reads, channel by channel.
template <any_module M, shape... In>
struct folding {
  static constexpr const auto& p = lowered_of<M, In...>;
  static constexpr std::size_t leaves = std::remove_cvref_t<decltype(p)>::sizes.leaves;

  /// By leaf: for a norm, the leaf that it is folded into; -1 for none.
  static constexpr auto into = [] {
    constexpr program_sizes n = std::remove_cvref_t<decltype(p)>::sizes;
    std::array<int, leaves + 1> of{};
    for (int& l : of) l = -1;
    leaf_abilities<leaves> known{p.nodes.data()};
    const M m{};
    for_each_leaf(m, known);
    program_table<value_use, n.values> uses{};
    find_uses(p.view(), uses.data());
    for (std::size_t k = 0; k < n.nodes; ++k) {
      const program_node& node = p.nodes[k];
      const auto norm = static_cast<std::size_t>(node.leaf);
      if (!known.is_norm[norm] || known.calls[norm] != 1) continue;
      const auto v = static_cast<std::size_t>(node.inputs[0]);
      if (uses[v].producer < 0 || uses[v].consumers != 1 || uses[v].is_output) continue;
      const program_node& made = p.nodes[static_cast<std::size_t>(uses[v].producer)];
      const auto by = static_cast<std::size_t>(made.leaf);
      // A sequence of vectors, or an image without a batch, has its channels elsewhere.
      if (known.weight_rank[by] == 0 || known.weight_rank[by] != p.values[v].rank()) continue;
      if (known.calls[by] == 1 && made.arm == node.arm && made.output_count == 1)
        of[norm] = made.leaf;
    }
    return of;
  }();
  static constexpr auto has_norm = [] {
    std::array<bool, leaves + 1> has{};
    for (std::size_t l = 0; l < leaves; ++l)
      if (into[l] >= 0) has[static_cast<std::size_t>(into[l])] = true;
    return has;
  }();

  template <std::size_t L, leaf_module Leaf>
  static constexpr auto replace(const Leaf& leaf) {
    if constexpr (into[L] >= 0 || drops_out<Leaf>)
      return folded_away{};
    else if constexpr (has_norm[L])
      return plain(leaf).with_bias();
    else
      return plain(leaf);
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
  const int* into;  ///< folding::into
  int k = 0;

  template <class Leaf>
  [[gnu::noinline]] void operator()(const Leaf& leaf) {
    const int l = nodes[k++].leaf;
    write(leaf, l, parameters + from[l].first_parameter, buffers + from[l].first_buffer);
  }

 private:
  template <class Leaf>
  void write(const Leaf& leaf, int l, const T* const* p, const std::byte* const* b) const {
    if constexpr (frozen_from<Leaf>) {
      const T* own[Leaf::own_parameters + 1]{};
      for (std::size_t i = 0; i < Leaf::own_parameters; ++i)
        own[i] = reinterpret_cast<const T*>(b[i]);
      write(leaf.trainable(), l, own, b + Leaf::own_parameters);
    } else {
      if constexpr (folding_norm<Leaf>)
        if (into[l] >= 0) return scale(leaf, p, b, made.leaves[into[l]]);
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
    }
  }

  const shape& extents_of(const program_leaf& leaf, std::size_t i) const {
    return made.parameters[static_cast<std::size_t>(leaf.first_parameter) + i].spec.extents;
  }

  /// Fuses the norm into weights and bias of `to`.
  template <class Norm>
  void scale(const Norm& norm, const T* const* p, const std::byte* const* b,
             const program_leaf& to) const {
    const shape& weight = extents_of(to, 0);
    T* const w = made_parameters[to.first_parameter];
    T* const bias = made_parameters[to.first_parameter + 1];
    const auto *mean = reinterpret_cast<const T*>(b[0]), *var = reinterpret_cast<const T*>(b[1]);
    const T *norm_weight = nullptr, *norm_bias = nullptr;
    if constexpr (Norm::is_affine) norm_weight = p[0], norm_bias = p[1];
    fuse_norm<T>(1, weight[0], weight.numel(1, weight.rank()), mean, var, norm.eps, norm_weight,
                 norm_bias, w, bias);
  }
};

}  // namespace ikebana::detail
