#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/replicate/comm_hook.hpp"
#include "ikebana/replicate/mixed/gradient_cast.hpp"
#include "ikebana/replicate/utils/root_modules.hpp"

namespace ikebana::detail {

/// An override of paths and the type in which their gradients are reduced.
template <class Override, class R>
struct reduce_entry {
  using type = R;
  static constexpr std::string_view path = Override::path;
};

/// The average of gradients, each sent in its own type; void is the model's. The types within a
/// bucket are averaged one after the other, in listed order. A bucket entirely of the model's type
/// is averaged in place, everything else in memory that `prepare` allocates.
template <class Default, class... Entries>
class mixed_reduce {
  static constexpr std::size_t types = 1 + sizeof...(Entries);

  /// The index of the first listed type that equals type i.
  template <class T>
  static constexpr std::array<std::size_t, types> kinds = [] {
    constexpr auto same = []<class A, class B>(std::type_identity<A>, std::type_identity<B>) {
      using a = std::conditional_t<std::is_void_v<A>, T, A>;
      using b = std::conditional_t<std::is_void_v<B>, T, B>;
      return std::is_same_v<a, b>;
    };
    std::array<std::size_t, types> out{};
    const auto row = [&]<class A>(std::type_identity<A> a, std::size_t i) {
      const bool equal[] = {same(std::type_identity<Default>{}, a),
                            same(std::type_identity<typename Entries::type>{}, a)...};
      while (!equal[out[i]]) ++out[i];
    };
    std::size_t i = 0;
    row(std::type_identity<Default>{}, i++);
    (row(std::type_identity<typename Entries::type>{}, i++), ...);
    return out;
  }();

 public:
  template <class T>
  requires(sizeof...(Entries) ==
           0) using wire_type = std::conditional_t<std::is_void_v<Default>, T, Default>;

  static constexpr hook_result result = hook_result::average;
  static constexpr std::size_t stages = [] {
    // For a T that none of them is: the maximal number.
    const auto k = kinds<std::nullptr_t>;
    std::size_t n = 0;
    for (std::size_t i = 0; i < types; ++i) n += k[i] == i;
    return n;
  }();

  template <floating T, process_group G>
  void prepare(std::span<const gradient_bucket<T>> buckets, G&) {
    buckets_.clear();
    std::array<dim_t, types> sizes{};
    for (const gradient_bucket<T>& b : buckets) {
      if (buckets_.size() <= b.index) buckets_.resize(b.index + 1);
      bucket_plan_of& plan = buckets_[b.index];
      for (std::size_t i = 0; i < b.parameters.size(); ++i) {
        const bucket_parameter& p = b.parameters[i];
        const std::size_t kind = kinds<T>[entry_of(p.path.view())];
        const dim_t begin = p.begin - b.begin;
        const dim_t end = i + 1 < b.parameters.size() ? b.parameters[i + 1].begin - b.begin
                                                      : static_cast<dim_t>(b.data.size());
        if (plan.pieces.empty() || plan.pieces.back().kind != kind)
          plan.pieces.push_back({kind, begin, end, 0});
        else
          plan.pieces.back().end = end;
      }
      for (std::size_t kind = 0; kind < types; ++kind) {
        part own{kind, sizes[kind], 0, false};
        for (piece& p : plan.pieces) {
          if (p.kind != kind) continue;
          p.at = own.begin + own.size;
          own.size += p.end - p.begin;
        }
        own.in_place = plan.pieces.size() == 1 && is_own<T>(kind);
        if (own.size == 0) continue;
        plan.parts.push_back(own);
        if (!own.in_place) sizes[kind] += own.size;
      }
    }
    for (std::size_t kind = 0; kind < types; ++kind)
      visit<T>(kind, [&]<class R>(std::type_identity<R>) {
        memory_[kind] = aligned_buffer<std::byte>(sizes[kind] * static_cast<dim_t>(sizeof(R)));
      });
  }

