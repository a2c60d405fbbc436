#pragma once

#include <algorithm>
#include <boost/hana/string.hpp>
#include <boost/hana/tuple.hpp>
#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/named.hpp"
#include "ikebana/module/symbol.hpp"

namespace ikebana {

namespace detail {

/// Joins the alternatives of a choice: the output is that of the alternative that ran, including
/// its memory.
struct join_alternatives {
  static constexpr std::string_view kind = "choice";
  static constexpr kept keeps = kept::nothing;
  static constexpr bool joins_alternatives = true;

  constexpr inferred infer(const shape_list& in) const {
    shape out = in[0];
    for (std::size_t i = 1; i < in.size(); ++i) {
      if (!compatible(in[0], in[i]))
        return diagnostic{"the alternatives of choose give equal shapes, got {input} and {other}",
                          0, 0, in[0], in[i]};
      for (std::size_t d = 0; d < out.rank(); ++d)
        if (in[i][d] < 0) out[d] = in[i][d];
    }
    return out;
  }

  constexpr dim_t multiply_adds(const shape_list&, const shape_list&) const { return 0; }
};

}  // namespace detail

/// One of several modules, chosen at run time (an `if` in a forward; torch.cond): `"path"_m =
/// choose("short"_m = a, "long"_m = b)`. All alternatives take the same inputs and give the same
/// shapes. `model.choose("path"_s, 1)`, by name `model.choose("path"_s, "long"_s)`, or a function
/// called before each forward selects one; initially it is the first. Only that one runs, forward
/// and backward. The parameters of the others then have no gradient (`model.has_gradient`), and
/// optimizers skip them. Children are named as those of `sequential`; the join is a separate child
/// named "choice".
template <class... Children>
struct choose {
  static_assert(sizeof...(Children) >= 1 && sizeof...(Children) <= max_arity,
                "ikebana: choose has one to eight alternatives");
  static constexpr std::string_view kind = "choose";
  static constexpr const char* own_child =
      "child {expected} has this name, which is that of where the alternatives of choose come "
      "together, child {got}";
  static constexpr bool is_choice = true;
  static constexpr bool first_output_is_result =
      (detail::first_output_is_result<typename detail::unwrap_named<Children>::type>() && ...);
  static constexpr std::size_t alternatives = sizeof...(Children);
  using join = named<boost::hana::string<'c', 'h', 'o', 'i', 'c', 'e'>, detail::join_alternatives>;
  boost::hana::tuple<Children..., join> children{};

  constexpr choose() = default;
  constexpr explicit choose(Children... c) requires(sizeof...(Children) > 0)
      : children{std::move(c)..., join{}} {}

  /// Applies every alternative to the inputs, then one join per output.
  static constexpr auto wiring() {
    constexpr std::size_t inputs =
        std::max({detail::chain_inputs<typename detail::unwrap_named<Children>::type>()...});
    constexpr std::size_t outputs =
        std::max({detail::output_count<typename detail::unwrap_named<Children>::type>()...});
    static_assert(
        ((detail::output_count<typename detail::unwrap_named<Children>::type>() == outputs) && ...),
        "ikebana: the alternatives of choose have equally many outputs");
    constexpr auto n = static_cast<int>(alternatives);
    wiring_table<alternatives + outputs> w;
    w.inputs = static_cast<int>(inputs);
    for (int s = 0; s < n; ++s) {
      auto& step = w.steps[s];
      step.child = s;
      step.input_count = static_cast<std::size_t>(w.inputs);
      for (int i = 0; i < w.inputs; ++i) step.inputs[i] = i;
    }
    constexpr auto each = static_cast<int>(outputs);
    for (int o = 0; o < each; ++o) {
      auto& step = w.steps[n + o];
      step.child = n;
      step.input_count = alternatives;
      for (int s = 0; s < n; ++s) step.inputs[s] = w.inputs + s * each + o;
      w.outputs[o] = w.inputs + n * each + o;
    }
    w.output_count = outputs;
    return w;
  }

  /// The last child is the join.
  template <class... C>
  static constexpr auto rebind(C... c) {
    return rebind_alternatives(boost::hana::tuple<C...>{std::move(c)...},
                               std::make_index_sequence<sizeof...(C) - 1>{});
  }

  template <class... X>
  constexpr auto operator()(const X&... x) const {
    return apply(*this, x...);
  }

 private:
  template <class... C, std::size_t... I>
  static constexpr auto rebind_alternatives(boost::hana::tuple<C...> c, std::index_sequence<I...>) {
    return choose<std::remove_cvref_t<decltype(boost::hana::at_c<I>(c))>...>(
        boost::hana::at_c<I>(c)...);
  }
};

template <class... Children>
choose(Children...) -> choose<Children...>;
template <class... Children>
requires(detail::have_no_module<Children...>) choose(Children...)
->choose<detail::refused_child<detail::later<Children...>>>;
template <class Misuse>
struct choose<detail::no_module<Misuse>>;
/// A choose of one choose is not a copy of it.
template <class... Children>
choose(choose<Children...>) -> choose<choose<Children...>>;

/// The module, or the identity: alternative 0 or 1 of a choice. The output has the shape of the
/// input. `"layer"_m = skippable("block"_m = m)`, `model.choose("layer"_s, layer_drop{.p = 0.2})`.
template <class Child>
constexpr auto skippable(Child child) {
  using skip = named<boost::hana::string<'s', 'k', 'i', 'p'>, sequential<>>;
  return choose(std::move(child), skip{});
}

/// Chooses alternative 1 with probability p in training, else 0: with `skippable`, the layer drop
/// of Fan, Grave and Joulin (Reducing Transformer Depth on Demand with Structured Dropout, 2020).
/// Draws from the model's seed; replicas draw independently, unless `same_on_all_replicas`.
struct layer_drop {
  double p = 0.1;
  bool same_on_all_replicas = false;

  template <class Context>
  constexpr std::size_t operator()(const Context& c) const {
    const auto words = (same_on_all_replicas ? c.shared_random : c.random).words(0);
    return c.training && static_cast<double>(words[0]) * 0x1p-32 < p ? 1 : 0;
  }
};

}  // namespace ikebana
