#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "ikebana/core/random.hpp"
#include "ikebana/core/tensor.hpp"

/// N carts, each of which balances a pole (Barto, Sutton and Anderson, Neuronlike adaptive
/// elements, 1983). One whose pole has fallen, or has stood for 200 steps, starts anew.
template <ikebana::dim_t N>
class cart_poles {
 public:
  explicit cart_poles(ikebana::seed s) : seed_{s} {
    for (ikebana::dim_t i = 0; i < N; ++i) reset(i);
  }

  /// Position, velocity, angle and angular velocity of each.
  const auto& states() const { return states_; }
  /// The moving average of the number of steps until a pole falls, after each episode.
  const auto& ages() const { return ages_; }

  /// Pushes each to the left (0) or right (1) for 20 ms. Returns 0 where an episode has ended,
  /// else 1.
  template <class Action>
  ikebana::tensor<float, ikebana::shape{N}> push(const Action& right) {
    ikebana::tensor<float, ikebana::shape{N}> goes_on;
    for (ikebana::dim_t i = 0; i < N; ++i) {
      const bool ends = move(i, right[i] != 0) || ++age_[i] == 200;
      goes_on[i] = ends ? 0 : 1;
      if (!ends) continue;
      ages_.push_back(ages_.back() + 0.05 * (age_[i] - ages_.back()));
      reset(i);
    }
    return goes_on;
  }

 private:
  void reset(ikebana::dim_t i) {
    ikebana::fill_uniform(ikebana::random_stream{seed_, episodes_++}, 0.05f, states_.data() + 4 * i,
                          4);
    age_[i] = 0;
  }
  /// Whether the pole or the cart leaves its range.
  bool move(ikebana::dim_t i, bool right) {
    float &x = states_(i, 0), &v = states_(i, 1), &angle = states_(i, 2), &spin = states_(i, 3);
    const float force = right ? 10.0f : -10.0f, s = std::sin(angle), c = std::cos(angle);
    const float t = (force + 0.05f * spin * spin * s) / 1.1f;
    const float turn = (9.8f * s - c * t) / (0.5f * (4.0f / 3 - 0.1f * c * c / 1.1f));
    const float push = t - 0.05f * turn * c / 1.1f;
    x += 0.02f * v;
    v += 0.02f * push;
    angle += 0.02f * spin;
    spin += 0.02f * turn;
    return std::abs(x) > 2.4f || std::abs(angle) > 0.2095f;
  }

  ikebana::seed seed_;
  std::uint64_t episodes_ = 0;
  ikebana::tensor<float, ikebana::shape{N, 4}> states_;
  ikebana::tensor<int, ikebana::shape{N}> age_;
  std::vector<double> ages_{20};
};
