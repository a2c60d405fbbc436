#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/model/calls/optimizer_check.hpp"
#include "ikebana/model/parameter_shards.hpp"
#include "ikebana/model/state.hpp"
#include "ikebana/model/state_dict.hpp"
#include "ikebana/optim/optimizer.hpp"

namespace ikebana {

namespace detail {

/// "state.fc1.weight.exp_avg", the name in PyTorch's distributed checkpoints.
template <class Program, class Parameter>
std::string optimizer_key(const Program& p, const Parameter& parameter, std::string_view name) {
  return std::string("state.") + p.path(parameter).c_str() + '.' + std::string(name);
}

/// Whether an array of the state has one element per parameter element. The others (steps) hold one
/// number for all parameters, or one per parameter.
template <class T>
bool is_elementwise(const optimizer_state& s) {
  return s.type == dtype_of<T> && !s.is_in_parts;
}

/// The numbers of one parameter in an array in parts.
template <class = void>
std::span<std::byte> bytes_of(const optimizer_state& s, const optimizer_state_part& part) {
  const std::size_t size = size_of(s.type);
  return {s.bytes.data() + static_cast<std::size_t>(part.at) * size,
          static_cast<std::size_t>(part.extents.numel()) * size};
}

/// Throws state_error if a counter is negative.
template <class = void>
void check_counters(const state_dict::entry& e) {
  if (e.type != dtype::int64) return;
  for (std::size_t i = 0; i < e.bytes.size(); i += sizeof(std::int64_t)) {
    std::int64_t n;
    std::memcpy(&n, e.bytes.data() + i, sizeof n);
    if (n < 0) throw state_error(e.name + ": expected a number of steps, got " + std::to_string(n));
  }
}

template <class Model>
dim_t own_elements(Model& model) {
  if constexpr (sharded_optimizable<Model>)
    return model.shards()->elements();
  else
    return static_cast<dim_t>(model.parameters().size());
}

template <class Model>
void check_optimizer_of(Model& model, const optimizer_state& s) {
  using T = typename Model::value_type;
  if (is_elementwise<T>(s) &&
      s.bytes.size() != static_cast<std::size_t>(own_elements(model)) * sizeof(T))
    throw state_error("the optimizer is that of another model: its " + std::string(s.name) +
                      " has " + std::to_string(s.bytes.size() / sizeof(T)) +
                      " elements, the model's parameters have " +
                      std::to_string(own_elements(model)));
}

/// Calls f for the pairs of ranges between this rank's elements, range after range, and a whole
/// array.
template <class Model, class F>
void for_each_own_range(Model& model, F&& f) {
  if constexpr (sharded_optimizable<Model>) {
    dim_t at = 0;
    for (const parameter_range& r : model.shards()->ranges()) {
      f(r.begin, at, r.size());
      at += r.size();
    }
  } else {
    f(dim_t{0}, dim_t{0}, own_elements(model));
  }
}

/// An array of the state as it would be without sharding; called on all ranks. Throws state_error
/// if the optimizer belongs to another model.
template <class Model>
auto gather_state(Model& model, const optimizer_state& s) {
  using T = typename Model::value_type;
  check_optimizer_of(model, s);
  aligned_buffer<T> whole(static_cast<dim_t>(model.parameters().size()));
  const T* own = reinterpret_cast<const T*>(s.bytes.data());
  for_each_own_range(
      model, [&](dim_t at, dim_t from, dim_t n) { std::copy_n(own + from, n, whole.data() + at); });
  if constexpr (sharded_optimizable<Model>) model.shards()->gather(whole.data());
  return whole;
}

/// Copies this rank's part of such an array into the state.
template <class Model, class T>
void take_state(Model& model, const optimizer_state& s, const aligned_buffer<T>& whole) {
  T* own = reinterpret_cast<T*>(s.bytes.data());
  for_each_own_range(
      model, [&](dim_t at, dim_t from, dim_t n) { std::copy_n(whole.data() + at, n, own + from); });
}

/// The byte offset of the number for parameter i in a state that is not element-wise: numbers are
/// ordered as parameters are in the flat arrays. O(parameters).
template <class Model>
std::size_t offset_of_number(const Model& model, const optimizer_state& s, std::size_t i) {
  const std::size_t size = size_of(s.type);
  if (s.bytes.size() <= size) return 0;
  const auto& offsets = model.layout().offsets;
  std::size_t before = 0;
  for (std::size_t j = 0; j < model.current_program().all_parameters().size(); ++j)
    before += offsets[j] < offsets[i] || (offsets[j] == offsets[i] && j < i);
  return before * size;
}

}  // namespace detail

/// The complete state of an optimizer, by parameter, under the names of PyTorch's distributed
/// checkpoints: "state.fc1.weight.exp_avg", in the shape of the parameter, and
/// "state.fc1.weight.step". The model must be the one that the optimizer was created for. The dict
/// owns its memory. It does not contain the options.
///
/// With shard_optimizer, the ranks' parts are gathered (ZeroRedundancyOptimizer's
/// consolidate_state_dict): all ranks must call it, and every rank gets the complete state, the
/// same as without sharding. Allocates, in addition, one array of the size of the parameters.
/// Throws state_error if the optimizer belongs to another model.
template <initialized_model Model, class Optimizer>
state_dict get_optimizer_state_dict(Model& model, Optimizer& optimizer) {
  using T = typename std::remove_cvref_t<Model>::value_type;
  detail::check_optimizer(model, optimizer, "get_optimizer_state_dict");
  const auto& p = model.current_program();
  const auto parameters = p.all_parameters();
  state_dict dict;
  for (const optimizer_state& s : optimizer.state()) {
    if (!s.in_use) continue;
    for (const optimizer_state_part& part : s.parts) {
      const auto from = detail::bytes_of(s, part);
      std::memcpy(dict.add_owned(detail::optimizer_key(p, parameters[part.parameter], s.name),
                                 s.type, part.extents),
                  from.data(), from.size());
    }
    if (s.is_in_parts) continue;
    aligned_buffer<T> whole;
    if (detail::is_elementwise<T>(s)) whole = detail::gather_state(model, s);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const bool elementwise = detail::is_elementwise<T>(s);
      const shape extents = elementwise ? parameters[i].spec.extents : shape{};
      std::byte* to =
          dict.add_owned(detail::optimizer_key(p, parameters[i], s.name), s.type, extents);
      const std::byte* from =
          elementwise ? reinterpret_cast<const std::byte*>(whole.data() + model.layout().offsets[i])
                      : s.bytes.data() + detail::offset_of_number(model, s, i);
      const auto n = static_cast<std::size_t>(extents.numel()) * size_of(s.type);
      if (n > 0) std::memcpy(to, from, n);
    }
  }
  return dict;
}

