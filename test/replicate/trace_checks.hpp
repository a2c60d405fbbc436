#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ikebana/compose/choose.hpp"
#include "ikebana/compose/sequential.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/nn/activation.hpp"
#include "ikebana/nn/batch_norm.hpp"
#include "ikebana/nn/linear.hpp"
#include "ikebana/nn/loss.hpp"
#include "ikebana/optim/sgd.hpp"
#include "ikebana/replicate/replicate.hpp"
#include "ikebana/replicate/trace.hpp"
#include "ikebana/replicate/unused.hpp"

/// The contents of a trace, on every kind of group.
namespace trace_checks {

namespace ike = ikebana;
using namespace ike::literals;
using ike::dynamic;
using ike::shape;
using ike::trace_event;
using ike::trace_kind;

inline constexpr shape rows{dynamic, 12};
inline constexpr auto network = ike::sequential(
    "fc1"_m = ike::lazy_linear<33>{}, "norm"_m = ike::lazy_batch_norm1d<>{}, "tanh"_m = ike::tanh{},
    "fc2"_m = ike::lazy_linear<17>{}, "fc3"_m = ike::lazy_linear<5>{});
/// One bucket per leaf with parameters.
using traced = ike::replicate_policy<ike::traced<>, ike::bucket_cap<1>>;

template <class T, class Policy, class Group>
auto replica(Group& group) {
  return ike::replicate<Policy>(ike::initialize<T, rows>(network, ike::seed{1}), group);
}

template <class Model>
void steps(Model& model, int count, auto see) {
  using T = typename Model::value_type;
  ike::sgd optimizer{model, {.lr = 0.1}};
  const auto x =
      ike::uniform<T, rows>(ike::seed{10 + static_cast<std::uint64_t>(model.group().rank())}, 6);
  ike::tensor<std::int64_t, shape{dynamic}> t(shape{6});
  for (ike::dim_t i = 0; i < 6; ++i) t[i] = i % 5;
  for (int s = 0; s < count; ++s) see(model.train_step(x, t, ike::cross_entropy{}, optimizer));
}

inline std::vector<trace_event> of_kind(const ike::step_trace& t, trace_kind kind,
                                        std::uint32_t pass) {
  std::vector<trace_event> out;
  for (std::size_t i = 0; i < t.size(); ++i)
    if (t[i].kind == kind && t[i].pass == pass) out.push_back(t[i]);
  return out;
}

inline bool within(const trace_event& inner, const trace_event& outer) {
  return outer.begin <= inner.begin && inner.end <= outer.end;
}

template <class T>
void events(auto& group) {
  auto model = replica<T, traced>(group);
  steps(model, 3, [](T) {});
  const ike::step_trace& t = ike::trace_of(model);
  CHECK(t.rank() == group.rank());
  CHECK(t.leaves() == std::vector<std::string>{"fc1", "norm", "tanh", "fc2", "fc3"});
  REQUIRE(t.buckets().size() == model.bucket_plan().size());
  CHECK(t.buckets().size() == 8);
  CHECK(t.buckets()[0].parameters[0].starts_with("fc3."));
  for (std::size_t b = 0; b < t.buckets().size(); ++b)
    CHECK(t.buckets()[b].bytes == model.bucket_plan()[b].bytes());

  std::int64_t last = 0;
  for (std::uint32_t pass = 1; pass <= 3; ++pass) {
    CAPTURE(pass);
    const auto one = [&](trace_kind kind) {
      const auto found = of_kind(t, kind, pass);
      REQUIRE(found.size() == 1);
      CHECK(found[0].begin <= found[0].end);
      CHECK(last <= found[0].begin);
      last = found[0].end;
      return found[0];
    };
    const trace_event forward = one(trace_kind::forward), backward = one(trace_kind::backward);
    const trace_event buffers = one(trace_kind::buffers);
    one(trace_kind::optimizer);
    const auto down = of_kind(t, trace_kind::leaf_forward, pass);
    const auto up = of_kind(t, trace_kind::leaf_backward, pass);
    REQUIRE(down.size() == 5);
    REQUIRE(up.size() == 5);
    for (std::size_t l = 0; l < 5; ++l) {
      CHECK(down[l].index == l);
      CHECK(within(down[l], forward));
      CHECK(up[l].index == 4 - l);
      CHECK(within(up[l], backward));
      if (l > 0) {
        CHECK(down[l - 1].end <= down[l].begin);
        CHECK(up[l - 1].end <= up[l].begin);
      }
    }
    const auto reductions = of_kind(t, trace_kind::reduction, pass);
    REQUIRE(reductions.size() == t.buckets().size());
    for (std::size_t b = 0; b < reductions.size(); ++b) {
      CHECK(reductions[b].index == b);
      CHECK(backward.begin <= reductions[b].begin);
      CHECK(reductions[b].end <= buffers.begin);
    }
    for (const trace_event& wait : of_kind(t, trace_kind::wait, pass)) {
      CHECK(backward.end <= wait.begin);
      CHECK(within(wait, {backward.end, buffers.begin, pass, 0, trace_kind::wait}));
    }
  }
}

inline void overlap(auto& group) {
  auto model = replica<float, traced>(group);
  steps(model, 2, [](float) {});
  const ike::step_trace& t = ike::trace_of(model);
  for (std::uint32_t pass = 1; pass <= 2; ++pass) {
    const trace_event backward = of_kind(t, trace_kind::backward, pass).at(0);
    const auto leaves = of_kind(t, trace_kind::leaf_backward, pass);
    const auto reductions = of_kind(t, trace_kind::reduction, pass);
    CHECK(reductions.at(0).begin < backward.end);
    // The reduction of fc3 starts before fc2's backward, and so on.
    CHECK(reductions.at(0).begin >= leaves.at(0).end);
    CHECK(reductions.at(0).begin <= leaves.at(1).begin);
  }
}

inline void no_sync(auto& group) {
  auto model = replica<float, traced>(group);
  {
    const auto guard = model.no_sync();
    steps(model, 1, [](float) {});
  }
  const ike::step_trace& t = ike::trace_of(model);
  CHECK(of_kind(t, trace_kind::backward, 1).size() == 1);
  CHECK(of_kind(t, trace_kind::leaf_backward, 1).size() == 5);
  for (const trace_kind none : {trace_kind::reduction, trace_kind::wait, trace_kind::buffers})
    CHECK(of_kind(t, none, 1).empty());
}

/// Buckets are rebuilt after the first step of a static graph, and the trace follows.
inline void static_graph(auto& group) {
  constexpr auto branches = ike::sequential(
      "fc1"_m = ike::lazy_linear<9>{}, "branch"_m = ike::choose("left"_m = ike::lazy_linear<5>{},
                                                                "right"_m = ike::lazy_linear<5>{}));
  using policy = ike::replicate_policy<ike::traced<>, ike::bucket_cap<1>, ike::static_graph<true>>;
  auto model = ike::replicate<policy>(ike::initialize<float, rows>(branches, ike::seed{1}), group);
  steps(model, 3, [](float) {});
  const ike::step_trace& t = ike::trace_of(model);
  const auto& plan = model.bucket_plan();
  for (const trace_event& e : of_kind(t, trace_kind::reduction, 3)) {
    REQUIRE(e.index < t.buckets().size());
    REQUIRE(e.index < plan.size());
    const ike::step_trace::bucket& b = t.buckets()[e.index];
    CHECK(b.bytes == plan[e.index].bytes());
    CHECK(std::ranges::equal(b.parameters, plan.parameters(e.index), {}, {},
                             [](const auto& p) { return p.path.view(); }));
  }
  CHECK(of_kind(t, trace_kind::reduction, 3).size() >= 4);
  // The branch that was not taken has no leaf backward.
  CHECK(of_kind(t, trace_kind::leaf_backward, 3).size() ==
        of_kind(t, trace_kind::leaf_forward, 3).size());
}

}  // namespace trace_checks
