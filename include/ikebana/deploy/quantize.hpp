#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>

#include "ikebana/compose/replace_leaves.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/deploy/fold.hpp"
#include "ikebana/deploy/freeze.hpp"
#include "ikebana/deploy/frozen_weights.hpp"
#include "ikebana/deploy/lane_memory.hpp"
#include "ikebana/deploy/quantized.hpp"
#include "ikebana/model/calls/call_arguments.hpp"
#include "ikebana/model/model.hpp"
#include "ikebana/model/passes/execution.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/program.hpp"
#include "ikebana/module/refusal.hpp"

namespace ikebana {

/// The name of bytes that stand for numbers: `quantize<int8>(model, batches)`.
using int8 = std::int8_t;

namespace detail {

template <class Leaf>
concept quantizable = requires {
  sizeof(quantized<Leaf>);
};

/// Replaces what can be quantised.
struct quantize_leaf {
  template <std::size_t, leaf_module Leaf>
  static constexpr auto replace(const Leaf& leaf) {
    if constexpr (quantizable<Leaf>)
      return quantized<Leaf>(leaf);
    else
      return leaf;
  }
};

/// The least and the largest number that each leaf reads.
template <std::size_t N>
class input_ranges final : public leaf_boundary<float> {
 public:
  void begin_forward(const execution<float>&) override {}
  void end_forward(const execution<float>&) override {}
  void after_forward(const execution<float>&, int) override {}
  void before_forward(const execution<float>& run, int k) override {
    const program_node& node = run.nodes[k];
    if (run.leaves[node.leaf].parameter_count == 0) return;
    const auto l = static_cast<std::size_t>(node.leaf);
    const float* const x = run.values[node.inputs[0]];
    const dim_t n = run.shapes[node.inputs[0]].numel();
    for (dim_t i = 0; i < n; ++i) {
      least_[l] = std::min(least_[l], x[i]);
      most_[l] = std::max(most_[l], x[i]);
    }
  }

  byte_range of(int leaf) const {
    const auto l = static_cast<std::size_t>(leaf);
    return byte_range::of(least_[l], most_[l]);
  }

 private:
  program_table<float, N> least_{}, most_{};
};

/// Writes the parameters and buffers of a quantised network.
template <std::size_t N>
struct quantize_values {
  const program_view from;
  const float* const* parameters;
  const std::byte* const* buffers;
  const input_ranges<N>& ranges;
  program_view made{};
  float* const* made_parameters = nullptr;
  std::byte* const* made_buffers = nullptr;
  int k = 0;

