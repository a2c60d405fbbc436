#pragma once

#include <cstddef>
#include <string_view>
#include <type_traits>

#include "ikebana/core/dtype.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/model/network_state.hpp"
#include "ikebana/module/program.hpp"

namespace ikebana::detail {

/// The place of the first entry with this path in a table of the program; how many there are for
/// none.
template <class Path>
constexpr std::size_t index_of(const auto& program, const auto& table, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    if (program.path(table[i]).view() == std::string_view{Path::c_str()}) return i;
  return count;
}

/// The number of a Model's parameter; parameter_count for none of this path.
template <class Model, class Path>
constexpr std::size_t parameter_index() {
  constexpr auto p = Model::lowered();
  return index_of<Path>(p, p.parameters, p.sizes.parameters);
}

/// A parameter of a Model, or what lies in an array that is laid out as the parameters are, as a
/// tensor_view.
template <class Model, class Path, class T, class U>
auto parameter_view(const network_state<T>& n, U* base) {
  constexpr std::size_t i = parameter_index<Model, Path>();
  static_assert(i < Model::parameter_count, "ikebana: the model has no parameter of this path");
  if constexpr (i < Model::parameter_count) {
    constexpr shape s = Model::lowered().parameters[i].spec.extents;
    return tensor_view<U, s>(base + n.offsets[i], n.lowered.parameters[i].spec.extents);
  }
}

/// A buffer of a Model as a tensor_view.
template <class Model, class Path, class T, class Byte>
auto buffer_view(const network_state<T>& n, Byte* base) {
  constexpr auto p = Model::lowered();
  constexpr std::size_t i = index_of<Path>(p, p.buffers, p.sizes.buffers);
  static_assert(i < p.sizes.buffers, "ikebana: the model has no buffer of this path");
  if constexpr (i < p.sizes.buffers) {
    constexpr buffer_spec spec = p.buffers[i].spec;
    using element = std::conditional_t<spec.follows_model, T, typed<spec.type>>;
    using U = std::conditional_t<std::is_const_v<Byte>, const element, element>;
    return tensor_view<U, spec.extents>(reinterpret_cast<U*>(base + n.buffer_offsets[i]),
                                        n.lowered.buffers[i].spec.extents);
  }
}

}  // namespace ikebana::detail
