#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ikebana/core/error.hpp"
#include "ikebana/core/random.hpp"
#include "ikebana/core/span_of.hpp"
#include "ikebana/core/text.hpp"
#include "ikebana/replicate/policy.hpp"
#include "ikebana/replicate/process_group.hpp"

namespace ikebana::detail {

template <class T>
constexpr const char* function_of_type() {
  return __PRETTY_FUNCTION__;
}
/// The compiler's name of a type, which is equal in all programs built with the same compiler.
template <class T>
constexpr std::string_view type_name() {
  std::string_view s = function_of_type<T>();
  s.remove_prefix(s.find("T = ") + 4);
  return s.substr(0, s.rfind(']'));
}

/// The name of an option of a policy; empty for options that may differ between ranks.
template <class Option>
constexpr std::string_view compared_name() {
  if constexpr (requires { requires Option::may_differ; })
    return {};
  else
    return type_name<Option>();
}

inline constexpr std::size_t most_policy_options = 32;

/// The options of a policy that must be equal on all ranks. Their order does not matter.
struct policy_options {
  std::array<std::string_view, most_policy_options> names{};
  std::array<std::uint64_t, most_policy_options> hashes{};

  template <class... Options>
  static constexpr policy_options of(replicate_policy<Options...>*) {
    static_assert(sizeof...(Options) <= most_policy_options,
                  "ikebana: replicate_policy takes at most 32 options");
    policy_options out;
    std::size_t n = 0;
    [[maybe_unused]] const auto add = [&](std::string_view name) {
      if (name.empty()) return;
      out.names[n] = name;
      out.hashes[n++] = hash_path(name);
    };
    (add(compared_name<Options>()), ...);
    return out;
  }
  constexpr std::uint64_t hash() const {
    std::uint64_t sum = 0;
    for (const std::uint64_t h : hashes) sum += h;
    return sum;
  }
  bool has(std::uint64_t hash) const {
    for (const std::uint64_t h : hashes)
      if (h == hash) return true;
    return false;
  }
};

/// A hash of a policy's run-time values: the divisors of its groups, and the options of a hook with
/// `fingerprint()`.
template <class Hook>
std::uint64_t values_fingerprint(std::span<const double> divide_factors, const Hook& hook) {
  const std::uint64_t basis = hash_path(
      {reinterpret_cast<const char*>(divide_factors.data()), divide_factors.size_bytes()});
  if constexpr (requires { hook.fingerprint(); })
    return basis ^ hook.fingerprint() * 0x9e3779b97f4a7c15u;
  else
    return basis;
}

template <class Group>
void verify_options(const policy_options& mine, std::uint64_t values, Group& group,
                    std::string_view who) {
  struct fingerprint {
    std::uint64_t options, values;
    bool operator==(const fingerprint&) const = default;
  };
  std::vector<fingerprint> all(static_cast<std::size_t>(group.size()));
  exchange(group, fingerprint{mine.hash(), values}, span_of(all));
  std::size_t other = 1;
  while (other < all.size() && all[other] == all[0]) ++other;
  if (other >= all.size()) return;

  // All ranks compare the same fingerprints, so that all of them return or all of them throw.
  const std::string rank = std::to_string(other);
  std::string text = std::string(who) + ": rank 0 and rank " + rank + " have different policies: ";
  if (all[other].options == all[0].options)
    throw state_error(text +
                      "the options are the same, but not their values at run time (those of the "
                      "comm_hook, or set_gradient_divide_factor)");
  std::vector<std::array<std::uint64_t, most_policy_options>> hashes(all.size());
  exchange(group, mine.hashes, span_of(hashes));
  // Only the options in which the two ranks differ.
  policy_options its;
  its.hashes = hashes[group.rank() == 0 ? other : 0];
  ikebana::text<256> own;
  for (std::size_t i = 0; i < mine.names.size() && !mine.names[i].empty(); ++i)
    if (!its.has(mine.hashes[i])) own.append(own.empty() ? "" : ", ").append(mine.names[i]);
  if (own.empty()) own.append("no option that the other has not");
  std::vector<ikebana::text<256>> owns(all.size());
  exchange(group, own, span_of(owns));
  throw state_error(text + "rank 0 has " + owns[0].c_str() + ", rank " + rank + " has " +
                    owns[other].c_str());
}

/// Compares the policies of all ranks and the hashes of their run-time values. If they differ,
/// throws the same state_error on every rank. One all_gather of 16 bytes if they are equal.
/// Allocates.
template <class Policy, process_group Group>
void verify_policy(std::uint64_t values, Group& group, std::string_view who) {
  static constexpr policy_options mine = policy_options::of(static_cast<Policy*>(nullptr));
  verify_options(mine, values, group, who);
}

}  // namespace ikebana::detail
