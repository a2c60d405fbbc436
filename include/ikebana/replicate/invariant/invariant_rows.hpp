#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/model/inputs.hpp"
#include "ikebana/replicate/invariant.hpp"
#include "ikebana/replicate/process_group.hpp"

// The parts of a shard: rows of its inputs and of its target, and its part of the loss.
namespace ikebana::detail {

/// Rows of a tensor as a view.
template <class X>
struct batch_rows_of {
  static_assert(X::static_shape.rank() > 0,
                "ikebana: invariant cuts inputs and targets along their first dimension; this one "
                "has none");
  static constexpr shape cut = X::static_shape.rank() > 0 ? X::static_shape.with(0, dynamic)
                                                          : X::static_shape;
  using type = tensor_view<const typename X::value_type, cut>;

  static type make(const X& x, index_range rows) {
    const shape whole = x.extents();
    return type(x.data() + rows.begin * whole.numel(1, whole.rank()), whole.with(0, rows.size()));
  }
};

template <class X>
using rows_view = typename batch_rows_of<X>::type;

/// The same for a call argument.
template <class A>
struct rows_of_argument {
  using type = rows_view<A>;
  static const type& make(const rows_view<A>& view) { return view; }
};
template <class Name, class X>
struct rows_of_argument<argument<Name, X>> {
  using type = argument<Name, rows_view<X>>;
  static type make(const rows_view<X>& view) { return {view}; }
};

/// For one input or several: `with(x, rows, f)` calls f with their rows, `rows(x)` counts them.
template <class X>
struct batch_of {
  using type = rows_view<X>;

  static dim_t rows(const X& x) { return x.extents()[0]; }
  template <class F>
  static auto with(const X& x, index_range rows, F&& f) {
    return f(batch_rows_of<X>::make(x, rows));
  }
};
template <class... A>
struct batch_of<input_pack<A...>> {
  using type = input_pack<typename rows_of_argument<A>::type...>;

  /// The number of rows of all inputs, or -1 if they differ.
  static dim_t rows(const input_pack<A...>& x) {
    return std::apply(
        [](const auto& first, const auto&... others) {
          const dim_t n = tensor_of_argument(first).extents()[0];
          return ((tensor_of_argument(others).extents()[0] == n) && ...) ? n : dim_t{-1};
        },
        x.items);
  }
  template <class F>
  static auto with(const input_pack<A...>& x, index_range rows, F&& f) {
    return std::apply(
        [&](const auto&... whole) {
          return with_views(f, batch_rows_of<typename argument_tensor<A>::type>::make(
                                   tensor_of_argument(whole), rows)...);
        },
        x.items);
  }

 private:
  template <class F, class... V>
  static auto with_views(F& f, const V&... views) {
    return with_arguments(f, rows_of_argument<A>::make(views)...);
  }
  template <class F>
  static auto with_arguments(F& f, const typename rows_of_argument<A>::type&... arguments) {
    return f(type{{arguments...}});
  }
};

/// The number of rows of all ranks together; each rank passes its own, or -1 if its inputs and its
/// target differ. Every rank throws shape_error if they are not the parts of one batch. `rows` has
/// one element per rank.
template <class Group>
dim_t agree_on_rows(Group& group, dim_t shards, dim_t mine, std::span<dim_t> rows) {
  exchange(group, mine, rows);
  dim_t all = 0;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (rows[r] < 0)
      throw shape_error("rank " + std::to_string(r) +
                        " gave inputs and a target of different numbers of rows");
    all += rows[r];
  }
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const dim_t due = invariant_rows(all, shards, static_cast<int>(r), group.size()).size();
    if (rows[r] != due)
      throw shape_error("rank " + std::to_string(r) + " has " + std::to_string(due) +
                        " rows of a batch of " + std::to_string(all) + " in invariant<" +
                        std::to_string(shards) + ">, got " + std::to_string(rows[r]));
  }
  if (all == 0) throw shape_error("a step of training needs a row, got none on any rank");
  return all;
}

/// A loss and its gradient, times the weight of a shard.
template <class Loss, class T>
struct weighted_loss {
  const Loss& loss;
  T weight;

  template <class Target>
  void validate(const shape& prediction, const Target& target) const {
    loss.validate(prediction, target);
  }

  template <class Prediction, class Target>
  T backward(const Prediction& prediction, const Target& target, T* gradient) const {
    const T value = loss.backward(prediction, target, gradient);
    if (weight == T{1}) return value;
    if (gradient != nullptr) cpu::scale<T>(prediction.extents().numel(), weight, gradient);
    return weight * value;
  }
};

/// Whether a loss is a sum over the rows rather than their mean.
template <class Loss>
constexpr bool is_sum(const Loss& loss) {
  if constexpr (requires { loss.reduction; })
    return loss.reduction == decltype(loss.reduction)::sum;
  else
    return false;
}

}  // namespace ikebana::detail
