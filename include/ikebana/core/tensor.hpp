#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <span>
#include <type_traits>
#include <utility>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/random.hpp"
#include "ikebana/core/shape.hpp"

namespace ikebana {

namespace detail {

/// The run-time half of a shape: one number for each extent that only run time knows.
template <shape S>
struct extents_of {
  [[no_unique_address]] std::array<dim_t, S.dynamic_count()> values{};

  constexpr extents_of() = default;
  explicit constexpr extents_of(const shape& s) {
    std::size_t n = 0;
    for (std::size_t i = 0; i < S.rank(); ++i)
      if (S[i] < 0) values[n++] = s[i];
  }
  constexpr shape get() const {
    shape s = S;
    std::size_t n = 0;
    for (std::size_t i = 0; i < S.rank(); ++i)
      if (S[i] < 0) s[i] = values[n++];
    return s;
  }
};

template <shape S>
requires(S.is_static()) struct extents_of<S> {
  constexpr extents_of() = default;
  explicit constexpr extents_of(const shape&) {}
  constexpr shape get() const { return S; }
};

inline void check_extents(const shape& declared, const shape& given) {
  if (!compatible(declared, given) || !given.is_static())
    throw shape_error(diagnostic{"tensor expects {input}, got {other}", 0, 0, declared, given});
}

constexpr dim_t flat_index(const shape& s, std::initializer_list<dim_t> index) {
  dim_t flat = 0;
  std::size_t i = 0;
  for (dim_t d : index) flat = flat * s[i++] + d;
  return flat;
}

}  // namespace detail

/// A view of contiguous, row-major elements that somebody else owns. Cheap to copy; never
/// allocates. `T` may be const. Extents in S that are `dynamic` are held at run time.
template <class T, shape S>
class tensor_view {
  static_assert(
      [] {
        for (dim_t d : S)
          if (d == lazy) return false;
        return true;
      }(),
      "ikebana: a tensor has no lazy dimension");

 public:
  using value_type = std::remove_const_t<T>;
  static constexpr shape static_shape = S;

  constexpr tensor_view() = default;

  /// Requires that all extents of S are static.
  explicit constexpr tensor_view(T* data) requires(S.is_static()) : data_{data} {}

  /// Throws shape_error if the extents do not fit S.
  constexpr tensor_view(T* data, const shape& extents) : data_{data}, extents_{extents} {
    if (!compatible(S, extents) || !extents.is_static()) detail::check_extents(S, extents);
  }

  /// From a view whose shape is compatible as far as the compiler knows; throws shape_error for
  /// what it does not.
  template <class U, shape R>
  requires(std::is_convertible_v<U (*)[], T (*)[]>&& compatible(S, R)) constexpr tensor_view(
      const tensor_view<U, R>& other)
      : tensor_view(other.data(), other.extents()) {}

  constexpr T* data() const { return data_; }
  constexpr shape extents() const { return extents_.get(); }
  constexpr dim_t extent(std::size_t i) const { return S[i] >= 0 ? S[i] : extents()[i]; }
  static constexpr std::size_t rank() { return S.rank(); }
  constexpr dim_t size() const { return extents().numel(); }
  constexpr std::span<T> span() const { return {data_, static_cast<std::size_t>(size())}; }
  constexpr T* begin() const { return data_; }
  constexpr T* end() const { return data_ + size(); }
  constexpr T& operator[](dim_t flat) const { return data_[flat]; }

  /// The element at an index of as many numbers as the tensor has extents. Not checked.
  template <class... I>
  requires(sizeof...(I) == S.rank()) constexpr T& operator()(I... index) const {
    return data_[detail::flat_index(extents(), {static_cast<dim_t>(index)...})];
  }

 private:
  T* data_ = nullptr;
  [[no_unique_address]] detail::extents_of<S> extents_;
};

/// An owning tensor: contiguous, row-major, on the heap, aligned to 64 bytes. Zero-initialised;
/// copies are deep. What was moved from has no elements, whatever its extents say: assign to it or
/// let it go.
template <class T, shape S>
class tensor {
 public:
  using value_type = T;
  static constexpr shape static_shape = S;
  using view_type = tensor_view<T, S>;
  using const_view_type = tensor_view<const T, S>;

  tensor() requires(S.is_static()) : buffer_(S.numel()) {}

  /// With all extents given; throws shape_error if they do not fit S.
  explicit tensor(const shape& extents) : extents_{extents} {
    detail::check_extents(S, extents);
    buffer_ = aligned_buffer<T>(extents.numel());
  }

