#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/named.hpp"

namespace ikebana {

/// An input given by its name: `model("source"_arg = x, "mask"_arg = m)`. Holds a reference.
/// Name is a boost::hana::string.
template <class Name, tensor_like X>
struct argument {
  using name_type = Name;
  const X& value;
};

namespace detail {

template <class A>
inline constexpr bool is_argument = false;
template <class Name, class X>
inline constexpr bool is_argument<argument<Name, X>> = true;

template <class Name>
struct argument_literal {
  template <tensor_like X>
  constexpr argument<Name, X> operator=(const X& x) const {
    return {x};
  }
  template <tensor_like X>
  requires(!std::is_lvalue_reference_v<X>) void operator=(X&&) const = delete;
};

}  // namespace detail

namespace literals {

/// Names an input of a call: `"source"_arg = x`.
template <detail::literal L>
constexpr auto operator""_arg() {
  return detail::argument_literal<detail::hana_string_t<L>>{};
}

}  // namespace literals

/// What a model may be called with: a tensor, or one with a name.
template <class A>
concept model_input = tensor_like<A> || detail::is_argument<std::remove_cvref_t<A>>;

/// Several inputs where one argument stands for them:
/// `model.train_step(inputs(x, lengths), target, cross_entropy{}, optimizer)`. Holds references.
template <model_input... A>
struct input_pack {
  std::tuple<const A&...> items;
};

template <model_input... A>
constexpr input_pack<A...> inputs(const A&... a) {
  return {{a...}};
}

namespace detail {

template <class A>
inline constexpr bool is_input_pack = false;
template <class... A>
inline constexpr bool is_input_pack<input_pack<A...>> = true;

template <class A>
struct argument_tensor {
  using type = A;
  static constexpr bool named = false;
  static constexpr const char* name = nullptr;
};
template <class Name, class X>
struct argument_tensor<argument<Name, X>> {
  using type = X;
  static constexpr bool named = true;
  static constexpr const char* name = Name::c_str();
};

template <class X>
constexpr const X& tensor_of_argument(const X& x) {
  return x;
}
template <class Name, class X>
constexpr const X& tensor_of_argument(const argument<Name, X>& a) {
  return a.value;
}

/// The names by which the inputs of M may be given, in their order; none where it declares none.
template <any_module M>
constexpr auto input_names() {
  if constexpr (requires { M::input_names; })
    return M::input_names;
  else
    return std::array<std::string_view, 0>{};
}

/// Which argument each input of a module is.
template <std::size_t N>
struct input_order {
  std::array<std::size_t, N + 1> of{};
  diagnostic error{};
};

/// Arguments without a name stand for the first inputs, in their order; those with one for the
/// input of that name.
template <std::size_t N, class M, class... A>
constexpr input_order<N> order_inputs() {
  input_order<N> order;
  constexpr std::size_t given = sizeof...(A);
  constexpr const char* names[given + 1] = {argument_tensor<A>::name..., nullptr};
  constexpr bool named[given + 1] = {argument_tensor<A>::named..., false};
  if (given != N) {
    order.error = {"the model takes {expected} inputs, got {got}", static_cast<dim_t>(N),
                   static_cast<dim_t>(given)};
    return order;
  }
  constexpr auto inputs = input_names<M>();
  bool taken[N + 1]{};
  for (std::size_t a = 0; a < given; ++a) {
    std::size_t at = a;
    if (named[a]) {
      const std::string_view name{names[a]};
      for (at = 0; at < inputs.size() && inputs[at] != name;) ++at;
      if (at >= N) {
        order.error = {"is not the name of an input", 0, 0, {}, {}, path_text{}.append(name)};
        return order;
      }
    }
    if (taken[at]) {
      order.error = {"input {got} was given twice", 0, static_cast<dim_t>(at)};
      return order;
    }
    taken[at] = true;
    order.of[at] = a;
  }
  return order;
}

}  // namespace detail
}  // namespace ikebana