/// Loads a dict from get_optimizer_state_dict, of this number of ranks or of another: each rank
/// takes its part, without communication. Throws state_error if the optimizer belongs to another
/// model. Strict: every entry must be present, and no others; a
/// state_error lists all mismatches before anything has changed. float32 and float64 are converted.
template <initialized_model Model, class Optimizer>
void set_optimizer_state_dict(Model& model, Optimizer& optimizer, const state_dict& dict) {
  using T = typename std::remove_cvref_t<Model>::value_type;
  detail::check_optimizer(model, optimizer, "set_optimizer_state_dict");
  const auto& p = model.current_program();
  const auto parameters = p.all_parameters();
  const auto states = optimizer.state();
  {
    state_dict expected;
    for (const optimizer_state& s : states) {
      if (!s.in_use) continue;
      for (const optimizer_state_part& part : s.parts)
        expected.add_uninitialized(detail::optimizer_key(p, parameters[part.parameter], s.name),
                                   s.type, part.extents);
      if (s.is_in_parts) continue;
      detail::check_optimizer_of(model, s);
      for (const auto& parameter : parameters)
        expected.add_uninitialized(detail::optimizer_key(p, parameter, s.name), s.type,
                                   detail::is_elementwise<T>(s) ? parameter.spec.extents : shape{});
    }
    detail::state_complaint wrong;
    wrong.compare(expected, dict, true);
    wrong.throw_if_any();
    for (const auto& e : dict) detail::check_counters(e);
  }
  for (const optimizer_state& s : states) {
    if (!s.in_use || s.is_in_parts || detail::is_elementwise<T>(s) || parameters.empty()) continue;
    if (s.bytes.size() > size_of(s.type)) continue;
    const auto& first = dict.at(detail::optimizer_key(p, parameters[0], s.name));
    for (const auto& parameter : parameters) {
      const auto& other = dict.at(detail::optimizer_key(p, parameter, s.name));
      if (!std::ranges::equal(first.bytes, other.bytes))
        throw state_error("set_optimizer_state_dict: " + first.name + " and " + other.name +
                          " differ, but this optimizer keeps one for all parameters");
    }
  }
  for (const optimizer_state& s : states) {
    if (!s.in_use) continue;
    for (const optimizer_state_part& part : s.parts)
      detail::copy_elements(detail::bytes_of(s, part).data(), s.type,
                            dict.at(detail::optimizer_key(p, parameters[part.parameter], s.name)));
    if (s.is_in_parts) continue;
    if (!detail::is_elementwise<T>(s)) {
      for (std::size_t i = 0; i < parameters.size(); ++i)
        detail::copy_elements(s.bytes.data() + detail::offset_of_number(model, s, i), s.type,
                              dict.at(detail::optimizer_key(p, parameters[i], s.name)));
      continue;
    }
    aligned_buffer<T> whole(static_cast<dim_t>(model.parameters().size()));
    for (std::size_t i = 0; i < parameters.size(); ++i)
      detail::copy_elements(reinterpret_cast<std::byte*>(whole.data() + model.layout().offsets[i]),
                            s.type, dict.at(detail::optimizer_key(p, parameters[i], s.name)));
    detail::take_state(model, s, whole);
  }
}

}  // namespace ikebana
