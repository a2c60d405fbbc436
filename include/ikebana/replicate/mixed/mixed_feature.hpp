#pragma once

#include <memory>
#include <string_view>

#include "ikebana/core/shape.hpp"
#include "ikebana/replicate/mixed/mixed_boundary.hpp"

namespace ikebana::detail {

/// Reports finished gradients, after the boundary has processed them.
template <class T, class Completed>
struct completed_at_boundary {
  Completed inner;
  mixed_boundary<T>* boundary;

  void begin() const { inner.begin(); }
  void operator()(dim_t n) const {
    boundary->complete(n);
    inner(n);
  }
  void before_leaf(int k) const requires requires(const Completed& c) { c.before_leaf(k); }
  { inner.before_leaf(k); }
  void after_leaf(int k) const requires requires(const Completed& c) { c.after_leaf(k); }
  { inner.after_leaf(k); }
};

/// The boundary of a replica; see feature.hpp.
template <class Mixed, class Model>
class mixed_feature {
  using T = typename Model::value_type;

 public:
  template <class R>
  void prepare(R& r) {
    // A replica that is prepared again, for another group, keeps its boundary.
    if (boundary_ == nullptr)
      boundary_ = std::make_unique<mixed_boundary<T>>(
          r, Mixed::template of_model<T>(),
          [](std::string_view path) { return Mixed::template of<T>(path); });
  }
  mixed_boundary<T>& boundary() const { return *boundary_; }

 private:
  std::unique_ptr<mixed_boundary<T>> boundary_;
};

}  // namespace ikebana::detail
