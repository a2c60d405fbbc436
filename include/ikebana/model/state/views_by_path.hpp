#pragma once

#include <cstddef>
#include <string_view>
#include <type_traits>

#include "ikebana/core/dtype.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/model/network/network_state.hpp"
#include "ikebana/module/program.hpp"
#include "ikebana/module/unknown_path.hpp"

namespace ikebana::detail {

/// The index of the first entry with this path in a table of the program; `count` if there is none.
template <class Path>
constexpr std::size_t index_of(const auto& program, const auto& table, std::size_t count) {
  if constexpr (is_path<Path>)
    for (std::size_t i = 0; i < count; ++i)
      if (program.path(table[i]).view() == std::string_view{Path::c_str()}) return i;
  return count;
}

/// The index of a Model's parameter; parameter_count if there is none with this path.
template <class Model, class Path>
constexpr std::size_t parameter_index() {
  constexpr const auto& p = Model::lowered();
  return index_of<Path>(p, p.parameters, p.sizes.parameters);
}

/// The index of a Model's buffer; buffer_count if there is none with this path.
template <class Model, class Path>
constexpr std::size_t buffer_index() {
  constexpr const auto& p = Model::lowered();
  return index_of<Path>(p, p.buffers, p.sizes.buffers);
}

template <class Model>
struct parameter_paths {
  static constexpr const char* what = "parameter";
  static constexpr std::size_t count = Model::parameter_count;
  static constexpr path_text path(std::size_t i) {
    constexpr const auto& p = Model::lowered();
    return p.path(p.parameters[i]);
  }
};

template <class Model>
struct buffer_paths {
  static constexpr const char* what = "buffer";
  static constexpr std::size_t count = Model::lowered().sizes.buffers;
  static constexpr path_text path(std::size_t i) {
    constexpr const auto& p = Model::lowered();
    return p.path(p.buffers[i]);
  }
};

template <class Model, class Path>
inline constexpr bool has_parameter = parameter_index<Model, Path>() < Model::parameter_count;
template <class Model, class Path>
inline constexpr bool has_buffer = buffer_index<Model, Path>() < Model::lowered().sizes.buffers;

/// A parameter of a Model, or the corresponding part of an array that is laid out like the
/// parameters, as a tensor_view.
template <class Model, class Path, class T, class U>
auto parameter_view(const network_state<T>& n, U* base) {
  constexpr std::size_t i = parameter_index<Model, Path>();
  constexpr shape s = Model::lowered().parameters[i].spec.extents;
  return tensor_view<U, s>(base + n.offsets[i], n.lowered.parameters[i].spec.extents);
}

/// A buffer of a Model as a tensor_view.
template <class Model, class Path, class T, class Byte>
auto buffer_view(const network_state<T>& n, Byte* base) {
  constexpr std::size_t i = buffer_index<Model, Path>();
  constexpr buffer_spec spec = Model::lowered().buffers[i].spec;
  using element = std::conditional_t<spec.follows_model, T, typed<spec.type>>;
  using U = std::conditional_t<std::is_const_v<Byte>, const element, element>;
  return tensor_view<U, spec.extents>(reinterpret_cast<U*>(base + n.buffer_offsets[i]),
                                      n.lowered.buffers[i].spec.extents);
}

}  // namespace ikebana::detail
