#pragma once

#include <array>
#include <cstddef>
#include <iosfwd>
#include <span>

#include "ikebana/core/shape.hpp"
#include "ikebana/replicate/gradient_bucket.hpp"

namespace ikebana {

/// Sizes in bytes: `MiB(25)`.
constexpr dim_t KiB(dim_t n) { return n * 1024; }
constexpr dim_t MiB(dim_t n) { return n * 1024 * 1024; }

/// The default caps of PyTorch's DistributedDataParallel: a small first bucket, so that
/// communication starts early, then larger ones.
inline constexpr std::array<dim_t, 2> default_bucket_caps{MiB(1), MiB(25)};

/// A contiguous slice of the flat gradient buffer, in bytes, and its parameters.
struct bucket_range {
  dim_t begin = 0, end = 0;
  std::size_t first_parameter = 0, last_parameter = 0;  // Both inclusive.
  std::size_t group = 0;                                // Of the policy's groups; 0 is the network.

  constexpr dim_t bytes() const { return end - begin; }
  constexpr bool operator==(const bucket_range&) const = default;
};

namespace detail {

/// Cuts parameters into buckets according to `group_of(i)`, the group of parameter i (negative if
/// none), and `caps_of(group)`: a bucket holds adjacent parameters of one group.
template <class GroupOf, class CapsOf>
constexpr std::size_t plan_grouped_buckets(std::span<const dim_t> ends, const GroupOf& group_of,
                                           const CapsOf& caps_of, std::span<bucket_range> out) {
  std::size_t count = 0;
  bool is_open = false;
  dim_t cap = 0;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    const int group = group_of(i);
    if (is_open && static_cast<int>(out[count].group) != group) {
      ++count;
      is_open = false;
    }
    if (group < 0) continue;
    if (!is_open) {
      out[count] = {i == 0 ? 0 : ends[i - 1], 0, i, i, static_cast<std::size_t>(group)};
      std::size_t before = 0;
      for (std::size_t b = 0; b < count; ++b) before += out[b].group == out[count].group;
      const std::span<const dim_t> caps = caps_of(static_cast<std::size_t>(group));
      cap = caps[before < caps.size() ? before : caps.size() - 1];
      is_open = true;
    }
    out[count].end = ends[i];
    out[count].last_parameter = i;
    if (out[count].bytes() < cap) continue;
    ++count;
    is_open = false;
  }
  return count + is_open;
}

}  // namespace detail

/// Cuts parameters into buckets. `ends[i]` is the end of parameter i, in bytes, in a buffer laid
/// out in the order in which backward finishes parameters (padding counts as part of a parameter).
/// The rule is that of DistributedDataParallel after it has rebuilt its buckets in that order: a
/// bucket is closed by the parameter that makes it reach its cap, so that a parameter is never
/// split and a bucket may exceed its cap. Bucket b has the cap `caps[b]`; the last one applies to
/// all that follow. The rest forms the last bucket. Writes to `out`, which has room for
/// ends.size(), and returns the number of buckets. Requires a cap. O(parameters); no allocation.
constexpr std::size_t plan_buckets(std::span<const dim_t> ends, std::span<const dim_t> caps,
                                   std::span<bucket_range> out) {
  return detail::plan_grouped_buckets(
      ends, [](std::size_t) { return 0; }, [caps](std::size_t) { return caps; }, out);
}

/// The buckets of N parameters as a value, in the order in which they become ready. Prints one line
/// per bucket.
template <std::size_t N>
class bucket_plan {
 public:
  constexpr std::size_t size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr const bucket_range& operator[](std::size_t i) const { return buckets_[i]; }
  constexpr const bucket_range* begin() const { return buckets_.data(); }
  constexpr const bucket_range* end() const { return buckets_.data() + size_; }

  /// The bucket that contains parameter i; size() if none does.
  constexpr std::size_t bucket_of(std::size_t parameter) const {
    std::size_t b = 0;
    while (b < size_ && buckets_[b].last_parameter < parameter) ++b;
    return b < size_ && buckets_[b].first_parameter <= parameter ? b : size_;
  }

  /// The number of buckets that are ready once backward has finished the parameters [0, n).
  constexpr std::size_t ready_after(std::size_t n) const {
    std::size_t b = 0;
    while (b < size_ && buckets_[b].last_parameter < n) ++b;
    return b;
  }

  /// The same for a buffer that is complete up to byte `end`.
  constexpr std::size_t ready_up_to(dim_t end) const {
    std::size_t b = 0;
    while (b < size_ && buckets_[b].end <= end) ++b;
    return b;
  }

  constexpr bool operator==(const bucket_plan&) const = default;

  constexpr bucket_plan() = default;
  constexpr bucket_plan(const std::array<bucket_range, N>& buckets, std::size_t size)
      : buckets_{buckets}, size_{size} {}

 private:
  std::array<bucket_range, N> buckets_{};
  std::size_t size_ = 0;
};

/// The plan of parameters whose ends, in bytes, are a constant expression; see above.
template <std::size_t N>
constexpr bucket_plan<N> plan_buckets(const std::array<dim_t, N>& ends,
                                      std::span<const dim_t> caps = default_bucket_caps) {
  std::array<bucket_range, N> buckets{};
  const std::size_t size = plan_buckets(std::span<const dim_t>{ends}, caps, std::span{buckets});
  return {buckets, size};
}

/// With one cap for the first bucket and one for the others.
template <std::size_t N>
constexpr bucket_plan<N> plan_buckets(const std::array<dim_t, N>& ends, dim_t first_cap,
                                      dim_t cap) {
  return plan_buckets(ends, std::array{first_cap, cap});
}

/// A plan together with its parameters, in the order of the flat gradient buffer. Prints their
/// paths.
template <std::size_t N>
class named_bucket_plan : public bucket_plan<N> {
 public:
  constexpr named_bucket_plan() = default;
  constexpr named_bucket_plan(const bucket_plan<N>& plan,
                              const std::array<bucket_parameter, N>& parameters)
      : bucket_plan<N>{plan}, parameters_{parameters} {}

  constexpr std::span<const bucket_parameter> parameters() const { return parameters_; }
  /// The parameters of bucket b.
  constexpr std::span<const bucket_parameter> parameters(std::size_t b) const {
    const bucket_range& range = (*this)[b];
    return parameters().subspan(range.first_parameter,
                                range.last_parameter - range.first_parameter + 1);
  }

 private:
  std::array<bucket_parameter, N> parameters_{};
};

template <class Traits, std::size_t N>
std::basic_ostream<char, Traits>& operator<<(std::basic_ostream<char, Traits>& out,
                                             const named_bucket_plan<N>& plan) {
  for (std::size_t b = 0; b < plan.size(); ++b) {
    out << "bucket " << b << ": bytes [" << plan[b].begin << ", " << plan[b].end << "), "
        << plan[b].bytes() << " bytes:";
    for (const bucket_parameter& p : plan.parameters(b)) out << ' ' << p.path.c_str();
    out << '\n';
  }
  return out;
}

template <class Traits, std::size_t N>
std::basic_ostream<char, Traits>& operator<<(std::basic_ostream<char, Traits>& out,
                                             const bucket_plan<N>& plan) {
  std::size_t index = 0;
  for (const bucket_range& b : plan)
    out << "bucket " << index++ << ": parameters " << b.first_parameter << " to "
        << b.last_parameter << ", bytes [" << b.begin << ", " << b.end << "), " << b.bytes()
        << " bytes\n";
  return out;
}

}  // namespace ikebana
