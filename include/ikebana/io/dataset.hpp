#pragma once

#include <concepts>
#include <cstddef>
#include <cstring>
#include <utility>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/random.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/module/refusal.hpp"

namespace ikebana {

namespace detail::misuse {

IKEBANA_MISUSE(random_split_takes_a_number_of_samples,
               "random_split takes the number of samples to train on, not a fraction: "
               "random_split(data, data.size() * 4 / 5, seed{1})");
IKEBANA_MISUSE(
    tensor_dataset_takes_two_tensors,
    "tensor_dataset takes two tensors, features and targets: tensor_view<const float, "
    "shape{dynamic, 20}>(data, shape{n, 20}) is one of numbers that stand in an array or "
    "a std::vector");

}  // namespace detail::misuse

namespace detail {

/// A tensor viewed as samples, which its first extent counts.
template <class Tensor>
struct samples_of {
  using element = typename Tensor::value_type;
  static_assert(Tensor::static_shape.rank() >= 1, "ikebana: the first extent counts the samples");
  /// The shape with any number of samples.
  static constexpr shape batch_shape = Tensor::static_shape.with(0, dynamic);
  using view = tensor_view<const element, batch_shape>;
  using owner = tensor<element, batch_shape>;

  static dim_t count(const Tensor& t) { return t.extents().front(); }
  static dim_t sample_size(const Tensor& t) { return t.extents().numel(1, Tensor::rank()); }

  /// The samples [first, first + n) as a view.
  static view slice(const Tensor& t, dim_t first, dim_t n) {
    return {t.data() + first * sample_size(t), t.extents().with(0, n)};
  }

  /// Copies the samples index(0), ..., index(n - 1) to `out`.
  template <class Index>
  static void gather(const Tensor& t, dim_t n, Index index, element* out) {
    const dim_t size = sample_size(t);
    if (size == 0) return;
    const element* const from = t.data();
    for (dim_t i = 0; i < n; ++i)
      std::memcpy(out + i * size, from + index(i) * size,
                  static_cast<std::size_t>(size) * sizeof(element));
  }
};

}  // namespace detail

/// Samples and their targets: `tensor_dataset(images, labels)`. The first extents count the samples
/// and must be equal. Targets are labels (tensor<std::int64_t, {dynamic}>) or values ({dynamic,
/// K...}). Owns tensors that are moved in; a tensor_view remains a view.
template <class Features, class Targets>
class tensor_dataset {
 public:
  using features_type = Features;
  using targets_type = Targets;

  /// Throws shape_error if the numbers of samples differ.
  tensor_dataset(Features features, Targets targets)
      : features_{std::move(features)}, targets_{std::move(targets)} {
    if (detail::samples_of<Targets>::count(targets_) != size())
      throw shape_error(
          diagnostic{"tensor_dataset expects {expected} targets, got {got} (features {input})",
                     size(), targets_.extents().front(), features_.extents()});
  }

  /// The number of samples.
  dim_t size() const { return detail::samples_of<Features>::count(features_); }
  const Features& features() const { return features_; }
  const Targets& targets() const { return targets_; }

 private:
  Features features_;
  Targets targets_;
};

// Refusals at compile time, selected by the deduction guides.
template <class Misuse>
class tensor_dataset<Misuse, void>;
template <class Features, class Targets>
requires(!tensor_like<Features> || !tensor_like<Targets>) tensor_dataset(Features, Targets)
->tensor_dataset<detail::misuse::tensor_dataset_takes_two_tensors<detail::later<Features>>, void>;
template <bool Lazy = false>
tensor_dataset(...) -> tensor_dataset<detail::misuse::tensor_dataset_takes_two_tensors<Lazy>, void>;

/// The result of random_split.
template <class Dataset>
struct dataset_split {
  Dataset train;
  Dataset test;
};

/// Splits a dataset into copies of `train_count` samples and of the rest, by a permutation that
/// depends only on the seed: `auto [train, test] = random_split(digits, 1437, seed{1})`. Throws
/// shape_error if train_count exceeds the number of samples. Allocates both parts; O(elements).
template <class Features, class Targets>
auto random_split(const tensor_dataset<Features, Targets>& dataset, dim_t train_count, seed s) {
  using features = detail::samples_of<Features>;
  using targets = detail::samples_of<Targets>;
  const dim_t count = dataset.size();
  if (train_count < 0 || train_count > count)
    throw shape_error(
        diagnostic{"random_split expects at most {expected} samples to train on, got {number} "
                   "(features {input})",
                   count, train_count, dataset.features().extents()});
  aligned_buffer<dim_t> order(count);
  shuffle(random_stream{s, hash_path("split")}, order.data(), count);
  const auto part = [&](dim_t first, dim_t n) {
    typename features::owner x(dataset.features().extents().with(0, n));
    typename targets::owner t(dataset.targets().extents().with(0, n));
    const auto index = [&](dim_t i) { return order[first + i]; };
    features::gather(dataset.features(), n, index, x.data());
    targets::gather(dataset.targets(), n, index, t.data());
    return tensor_dataset(std::move(x), std::move(t));
  };
  using owner = decltype(part(0, 0));
  return dataset_split<owner>{part(0, train_count), part(train_count, count - train_count)};
}
/// A fraction would be rounded to no samples.
template <class Dataset, std::floating_point Fraction>
auto random_split(const Dataset&, Fraction, seed)
    -> decltype(detail::refuse_for<detail::misuse::random_split_takes_a_number_of_samples,
                                   Dataset>());

}  // namespace ikebana
