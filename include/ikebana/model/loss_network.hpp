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
#include "ikebana/model/inputs.hpp"
#include "ikebana/model/loss_memory.hpp"
#include "ikebana/model/model.hpp"
#include "ikebana/module/graph_loss.hpp"

namespace ikebana {

namespace detail {

/// The network of a graph loss for T and these shapes of the outputs and then the targets, with
/// its memory. It writes the gradients of the outputs.
template <class T, class Graph, std::size_t Outputs, shape... In>
class loss_network : public loss_memory, public model<T, Graph, In...> {
  using network = model<T, Graph, In...>;
  using network::tables_;

 public:
  explicit loss_network(const Graph& g) : network(g, seed{}, shape_list{In...}) {
    tables_->input_gradients = true;
    tables_->inputs_with_gradients = (1U << Outputs) - 1;
    if (tables_->current_inputs.size() > 0) network::prepare(shape_list{In...});
  }

  /// Prepares for tensors of these shapes; throws shape_error if they do not match.
  void prepare_for(const Graph& g, const shape_list& shapes, seed s, std::uint64_t step) {
    if constexpr (!is_stateless<Graph>()) {
      network::module_ = g;
      network::change_numbers();
    }
    network::seed_ = s;
    network::step_ = step;
    network::prepare_for(shapes);
  }

  template <class... X>
  T value(const X&... x) {
    network::run_forward({x.data()..., nullptr});
    return network::output().data()[0];
  }

  /// Writes the gradients of the outputs; null for those that depend on no parameter.
  void gradients(const std::array<T*, Outputs>& to) {
    const T one{1};
    *tables_->output_gradient(0) = one;
    network::set_output_written(0, true);
    std::array<T*, sizeof...(In) + 1> all{};
    for (std::size_t i = 0; i < Outputs; ++i) all[i] = to[i] != nullptr ? to[i] : unwanted(i);
    tables_->set_input_gradients(all.data(), network::workspace_.data());
    network::run_backward(false, no_listener{});
    const std::array<T*, sizeof...(In) + 1> none{};
    tables_->set_input_gradients(none.data(), network::workspace_.data());
  }

 private:
  /// Memory for the gradient of an output that depends on no parameter.
  T* unwanted(std::size_t i) {
    const dim_t n = tables_->current.values[i].numel();
    if (unwanted_[i].size() < n) unwanted_[i] = aligned_buffer<T>(n);
    return unwanted_[i].data();
  }

  std::array<aligned_buffer<T>, Outputs> unwanted_;
};

}  // namespace detail

/// See graph_loss.
template <class Graph, tensor_like First, tensor_like... X>
auto evaluate_loss(const graph_loss<Graph>& loss, const First& y, const X&... x) {
  using T = std::remove_const_t<typename First::value_type>;
  const diagnostic wrong = loss.check(y.extents(), x.extents()...);
  if (!wrong.ok()) throw shape_error(wrong);
  detail::loss_network<T, Graph, 1, First::static_shape, X::static_shape...> n(loss.graph);
  n.prepare_for(loss.graph, shape_list{y.extents(), x.extents()...}, seed{}, 0);
  return n.value(y, x...);
}

}  // namespace ikebana
