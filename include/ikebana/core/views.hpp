#pragma once

#include <concepts>
#include <cstddef>
#include <iterator>
#include <type_traits>

#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/core/tensor.hpp"

// Views of existing memory. None copies or allocates; each refers to the memory of its
// argument, which has to outlive it.
namespace ikebana {

namespace detail {

/// Contiguous elements: std::vector, std::array, std::span, an array.
template <class R>
concept contiguous_elements = requires(R& r) {
  { std::size(r) } -> std::convertible_to<std::size_t>;
  {*std::data(r)};
  requires std::is_pointer_v<decltype(std::data(r))>;
};

template <class R>
using element_in = std::remove_pointer_t<decltype(std::data(std::declval<R&>()))>;

/// S with its dynamic extent found from the number of elements. Throws shape_error if there is
/// none.
constexpr shape shape_for(const shape& s, dim_t elements) {
  dim_t others = 1;
  std::size_t open = s.rank();
  for (std::size_t i = 0; i < s.rank(); ++i)
    if (s[i] < 0)
      open = i;
    else
      others *= s[i];
  const bool fits = open == s.rank() ? others == elements
                    : others == 0    ? elements == 0
                                     : elements % others == 0;
  if (!fits)
    throw_error(shape_error(
        diagnostic{"a view of shape {input} cannot have {got} elements", others, elements, s}));
  return open == s.rank() ? s : s.with(open, others == 0 ? 0 : elements / others);
}

/// S without its first extent.
constexpr shape tail_of(const shape& s) {
  shape tail;
  for (std::size_t i = 1; i < s.rank(); ++i) tail.push_back(s[i]);
  return tail;
}

template <class X>
using element_of_view = std::remove_pointer_t<decltype(std::declval<X&>().data())>;

/// Whether X, deduced from an argument, is an lvalue or a view, whose memory is another's.
template <class X>
inline constexpr bool outlives_call = std::is_lvalue_reference_v<X>;
template <class T, shape S>
inline constexpr bool outlives_call<tensor_view<T, S>> = true;
template <class T, shape S>
inline constexpr bool outlives_call<const tensor_view<T, S>> = true;

template <class X>
constexpr void refuse_temporary() {
  static_assert(outlives_call<X>,
                "ikebana: a view of a temporary tensor would dangle: give the tensor a name");
}

/// The shape of x, of which the first extent is known at run time.
template <class X>
inline constexpr shape rows_shape = std::remove_cvref_t<X>::static_shape.with(0, dynamic);

inline void check_rows(const shape& s, dim_t first, dim_t last) {
  if (first < 0 || first > last || last > s[0])
    throw_error(shape_error(diagnostic{
        "a slice ends within the {expected} elements of the first dimension, got {number} "
        "(of {input})",
        s[0], first < 0 || first > last ? first : last, s}));
}

}  // namespace detail

/// The elements of a std::vector, std::array, std::span or array as a tensor:
/// `as_tensor<shape{dynamic, 3}>(samples)`. At most one extent is `dynamic`: what the number of
/// elements leaves. Throws shape_error if it leaves none. O(1).
template <shape S, detail::contiguous_elements R>
constexpr auto as_tensor(R& elements) {
  static_assert(S.dynamic_count() <= 1,
                "ikebana: as_tensor finds one dynamic extent from the number of elements");
  return tensor_view<detail::element_in<R>, S>(
      std::data(elements), detail::shape_for(S, static_cast<dim_t>(std::size(elements))));
}
/// A view of a temporary would dangle.
template <shape S, detail::contiguous_elements R>
requires(!std::is_reference_v<R> && !std::is_const_v<R> &&
         !std::is_trivially_destructible_v<R>) void as_tensor(R&& elements) = delete;

/// The same elements under another shape: `reshape<shape{dynamic, 64}>(images)`. At most one extent
/// is `dynamic`. Does not compile, or throws shape_error, if the numbers of elements differ. O(1).
template <shape S, tensor_like X>
constexpr auto reshape(X&& x) {
  detail::refuse_temporary<X>();
  static_assert(S.dynamic_count() <= 1, "ikebana: reshape finds one dynamic extent");
  constexpr shape given = std::remove_cvref_t<X>::static_shape;
  if constexpr (S.is_static() && given.is_static())
    static_assert(S.numel() == given.numel(), "ikebana: reshape keeps the number of elements");
  return tensor_view<detail::element_of_view<std::remove_reference_t<X>>, S>(
      x.data(), detail::shape_for(S, x.extents().numel()));
}

/// The elements [first, last) of the first dimension. Throws shape_error if they are not there.
/// O(1).
template <tensor_like X>
constexpr auto slice(X&& x, dim_t first, dim_t last) {
  detail::refuse_temporary<X>();
  static_assert(std::remove_cvref_t<X>::static_shape.rank() >= 1,
                "ikebana: slice takes a tensor of at least one dimension");
  const shape s = x.extents();
  detail::check_rows(s, first, last);
  return tensor_view<detail::element_of_view<std::remove_reference_t<X>>, detail::rows_shape<X>>(
      x.data() + first * s.numel(1, s.rank()), s.with(0, last - first));
}

/// Element i of the first dimension, a tensor without that dimension: a row of a matrix, an image
/// of a batch. Throws shape_error if it is not there. O(1).
template <tensor_like X>
constexpr auto select(X&& x, dim_t i) {
  detail::refuse_temporary<X>();
  static_assert(std::remove_cvref_t<X>::static_shape.rank() >= 1,
                "ikebana: select takes a tensor of at least one dimension");
  const shape s = x.extents();
  if (i < 0 || i >= s[0])
    throw_error(shape_error(
        diagnostic{"index {number} is not in [0, {expected}) (of {input})", s[0], i, s}));
  constexpr shape tail = detail::tail_of(std::remove_cvref_t<X>::static_shape);
  return tensor_view<detail::element_of_view<std::remove_reference_t<X>>, tail>(
      x.data() + i * s.numel(1, s.rank()), detail::tail_of(s));
}

/// The element at this index, which has one number per dimension, always checked: throws error if
/// it is out of bounds. O(rank).
template <tensor_like X, std::integral... I>
constexpr auto& at(X&& x, I... index) {
  static_assert(sizeof...(I) == std::remove_cvref_t<X>::static_shape.rank(),
                "ikebana: at takes one number for each dimension");
  const shape s = x.extents();
  dim_t flat = 0;
  std::size_t d = 0;
  const auto step = [&](dim_t i) {
    if (i < 0 || i >= s[d]) detail::refuse_index(s, i, s[d]);
    flat = flat * s[d++] + i;
  };
  (step(static_cast<dim_t>(index)), ...);
  return x.data()[flat];
}

}  // namespace ikebana