  template <class Leaf>
  [[gnu::noinline]] void operator()(const Leaf&) {
    const int l = from.nodes[k++].leaf;
    const program_leaf &own = from.leaves[l], &to = made.leaves[l];
    const float* const* const p = parameters + own.first_parameter;
    if constexpr (quantizable<Leaf>) {
      const shape& weight = from.parameters[own.first_parameter].spec.extents;
      std::byte* const* const b = made_buffers + to.first_buffer;
      quantize_weights(weight[0], weight.numel(1, weight.rank()), p[0],
                       reinterpret_cast<std::int8_t*>(b[0]), reinterpret_cast<float*>(b[1]));
      if (own.parameter_count > 1) std::copy_n(p[1], weight[0], reinterpret_cast<float*>(b[2]));
      const byte_range r = ranges.of(l);
      const float input[]{r.scale, static_cast<float>(r.zero)};
      std::memcpy(b[3], input, sizeof input);
    } else {
      for (std::size_t i = 0; i < own.parameter_count; ++i)
        std::copy_n(
            p[i],
            from.parameters[static_cast<std::size_t>(own.first_parameter) + i].spec.extents.numel(),
            made_parameters[static_cast<std::size_t>(to.first_parameter) + i]);
      for (std::size_t i = 0; i < own.buffer_count; ++i) {
        const std::size_t b = static_cast<std::size_t>(own.first_buffer) + i;
        const buffer_spec& spec = from.buffers[b].spec;
        const std::size_t size = spec.follows_model ? sizeof(float) : size_of(spec.type);
        if (spec.persistent && spec.extents.numel() > 0)
          std::memcpy(made_buffers[static_cast<std::size_t>(to.first_buffer) + i], buffers[b],
                      static_cast<std::size_t>(spec.extents.numel()) * size);
      }
    }
  }
};

/// The tensor of a batch, which a loader gives as its x.
template <class Batch>
const auto& calibration_input(const Batch& b) {
  if constexpr (tensor_like<Batch>)
    return b;
  else
    return b.x;
}

}  // namespace detail

namespace detail {

template <class M, shape... In, class From, class Batches>
auto quantize_as(const model<float, M, In...>*, const From& from, Batches& batches) {
  using folds = folding<M, In...>;
  using folded = typename folds::type;
  constexpr std::size_t n = model<float, folded, In...>::input_count;
  using arguments = call_arguments<model<float, folded, In...>>;
  const auto plain = std::make_shared<frozen_weights<float, folded, n>>(from, folds{});
  constexpr std::size_t leaves = std::remove_cvref_t<decltype(plain->lowered)>::sizes.leaves;
  input_ranges<leaves> ranges;
  {
    lane_memory<float, folded, In...> lane(plain, {});
    bool any = false;
    for (const auto& batch : batches) {
      const auto& x = calibration_input(batch);
      lane.prepare_for(arguments::shapes(x));
      lane.run_watched(arguments::data(x), ranges);
      any = true;
    }
    if (!any)
      throw_error(error("quantize needs a batch of inputs, which tells the ranges of numbers"));
  }
  quantize_values<leaves> write{plain->lowered.view(), plain->parameter_table.data(),
                                plain->buffer_table.data(), ranges};
  const auto module = replace_leaves<quantize_leaf>(plain->module);
  using quantised = std::remove_cvref_t<decltype(module)>;
  return inference_model<float, quantised, In...>(
      std::make_shared<frozen_weights<float, quantised, n>>(*plain, module, write));
}

template <class M, shape... In>
void as_model_of_float(const model<float, M, In...>*);
template <class X>
concept quantizable_model = requires(const X* m) {
  detail::as_model_of_float(m);
}
|| requires(const X& r) { detail::as_model_of_float(detail::model_of(r)); };

namespace misuse {
IKEBANA_MISUSE(quantize_takes_int8,
               "quantize takes int8, an initialized model of float and batches of its inputs: "
               "quantize<int8>(model, batches)");
}  // namespace misuse
}  // namespace detail

/// Freezes a model of float as `freeze` does and makes bytes of the weights of its linear modules
/// and convolutions (`quantized<linear<..>>` in the type of the module), except those with a
/// padding mode: `quantize<int8>(model, batches)`. `batches`, tensors or what a data_loader gives,
/// are run once, and the least and the largest number that each of these modules reads is the range
/// of its bytes. Inputs beyond it become its ends. Products have integer sums, exact on every
/// instruction set. The model is unchanged and not needed afterwards. Throws error if there is no
/// batch. O(parameters + batches); allocates.
template <std::same_as<int8> Number, resolved_module M, shape... In, class Batches>
auto quantize(const model<float, M, In...>& m, Batches&& batches) {
  return detail::quantize_as(&m, m, batches);
}
/// Of the model of a replica, on one rank.
template <std::same_as<int8> Number, detail::replica Replica, class Batches>
requires(detail::quantizable_model<Replica>) auto quantize(const Replica& r, Batches&& batches) {
  return detail::quantize_as(detail::model_of(r), r, batches);
}
template <class Number, class Model, class Batches>
requires(!std::same_as<Number, int8> ||
         !detail::quantizable_model<Model>) auto quantize(const Model&, Batches&&)
    -> decltype(detail::refuse_for<detail::misuse::quantize_takes_int8, Number, Model>());
template <class Model, class Batches>
auto quantize(const Model&, const Batches&)
    -> decltype(detail::refuse_for<detail::misuse::quantize_takes_int8, Model, Batches>());

}  // namespace ikebana
