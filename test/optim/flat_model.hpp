#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>
#include <span>
#include <vector>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/random.hpp"

/// All that an optimizer asks of a model.
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

/// How often the program has asked for memory.
inline std::size_t allocations = 0;

void* operator new(std::size_t size) {
  ++allocations;
  if (void* p = std::malloc(size)) return p;
  throw std::bad_alloc();
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  ++allocations;
  const auto a = static_cast<std::size_t>(alignment);
  if (void* p = std::aligned_alloc(a, (size + a - 1) / a * a)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

/// Copies what one optimizer remembers into another of the same kind.
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
