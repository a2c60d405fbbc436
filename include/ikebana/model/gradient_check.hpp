#pragma once

#include <cmath>
#include <cstddef>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "ikebana/core/tensor.hpp"
#include "ikebana/model/initialize.hpp"

namespace ikebana {

/// The largest deviation that a gradient check found.
struct gradient_check_result {
  double largest = 0;   ///< |analytic - numeric| / max(1, |analytic|, |numeric|)
  std::string where{};  ///< "fc1.weight[3]" or "input0[7]"
};

namespace detail {

/// Runs forward and backward of a model repeatedly with the same inputs.
template <class Model, class... X>
struct checked_model {
  Model& net;
  std::tuple<X...>& x;
  std::vector<std::byte> buffers{net.buffers().begin(), net.buffers().end()};
  std::vector<std::vector<double>> weights{};

  /// The outputs of a forward. Buffers that training changes are restored, so that every forward
  /// computes the same function.
  auto forward() {
    std::copy(buffers.begin(), buffers.end(), net.buffers().begin());
    const auto out = std::apply([&](const auto&... each) { return net(each...); }, x);
    if constexpr (Model::output_count == 1)
      return std::tuple(out);
    else
      return out;
  }

  /// The weighted sum of the outputs, with a random weight per element.
  double value() {
    double sum = 0;
    std::size_t o = 0;
    const auto add = [&](const auto& y) {
      for (dim_t i = 0; i < y.size(); ++i) sum += y[i] * weights[o][static_cast<std::size_t>(i)];
      ++o;
    };
    std::apply([&](const auto&... y) { (add(y), ...); }, forward());
    return sum;
  }

  /// The gradients of value() with respect to the parameters and, in dx, to the inputs that are
  /// numbers.
  template <class... D>
  void backward(D&... dx) {
    std::size_t o = 0;
    const auto gradient = [&](const auto& y) {
      using view = std::remove_cvref_t<decltype(y)>;
      return tensor_view<const double, view::static_shape>(weights[o++].data(), y.extents());
    };
    net.zero_grad();
    const auto outputs = forward();
    // A braced list is evaluated in order.
    const auto given =
        std::apply([&](const auto&... y) { return std::tuple{gradient(y)...}; }, outputs);
    if constexpr (Model::output_count == 1)
      net.backward(std::get<0>(given), dx...);
    else
      net.backward(given, dx...);
  }
};

}  // namespace detail

/// Compares the gradients that a module's backward computes, of parameters and inputs, with central
/// differences in double. The differentiated scalar is a random weighting of the outputs. Inputs
/// are tensors of double, or of std::int64_t and bool if the module takes those; they must stay
/// clear of points where the module is not differentiable. O(elements) forwards; allocates. Random
/// modules (dropout) are held fixed by running in evaluation mode, unless `training`.
///
/// Checks a model of double in its current mode and with its chosen branches. Afterwards its
/// gradients are those of the check, and other state that forward changes has advanced.
template <class Model, tensor_like... X>
requires(!any_module<Model>) gradient_check_result
    gradient_check(Model& net, const std::tuple<X...>& inputs, seed s = {1}, double step = 1e-6) {
  std::tuple<X...> x = inputs;
  detail::checked_model<Model, X...> run{net, x};
  std::apply(
      [&](const auto&... y) {
        const auto draw = [&](dim_t n) {
          std::vector<double> w(static_cast<std::size_t>(n));
          const auto path = hash_path("gradient_check", hash_path("0") + run.weights.size());
          fill_uniform(random_stream{s, path}, 1.0, w.data(), n);
          run.weights.push_back(std::move(w));
        };
        (draw(y.size()), ...);
      },
      run.forward());
  std::tuple<X...> dx = inputs;
  const auto numbers = std::apply(
      [](auto&... each) {
        return std::tuple_cat([&] {
          if constexpr (std::is_same_v<typename std::remove_cvref_t<decltype(each)>::value_type,
                                       double>)
            return std::tie(each);
          else
            return std::tuple<>{};
        }()...);
      },
      dx);
  std::apply([&](auto&... each) { run.backward(each...); }, numbers);
  const std::vector<double> analytic(net.gradients().begin(), net.gradients().end());

  gradient_check_result result;
  const auto compare = [&](double& at, double exact, const std::string& where) {
    const double kept_value = at;
    at = kept_value + step;
    const double above = run.value();
    at = kept_value - step;
    const double below = run.value();
    at = kept_value;
    const double numeric = (above - below) / (2 * step);
    const double scale = std::fmax(1.0, std::fmax(std::fabs(exact), std::fabs(numeric)));
    const double difference = std::fabs(exact - numeric) / scale;
    if (!(difference <= result.largest)) result = {difference, where};
  };
  const auto compare_input = [&](auto& tensor, const auto& gradient, std::size_t k) {
    if constexpr (std::is_same_v<typename std::remove_cvref_t<decltype(tensor)>::value_type,
                                 double>)
      for (dim_t i = 0; i < tensor.size(); ++i)
        compare(tensor[i], gradient[i],
                "input" + std::to_string(k) + "[" + std::to_string(i) + "]");
  };
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    (compare_input(std::get<I>(x), std::get<I>(dx), I), ...);
  }
  (std::index_sequence_for<X...>{});
  const auto& p = net.current_program();
  for (std::size_t i = 0; i < p.all_parameters().size(); ++i) {
    const dim_t offset = net.layout().offsets[i];
    for (dim_t j = 0; j < p.parameters[i].spec.extents.numel(); ++j) {
      const auto at = static_cast<std::size_t>(offset + j);
      compare(net.parameters()[at], analytic[at],
              std::string{p.path(p.parameters[i]).view()} + "[" + std::to_string(j) + "]");
    }
  }
  return result;
}

/// Checks a new model of this module, with the seed s.
template <any_module M, tensor_like... X>
gradient_check_result gradient_check(const M& m, const std::tuple<X...>& inputs, seed s = {1},
                                     bool training = true, double step = 1e-6) {
  auto net = initialize<double, X::static_shape...>(m, s);
  net.train(training);
  return gradient_check(net, inputs, s, step);
}

/// The same for one input.
template <shape In, any_module M>
gradient_check_result gradient_check(const M& m, const tensor<double, In>& input, seed s = {1},
                                     bool training = true, double step = 1e-6) {
  return gradient_check(m, std::tuple<tensor<double, In>>(input), s, training, step);
}

}  // namespace ikebana
