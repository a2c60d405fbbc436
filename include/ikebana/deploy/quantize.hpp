#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>

#include "ikebana/compose/replace_leaves.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/float16.hpp"
#include "ikebana/deploy/fold.hpp"
#include "ikebana/deploy/freeze.hpp"
#include "ikebana/deploy/frozen_weights.hpp"
#include "ikebana/deploy/half_weights.hpp"
#include "ikebana/deploy/lane_memory.hpp"
#include "ikebana/deploy/quantize_leaves.hpp"
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
      has_others_[l] |= !std::isfinite(x[i]);
    }
  }

  byte_range of(int leaf) const {
    const auto l = static_cast<std::size_t>(leaf);
    return byte_range::of(least_[l], most_[l]);
  }
  /// Whether all that the leaf read were finite.
  bool are_finite(int leaf) const { return !has_others_[static_cast<std::size_t>(leaf)]; }

 private:
  program_table<float, N> least_{}, most_{};
  program_table<bool, N> has_others_{};
};

/// Copies the parameters and buffers of leaves of a frozen network to another, which has replaced
/// some leaves.
template <class T>
struct copy_values {
  const program_view from;
  const T* const* parameters;
  const std::byte* const* buffers;
  program_view made{};
  T* const* made_parameters = nullptr;
  std::byte* const* made_buffers = nullptr;
  int k = 0;

  int next_leaf() { return from.nodes[k++].leaf; }
  const shape& extents_of(const program_leaf& leaf, std::size_t i) const {
    return from.parameters[static_cast<std::size_t>(leaf.first_parameter) + i].spec.extents;
  }

  void copy_parameters(int l) const {
    const program_leaf &own = from.leaves[l], &to = made.leaves[l];
    for (std::size_t i = 0; i < own.parameter_count; ++i)
      std::copy_n(parameters[static_cast<std::size_t>(own.first_parameter) + i],
                  extents_of(own, i).numel(),
                  made_parameters[static_cast<std::size_t>(to.first_parameter) + i]);
  }
  void copy_buffers(int l) const {
    const program_leaf &own = from.leaves[l], &to = made.leaves[l];
    for (std::size_t i = 0; i < own.buffer_count; ++i) {
      const std::size_t b = static_cast<std::size_t>(own.first_buffer) + i;
      const buffer_spec& spec = from.buffers[b].spec;
      const std::size_t size = spec.follows_model ? sizeof(T) : size_of(spec.type);
      if (spec.persistent && spec.extents.numel() > 0)
        std::memcpy(made_buffers[static_cast<std::size_t>(to.first_buffer) + i], buffers[b],
                    static_cast<std::size_t>(spec.extents.numel()) * size);
    }
  }
};

/// Writes the parameters and buffers of a network with weights of bytes.
template <std::size_t N>
struct quantize_values : copy_values<float> {
  const input_ranges<N>& ranges;

  template <class Leaf>
  [[gnu::noinline]] void operator()(const Leaf&) {
    const int l = next_leaf();
    const program_leaf &own = from.leaves[l], &to = made.leaves[l];
    if constexpr (quantizable<Leaf>) {
      const float* const* const p = parameters + own.first_parameter;
      const shape& weight = extents_of(own, 0);
      const auto refuse = [&](const char* what) {
        throw_error(error(std::string(from.path(own).view()) + ": " + what));
      };
      if (!ranges.are_finite(l)) refuse("the batches give it numbers that are not finite");
      if (!std::all_of(p[0], p[0] + weight.numel(), [](float w) { return std::isfinite(w); }))
        refuse("a weight is not finite, which no byte is");
      std::byte* const* const b = made_buffers + to.first_buffer;
      quantize_weights(weight[0], weight.numel(1, weight.rank()), p[0],
                       reinterpret_cast<std::int8_t*>(b[0]), reinterpret_cast<float*>(b[1]));
      if (own.parameter_count > 1) std::copy_n(p[1], weight[0], reinterpret_cast<float*>(b[2]));
      const byte_range r = ranges.of(l);
      const float input[]{r.scale, static_cast<float>(r.zero)};
      std::memcpy(b[3], input, sizeof input);
    } else {
      copy_parameters(l);
      copy_buffers(l);
    }
  }
};

