#pragma once

#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "ikebana/core/error.hpp"
#include "ikebana/replicate/parameter_groups.hpp"
#include "ikebana/replicate/utils/root_modules.hpp"

namespace ikebana {

/// When the gradients of a replica are reduced, and their divisor: a part of `replicated`, which is
/// Self.
template <class Self, class Policy>
class synchronised_replica {
  using groups = detail::parameter_groups<Policy>;

 public:
  /// While the guard exists, backward keeps its gradients local to this rank; the first backward
  /// afterwards reduces their sum. It affects backward, wherever forward ran.
  class [[nodiscard]] no_sync_guard {
   public:
    explicit no_sync_guard(synchronised_replica& r)
        : replica_{&r}, before_{std::exchange(r.may_synchronise_, false)} {}
    no_sync_guard(const no_sync_guard&) = delete;
    ~no_sync_guard() { replica_->may_synchronise_ = before_; }

   private:
    synchronised_replica* replica_;
    bool before_;
  };
  no_sync_guard no_sync() {
    Self::refuse_in_backward_steps();
    return no_sync_guard{*this};
  }

  /// Whether the following backwards average over the ranks, outside of a no_sync guard.
  /// Non-recursive: the network without the groups of the policy.
  void set_requires_gradient_sync(bool on, bool recurse = true) {
    Self::refuse_in_backward_steps();
    for (std::size_t g = 0; g < (recurse ? groups::count : 1); ++g)
      self().reducer_.synchronises()[g] = on;
  }
  /// The same for the groups at and below a module, `"block"_s`; if not recursive, only for the
  /// group of the module itself. Throws ikebana::error if there is no such group. Gradients of
  /// groups that do not synchronise accumulate, and are reduced in a later backward that does.
  template <class Path>
  void set_requires_gradient_sync(Path, bool on, bool recurse = true) {
    Self::refuse_in_backward_steps();
    if (!recurse && groups::at(Path::c_str()) < 0)
      throw error(std::string(Path::c_str()) + ": is not a group of the policy");
    for_groups<Path>(recurse, [&](std::size_t g) { self().reducer_.synchronises()[g] = on; });
  }
  /// Whether the next backward reduces any gradients.
  bool synchronises() const {
    bool any = false;
    for (const bool on : self().reducer_.synchronises()) any = any || on;
    return any && may_synchronise_;
  }

  /// Whether backward waits for its reductions. If not, they continue until the next backward
  /// starts, overlapping the forward of the next micro-batch. Gradients are final after the last
  /// backward, and after wait_for_gradients, step and zero_grad. (PyTorch: set_is_last_backward.)
  void set_is_last_backward(bool last) { is_last_backward_ = last; }
  void wait_for_gradients() { self().drain(); }

  /// The divisor of sums over the ranks from the next backward on, in place of the number of ranks.
  /// Throws ikebana::error, before anything has changed, unless it is finite and above 0.
  void set_gradient_divide_factor(double factor) {
    check_divide_factor(factor);
    self().reducer_.divide_factors().fill(factor);
  }
  /// The same for the groups at and below a module.
  template <class Path>
  void set_gradient_divide_factor(Path, double factor) {
    check_divide_factor(factor);
    for_groups<Path>(true, [&](std::size_t g) { self().reducer_.divide_factors()[g] = factor; });
  }

 protected:
  bool may_synchronise_ = true;  ///< No no_sync guard exists.
  bool is_last_backward_ = true;

 private:
  Self& self() { return static_cast<Self&>(*this); }
  const Self& self() const { return static_cast<const Self&>(*this); }

  template <class Path, class F>
  static void for_groups(bool recurse, const F& f) {
    constexpr std::string_view path = Path::c_str();
    constexpr bool any = groups::any_at_or_below(path);
    static_assert(any,
                  "ikebana: no group of the policy is at or below this path: groups_by_module and "
                  "override_at make groups");
    constexpr const auto& roots = groups::roots;
    for (std::size_t r = 0; r < roots.count; ++r)
      if (roots.paths[r] == path || (recurse && is_at_or_below(roots.paths[r], path)))
        f(roots.groups[r]);
  }

  static void check_divide_factor(double factor) {
    if (!(factor > 0 && std::isfinite(factor)))
      throw error("set_gradient_divide_factor expects a finite number above 0");
  }
};

}  // namespace ikebana
