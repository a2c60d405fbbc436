#pragma once

#include <concepts>
#include <cstdio>
#include <type_traits>

#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"

namespace ikebana {

namespace detail {

[[noreturn, gnu::cold]] inline void refuse_element_weights(const char* loss, const char* option,
                                                           dim_t got) {
  char said[160];
  std::snprintf(said, sizeof said,
                "%s expects as many elements of %s as the last dimensions of the prediction have, "
                "got %lld",
                loss, option, static_cast<long long>(got));
  throw_error(error(said));
}

}  // namespace detail

/// Weights that are broadcast over the elements of a prediction: one number for all (default: 1),
/// or a view of floats or doubles, such as a tensor, an array or a std::vector, which must outlive
/// it. Its elements are those of the last dimensions of the prediction: of [N, C], C or N C.
class element_weights {
 public:
  constexpr element_weights() = default;
  template <class Number>
  requires(std::is_arithmetic_v<Number>) constexpr element_weights(Number all)
      : all_{static_cast<double>(all)} {}
  template <class R>
  requires(!std::is_same_v<R, element_weights> &&
           requires(const R& r) {
             { *r.data() } -> std::same_as<const float&>;
             r.size();
           }) constexpr element_weights(const R& r)
      : single_{r.data()}, size_{static_cast<dim_t>(r.size())} {}
  template <class R>
  requires(!std::is_same_v<R, element_weights> &&
           requires(const R& r) {
             { *r.data() } -> std::same_as<const double&>;
             r.size();
           }) constexpr element_weights(const R& r)
      : twice_{r.data()}, size_{static_cast<dim_t>(r.size())} {}

  constexpr bool operator==(const element_weights&) const = default;
  /// Whether each element has the weight 1.
  constexpr bool are_one() const { return is_number() && all_ == 1; }
  constexpr bool is_number() const { return single_ == nullptr && twice_ == nullptr; }
  /// The weight of the element at an index in row-major order.
  constexpr double operator[](dim_t i) const {
    if (single_ != nullptr) return static_cast<double>(single_[i % size_]);
    return twice_ != nullptr ? twice_[i % size_] : all_;
  }

  /// Throws error unless they can be broadcast over a prediction of these extents.
  void check(const char* loss, const char* option, const shape& extents) const {
    if (is_number() || size_ == 1) return;
    dim_t elements = 1;
    for (std::size_t d = extents.rank(); d-- > 0;)
      if ((elements *= extents[d]) == size_) return;
    detail::refuse_element_weights(loss, option, size_);
  }

 private:
  double all_ = 1;
  const float* single_ = nullptr;
  const double* twice_ = nullptr;
  dim_t size_ = 1;
};

}  // namespace ikebana
