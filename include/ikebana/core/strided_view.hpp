#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <type_traits>

#include "ikebana/core/rearrange.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/core/views.hpp"

// Views whose elements need not be contiguous: transposed matrices, columns, every second row. They
// are O(rank) to make and do not allocate; `contiguous` copies one into a tensor. Models, losses
// and files take contiguous memory alone.
namespace ikebana {

/// A view of elements that are `stride(d)` elements apart along dimension d. It refers to memory
/// that must outlive it. T may be const.
template <class T, shape S>
class strided_view {
 public:
  using value_type = std::remove_const_t<T>;
  using strides_type = std::array<dim_t, S.rank()>;
  static constexpr shape view_shape = S;

  constexpr strided_view(T* data, const shape& extents, const strides_type& strides)
      : data_{data}, extents_{extents}, strides_{strides} {}
  constexpr strided_view(const strided_view&) = default;
  /// Assignment to an lvalue changes which memory the view refers to.
  constexpr strided_view& operator=(const strided_view&) & = default;

  /// Assignment to an rvalue, as in `transposed(a) = b`, copies the elements of a tensor or view of
  /// the same extents, which must not overlap with this memory. Throws shape_error if the extents
  /// differ. O(elements); does not allocate.
  template <class X>
  constexpr void operator=(const X& x) && {
    assign(x);
  }
  constexpr void operator=(const strided_view& x) && { assign(x); }

  constexpr T* data() const { return data_; }
  constexpr shape extents() const { return extents_.get(); }
  constexpr dim_t extent(std::size_t d) const { return extents()[d]; }
  constexpr dim_t stride(std::size_t d) const { return strides_[d]; }
  constexpr const strides_type& strides() const { return strides_; }
  static constexpr std::size_t rank() { return S.rank(); }
  constexpr dim_t size() const { return extents().numel(); }

  /// Whether the elements are contiguous and in row-major order.
  constexpr bool is_contiguous() const {
    const shape s = extents();
    dim_t step = 1;
    for (std::size_t d = s.rank(); d-- > 0;) {
      if (s[d] == 0) return true;
      if (s[d] != 1 && strides_[d] != step) return false;
      step *= s[d];
    }
    return true;
  }

  /// The element at this index, which has one number per dimension. If IKEBANA_CHECKED is defined,
  /// throws error if the index is out of bounds; otherwise it is not checked.
  template <class... I>
  requires(sizeof...(I) == S.rank() && (std::is_convertible_v<I, dim_t> && ...)) constexpr T&
  operator()(I... index) const {
    const dim_t at[S.rank() + 1] = {static_cast<dim_t>(index)..., 0};
    dim_t offset = 0;
    for (std::size_t d = 0; d < S.rank(); ++d) {
#ifdef IKEBANA_CHECKED
      if (at[d] < 0 || at[d] >= extent(d)) detail::refuse_index(extents(), at[d], extent(d));
#endif
      offset += at[d] * strides_[d];
    }
    return data_[offset];
  }

  /// Calls f(element) for all elements in row-major order. O(elements).
  template <class F>
  constexpr void for_each(F&& f) const {
    const shape s = extents();
    if (s.numel() == 0) return;
    std::array<dim_t, S.rank() + 1> index{};
    T* at = data_;
    for (;;) {
      f(*at);
      std::size_t d = s.rank();
      while (d-- > 0) {
        if (++index[d] < s[d]) {
          at += strides_[d];
          break;
        }
        at -= strides_[d] * (s[d] - 1);
        index[d] = 0;
      }
      if (d > s.rank()) return;
    }
  }

  /// Sets every element.
  constexpr void fill(value_type value) const {
    static_assert(!std::is_const_v<T>, "ikebana: the elements of this view are const");
    for_each([&](T& to) { to = value; });
  }

 private:
  template <class X>
  constexpr void assign(const X& x) const;

