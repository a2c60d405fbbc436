#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "ikebana/replicate/comm_hook.hpp"

/// Runs a hook on the test's own buckets.
namespace hook_run {

namespace ike = ikebana;

/// Adjacent parameters without padding.
inline std::vector<ike::bucket_parameter> parameters(
    const std::vector<std::pair<std::string_view, ike::shape>>& of) {
  std::vector<ike::bucket_parameter> out;
  ike::dim_t at = 0;
  for (const auto& [path, extents] : of) {
    out.push_back({ike::path_text(path), extents, at});
    at += extents.numel();
  }
  return out;
}

inline std::size_t elements(const std::vector<ike::bucket_parameter>& p) {
  return static_cast<std::size_t>(p.back().begin + p.back().extents.numel());
}

/// A hook of one rank with one bucket.
template <class T, class Hook, class Group>
class one_bucket {
 public:
  one_bucket(std::vector<ike::bucket_parameter> p, Hook h, Group& group)
      : gradients(elements(p)), hook{std::move(h)}, parameters_{std::move(p)}, group_{group} {
    const ike::gradient_bucket<T> b = bucket();
    ike::prepare_hook(hook, std::span<const ike::gradient_bucket<T>>{&b, 1}, group_);
  }

  ike::gradient_bucket<T> bucket() { return {std::span{gradients}, 0, 1, parameters_, 0}; }

  void step() {
    auto work = hook.start(bucket(), group_);
    work.wait();
    if constexpr (ike::hook_stages < Hook >> 1)
      for (std::size_t s = 1; s < Hook::stages; ++s) {
        work = hook.proceed(bucket(), group_, s);
        work.wait();
      }
    hook.finish(bucket(), group_);
  }

  std::vector<T> gradients;
  Hook hook;

 private:
  std::vector<ike::bucket_parameter> parameters_;
  Group& group_;
};

}  // namespace hook_run
