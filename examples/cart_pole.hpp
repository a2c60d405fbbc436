#pragma once

#include <array>
#include <cmath>

#include "ikebana/core/random.hpp"

/// A cart that balances a pole (Barto, Sutton and Anderson, Neuronlike adaptive elements, 1983).
struct cart {
  std::array<float, 4> state{};  // position, velocity, angle, angular velocity
  int age = 0;

  void reset(const ikebana::random_stream& random) {
    ikebana::fill_uniform(random, 0.05f, state.data(), 4);
    age = 0;
  }
  /// Pushes for 20 ms; returns whether the pole or the cart has left its range.
  bool push(bool right) {
    auto& [x, v, angle, spin] = state;
    const float force = right ? 10.0f : -10.0f, s = std::sin(angle), c = std::cos(angle);
    const float t = (force + 0.05f * spin * spin * s) / 1.1f;
    const float turn = (9.8f * s - c * t) / (0.5f * (4.0f / 3 - 0.1f * c * c / 1.1f));
    const float push = t - 0.05f * turn * c / 1.1f;
    x += 0.02f * v;
    v += 0.02f * push;
    angle += 0.02f * spin;
    spin += 0.02f * turn;
    ++age;
    return std::abs(x) > 2.4f || std::abs(angle) > 0.2095f;
  }
};