  T* data_;
  [[no_unique_address]] detail::extents_of<S> extents_;
  strides_type strides_;
};

namespace detail {

template <class X>
inline constexpr bool is_strided_view = false;
template <class T, shape S>
inline constexpr bool is_strided_view<strided_view<T, S>> = true;

template <class X>
concept stridable = tensor_like<X> || is_strided_view<std::remove_cvref_t<X>>;

template <std::size_t... Dims, class T, shape S>
constexpr auto permuted_view(const strided_view<T, S>& x) {
  constexpr std::array<std::size_t, sizeof...(Dims)> dims{Dims...};
  static_assert(sizeof...(Dims) == S.rank() && is_permutation_of(dims),
                "ikebana: permuted takes each dimension once");
  return strided_view<T, permuted(S, dims)>(x.data(), permuted(x.extents(), dims),
                                            {x.stride(Dims)...});
}

template <shape S, std::size_t Dim>
constexpr shape without_dim() {
  shape s;
  for (std::size_t d = 0; d < S.rank(); ++d)
    if (d != Dim) s.push_back(S[d]);
  return s;
}

}  // namespace detail

/// A tensor or a view as a strided_view. A temporary tensor is refused.
template <detail::stridable X>
constexpr auto strided(X&& x) {
  using type = std::remove_cvref_t<X>;
  if constexpr (detail::is_strided_view<type>) {
    return x;
  } else {
    detail::refuse_temporary<X>();
    constexpr shape s = type::static_shape;
    const shape extents = x.extents();
    std::array<dim_t, s.rank()> strides{};
    dim_t step = 1;
    for (std::size_t d = s.rank(); d-- > 0; step *= extents[d]) strides[d] = step;
    return strided_view<detail::element_of_view<std::remove_reference_t<X>>, s>(x.data(), extents,
                                                                                strides);
  }
}

namespace detail {

/// A matrix, map or block of Eigen.
template <class M>
concept eigen_like = requires(M& m) {
  {*m.data()};
  { m.rows() } -> std::convertible_to<dim_t>;
  { m.cols() } -> std::convertible_to<dim_t>;
  { m.rowStride() } -> std::convertible_to<dim_t>;
  { m.colStride() } -> std::convertible_to<dim_t>;
  {int{std::remove_cvref_t<M>::RowsAtCompileTime}};
  {int{std::remove_cvref_t<M>::ColsAtCompileTime}};
};

/// A std::mdspan of elements in memory.
template <class M>
concept mdspan_like = requires(const M& m) {
  {*m.data_handle()};
  { m.extent(0) } -> std::convertible_to<dim_t>;
  { m.stride(0) } -> std::convertible_to<dim_t>;
  { std::remove_cvref_t<M>::static_extent(0) } -> std::convertible_to<std::size_t>;
  { std::remove_cvref_t<M>::rank() } -> std::convertible_to<std::size_t>;
};

constexpr dim_t extent_or_dynamic(bool is_static, dim_t extent) {
  return is_static ? extent : dynamic;
}

template <class M>
constexpr shape mdspan_shape() {
  shape s;
  for (std::size_t d = 0; d < M::rank(); ++d)
    s.push_back(extent_or_dynamic(M::static_extent(d) != static_cast<std::size_t>(-1),
                                  static_cast<dim_t>(M::static_extent(d))));
  return s;
}

}  // namespace detail

/// A matrix, map or block of Eigen in either storage order: `contiguous(strided(m))` is a tensor. A
/// row-major tensor is `Eigen::Map<Eigen::Matrix<float, R, C, Eigen::RowMajor>>(x.data(), R, C)`.
template <detail::eigen_like M>
constexpr auto strided(M& m) {
  constexpr shape s{detail::extent_or_dynamic(M::RowsAtCompileTime >= 0, M::RowsAtCompileTime),
                    detail::extent_or_dynamic(M::ColsAtCompileTime >= 0, M::ColsAtCompileTime)};
  return strided_view<std::remove_pointer_t<decltype(m.data())>, s>(
      m.data(), shape{m.rows(), m.cols()},
      {static_cast<dim_t>(m.rowStride()), static_cast<dim_t>(m.colStride())});
}

/// A std::mdspan with the default accessor. A tensor is `std::mdspan(x.data(), rows, columns)`.
template <detail::mdspan_like M>
constexpr auto strided(const M& m) {
  constexpr shape s = detail::mdspan_shape<M>();
  shape extents;
  std::array<dim_t, s.rank()> strides{};
  for (std::size_t d = 0; d < s.rank(); ++d) {
    extents.push_back(static_cast<dim_t>(m.extent(d)));
    strides[d] = static_cast<dim_t>(m.stride(d));
  }
  return strided_view<std::remove_pointer_t<decltype(m.data_handle())>, s>(m.data_handle(), extents,
                                                                           strides);
}

/// The same elements with the dimensions in another order, as torch.permute: `permuted<0, 3, 1,
/// 2>(images)`. See permute for a copy.
template <std::size_t... Dims, detail::stridable X>
constexpr auto permuted(X&& x) {
  return detail::permuted_view<Dims...>(strided(static_cast<X&&>(x)));
}

/// A matrix with rows and columns exchanged, as torch's x.t(). See transpose for a copy.
template <detail::stridable X>
constexpr auto transposed(X&& x) {
  static_assert(std::remove_cvref_t<X>::rank() == 2,
                "ikebana: transposed takes a matrix; see permuted");
  return permuted<1, 0>(static_cast<X&&>(x));
}

/// The elements first, first + step, .. below last of dimension Dim, as x[:, first:last:step].
/// Throws shape_error unless 0 <= first <= last <= extent, and error unless step is above 0.
template <std::size_t Dim, detail::stridable X>
constexpr auto sliced(X&& x, dim_t first, dim_t last, dim_t step = 1) {
  static_assert(Dim < std::remove_cvref_t<X>::rank(), "ikebana: sliced has no such dimension");
  const auto v = strided(static_cast<X&&>(x));
  using view = std::remove_const_t<decltype(v)>;
  const shape s = v.extents();
  if (first < 0 || first > last || last > s[Dim])
    throw_error(
        shape_error(diagnostic{"a slice ends within the {expected} elements of its dimension, "
                               "got {number} (of {input})",
                               s[Dim], first < 0 || first > last ? first : last, s}));
  if (step < 1) throw_error(error("sliced expects a step above 0"));
  auto strides = v.strides();
  strides[Dim] *= step;
  const dim_t left = (last - first) / step + ((last - first) % step != 0);
  // An empty slice keeps the pointer, which may be null or at the end.
  return strided_view<std::remove_pointer_t<decltype(v.data())>,
                      view::view_shape.with(Dim, dynamic)>(
      left == 0 ? v.data() : v.data() + first * v.stride(Dim), s.with(Dim, left), strides);
}

/// Element i of dimension Dim, without that dimension: `selected<1>(m, 2)` is a column. Throws
/// shape_error if it is not there.
template <std::size_t Dim, detail::stridable X>
constexpr auto selected(X&& x, dim_t i) {
  static_assert(Dim < std::remove_cvref_t<X>::rank(), "ikebana: selected has no such dimension");
  const auto v = strided(static_cast<X&&>(x));
  using view = std::remove_const_t<decltype(v)>;
  const shape s = v.extents();
  if (i < 0 || i >= s[Dim])
    throw_error(shape_error(
        diagnostic{"index {number} is not in [0, {expected}) (of {input})", s[Dim], i, s}));
  constexpr shape left = detail::without_dim<view::view_shape, Dim>();
  shape extents;
  std::array<dim_t, left.rank()> strides{};
  for (std::size_t d = 0; d < s.rank(); ++d) {
    if (d == Dim) continue;
    strides[extents.rank()] = v.stride(d);
    extents.push_back(s[d]);
  }
  return strided_view<std::remove_pointer_t<decltype(v.data())>, left>(v.data() + i * v.stride(Dim),
                                                                       extents, strides);
}

/// A tensor with the elements of a view, as torch's x.contiguous(). Allocates; O(elements).
template <class T, shape S>
auto contiguous(const strided_view<T, S>& x) {
  tensor<std::remove_const_t<T>, S> out(x.extents());
  auto* to = out.data();
  x.for_each([&](const T& element) { *to++ = element; });
  return out;
}

template <class T, shape S>
template <class X>
constexpr void strided_view<T, S>::assign(const X& x) const {
  static_assert(detail::stridable<X>, "ikebana: a view takes the elements of a tensor or a view");
  static_assert(!std::is_const_v<T>, "ikebana: the elements of this view are const");
  const auto from = strided(x);
  static_assert(std::is_same_v<typename decltype(from)::value_type, value_type>,
                "ikebana: a view takes elements of its own type alone");
  static_assert(compatible(S, std::remove_const_t<decltype(from)>::view_shape),
                "ikebana: the shape of what is assigned is not that of the view");
  const shape own = extents(), given = from.extents();
  if (!(given == own))
    throw_error(shape_error(diagnostic{
        "a view of shape {input} cannot be assigned elements of {other}", 0, 0, own, given}));
  std::array<dim_t, S.rank() + 1> index{};
  const shape s = own;
  const value_type* at = from.data();
  for_each([&](T& to) {
    to = *at;
    for (std::size_t d = s.rank(); d-- > 0;) {
      if (++index[d] < s[d]) {
        at += from.stride(d);
        break;
      }
      at -= from.stride(d) * (s[d] - 1);
      index[d] = 0;
    }
  });
}

}  // namespace ikebana
