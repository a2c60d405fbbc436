#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/random.hpp"

/// The interface that an optimizer needs of a model.
template <class T>
struct flat_model {
  using value_type = T;
  ikebana::aligned_buffer<T> values, slopes;

  explicit flat_model(ikebana::dim_t n = 37) : values(n), slopes(n) {
    ikebana::fill_uniform(ikebana::random_stream{ikebana::seed{1}, 0}, T{1}, values.data(), n);
  }
  std::span<T> parameters() { return values.span(); }
  std::span<T> gradients() { return slopes.span(); }

  void draw_gradients(std::uint32_t step) {
    ikebana::fill_uniform(ikebana::random_stream{ikebana::seed{2}, step}, T{1}, slopes.data(),
                          slopes.size());
  }
};

/// Copies the state of an optimizer into another of the same kind.
template <class Optimizer>
void copy_state(Optimizer& to, Optimizer& from) {
  auto target = to.state();
  std::size_t i = 0;
  for (const ikebana::optimizer_state& s : from.state()) {
    REQUIRE(s.bytes.size() == target[i].bytes.size());
    if (!s.bytes.empty()) std::memcpy(target[i].bytes.data(), s.bytes.data(), s.bytes.size());
    ++i;
  }
}
