#pragma once

#include <boost/hana/tuple.hpp>
#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

#include "ikebana/module/module.hpp"
#include "ikebana/module/named.hpp"
#include "ikebana/module/symbol.hpp"
#include "ikebana/nn/detail/spatial.hpp"
#include "ikebana/nn/transformer_encoder_layer.hpp"

namespace ikebana {

namespace detail {

/// Layers one after another, all given the same masks. Their names are their indices.
template <class... Layers>
struct layer_list {
  static constexpr std::string_view kind = "module_list";
  boost::hana::tuple<Layers...> children{};

  static constexpr auto wiring() {
    wiring_table<sizeof...(Layers)> w;
    w.inputs = wiring_of<typename unwrap_named<nth<0, Layers...>>::type>.inputs;
    for (std::size_t i = 0; i < sizeof...(Layers); ++i) {
      auto& s = w.steps[i];
      s.child = static_cast<int>(i);
      s.input_count = static_cast<std::size_t>(w.inputs);
      for (int j = 0; j < w.inputs; ++j) s.inputs[j] = j;
      if (i > 0) s.inputs[0] = w.inputs + static_cast<int>(i) - 1;
    }
    w.outputs[0] = w.inputs + static_cast<int>(sizeof...(Layers)) - 1;
    return w;
  }

  template <class... C>
  static constexpr auto rebind(C... c) {
    return layer_list<C...>{{std::move(c)...}};
  }
};

template <class Layer, std::size_t>
using nth_of = Layer;
template <class Layer, std::size_t... I>
layer_list<nth_of<Layer, I>...> list_of(std::index_sequence<I...>);

/// N layers of one type, whose own type name stays short for any N.
template <dim_t N, class Layer>
struct layer_stack
    : decltype(list_of<Layer>(std::make_index_sequence<static_cast<std::size_t>(N)>{})) {
  using layer_type = Layer;
  using list = decltype(list_of<Layer>(std::make_index_sequence<static_cast<std::size_t>(N)>{}));

  constexpr layer_stack() = default;
  constexpr explicit layer_stack(list l) : list{std::move(l)} {}

  template <class First, class... C>
  static constexpr auto rebind(First first, C... c) {
    layer_list<First, C...> all{{std::move(first), std::move(c)...}};
    if constexpr ((std::is_same_v<First, C> && ...))
      return layer_stack<N, First>(std::move(all));
    else
      return all;
  }

  static constexpr layer_stack copies_of(const Layer& layer) {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return layer_stack(list{{(static_cast<void>(I), layer)...}});
    }
    (std::make_index_sequence<static_cast<std::size_t>(N)>{});
  }
};

template <class Child>
inline constexpr bool is_stack = false;
template <class Name, dim_t N, class Layer>
inline constexpr bool is_stack<named<Name, layer_stack<N, Layer>>> = true;

/// Children: layers, and norm if there is one. Kind is that of the module.
template <literal Kind, class Layers, class... Norm>
struct normed_layers {
  static constexpr std::string_view kind = joined<Kind>;
  boost::hana::tuple<Layers, Norm...> children{};

  constexpr normed_layers() = default;
  constexpr explicit normed_layers(boost::hana::tuple<Layers, Norm...> c)
      : children{std::move(c)} {}

  static constexpr auto wiring() {
    wiring_table<1 + sizeof...(Norm)> w;
    w.inputs = wiring_of<typename unwrap_named<Layers>::type>.inputs;
    w.steps[0].input_count = static_cast<std::size_t>(w.inputs);
    for (int j = 0; j < w.inputs; ++j) w.steps[0].inputs[j] = j;
    if constexpr (sizeof...(Norm) > 0) w.steps[1] = {1, {w.inputs}, 1};
    w.outputs[0] = w.inputs + static_cast<int>(sizeof...(Norm));
    return w;
  }

  template <class... C>
  static constexpr auto rebind(C... c) {
    return normed_layers<Kind, C...>(boost::hana::tuple<C...>{std::move(c)...});
  }
};

/// What transformer_encoder and transformer_decoder share; Self is one of them.
template <literal Kind, template <dim_t, class, class...> class Self, dim_t N, class Layer,
          class... Norm>
struct layered : normed_layers<Kind, named_child<"layers", layer_stack<N, Layer>>,
                               named_child<"norm", Norm>...> {
  static_assert(N > 0, "ikebana: a transformer needs at least one layer");
  static_assert(sizeof...(Norm) <= 1, "ikebana: a transformer takes at most one norm");
  using layers = named_child<"layers", layer_stack<N, Layer>>;
  using base = normed_layers<Kind, layers, named_child<"norm", Norm>...>;

  static constexpr auto input_names = Layer::input_names;

  constexpr layered() = default;
  constexpr explicit layered(const Layer& layer, const Norm&... norm)
      : base{{layers{layer_stack<N, Layer>::copies_of(layer)},
              named_child<"norm", Norm>{norm}...}} {}
  constexpr explicit layered(base b) : base{std::move(b)} {}

  template <class First, class... C>
  static constexpr auto rebind(First first, C... c) {
    auto made = base::rebind(std::move(first), std::move(c)...);
    if constexpr (is_stack<First>)
      return rebound<typename unwrap_named<First>::type, typename unwrap_named<C>::type...>(
          std::move(made));
    else
      return made;
  }

 private:
  template <class Stack, class... M, class B>
  static constexpr auto rebound(B b) {
    return Self<N, typename Stack::layer_type, M...>(std::move(b));
  }
};

}  // namespace detail

/// N layers one after another, all given the same masks, and an optional final norm:
/// transformer_encoder<6, transformer_encoder_layer<512, 8, 2048>, layer_norm<512>>. Constructed
/// from one layer, whose settings all layers share, and the norm. Inputs are those of the layer.
/// Paths: layers.0.self_attn.in_proj_weight, ..., norm.weight. Initial weights differ from layer to
/// layer (in PyTorch, all layers start as copies of one).
template <dim_t N, class Layer, class... Norm>
struct transformer_encoder
    : detail::layered<"transformer_encoder", transformer_encoder, N, Layer, Norm...> {
  using transformer_encoder::layered::layered;

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }
};

}  // namespace ikebana
