#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "ikebana/core/diagnostic.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/core/text.hpp"
#include "ikebana/module/element_mismatch.hpp"
#include "ikebana/module/module.hpp"
#include "ikebana/module/named.hpp"
#include "ikebana/module/refusal.hpp"

namespace ikebana {

/// A named input: `model("source"_arg = x, "mask"_arg = m)`. Holds a reference. Name is a
/// boost::hana::string.
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

namespace misuse {

IKEBANA_MISUSE(an_input_given_by_name_is_no_temporary,
               "an input given by name must outlive the call, so it cannot be a temporary: store "
               "it in a variable, \"mask\"_arg = m");

}  // namespace misuse

template <class Name>
struct argument_literal {
  template <tensor_like X>
  constexpr argument<Name, X> operator=(const X& x) const {
    return {x};
  }
  template <tensor_like X>
  requires(!std::is_lvalue_reference_v<X>) auto operator=(X&&) const
      -> decltype(refuse_for<misuse::an_input_given_by_name_is_no_temporary, X>());
};

}  // namespace detail

namespace literals {

/// Names an input of a call: `"source"_arg = x`.
template <detail::literal L>
constexpr auto operator""_arg() {
  return detail::argument_literal<detail::hana_string_t<L>>{};
}

}  // namespace literals

/// An argument of a model's call: a tensor, or a named one.
template <class A>
concept model_input = tensor_like<A> || detail::is_argument<std::remove_cvref_t<A>>;

/// Passes several inputs as one argument: `model.train_step(inputs(x, lengths), target,
/// cross_entropy{}, optimizer)`. Holds references.
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

/// The names of M's inputs in order; empty if it declares none.
template <any_module M>
constexpr auto input_names() {
  if constexpr (requires { M::input_names; })
    return M::input_names;
  else
    return std::array<std::string_view, 0>{};
}

/// The error of a name that none of M's inputs has.
template <any_module M>
inline constexpr auto unknown_input = [] {
  text<300> t{"is not the name of an input"};
  constexpr auto known = input_names<M>();
  if (known.size() == 0)
    t.append(": this network gives none, so its inputs are passed by position");
  for (std::size_t i = 0; i < known.size(); ++i)
    t.append(i == 0 ? "; there are " : ", ").append(known[i]);
  return t;
}();

/// The index of the argument for each input of a module.
template <std::size_t N>
struct input_order {
  std::array<std::size_t, N + 1> of{};
  diagnostic error{};
};

/// Maps unnamed arguments to the first inputs, in order, and named ones to the inputs of those
/// names.
template <std::size_t N, class M, class... A>
constexpr input_order<N> order_inputs() {
  input_order<N> order;
  constexpr std::size_t given = sizeof...(A);
  constexpr const char* given_names[given + 1] = {argument_tensor<A>::name..., nullptr};
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
      const std::string_view name{given_names[a]};
      for (at = 0; at < inputs.size() && inputs[at] != name;) ++at;
      if (at >= inputs.size()) {
        order.error = {unknown_input<M>.c_str(), 0, 0, {}, {}, path_text{}.append(name)};
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

/// Whether an input of this kind can have elements of type U in a model of T.
template <class T, class U>
constexpr bool takes_elements(element_kind kind) {
  return kind == element_kind::real      ? std::is_same_v<U, T>
         : kind == element_kind::boolean ? std::is_same_v<U, bool>
                                         : std::is_same_v<U, std::int64_t>;
}

/// The error if an input of this kind has elements of type U; "" if it may.
template <class T, class U>
constexpr const char* wrong_elements(element_kind kind) {
  if (takes_elements<T, U>(kind)) return "";
  if (kind == element_kind::index)
    return element_mismatch<"expects indices of type ", std::int64_t, U>.c_str();
  if (kind == element_kind::boolean)
    return element_mismatch<"expects a mask of type ", bool, U>.c_str();
  if constexpr (floating<U>)
    return element_mismatch<"expects elements of type ", T, U,
                            ": convert it with cast, or initialize a model of that type">.c_str();
  else
    return element_mismatch<"expects elements of type ", T, U>.c_str();
}

/// The error if the element types of the arguments do not fit inputs of these kinds in a model of
/// T.
template <class T, std::size_t N, class... A>
constexpr diagnostic check_elements(const input_order<N>& order, const auto& kinds) {
  using find = const char* (*)(element_kind);
  constexpr find wrong[] = {&wrong_elements<T, typename argument_tensor<A>::type::value_type>...,
                            nullptr};
  constexpr const char* names[] = {argument_tensor<A>::name..., nullptr};
  // Under -fsanitize=undefined, comparing a name with null is not a constant expression.
  constexpr bool named[] = {argument_tensor<A>::named..., false};
  for (std::size_t i = 0; i < N; ++i) {
    const std::size_t a = order.of[i];
    diagnostic found{wrong[a](kinds[i])};
    if (found.ok()) continue;
    found.path.append("input ");
    if (named[a])
      found.path.append(names[a]);
    else
      found.path.append(static_cast<dim_t>(i));
    return found;
  }
  return {};
}

/// The error if some arguments are not tensors.
template <class... A>
constexpr diagnostic refuse_what_is_no_tensor() {
  dim_t i = 0;
  static_cast<void>(((model_input<A> ? (++i, true) : false) && ...));
  return {
      "input {got} is not a tensor: as_tensor<shape{..}>(v) is a view of a std::vector or array", 0,
      i};
}

}  // namespace detail
}  // namespace ikebana
