#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/core/random.hpp"
#include "ikebana/model/network/network_state.hpp"
#include "ikebana/model/plan/layout.hpp"
#include "ikebana/module/parameter.hpp"

namespace ikebana::detail {

/// Initialises a buffer of a model of T.
template <class T>
[[gnu::cold]] void fill_buffer(const buffer_spec& spec, const random_stream& stream,
                               std::byte* to) {
  const auto fill = [&]<class U>(U) {
    // A program may have the kernels of T alone.
    if constexpr (std::is_same_v<U, T>)
      spec.init.template fill<U>(stream, reinterpret_cast<U*>(to), spec.extents);
    else if constexpr (floating<U>)
      fill_initial_here(spec.init, stream, reinterpret_cast<U*>(to), spec.extents);
    else
      std::fill_n(reinterpret_cast<U*>(to), spec.extents.numel(), static_cast<U>(spec.init.value));
  };
  switch (spec.follows_model ? dtype_of<T> : spec.type) {
    case dtype::float32:
      return fill(float{});
    case dtype::float64:
      return fill(double{});
    case dtype::int64:
      return fill(std::int64_t{});
    case dtype::int32:
      return fill(std::int32_t{});
    case dtype::uint8:
      return fill(std::uint8_t{});
    case dtype::bfloat16:
    case dtype::float16:
    case dtype::int8:
      break;  // Weights of frozen networks, which have no initial values.
  }
}

/// The memory of a model, which the tables of its network point to. Not instantiated per network.
template <class T>
struct model_memory {
  aligned_buffer<T> parameters;
  aligned_buffer<T> gradients;
  aligned_buffer<std::byte> buffers;
  aligned_buffer<std::byte> workspace;

  /// Allocates the parameters, their gradients and the buffers, all zero.
  [[gnu::cold]] void allocate(network_state<T>& n, dim_t parameter_elements, dim_t buffer_bytes);

  /// Initialises the parameters from their specs.
  [[gnu::cold]] void initialize_parameters(const network_state<T>& n, seed s);
  /// Only for networks with buffers.
  [[gnu::cold]] void initialize_buffers(const network_state<T>& n, seed s);

  /// Copies the numbers of another model of the same network.
  [[gnu::cold]] void copy(const model_memory& other);

  /// Sets the pointers of each activation, gradient and saved tensor according to the plan.
  [[gnu::cold]] void place(network_state<T>& n, dim_t workspace_bytes);
};

template <class T>
void model_memory<T>::allocate(network_state<T>& n, dim_t parameter_elements, dim_t buffer_bytes) {
  parameters = aligned_buffer<T>(parameter_elements);
  gradients = aligned_buffer<T>(parameter_elements);
  buffers = aligned_buffer<std::byte>(buffer_bytes);
  for (std::size_t i = 0; i < n.lowered.n.parameters; ++i) {
    n.parameters[i] = parameters.data() + n.offsets[i];
    n.gradients[i] = gradients.data() + n.offsets[i];
  }
  for (std::size_t i = 0; i < n.lowered.n.buffers; ++i)
    n.buffers[i] = buffers.data() + n.buffer_offsets[i];
}

template <class T>
void model_memory<T>::initialize_parameters(const network_state<T>& n, seed s) {
  for (std::size_t p = 0; p < n.lowered.n.parameters; ++p) {
    const program_parameter& parameter = n.lowered.parameters[p];
    const parameter_spec& spec = parameter.spec;
    const char* const name = *spec.drawn_as != '\0' ? spec.drawn_as : spec.name;
    const path_text path = n.lowered.path(n.lowered.leaves[parameter.leaf], name);
    spec.init.template fill<T>({s, hash_path(path.view(), s.path)}, n.parameters[p], spec.extents);
  }
}

template <class T>
void model_memory<T>::initialize_buffers(const network_state<T>& n, seed s) {
  for (std::size_t b = 0; b < n.lowered.n.buffers; ++b) {
    const program_buffer& buffer = n.lowered.buffers[b];
    const char* const name =
        *buffer.spec.drawn_as != '\0' ? buffer.spec.drawn_as : buffer.spec.name;
    const path_text path = n.lowered.path(n.lowered.leaves[buffer.leaf], name);
    fill_buffer<T>(buffer.spec, {s, hash_path(path.view(), s.path)}, n.buffers[b]);
  }
}

template <class T>
void model_memory<T>::copy(const model_memory& other) {
  std::copy_n(other.parameters.data(), other.parameters.size(), parameters.data());
  std::copy_n(other.buffers.data(), other.buffers.size(), buffers.data());
}

template <class T>
void model_memory<T>::place(network_state<T>& n, dim_t workspace_bytes) {
  if (workspace_bytes > workspace.size()) workspace = aligned_buffer<std::byte>(workspace_bytes);
  n.place(workspace.data());
}

IKEBANA_CPU_CLASS(model_memory, std::type_identity_t)

}  // namespace ikebana::detail
