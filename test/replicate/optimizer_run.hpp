#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/replicate/replicate.hpp"

// Small networks trained under two policies that must give the same bits.
namespace optimizer_run {

namespace ike = ikebana;
using ike::shape;

inline constexpr shape rows{ike::dynamic, 5};
/// Odd sizes; 7 storage lines in float and 10 in double, so that ranks have unequal parts.
inline constexpr auto network =
    ike::sequential(ike::linear<5, 7>{}, ike::tanh{}, ike::linear<7, 3>{});
/// 2 lines: more ranks than that own nothing.
inline constexpr auto tiny = ike::sequential(ike::linear<5, 1>{});
/// Many lines, and one bucket per parameter if caps are small.
inline constexpr auto larger = ike::sequential(
    ike::linear<5, 61>{}, ike::tanh{}, ike::linear<61, 17>{}, ike::tanh{}, ike::linear<17, 3>{});

template <class... More>
using plain = ike::replicate_policy<More...>;

template <class T, class Net>
auto fresh(const Net& net) {
  return ike::initialize<T, rows>(net, ike::seed{1});
}

template <class T>
auto input(int rank, int step) {
  return ike::uniform<T, rows>(ike::seed{static_cast<std::uint64_t>(1000 + 10 * step + rank)}, 6);
}
template <class T, class Model>
auto target(const Model&, int rank, int step) {
  constexpr shape s{ike::dynamic, Model::output_shape[1]};
  return ike::uniform<T, s>(ike::seed{static_cast<std::uint64_t>(9000 + 10 * step + rank)}, 6);
}

template <class T>
bool same_bits(std::span<const T> a, std::span<const T> b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}
template <class A, class B>
bool same_parameters(const A& a, const B& b) {
  return same_bits<typename A::value_type>(a.parameters(), b.parameters());
}

template <class Model, class Optimizer>
void train(Model& model, Optimizer& optimizer, int rank, int first, int last) {
  using T = typename Model::value_type;
  for (int s = first; s < last; ++s)
    model.train_step(input<T>(rank, s), target<T>(model, rank, s), ike::mse_loss{}, optimizer);
}

/// Trains under both policies, with optimizers that `make` creates for the models; returns the
/// number of steps in which the parameters differ.
template <class T, class Policy, class Other, class Net, class Group, class Make>
int compare(const Net& net, Group& group, const Make& make) {
  auto model = ike::replicate<Policy>(fresh<T>(net), group);
  auto other = ike::replicate<Other>(fresh<T>(net), group);
  auto optimizer = make(model);
  auto reference = make(other);
  int wrong = 0;
  for (int s = 0; s < 6; ++s) {
    train(model, optimizer, group.rank(), s, s + 1);
    train(other, reference, group.rank(), s, s + 1);
    wrong += !same_parameters(model, other);
  }
  return wrong;
}

}  // namespace optimizer_run
