#pragma once

#include <tuple>
#include <type_traits>
#include <utility>

#include "ikebana/model/inputs.hpp"
#include "ikebana/replicate/utils/cast_forward_inputs.hpp"
#include "ikebana/replicate/utils/pack_arguments.hpp"

namespace ikebana::detail {

/// Whether an argument of a call, or one of a pack, must be cast before a model of T can take it:
/// it consists of floating-point numbers of another type.
template <class T, class A>
inline constexpr bool is_cast_argument =
    cast_to<T>::template asks<typename argument_tensor<std::remove_cvref_t<A>>::type>;
template <class T, class... A>
inline constexpr bool is_cast_argument<T, input_pack<A...>> = (is_cast_argument<T, A> || ...);

/// Calls f with the arguments of a call after a cast to T: first a tuple that owns the tensors
/// during the call, then the arguments with their names.
template <class T, class F, class... A>
decltype(auto) call_with_cast(F&& f, A&&... a) {
  auto packed = pack_arguments(std::forward<A>(a)...);
  auto cast = std::apply(
      [](auto&&... value) {
        return cast_forward_inputs<T>(std::forward<decltype(value)>(value)...);
      },
      std::move(packed.values));
  return std::apply([&](const auto&... argument) -> decltype(auto) { return f(cast, argument...); },
                    unpack_arguments(cast, packed.names));
}

}  // namespace ikebana::detail
