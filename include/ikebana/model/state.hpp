#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "ikebana/core/dtype.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/model/model.hpp"
#include "ikebana/model/state_dict.hpp"

namespace ikebana {

namespace detail {

/// Calls f(path, dtype, extents, bytes) for each parameter and buffer, leaf by leaf in the order of
/// PyTorch.
template <class Model, class F>
void for_each_state(Model& m, F&& f) {
  using T = typename std::remove_const_t<Model>::value_type;
  const auto& p = m.current_program();
  const auto& layout = m.layout();
  for (const program_leaf& leaf : p.all_leaves()) {
    for (std::size_t i = 0; i < leaf.parameter_count; ++i) {
      const std::size_t index = static_cast<std::size_t>(leaf.first_parameter) + i;
      const parameter_spec& spec = p.parameters[index].spec;
      f(p.path(leaf, spec.name), dtype_of<T>, spec.extents,
        std::as_writable_bytes(
            std::span{const_cast<T*>(m.parameters().data()) + layout.offsets[index],
                      static_cast<std::size_t>(spec.extents.numel())}));
    }
    for (std::size_t i = 0; i < leaf.buffer_count; ++i) {
      const std::size_t index = static_cast<std::size_t>(leaf.first_buffer) + i;
      const buffer_spec& spec = p.buffers[index].spec;
      const dtype type = spec.follows_model ? dtype_of<T> : spec.type;
      f(p.path(leaf, spec.name), type, spec.extents,
        std::span{const_cast<std::byte*>(m.buffers().data()) + layout.buffer_offsets[index],
                  static_cast<std::size_t>(spec.extents.numel()) * size_of(type)});
    }
  }
}

template <class To, class From>
void convert(std::byte* to, const std::byte* from, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    From x;
    std::memcpy(&x, from + i * sizeof(From), sizeof(From));
    const To y = static_cast<To>(x);
    std::memcpy(to + i * sizeof(To), &y, sizeof(To));
  }
}

inline bool convertible(dtype from, dtype to) {
  return from == to || (from == dtype::float32 && to == dtype::float64) ||
         (from == dtype::float64 && to == dtype::float32);
}

}  // namespace detail

/// A model, replicated or not: what has a lowered program and flat parameters.
template <class Model>
concept initialized_model = requires(Model& m) {
  typename std::remove_cvref_t<Model>::value_type;
  m.current_program();
  m.layout();
  m.parameters();
  m.buffers();
};

/// The parameters and buffers of a model by path, in PyTorch's names and order, as views of its
/// memory: what the model changes, they show. `clone()` the result to keep it. Allocates the table.
template <initialized_model Model>
state_dict get_state_dict(const Model& m) {
  state_dict dict;
  detail::for_each_state(m, [&](const path_text& path, dtype type, const shape& extents,
                                std::span<const std::byte> b) {
    dict.add_view(path.view(), type, extents, b.data());
  });
  return dict;
}

template <any_module M>
state_dict get_state_dict(const M&) {
  static_assert(initialized_model<M>,
                "ikebana: get_state_dict needs an initialized model: initialize<T, shape>(module, "
                "seed) gives one");
  return {};
}

/// Copies a state into a model. Strict: every parameter and buffer must be there with its shape,
/// and nothing else; all that is wrong is reported at once in a state_error, before anything has
/// changed. float32 and float64 convert.
template <initialized_model Model>
void load_state_dict(Model& m, const state_dict& dict) {
  std::string missing, unexpected, mismatched;
  const auto list = [](std::string& to, std::string_view what) {
    if (!to.empty()) to += ", ";
    to += what;
  };
  std::size_t found = 0;
  state_dict expected = get_state_dict(m);
  for (const auto& own : expected) {
    const auto* given = dict.find(own.name);
    if (given == nullptr) {
      list(missing, own.name);
      continue;
    }
    ++found;
    if (!(given->extents == own.extents) || !detail::convertible(given->type, own.type))
      list(mismatched, own.name + " expects " + detail::describe(own.type, own.extents) + ", got " +
                           detail::describe(given->type, given->extents));
  }
  if (found < dict.size())
    for (const auto& given : dict)
      if (expected.find(given.name) == nullptr) list(unexpected, given.name);
  std::string wrong;
  const auto section = [&](const char* title, const std::string& keys) {
    if (keys.empty()) return;
    wrong += wrong.empty() ? "load_state_dict: " : "; ";
    wrong += title;
    wrong += keys;
  };
  section("missing keys: ", missing);
  section("unexpected keys: ", unexpected);
  section("mismatched: ", mismatched);
  if (!wrong.empty()) throw state_error(wrong);

  detail::for_each_state(
      m, [&](const path_text& path, dtype type, const shape& extents, std::span<std::byte> to) {
        const auto& given = dict.at(path.view());
        const auto n = static_cast<std::size_t>(extents.numel());
        if (n == 0) return;
        if (given.type == type)
          std::memcpy(to.data(), given.bytes.data(), to.size());
        else if (type == dtype::float64)
          detail::convert<double, float>(to.data(), given.bytes.data(), n);
        else
          detail::convert<float, double>(to.data(), given.bytes.data(), n);
      });
}

}  // namespace ikebana
