#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "ikebana/core/tensor.hpp"
#include "ikebana/deploy/freeze.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/module/lowering.hpp"

/// The kinds of a module's leaves that have parameters, or that something was folded into.
template <class M>
inline std::string kinds(const M& m) {
  std::string all;
  const auto p = ikebana::outline(m);
  for (const auto& leaf : p.all_leaves()) {
    if (leaf.parameter_count == 0 && leaf.kind != "identity") continue;
    all += std::string(all.empty() ? "" : " ") + std::string(leaf.kind);
    all += "/" + std::to_string(leaf.parameter_count);
  }
  return all;
}

/// Gives each scaler numbers of its own.
template <class Model>
void move_scalers(Model& model) {
  using T = typename Model::value_type;
  for (std::size_t b = 0; b < model.current_program().all_buffers().size(); ++b) {
    const ikebana::buffer_spec& spec = model.current_program().buffers[b].spec;
    if (std::string_view(spec.name) != "deviation") continue;
    auto* const deviation = reinterpret_cast<T*>(const_cast<std::byte*>(model.buffers().data()) +
                                                 model.layout().buffer_offsets[b]);
    auto* const mean = reinterpret_cast<T*>(const_cast<std::byte*>(model.buffers().data()) +
                                            model.layout().buffer_offsets[b - 1]);
    for (ikebana::dim_t i = 0; i < spec.extents.numel(); ++i) {
      mean[i] = static_cast<T>(0.4 - 0.3 * static_cast<double>(i));
      deviation[i] = static_cast<T>(0.5 + 0.25 * static_cast<double>(i));
    }
  }
}

/// Freezes a model whose running statistics have moved, and compares it with the model. Returns
/// what it runs.
template <class T, ikebana::shape In, class Net>
std::string folded(const Net& net, double rounding = 1) {
  auto model = ikebana::initialize<T, In>(net, ikebana::seed{1});
  for (std::size_t i = 0; i < model.parameters().size(); ++i)
    model.parameters()[i] += static_cast<T>(0.03 * static_cast<double>(i % 7));
  move_scalers(model);
  for (std::uint64_t i = 0; i < 3; ++i)
    model(ikebana::uniform<T, In>(ikebana::seed{5 + i}, ikebana::dim_t{6}));
  model.eval();
  const auto frozen = ikebana::freeze(model);
  auto lane = frozen.lane();
  for (const ikebana::dim_t n : {ikebana::dim_t{3}, ikebana::dim_t{1}, ikebana::dim_t{0}}) {
    const auto x = ikebana::uniform<T, In>(ikebana::seed{9}, n);
    const auto expected = model(x);
    const auto y = frozen(lane, x);
    REQUIRE(y.extents() == expected.extents());
    const double eps = rounding * (std::is_same_v<T, float> ? 3e-6 : 3e-15);
    for (ikebana::dim_t i = 0; i < y.size(); ++i)
      CHECK(y.data()[i] ==
            doctest::Approx(static_cast<double>(expected.data()[i])).scale(1).epsilon(eps));
  }
  return kinds(frozen.module());
}
