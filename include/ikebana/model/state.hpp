#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "ikebana/core/dtype.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/model/hooks.hpp"
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
  // Who gives it away for writing must expect a change at any time.
  const T* parameters;
  if constexpr (requires { m.parameters_changed(); }) {
    parameters = std::as_const(m).parameters().data();
    m.parameters_changed();
  } else {
    parameters = m.parameters().data();
  }
  for (const program_leaf& leaf : p.all_leaves()) {
    for (std::size_t i = 0; i < leaf.parameter_count; ++i) {
      const std::size_t index = static_cast<std::size_t>(leaf.first_parameter) + i;
      const parameter_spec& spec = p.parameters[index].spec;
      f(p.path(leaf, spec.name), dtype_of<T>, spec.extents,
        std::as_writable_bytes(std::span{const_cast<T*>(parameters) + layout.offsets[index],
                                         static_cast<std::size_t>(spec.extents.numel())}));
    }
    for (std::size_t i = 0; i < leaf.buffer_count; ++i) {
      const std::size_t index = static_cast<std::size_t>(leaf.first_buffer) + i;
      const buffer_spec& spec = p.buffers[index].spec;
      if (!spec.persistent) continue;
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

namespace detail {

/// The state as it is in memory, before any hook.
template <class Model>
state_dict views_of_state(const Model& m) {
  state_dict dict;
  for_each_state(m, [&](const path_text& path, dtype type, const shape& extents,
                        std::span<const std::byte> b) {
    dict.add_view(path.view(), type, extents, b.data());
  });
  return dict;
}

template <class Model>
const hook_set* hooks_of(const Model& m) {
  if constexpr (requires { m.registered_hooks(); })
    return m.registered_hooks();
  else
    return nullptr;
}

/// What is wrong with a state, all of it in one sentence.
///
/// A template, so that it is compiled only where it is used.
template <class>
class basic_state_complaint {
 public:
  enum kind : std::size_t { missing, unexpected, mismatched, uninitialized };

  void add(kind k, const std::string& what) {
    if (!lists_[k].empty()) lists_[k] += ", ";
    lists_[k] += what;
  }
  void throw_if_any() const {
    static constexpr const char* titles[] = {
        "missing keys: ", "unexpected keys: ", "mismatched: ", "uninitialized: "};
    std::string all;
    for (std::size_t k = 0; k < 4; ++k) {
      if (lists_[k].empty()) continue;
      all += all.empty() ? "load_state_dict: " : "; ";
      all += titles[k] + lists_[k];
    }
    if (!all.empty()) throw state_error(all);
  }

 private:
  std::string lists_[4];
};
using state_complaint = basic_state_complaint<void>;

/// Compares what is given with what there is to be, which may be `dynamic` in places. Uninitialized
/// entries are complained of if `all_there`.
template <class = void>
void compare_state(state_complaint& wrong, const state_dict& expected, const state_dict& given,
                   bool all_there) {
  for (const auto& own : expected) {
    const auto* e = given.find(own.name);
    if (e == nullptr)
      wrong.add(state_complaint::missing, own.name);
    else if (e->uninitialized && all_there)
      wrong.add(state_complaint::uninitialized, own.name);
    else if ((!e->uninitialized && !compatible(own.extents, e->extents)) ||
             !convertible(e->type, own.type))
      wrong.add(state_complaint::mismatched, own.name + " expects " +
                                                 describe(own.type, own.extents) + ", got " +
                                                 describe(e->type, e->extents));
  }
  for (const auto& e : given)
    if (expected.find(e.name) == nullptr) wrong.add(state_complaint::unexpected, e.name);
}

/// Copies elements, which are of a convertible type.
template <class = void>
void copy_elements(std::byte* to, dtype type, const state_dict::entry& given) {
  const auto n = static_cast<std::size_t>(given.extents.numel());
  if (n == 0) return;
  if (given.type == type)
    std::memmove(to, given.bytes.data(), given.bytes.size());
  else if (type == dtype::float64)
    convert<double, float>(to, given.bytes.data(), n);
  else
    convert<float, double>(to, given.bytes.data(), n);
}

/// Copies what is there of a state that fits.
template <class Model>
void copy_state(Model& m, const state_dict& dict) {
  for_each_state(m, [&](const path_text& path, dtype type, const shape&, std::span<std::byte> to) {
    if (const auto& given = dict.at(path.view()); !given.uninitialized)
      copy_elements(to.data(), type, given);
  });
}

/// Loads with the hooks around it: `load` gets what the hooks made of the dict.
template <class Load>
void load_with_hooks(const hook_set* hooks, const state_dict& dict, Load&& load) {
  if (hooks == nullptr) return load(dict);
  state_dict seen = dict.views();
  hooks->run(hook_point::loading, seen);
  load(seen);
  hooks->run(hook_point::loaded, std::as_const(seen));
}

}  // namespace detail

/// The parameters and buffers of a model by path, in PyTorch's names and order, as views of its
/// memory: what the model changes, they show. `clone()` the result to keep it. Allocates the table.
template <initialized_model Model>
state_dict get_state_dict(const Model& m) {
  state_dict dict = detail::views_of_state(m);
  if (const hook_set* hooks = detail::hooks_of(m)) hooks->run(hook_point::saving, dict);
  return dict;
}

template <any_module M>
state_dict get_state_dict(const M&) {
  static_assert(initialized_model<M>,
                "ikebana: get_state_dict needs an initialized model: initialize<T, shape>(module, "
                "seed) gives one");
  return {};
}

/// Copies a state into a model. Strict: every parameter and buffer must be there with its shape and
/// elements, and nothing else; all that is wrong is reported at once in a state_error, before
/// anything has changed. float32 and float64 convert. Hooks before loading may rename keys first;
/// `dict` stays as it is.
template <initialized_model Model>
void load_state_dict(Model& m, const state_dict& dict) {
  detail::load_with_hooks(detail::hooks_of(m), dict, [&m](const state_dict& given) {
    detail::state_complaint wrong;
    detail::compare_state(wrong, detail::views_of_state(m), given, true);
    wrong.throw_if_any();
    detail::copy_state(m, given);
  });
}

template <any_module M>
void load_state_dict(const M&, const state_dict&) {
  static_assert(initialized_model<M>,
                "ikebana: load_state_dict needs an initialized model, or a lazy_model: "
                "initialize<T, shape>(module, seed) gives one");
}

}  // namespace ikebana
