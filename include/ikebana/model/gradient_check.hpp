#pragma once

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "ikebana/core/tensor.hpp"
#include "ikebana/model/initialize.hpp"

namespace ikebana {

/// The largest disagreement that a gradient check found.
struct gradient_check_result {
  double largest = 0;   ///< |analytic - numeric| / max(1, |analytic|, |numeric|)
  std::string where{};  ///< "fc1.weight[3]" or "input0[7]"
};

/// Compares the gradients of a module's backward, of parameters and of the input, with central
/// differences in double: the check for whoever writes a module. The scalar that is differentiated
/// is a random weighting of the output. `input` must keep clear of points where the module has no
/// derivative. O(elements) forwards; allocates. What is random in the module (dropout) is held
/// fixed by running in evaluation mode, unless `training`.
template <shape In, any_module M>
gradient_check_result gradient_check(const M& m, const tensor<double, In>& input, seed s = {1},
                                     bool training = true, double step = 1e-6) {
  auto net = initialize<double, In>(m, s);
  net.train(training);
  tensor<double, In> x = input;
  // Buffers that training moves are put back, so that every forward is of the same function.
  const std::vector<std::byte> buffers(net.buffers().begin(), net.buffers().end());
  const auto forward = [&] {
    std::copy(buffers.begin(), buffers.end(), net.buffers().begin());
    return net(x);
  };
  auto y = forward();
  tensor<double, decltype(y)::static_shape> weights(y.extents());
  fill_uniform(random_stream{s, hash_path("gradient_check")}, 1.0, weights.data(), weights.size());
  const auto value = [&] {
    const auto out = forward();
    double sum = 0;
    for (dim_t i = 0; i < out.size(); ++i) sum += out[i] * weights[i];
    return sum;
  };
  tensor<double, In> dx(x.extents());
  net.zero_grad();
  forward();
  net.backward(weights, dx);
  const std::vector<double> analytic(net.gradients().begin(), net.gradients().end());

  gradient_check_result result;
  const auto compare = [&](double& at, double exact, const std::string& where) {
    const double kept_value = at;
    at = kept_value + step;
    const double above = value();
    at = kept_value - step;
    const double below = value();
    at = kept_value;
    const double numeric = (above - below) / (2 * step);
    const double scale = std::fmax(1.0, std::fmax(std::fabs(exact), std::fabs(numeric)));
    const double difference = std::fabs(exact - numeric) / scale;
    if (!(difference <= result.largest)) result = {difference, where};
  };
  for (dim_t i = 0; i < x.size(); ++i) compare(x[i], dx[i], "input0[" + std::to_string(i) + "]");
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

}  // namespace ikebana
