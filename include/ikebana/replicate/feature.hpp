#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>

#include "ikebana/core/language.hpp"

namespace ikebana::detail {

// An option of a replicate_policy can take part in steps. It then has
//
//     template <class Model, class Group> class feature;
//
// a movable, default-constructible type. Each replica holds one object, which `replica.template
// feature<Key>()` returns. Those of the following members that it has are called, with the replica
// `r` as its users see it. A replica may be moved, so a feature must not keep its address; those of
// parameters, gradients and buffers never change.
//
// - `prepare(r)`: at the end of `replicate`, on all ranks; the place to allocate.
// - `before_forward(r)`, `before_backward(r)` or `before_backward(r, accumulates)`,
//   `after_backward(r)`; `before_backward` after everything that can throw for a user's mistake,
//   `after_backward` once all gradients are final. `r.synchronises()` tells whether that backward
//   reduces.
// - `bucket_started(bucket, group)`, `bucket_finished(bucket, group)`: when a bucket is passed to
//   its hook, and when its gradients are those for the optimizer. Buckets are started and finished
//   in the same order on every rank, but a bucket may finish at any time after its start: no
//   collective may be called there.
// - `before_leaf_backward(node)`, `after_leaf_backward(node)` around the backward of each node of
//   the program that has one; `before_wait(index)` when only waiting for the bucket of that index
//   is left.
// - `before_train_step(optimizer)`: before the forward of a train_step; `after_zero_grad(r)`.
// - `before_step(r, optimizer)`, `after_step(r, optimizer)` around the optimizer's step, and
//   `step(r, optimizer)` in its place.

template <class Option, class Model, class Group>
struct feature_of : std::type_identity<std::tuple<>> {};
template <class Option, class Model, class Group>
requires requires { typename Option::template feature<Model, Group>; }
struct feature_of<Option, Model, Group>
    : std::type_identity<std::tuple<typename Option::template feature<Model, Group>>> {};

/// Calls f(feature) for each feature.
template <class... F, class Call>
void for_each_feature(std::tuple<F...>& features, Call&& call) {
  std::apply([&](F&... f) { (call(f), ...); }, features);
}

template <class Features, class R>
void prepare_features(Features& features, R& r) {
  for_each_feature(features, [&](auto& f) {
    if constexpr (requires { f.prepare(r); }) f.prepare(r);
  });
}
template <class Features, class R>
void tell_before_forward(Features& features, R& r) {
  for_each_feature(features, [&](auto& f) {
    if constexpr (requires { f.before_forward(r); }) f.before_forward(r);
  });
}
template <class Features, class R>
void tell_before_backward(Features& features, R& r, bool accumulates) {
  for_each_feature(features, [&](auto& f) {
    if constexpr (requires { f.before_backward(r); }) f.before_backward(r);
    if constexpr (requires { f.before_backward(r, accumulates); })
      f.before_backward(r, accumulates);
  });
}
template <class Features, class Optimizer>
void tell_before_train_step(Features& features, Optimizer& optimizer) {
  for_each_feature(features, [&](auto& f) {
    if constexpr (requires { f.before_train_step(optimizer); }) f.before_train_step(optimizer);
  });
}
template <class Features, class R>
void tell_after_zero_grad(Features& features, R& r) {
  for_each_feature(features, [&](auto& f) {
    if constexpr (requires { f.after_zero_grad(r); }) f.after_zero_grad(r);
  });
}
template <class Features, class R>
void tell_after_backward(Features& features, R& r) {
  for_each_feature(features, [&](auto& f) {
    if constexpr (requires { f.after_backward(r); }) f.after_backward(r);
  });
}
template <class Features, class Bucket, class Group>
void tell_bucket_started(Features& features, const Bucket& bucket, Group& group) {
  for_each_feature(features, [&](auto& f) {
    if constexpr (requires { f.bucket_started(bucket, group); }) f.bucket_started(bucket, group);
  });
}
template <class Features, class Bucket, class Group>
void tell_bucket_finished(Features& features, const Bucket& bucket, Group& group) {
  for_each_feature(features, [&](auto& f) {
    if constexpr (requires { f.bucket_finished(bucket, group); }) f.bucket_finished(bucket, group);
  });
}

template <class Features>
void tell_before_leaf_backward(Features& features, int node) {
  for_each_feature(features, [&](auto& f) {
    if constexpr (requires { f.before_leaf_backward(node); }) f.before_leaf_backward(node);
  });
}
template <class Features>
void tell_after_leaf_backward(Features& features, int node) {
  for_each_feature(features, [&](auto& f) {
    if constexpr (requires { f.after_leaf_backward(node); }) f.after_leaf_backward(node);
  });
}
template <class Features>
void tell_before_wait(Features& features, std::size_t bucket) {
  for_each_feature(features, [&](auto& f) {
    if constexpr (requires { f.before_wait(bucket); }) f.before_wait(bucket);
  });
}

/// Runs the optimizer's step, with the features around it or in its place.
template <class Features, class R, class Optimizer>
void step_with_features(Features& features, R& r, Optimizer& optimizer) {
  bool replaced = false;
  for_each_feature(features, [&](auto& f) {
    if constexpr (requires { f.before_step(r, optimizer); }) f.before_step(r, optimizer);
  });
  for_each_feature(features, [&](auto& f) {
    if constexpr (requires { f.step(r, optimizer); }) {
      f.step(r, optimizer);
      replaced = true;
    }
  });
  if (!replaced) optimizer.step();
  for_each_feature(features, [&](auto& f) {
    if constexpr (requires { f.after_step(r, optimizer); }) f.after_step(r, optimizer);
  });
}

}  // namespace ikebana::detail