  template <floating T, process_group G>
  auto start(gradient_bucket<T> bucket, G& group) {
    if (bucket.index >= buckets_.size())
      throw state_error("mixed_precision: prepare must be called before the first bucket");
    return reduce(bucket, group, 0);
  }

  template <floating T, process_group G>
  auto proceed(gradient_bucket<T> bucket, G& group, std::size_t stage) {
    return reduce(bucket, group, stage);
  }

  template <floating T, process_group G>
  void finish(gradient_bucket<T> bucket, G&) {
    const bucket_plan_of& plan = buckets_[bucket.index];
    if (!plan.parts.empty() && plan.parts[0].in_place) return;
    for (const piece& p : plan.pieces)
      visit<T>(p.kind, [&]<class R>(std::type_identity<R>) {
        unpack_gradients(p.end - p.begin, memory<R>(p.kind) + p.at, bucket.data.data() + p.begin);
      });
  }

 private:
  struct piece {
    std::size_t kind;
    dim_t begin, end;  ///< In the bucket.
    dim_t at;          ///< In the memory of its kind.
  };
  /// The part of a bucket that has one kind.
  struct part {
    std::size_t kind;
    dim_t begin, size;
    bool in_place;
  };
  struct bucket_plan_of {
    std::vector<piece> pieces;
    std::vector<part> parts;
  };

  /// The entry of the deepest path; 0 if none applies.
  static std::size_t entry_of(std::string_view path) {
    std::size_t best = 0, i = 1;
    std::string_view at;
    [[maybe_unused]] const auto look = [&](std::string_view p) {
      if (is_at_or_below(path, p) && p.size() >= at.size()) {
        best = i;
        at = p;
      }
      ++i;
    };
    (look(Entries::path), ...);
    return best;
  }

  template <class T, class F>
  static void visit(std::size_t kind, F&& f) {
    std::size_t i = 0;
    const auto look = [&]<class R>(std::type_identity<R>) {
      if (i++ == kind) f(std::type_identity<std::conditional_t<std::is_void_v<R>, T, R>>{});
    };
    look(std::type_identity<Default>{});
    (look(std::type_identity<typename Entries::type>{}), ...);
  }

  template <class T>
  static bool is_own(std::size_t kind) {
    bool own = false;
    visit<T>(kind, [&]<class R>(std::type_identity<R>) { own = std::is_same_v<R, T>; });
    return own;
  }

  template <class R>
  R* memory(std::size_t kind) {
    return reinterpret_cast<R*>(memory_[kind].data());
  }

  template <class T, class G>
  auto reduce(gradient_bucket<T> bucket, G& group, std::size_t stage) {
    decltype(group.all_reduce_async(bucket.data, reduce_op::avg)) work{};
    const bucket_plan_of& plan = buckets_[bucket.index];
    if (stage >= plan.parts.size()) return work;
    const part& own = plan.parts[stage];
    if (own.in_place) return group.all_reduce_async(bucket.data, reduce_op::avg);
    visit<T>(own.kind, [&]<class R>(std::type_identity<R>) {
      for (const piece& p : plan.pieces)
        if (p.kind == own.kind)
          pack_gradients(p.end - p.begin, bucket.data.data() + p.begin, memory<R>(own.kind) + p.at);
      work = group.all_reduce_async(
          std::span<R>{memory<R>(own.kind) + own.begin, static_cast<std::size_t>(own.size)},
          reduce_op::avg);
    });
    return work;
  }

  std::vector<bucket_plan_of> buckets_;
  std::array<aligned_buffer<std::byte>, types> memory_;
};

/// The hook for gradients of these types: the plain one if none differs from the model's.
template <class Default, class Entries>
struct mixed_hook;
template <class Default, class... Entries>
struct mixed_hook<Default, std::tuple<Entries...>>
    : std::conditional_t<std::is_void_v<Default> && (std::is_void_v<typename Entries::type> && ...),
                         std::type_identity<all_reduce_hook>,
                         std::type_identity<mixed_reduce<Default, Entries...>>> {};

}  // namespace ikebana::detail