/// Writes the parameters and buffers of a network with weights of 16 bits.
template <half_number Half, class T>
struct halve_values : copy_values<T> {
  template <class Leaf>
  [[gnu::noinline]] void operator()(const Leaf&) {
    const int l = this->next_leaf();
    this->copy_buffers(l);
    if constexpr (!multiplies_weights<Leaf>) {
      this->copy_parameters(l);
    } else {
      const program_leaf &own = this->from.leaves[l], &to = this->made.leaves[l];
      for (std::size_t i = 0; i < own.parameter_count; ++i) {
        const shape& s = this->extents_of(own, i);
        const T* const p = this->parameters[static_cast<std::size_t>(own.first_parameter) + i];
        std::byte* const to_bytes =
            this->made_buffers[static_cast<std::size_t>(to.first_buffer) + own.buffer_count + i];
        if (is_held_in_halves(s))
          halve(l, s.numel(), p, reinterpret_cast<std::uint16_t*>(to_bytes));
        else
          std::copy_n(p, s.numel(), reinterpret_cast<T*>(to_bytes));
      }
    }
  }

 private:
  void halve(int l, dim_t n, const T* x, std::uint16_t* to) const {
    to_halves<Half>(n, x, to);
    if constexpr (std::same_as<Half, float16>)
      for (dim_t i = 0; i < n; ++i)
        if ((to[i] & 0x7FFFu) == 0x7C00u && std::isfinite(x[i]))
          throw_error(error(std::string(this->from.path(this->from.leaves[l]).view()) +
                            ": a weight is beyond the largest float16, 65504: take bfloat16"));
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
      any |= x.size() > 0;
    }
    if (!any)
      throw_error(error("quantize needs a batch of inputs, which tells the ranges of numbers"));
  }
  quantize_values<leaves> write{
      {plain->lowered.view(), plain->parameter_table.data(), plain->buffer_table.data()}, ranges};
  const auto module = replace_leaves<quantize_leaf>(plain->module);
  using quantised = std::remove_cvref_t<decltype(module)>;
  return inference_model<float, quantised, In...>(
      std::make_shared<frozen_weights<float, quantised, n>>(*plain, module, write));
}

template <half_number Half, class T, class M, shape... In, class From>
auto halve_as(const model<T, M, In...>*, const From& from) {
  using folds = folding<M, In...>;
  using folded = typename folds::type;
  constexpr std::size_t n = sizeof...(In);
  const frozen_weights<T, folded, n> plain(from, folds{});
  halve_values<Half, T> write{
      {plain.lowered.view(), plain.parameter_table.data(), plain.buffer_table.data()}};
  const auto module = replace_leaves<halve_leaf<Half>>(plain.module);
  using halved = std::remove_cvref_t<decltype(module)>;
  return inference_model<T, halved, In...>(
      std::make_shared<frozen_weights<T, halved, n>>(plain, module, write));
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
IKEBANA_MISUSE(quantize_takes_a_half,
               "quantize takes bfloat16 or float16 and an initialized model: "
               "quantize<bfloat16>(model)");
}  // namespace misuse
}  // namespace detail

/// Freezes a model of float as `freeze` does and makes bytes of the weights of its linear modules
/// and convolutions (`quantized<linear<..>>` in the type of the module), except those with a
/// padding mode: `quantize<int8>(model, batches)`. `batches`, tensors or what a data_loader gives,
/// are run once, and the least and the largest number that each of these modules reads is the range
/// of its bytes. Inputs beyond it become its ends. Products have integer sums, exact on every
/// instruction set. The model is unchanged and not needed afterwards. Throws error if there is no
/// batch with a sample, or if a weight of such a module or a number that it reads is not finite.
/// O(parameters + batches); allocates.
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

/// Freezes a model as `freeze` does and holds the weights of its linear modules, convolutions and
/// recurrent modules in numbers of 16 bits, rounded to the nearest (`half_weights<linear<..>,
/// bfloat16>` in the type of the module): half the bytes. Calls widen them, which takes time and,
/// in each lane, memory for the weights of one module, of a linear one at most 128 KB or 16
/// outputs. Results are those of a model of the rounded weights, to rounding. The model is
/// unchanged and not needed afterwards. Throws error if a weight is finite, but not in float16.
/// O(parameters); allocates.
template <half_number Number, floating T, resolved_module M, shape... In>
auto quantize(const model<T, M, In...>& m) {
  return detail::halve_as<Number>(&m, m);
}
/// Of the model of a replica, on one rank.
template <half_number Number, detail::replica Replica>
auto quantize(const Replica& r) {
  return detail::halve_as<Number>(detail::model_of(r), r);
}
template <class Number, class Model>
requires(!std::same_as<Number, int8> &&
         (!half_number<Number> || !detail::freezable<Model>)) auto quantize(const Model&)
    -> decltype(detail::refuse_for<detail::misuse::quantize_takes_a_half, Number, Model>());
template <std::same_as<int8> Number, class Model>
auto quantize(const Model&)
    -> decltype(detail::refuse_for<detail::misuse::quantize_takes_int8, Number, Model>());

}  // namespace ikebana
