#pragma once

#include <concepts>
#include <cstdio>
#include <type_traits>

#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"

namespace ikebana {

namespace detail {

// snprintf instead of std::string, which would be compiled in every translation unit.
[[noreturn, gnu::cold]] inline void refuse_weights(const char* loss, dim_t classes, dim_t got) {
  char said[128];
  std::snprintf(said, sizeof said, "%s expects a weight for each of %lld classes, got %lld", loss,
                static_cast<long long>(classes), static_cast<long long>(got));
  throw_error(error(said));
}

}  // namespace detail

/// A weight for each class: a view of floats or doubles, such as a tensor, an array or a
/// std::vector, which must outlive it. None is 1 for each.
class class_weights {
 public:
  constexpr class_weights() = default;
  template <class R>
  requires(!std::is_same_v<R, class_weights> &&
           requires(const R& r) {
             { *r.data() } -> std::same_as<const float&>;
             r.size();
           }) constexpr class_weights(const R& r)
      : single_{r.data()}, size_{static_cast<dim_t>(r.size())} {}
  template <class R>
  requires(!std::is_same_v<R, class_weights> &&
           requires(const R& r) {
             { *r.data() } -> std::same_as<const double&>;
             r.size();
           }) constexpr class_weights(const R& r)
      : twice_{r.data()}, size_{static_cast<dim_t>(r.size())} {}

  constexpr bool operator==(const class_weights&) const = default;
  constexpr bool empty() const { return single_ == nullptr && twice_ == nullptr; }
  constexpr dim_t size() const { return size_; }
  constexpr double operator[](dim_t i) const {
    return single_ != nullptr ? static_cast<double>(single_[i]) : twice_ != nullptr ? twice_[i] : 1;
  }
  /// Throws error unless there are none or as many as classes.
  void check(const char* loss, dim_t classes) const {
    if (!empty() && size_ != classes) detail::refuse_weights(loss, classes, size_);
  }

 private:
  const float* single_ = nullptr;
  const double* twice_ = nullptr;
  dim_t size_ = 0;
};

}  // namespace ikebana
