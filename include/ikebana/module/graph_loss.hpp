#pragma once

#include <cstring>
#include <optional>
#include <type_traits>
#include <utility>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/module/lazy.hpp"
#include "ikebana/module/lowering.hpp"

namespace ikebana {

/// A loss that is a graph: its inputs are the outputs of the network and then the targets, its
/// result is one number. Made by `loss`.
template <composite_module Graph>
struct graph_loss {
  using graph_type = Graph;
  Graph graph{};

  constexpr const Graph& graph_of_loss() const { return graph; }

  /// What is wrong with these shapes of the outputs and then the targets.
  template <class... S>
  static constexpr diagnostic check(const S&... shapes) {
    return check(shape_list{shapes...});
  }
  static constexpr diagnostic check(const shape_list& shapes) {
    const auto expected = static_cast<std::size_t>(detail::wiring_of<Graph>.inputs);
    if (shapes.size() != expected)
      return {
          "the loss takes the outputs of the network and then the targets, {expected} in all, got "
          "{got}: several targets are inputs(target, weight)",
          static_cast<dim_t>(expected), static_cast<dim_t>(shapes.size())};
    const inferred result = infer(Graph{}, shapes);
    if (!result.ok()) return result.error;
    if (result.outputs.size() != 1 || result.output().numel() != 1)
      return {"a loss gives one number, got {input}: take the average or the sum", 0, 0,
              result.output()};
    return {};
  }

  /// The loss of tensors. Allocates: `train_step` and `loss_backward` do not, once they know the
  /// loss.
  template <class... X>
  auto operator()(const X&... x) const {
    return evaluate_loss(*this, x...);
  }
};

namespace detail {

template <class L>
inline constexpr bool is_graph_loss = requires {
  typename L::graph_type;
};

/// For finding `make_loss` (compose/loss.hpp) by its argument.
struct of_function {};

/// What a function of symbols computes of tensors. <ikebana/compose/loss.hpp> must be included.
template <class F, class... X>
auto loss_of_tensors(const F& f, const X&... x) {
  return make_loss(of_function{}, f)(x...);
}

template <class L>
concept loss_value = requires(const shape& s) {
  L::check(s, s).ok();
}
|| is_graph_loss<L>;

struct other_call {
  void operator()();
};
template <class F>
struct call_probe : F, other_call {};

/// Whether F has an operator (), which then is ambiguous in the probe.
template <class F>
constexpr bool has_call_operator() {
  if constexpr (std::is_class_v<F> && !std::is_final_v<F>) return !requires {
      &call_probe<F>::operator();
    };
  else
    return false;
}

/// Functions of symbols from which `loss` makes a loss.
template <class F>
concept loss_function = !loss_value<F> && has_call_operator<F>() && requires(const F& f) {
  make_loss(of_function{}, f);
};

/// Whether two functions of one type capture the same.
template <class L>
bool same_options(const L& a, const L& b) {
  if constexpr (requires { bool{a == b}; }) {
    return a == b;
  } else {
    // g++ 12 rejects std::bit_cast of a lambda within a lambda.
    return std::memcmp(&a, &b, sizeof(L)) == 0;
  }
}

/// A loss, or the one that is made of a function.
template <class L>
decltype(auto) as_loss(const L& l) {
  if constexpr (!loss_function<L>) {
    return (l);
  } else if constexpr (std::is_empty_v<L> || !std::is_trivially_copyable_v<L>) {
    return make_loss(of_function{}, l);
  } else {
    // What captures numbers is traced at run time, which allocates. Mostly they are those of the
    // last step.
    using made = decltype(make_loss(of_function{}, l));
    struct traced {
      L function;
      made loss;
    };
    static thread_local std::optional<traced> last;
    if (!last || !same_options(last->function, l))
      last.emplace(traced{l, make_loss(of_function{}, l)});
    return made(last->loss);
  }
}
template <class L>
using loss_type = std::remove_cvref_t<decltype(as_loss(std::declval<const L&>()))>;

}  // namespace detail
}  // namespace ikebana
