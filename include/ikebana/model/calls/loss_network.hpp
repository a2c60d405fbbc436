#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/random.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/model/calls/loss_memory.hpp"
#include "ikebana/model/inputs.hpp"
#include "ikebana/model/model.hpp"
#include "ikebana/module/graph_loss.hpp"

namespace ikebana {

namespace detail {

/// The network of a graph loss for T and these shapes of the outputs and then the targets, with
/// its memory. It writes the gradients of the outputs.
template <class T, class Graph, std::size_t Outputs, shape... In>
class loss_network : public loss_memory {
  using network = model<T, Graph, In...>;
  using engine = detail::engine<T, Graph, sizeof...(In)>;

 public:
  explicit loss_network(const Graph& g)
      : engine_(g, seed{}, shape_list{In...}, shape_list{In...},
                lowerer_of<engine::sizes, Graph, In...>()) {
    auto& t = engine_.tables();
    t.input_gradients = true;
    t.inputs_with_gradients = (1U << Outputs) - 1;
    if (t.current_inputs.size() > 0) engine_.network.prepare(shape_list{In...});
  }

  /// The error of a call with arguments of these types, if any; a constant expression.
  template <class... A>
  static constexpr diagnostic check_call() {
    return network::template check_call<A...>();
  }

  /// Prepares for tensors of these shapes; throws shape_error if they do not match.
  void prepare_for(const Graph& g, const shape_list& shapes, seed s, std::uint64_t step) {
    if constexpr (!is_stateless<Graph>()) {
      engine_.network.module = g;
      engine_.network.change_numbers();
    }
    engine_.network.seed = s;
    engine_.network.step = step;
    engine_.network.prepare_for(shapes);
  }

  template <class... X>
  T value(const X&... x) {
    engine_.run_forward({x.data()..., nullptr});
    const auto& t = engine_.tables();
    return *t.values[t.lowered.outputs[0]];
  }

  /// Writes the gradients of the outputs; null for those that depend on no parameter.
  void gradients(const std::array<T*, Outputs>& to) {
    const T one{1};
    auto& t = engine_.tables();
    engine_.complete_forward();
    *t.output_gradient(0) = one;
    engine_.set_output_written(0, true);
    std::array<T*, sizeof...(In) + 1> all{};
    for (std::size_t i = 0; i < Outputs; ++i) all[i] = to[i] != nullptr ? to[i] : unwanted(i);
    t.set_input_gradients(all.data(), engine_.network.memory.workspace.data());
    const input_gradients_scope scope{engine_};
    engine_.run_backward(false, no_listener{});
  }

 private:
  /// Memory for the gradient of an output that depends on no parameter.
  T* unwanted(std::size_t i) {
    const dim_t n = engine_.tables().current.values[i].numel();
    if (unwanted_[i].size() < n) unwanted_[i] = aligned_buffer<T>(n);
    return unwanted_[i].data();
  }

  engine engine_;
  std::array<aligned_buffer<T>, Outputs> unwanted_;
};

}  // namespace detail

/// See graph_loss.
template <class Graph, tensor_like First, tensor_like... X>
auto evaluate_loss(const graph_loss<Graph>& loss, const First& y, const X&... x) {
  using T = std::remove_const_t<typename First::value_type>;
  const diagnostic wrong = loss.check(y.extents(), x.extents()...);
  if (!wrong.ok()) throw_error(shape_error(wrong));
  detail::loss_network<T, Graph, 1, First::static_shape, X::static_shape...> n(loss.graph);
  n.prepare_for(loss.graph, shape_list{y.extents(), x.extents()...}, seed{}, 0);
  return n.value(y, x...);
}

}  // namespace ikebana
