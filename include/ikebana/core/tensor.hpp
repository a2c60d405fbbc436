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

/// The run-time part of a shape: one number for each extent that is not static.
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
    throw_error(
        shape_error(diagnostic{"tensor expects {input}, got {other}", 0, 0, declared, given}));
  if (!given.is_countable()) given.refuse_elements();
}

[[noreturn, gnu::cold, gnu::noinline]] inline void refuse_index(const shape& s, dim_t index,
                                                                dim_t end) {
  throw_error(error(diagnostic{
      "index {number} of a tensor of shape {input} is not in [0, {expected})", end, index, s}
                        .message()
                        .c_str()));
}

// In a checked build (IKEBANA_CHECKED), an index out of bounds throws error.

constexpr dim_t flat_index(const shape& s, std::initializer_list<dim_t> index) {
  dim_t flat = 0;
  std::size_t i = 0;
  for (dim_t d : index) {
#ifdef IKEBANA_CHECKED
    if (d < 0 || d >= s[i]) refuse_index(s, d, s[i]);
#endif
    flat = flat * s[i++] + d;
  }
  return flat;
}

template <class X>
constexpr void check_flat_index([[maybe_unused]] const X& x, [[maybe_unused]] dim_t flat) {
#ifdef IKEBANA_CHECKED
  if (flat < 0 || flat >= x.size()) refuse_index(x.extents(), flat, x.size());
#endif
}

}  // namespace detail

/// A tensor or a view of one.
template <class X>
concept tensor_like = requires(X& x) {
  typename std::remove_cvref_t<X>::value_type;
  { std::remove_cvref_t<X>::static_shape } -> std::convertible_to<shape>;
  x.data();
  { x.extents() } -> std::convertible_to<shape>;
};

/// A non-owning view of contiguous, row-major elements. Cheap to copy; never allocates. `T` may be
/// const. Extents that S leaves `dynamic` are stored at run time.
template <class T, shape S>
class tensor_view {
  static_assert(S.is_countable(), "ikebana: a tensor has at most 2^56 elements");
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
  constexpr tensor_view(const tensor_view&) = default;
  /// Assignment to an lvalue view changes which memory it refers to.
  constexpr tensor_view& operator=(const tensor_view&) & = default;
  /// Assignment to an rvalue view, as in `model["fc1.weight"_s] = z`, copies the elements of z,
  /// which may be in the same memory. Throws shape_error if the shapes differ. O(elements); does
  /// not allocate.
  template <tensor_like X>
  constexpr void operator=(const X& x) && {
    static_assert(!std::is_const_v<T>,
                  "ikebana: the elements of this view are const, so nothing can be assigned to it");
    static_assert(std::is_same_v<typename X::value_type, value_type>,
                  "ikebana: a view takes elements of its own type alone");
    static_assert(compatible(S, X::static_shape),
                  "ikebana: the shape of what is assigned is not that of the view");
    const shape own = extents(), given = x.extents();
    if (!(given == own))
      throw_error(shape_error(diagnostic{
          "a view of shape {input} cannot be assigned elements of {other}", 0, 0, own, given}));
    if constexpr (!std::is_const_v<T>)
      if (const dim_t n = size(); n > 0)
        std::memmove(data_, x.data(), static_cast<std::size_t>(n) * sizeof(T));
  }

  /// Requires that all extents of S are static.
  explicit constexpr tensor_view(T* data) requires(S.is_static()) : data_{data} {}

  /// Throws shape_error if the extents do not fit S.
  constexpr tensor_view(T* data, const shape& extents) : data_{data}, extents_{extents} {
    if constexpr (S.is_static()) {
      if (!(extents == S)) detail::check_extents(S, extents);
    } else if (!compatible(S, extents) || !extents.is_static() || !extents.is_countable()) {
      detail::check_extents(S, extents);
    }
  }

  /// Converts a view whose shape is statically compatible; throws shape_error if the dynamic
  /// extents do not match.
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
  constexpr T& operator[](dim_t flat) const {
    detail::check_flat_index(*this, flat);
    return data_[flat];
  }

  /// The element at this index, which has one number per dimension. If IKEBANA_CHECKED is defined,
  /// throws error if the index is out of bounds; otherwise it is not checked.
  template <class... I>
  requires(sizeof...(I) == S.rank() && (std::is_convertible_v<I, dim_t> && ...)) constexpr T&
  operator()(I... index) const {
    return data_[detail::flat_index(extents(), {static_cast<dim_t>(index)...})];
  }

 private:
  T* data_ = nullptr;
  [[no_unique_address]] detail::extents_of<S> extents_;
};

/// An owning tensor: contiguous, row-major, on the heap, aligned to 64 bytes, zero-initialised.
/// Construction and copies allocate; copies are deep. A moved-from tensor has no elements, whatever
/// its extents say: only assign to it or destroy it.
template <class T, shape S>
class tensor {
  static_assert(S.is_countable(), "ikebana: a tensor has at most 2^56 elements");

