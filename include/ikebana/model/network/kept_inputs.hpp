#pragma once

#include <array>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/refusal.hpp"

namespace ikebana::detail {

/// Whether X is what a forwarding reference deduces for a temporary tensor.
template <class X>
inline constexpr bool is_temporary = false;
template <class T, shape S>
inline constexpr bool is_temporary<tensor<T, S>> = true;

template <class X>
inline constexpr bool is_const_temporary = false;
template <class T, shape S>
inline constexpr bool is_const_temporary<const tensor<T, S>> = true;

template <class... X>
inline constexpr bool has_const_temporary = (is_const_temporary<X> || ...);
template <class... X>
inline constexpr bool keeps_temporary = (is_temporary<X> || ...) && !has_const_temporary<X...>;

namespace misuse {

IKEBANA_MISUSE(call_with_a_const_temporary,
               "a temporary tensor that is const cannot be kept for backward: give it a name, or "
               "return a tensor that is not const");

}  // namespace misuse

/// Temporary tensors that a forward read and its backward will read: their memory moves here.
class kept_inputs {
 public:
  /// Keeps the temporaries among the arguments of a call instead of the last call's. Does not
  /// allocate.
  template <class... X>
  void keep(X&&... x) {
    std::size_t i = 0;
    const auto one = [&]<class Y>(std::type_identity<Y>, auto& argument) {
      if constexpr (is_temporary<Y>) memory_[i] = std::move(argument).release_bytes();
      ++i;
    };
    (one(std::type_identity<X>{}, x), ...);
  }

 private:
  std::array<aligned_buffer<std::byte>, max_arity> memory_{};
};

}  // namespace ikebana::detail