  /// A copy of what a view sees.
  template <class U, shape R>
  requires(std::is_same_v<std::remove_const_t<U>, T>&& compatible(S, R)) explicit tensor(
      const tensor_view<U, R>& view)
      : tensor(view.extents()) {
    if (!buffer_.empty()) std::memcpy(buffer_.data(), view.data(), buffer_.span().size_bytes());
  }

  tensor(const tensor& other) : tensor(other.view()) {}
  tensor(tensor&&) noexcept = default;
  tensor& operator=(tensor other) noexcept {
    buffer_ = std::move(other.buffer_);
    std::swap(extents_, other.extents_);
    return *this;
  }

  view_type view() { return {buffer_.data(), extents()}; }
  const_view_type view() const { return {buffer_.data(), extents()}; }
  template <shape R>
  operator tensor_view<T, R>() {
    return view();
  }
  template <shape R>
  operator tensor_view<const T, R>() const {
    return view();
  }

  T* data() { return buffer_.data(); }
  const T* data() const { return buffer_.data(); }
  shape extents() const { return extents_.get(); }
  dim_t extent(std::size_t i) const { return S[i] >= 0 ? S[i] : extents()[i]; }
  static constexpr std::size_t rank() { return S.rank(); }
  dim_t size() const { return buffer_.size(); }
  std::span<T> span() { return buffer_.span(); }
  std::span<const T> span() const { return buffer_.span(); }
  T* begin() { return data(); }
  T* end() { return data() + size(); }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size(); }
  T& operator[](dim_t flat) { return buffer_[flat]; }
  const T& operator[](dim_t flat) const { return buffer_[flat]; }

  template <class... I>
  requires(sizeof...(I) == S.rank()) T& operator()(I... index) {
    return buffer_[detail::flat_index(extents(), {static_cast<dim_t>(index)...})];
  }
  template <class... I>
  requires(sizeof...(I) == S.rank()) const T& operator()(I... index) const {
    return buffer_[detail::flat_index(extents(), {static_cast<dim_t>(index)...})];
  }

 private:
  [[no_unique_address]] detail::extents_of<S> extents_;
  aligned_buffer<T> buffer_;
};

template <class T, shape S>
tensor(const tensor_view<T, S>&) -> tensor<std::remove_const_t<T>, S>;

/// A tensor or a view of one.
template <class X>
concept tensor_like = requires(X& x) {
  typename std::remove_cvref_t<X>::value_type;
  { std::remove_cvref_t<X>::static_shape } -> std::convertible_to<shape>;
  x.data();
  { x.extents() } -> std::convertible_to<shape>;
};

/// A tensor of one value. The extents that S leaves dynamic are given in order: `zeros<float,
/// shape{dynamic, 3}>(5)`.
template <class T, shape S, std::integral... D>
requires(sizeof...(D) == S.dynamic_count()) tensor<T, S> full(T value, D... dynamic_extents) {
  shape s = S;
  const std::array<dim_t, sizeof...(D)> given{static_cast<dim_t>(dynamic_extents)...};
  std::size_t n = 0;
  for (std::size_t i = 0; i < S.rank(); ++i)
    if (S[i] < 0) s[i] = given[n++];
  tensor<T, S> t(s);
  for (T& x : t) x = value;
  return t;
}

template <class T, shape S, std::integral... D>
tensor<T, S> zeros(D... dynamic_extents) {
  return full<T, S>(T{0}, dynamic_extents...);
}

template <class T, shape S, std::integral... D>
tensor<T, S> ones(D... dynamic_extents) {
  return full<T, S>(T{1}, dynamic_extents...);
}

/// Uniform numbers in [-1, 1), the same for the same seed everywhere.
template <class T, shape S, std::integral... D>
tensor<T, S> uniform(seed s, D... dynamic_extents) {
  tensor<T, S> t = zeros<T, S>(dynamic_extents...);
  fill_uniform(random_stream{s, hash_path("uniform")}, T{1}, t.data(), t.size());
  return t;
}

/// A tensor of the given elements, row by row. Throws shape_error if there are not as many as S
/// asks for.
template <class T, shape S>
requires(S.is_static()) tensor<T, S> tensor_of(std::initializer_list<T> elements) {
  if (static_cast<dim_t>(elements.size()) != S.numel())
    throw shape_error(diagnostic{"tensor_of expects {expected} elements for {input}, got {got}",
                                 S.numel(), static_cast<dim_t>(elements.size()), S});
  tensor<T, S> t;
  T* out = t.data();
  for (const T& x : elements) *out++ = x;
  return t;
}

}  // namespace ikebana
