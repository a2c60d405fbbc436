#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <string_view>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/module/lowering.hpp"
#include "ikebana/module/module.hpp"

namespace ikebana {

/// A tensor of embedded weights: its path, as in a state_dict, and the element of `data` at which
/// it begins.
struct embedded_tensor {
  std::string_view name;
  shape extents;
  dim_t offset;
};

/// A type with constant arrays of weights, as tools/embed writes it: all elements in one array,
/// and a table of the tensors in it.
template <class W>
concept embedded_weights = floating<typename W::value_type> && requires {
  { std::span(W::data) } -> std::convertible_to<std::span<const typename W::value_type>>;
  { std::span(W::tensors) } -> std::convertible_to<std::span<const embedded_tensor>>;
};

namespace detail {

/// Embedded weights at run time.
template <class T>
struct embedded_view {
  std::span<const T> data;
  std::span<const embedded_tensor> tensors;

  /// The tensor of this name, or null.
  constexpr const T* at(std::string_view name) const {
    for (const embedded_tensor& t : tensors)
      if (t.name == name) return data.data() + t.offset;
    return nullptr;
  }
};

/// Whether a buffer has its values from embedded weights: all that are persistent and not counters.
constexpr bool is_embedded(const buffer_spec& spec) {
  return spec.persistent && spec.follows_model;
}

/// The error of reading weights W in place for M with inputs In, if any.
template <class W, any_module M, shape... In>
constexpr diagnostic check_embedded() {
  using T = typename W::value_type;
  constexpr diagnostic wrong = check_initialize<T, M, true, In...>();
  if constexpr (!wrong.ok()) {
    return wrong;
  } else {
    constexpr const auto& p = lowered_of<become_t<M, In...>, In...>;
    constexpr std::span<const embedded_tensor> tensors(W::tensors);
    constexpr auto size = static_cast<dim_t>(std::span(W::data).size());
    std::size_t used = 0;
    diagnostic error;
    const auto expect = [&](const path_text& path, const shape& extents) {
      if (!error.ok()) return;
      for (const embedded_tensor& t : tensors) {
        if (t.name != path.view()) continue;
        ++used;
        if (t.extents != extents)
          error = {"has shape {input}, but {other} in the embedded weights",
                   0,
                   0,
                   extents,
                   t.extents,
                   path};
        else if (t.offset < 0 || t.offset > size || t.extents.numel() > size - t.offset)
          error = {"is not within the data of the embedded weights", 0, 0, {}, {}, path};
        return;
      }
      error = {"is not among the embedded weights", 0, 0, {}, {}, path};
    };
    for (const program_parameter& parameter : p.all_parameters())
      expect(p.path(parameter), parameter.spec.extents);
    for (std::size_t b = 0; b < p.sizes.buffers; ++b)
      if (is_embedded(p.buffers[b].spec)) expect(p.path(p.buffers[b]), p.buffers[b].spec.extents);
    if (error.ok() && used < tensors.size())
      error = {"the embedded weights have {got} tensors, the network uses {expected} of them",
               static_cast<dim_t>(used), static_cast<dim_t>(tensors.size())};
    return error;
  }
}

}  // namespace detail

}  // namespace ikebana
