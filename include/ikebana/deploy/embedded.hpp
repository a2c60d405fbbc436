#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/deploy/fold.hpp"
#include "ikebana/model/initialize.hpp"
#include "ikebana/module/lowering.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/parameter.hpp"
#include "ikebana/module/program.hpp"
#include "ikebana/module/shape_list.hpp"

namespace ikebana {

/// A tensor of embedded weights: its path, as in a state_dict, the element of its array at which it
/// begins, and what that array is: `data` for float32, which stands for the weights' value_type,
/// `halves` for bfloat16 and float16, `bytes` for int8.
struct embedded_tensor {
  std::string_view name;
  shape extents;
  dim_t offset;
  dtype type = dtype::float32;
};

/// A type with constant arrays of weights, as tools/embed writes it: all numbers of one type in one
/// array, and a table of the tensors in them. Quantised weights have arrays `halves`, the bits of
/// numbers of 16 bits, or `bytes`, too. `is_folded` tells whether they are those of a frozen
/// network, into which norms and scalings are folded; if it is missing, quantised ones are.
template <class W>
concept embedded_weights = floating<typename W::value_type> && requires {
  { std::span(W::data) } -> std::convertible_to<std::span<const typename W::value_type>>;
  { std::span(W::tensors) } -> std::convertible_to<std::span<const embedded_tensor>>;
};

namespace detail {

template <class W>
constexpr std::span<const std::uint16_t> halves_of() {
  if constexpr (requires { W::halves; })
    return std::span(W::halves);
  else
    return {};
}
template <class W>
constexpr std::span<const std::int8_t> bytes_of() {
  if constexpr (requires { W::bytes; })
    return std::span(W::bytes);
  else
    return {};
}

/// What the weights of W are held in: bfloat16, float16, int8, or float32 for its value_type.
template <class W>
inline constexpr dtype embedded_type = [] {
  for (const embedded_tensor& t : std::span<const embedded_tensor>(W::tensors))
    if (t.type != dtype::float32) return t.type;
  return dtype::float32;
}();

template <class W>
inline constexpr bool is_folded_in = [] {
  if constexpr (requires { W::is_folded; })
    return bool{W::is_folded};
  else
    return embedded_type<W> != dtype::float32;
}();

/// Embedded weights at run time.
template <class T>
struct embedded_view {
  std::span<const T> data;
  std::span<const std::uint16_t> halves;
  std::span<const std::int8_t> bytes;
  std::span<const embedded_tensor> tensors;
  bool is_folded;

  template <class W>
  static constexpr embedded_view of() {
    return {W::data, halves_of<W>(), bytes_of<W>(), W::tensors, is_folded_in<W>};
  }

  /// The tensor of this name, or null.
  const void* at(std::string_view name) const {
    for (const embedded_tensor& t : tensors) {
      if (t.name != name) continue;
      if (t.type == dtype::float32) return data.data() + t.offset;
      if (t.type == dtype::int8) return bytes.data() + t.offset;
      return halves.data() + t.offset;
    }
    return nullptr;
  }
};

/// Whether a buffer has its values from embedded weights: all that are persistent and not counters.
constexpr bool is_embedded(const buffer_spec& spec) {
  return spec.persistent &&
         (spec.follows_model || spec.type == dtype::float32 || spec.type == dtype::bfloat16 ||
          spec.type == dtype::float16 || spec.type == dtype::int8);
}

/// The module that reads weights W of M with inputs In. `<ikebana/deploy/embedded_quantized.hpp>`
/// has that of quantised weights.
template <class W, any_module M, shape... In>
struct embedded_form {
  static constexpr auto of(const M& m) {
    if constexpr (is_folded_in<W>)
      return folding<become_t<M, In...>, In...>::fold(become<shape_list{In...}>(m));
    else
      return become<shape_list{In...}>(m);
  }
  using type = decltype(of(std::declval<const M&>()));
};

/// The error of reading weights W in place for a resolved module, if any.
template <class W, any_module M, shape... In>
constexpr diagnostic check_tensors() {
  constexpr const auto& p = lowered_of<M, In...>;
  constexpr std::span<const embedded_tensor> tensors(W::tensors);
  constexpr auto sizes = [] {
    std::array<dim_t, 3> all{};
    all[0] = static_cast<dim_t>(std::span(W::data).size());
    all[1] = static_cast<dim_t>(halves_of<W>().size());
    all[2] = static_cast<dim_t>(bytes_of<W>().size());
    return all;
  }();
  std::size_t used = 0;
  diagnostic error;
  const auto expect = [&](const path_text& path, const shape& extents, dtype type) {
    if (!error.ok()) return;
    for (const embedded_tensor& t : tensors) {
      if (t.name != path.view()) continue;
      ++used;
      const dim_t size = sizes[t.type == dtype::float32 ? 0 : t.type == dtype::int8 ? 2 : 1];
      if (t.extents != extents)
        error = {"has shape {input}, but {other} in the embedded weights",
                 0,
                 0,
                 extents,
                 t.extents,
                 path};
      else if (t.type != type)
        error = {"has numbers of another type in the embedded weights", 0, 0, {}, {}, path};
      else if (t.offset < 0 || t.offset > size || t.extents.numel() > size - t.offset)
        error = {"is not within the data of the embedded weights", 0, 0, {}, {}, path};
      return;
    }
    error = {"is not among the embedded weights", 0, 0, {}, {}, path};
  };
  for (const program_parameter& parameter : p.all_parameters())
    expect(p.path(parameter), parameter.spec.extents, dtype::float32);
  for (std::size_t b = 0; b < p.sizes.buffers; ++b) {
    const buffer_spec& spec = p.buffers[b].spec;
    if (is_embedded(spec))
      expect(p.path(p.buffers[b]), spec.extents, spec.follows_model ? dtype::float32 : spec.type);
  }
  if (error.ok() && used < tensors.size())
    error = {"the embedded weights have {got} tensors, the network uses {expected} of them",
             static_cast<dim_t>(used), static_cast<dim_t>(tensors.size())};
  return error;
}

/// The error of reading weights W in place for M with inputs In, if any.
template <class W, any_module M, shape... In>
constexpr diagnostic check_embedded() {
  using T = typename W::value_type;
  constexpr diagnostic wrong = check_initialize<T, M, true, In...>();
  if constexpr (!wrong.ok())
    return wrong;
  else if constexpr (embedded_type<W> == dtype::int8 && !std::is_same_v<T, float>)
    return {"embedded weights of bytes are those of a network of float"};
  else
    return check_tensors<W, typename embedded_form<W, M, In...>::type, In...>();
}

}  // namespace detail

}  // namespace ikebana