 public:
  using value_type = T;
  static constexpr shape static_shape = S;
  using view_type = tensor_view<T, S>;
  using const_view_type = tensor_view<const T, S>;

  tensor() requires(S.is_static()) : buffer_(S.numel()) {}

  /// Takes all extents; throws shape_error if they do not match S.
  explicit tensor(const shape& extents) : extents_{extents} {
    detail::check_extents(S, extents);
    buffer_ = aligned_buffer<T>(extents.numel());
  }

  /// A copy of the elements of a view.
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
  /// Becomes a copy of the elements of a view, which may be of this tensor. Allocates.
  template <class U, shape R>
  requires(std::is_same_v<std::remove_const_t<U>, T>&& compatible(S, R)) tensor& operator=(
      const tensor_view<U, R>& view) {
    return *this = tensor(view);
  }

  /// Releases the memory, which stays where it is; the tensor then has no elements. Does not
  /// allocate.
  aligned_buffer<std::byte> release_bytes() && { return std::move(buffer_).release_bytes(); }

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
  T& operator[](dim_t flat) {
    detail::check_flat_index(*this, flat);
    return buffer_[flat];
  }
  const T& operator[](dim_t flat) const {
    detail::check_flat_index(*this, flat);
    return buffer_[flat];
  }

  template <class... I>
  requires(sizeof...(I) == S.rank() && (std::is_convertible_v<I, dim_t> && ...)) T& operator()(
      I... index) {
    return buffer_[detail::flat_index(extents(), {static_cast<dim_t>(index)...})];
  }
  template <class... I>
  requires(sizeof...(I) == S.rank() && (std::is_convertible_v<I, dim_t> && ...)) const T&
  operator()(I... index) const {
    return buffer_[detail::flat_index(extents(), {static_cast<dim_t>(index)...})];
  }

 private:
  [[no_unique_address]] detail::extents_of<S> extents_;
  aligned_buffer<T> buffer_;
};

template <class T, shape S>
tensor(const tensor_view<T, S>&) -> tensor<std::remove_const_t<T>, S>;

/// A tensor filled with one value. The extents that S leaves dynamic are given in order:
/// `zeros<float, shape{dynamic, 3}>(5)`. Allocates; O(elements).
template <class T, shape S, std::integral... D>
tensor<T, S> full(T value, D... dynamic_extents) {
  static_assert(sizeof...(D) == S.dynamic_count(),
                "ikebana: full, zeros, ones, uniform and normal take the extent of each dynamic "
                "dimension: zeros<float, shape{dynamic, 3}>(5)");
  shape s = S;
  const std::array<dim_t, sizeof...(D)> given{static_cast<dim_t>(dynamic_extents)...};
  std::size_t n = 0;
  for (std::size_t i = 0; i < S.rank() && n < given.size(); ++i)
    if (S[i] < 0) s[i] = given[n++];
  tensor<T, S> t(s);
  for (T& x : t) x = value;
  return t;
}

/// A tensor of zeros; arguments, allocation and cost as for `full`.
template <class T, shape S, std::integral... D>
tensor<T, S> zeros(D... dynamic_extents) {
  return full<T, S>(T{0}, dynamic_extents...);
}

/// A tensor of ones; arguments, allocation and cost as for `full`.
template <class T, shape S, std::integral... D>
tensor<T, S> ones(D... dynamic_extents) {
  return full<T, S>(T{1}, dynamic_extents...);
}

/// Uniform numbers in [-1, 1), the same for the same seed on every machine.
template <class T, shape S, std::integral... D>
tensor<T, S> uniform(seed s, D... dynamic_extents) {
  tensor<T, S> t = zeros<T, S>(dynamic_extents...);
  fill_uniform(random_stream{s, hash_path("uniform")}, T{1}, t.data(), t.size());
  return t;
}

/// Normal numbers of mean 0 and deviation 1, as torch.randn; of another seed, others. Allocates;
/// O(elements).
template <class T, shape S, std::integral... D>
tensor<T, S> normal(seed s, D... dynamic_extents) {
  tensor<T, S> t = zeros<T, S>(dynamic_extents...);
  fill_normal(random_stream{s, hash_path("normal")}, 0, 1, t.data(), t.size());
  return t;
}

/// A tensor of the given elements in row-major order. Throws shape_error unless their number is
/// that of S.
template <class T, shape S>
requires(S.is_static()) tensor<T, S> tensor_of(std::initializer_list<T> elements) {
  if (static_cast<dim_t>(elements.size()) != S.numel())
    throw_error(
        shape_error(diagnostic{"tensor_of expects {expected} elements for {input}, got {got}",
                               S.numel(), static_cast<dim_t>(elements.size()), S}));
  tensor<T, S> t;
  T* out = t.data();
  for (const T& x : elements) *out++ = x;
  return t;
}

}  // namespace ikebana
