#pragma once

#include "ikebana/compose/graph.hpp"
#include "ikebana/module/graph_loss.hpp"

namespace ikebana {

/// A loss from a function of symbols: `loss([](auto y, auto t) { return mean(square(y - t)); })`.
/// Its arguments are the outputs of the network and then the targets; `train_step(x, inputs(t,
/// weight), loss, optimizer)` passes several. The result is one number. Its backward is derived;
/// the function itself can also be passed to `train_step` and `loss_backward`. Does not compile if
/// it applies modules with parameters. The first step with a loss allocates its memory, which the
/// model keeps; later ones do not.
template <class F>
constexpr auto loss(const F& f) {
  const auto g = graph(f);
  using type = std::remove_const_t<decltype(g)>;
  if constexpr (composite_module<type>) {
    static_assert(sizes_of<type>(input_count_of<type>()).parameters == 0,
                  "ikebana: a loss has no parameters: apply the module in the network");
    static_assert(!is_lazy_v<type>, "ikebana: a loss has no lazy modules");
    return graph_loss<type>{g};
  }
}

namespace detail {

template <class F>
requires(graph_arity<F>() > 0) constexpr auto make_loss(of_function, const F& f) { return loss(f); }

}  // namespace detail
}  // namespace ikebana
