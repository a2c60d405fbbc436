#pragma once

#include <cstdint>

#include "ikebana/core/tensor.hpp"
#include "test/support/count_allocations.hpp"

/// The allocations of the 2nd to the 20th call of f.
template <class F>
long allocations_after_the_first(F&& f) {
  f();
  const long before = allocation_count.load();
  for (int i = 2; i <= 20; ++i) f();
  return allocation_count.load() - before;
}

/// The allocations of steps 2 to 20 of training, of inference, and of training again.
template <class Model, class X, class Y, class Loss, class Optimizer>
long allocations_of_work(Model& model, const X& x, const Y& target, const Loss& loss,
                         Optimizer& optimizer) {
  const auto step = [&] { model.train_step(x, target, loss, optimizer); };
  long n = allocations_after_the_first(step);
  model.eval();
  n += allocations_after_the_first([&] { model(x); });
  model.train();
  return n + allocations_after_the_first(step);
}

/// Labels 0, 1, .. below `classes`, repeated.
template <ikebana::shape S>
ikebana::tensor<std::int64_t, S> classes_in_turn(std::int64_t classes) {
  ikebana::tensor<std::int64_t, S> t;
  for (ikebana::dim_t i = 0; i < t.size(); ++i) t[i] = i % classes;
  return t;
}
