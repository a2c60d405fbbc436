#pragma once

#include <cstddef>
#include <iterator>
#include <type_traits>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/random.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/io/dataset.hpp"
#include "ikebana/io/loader_order.hpp"
#include "ikebana/module/refusal.hpp"

namespace ikebana {

namespace detail::misuse {

IKEBANA_MISUSE(data_loader_takes_a_dataset_and_its_options_in_braces,
               "data_loader takes a dataset and its options in braces, data_loader{data, {.batch = "
               "32, .shuffle = seed{1}}}, which are batch, shuffle, shard, drop_last, "
               "weights, strata, workers, prefetch, padding");
IKEBANA_MISUSE(data_loader_needs_a_dataset_that_outlives_it,
               "data_loader needs a dataset that outlives it, not a temporary: it holds a "
               "reference");
IKEBANA_MISUSE(
    data_loader_takes_a_dataset,
    "data_loader takes a dataset: tensor_dataset(features, targets), or a class of one's "
    "own with size() and sample(i), which returns a std::tuple of tensors and numbers");

IKEBANA_MISUSE(data_loader_of_samples_needs_its_header,
               "a data_loader of a dataset with sample(i) needs a header: #include "
               "<ikebana/io/sample_loader.hpp>");

}  // namespace detail::misuse

namespace detail {

template <class D>
concept dataset = requires(const D& data) {
  typename D::features_type;
  typename D::targets_type;
  data.size();
  data.features();
  data.targets();
};
/// A dataset of one's own: <ikebana/io/sample_loader.hpp>.
template <class D>
concept has_samples = requires(const D& data) {
  data.size();
  data.sample(dim_t{});
}
|| requires(const D& data, const random_stream& stream) {
  data.size();
  data.sample(dim_t{}, stream);
};
/// Stands for the dataset of a refused loader.
template <class Misuse>
struct no_dataset;
template <class D>
struct dataset_or_misuse
    : std::type_identity<no_dataset<misuse::data_loader_takes_a_dataset<later<D>>>> {};
template <dataset D>
struct dataset_or_misuse<D> : std::type_identity<D> {};
/// <ikebana/io/sample_loader.hpp> specialises it.
template <class D>
struct samples_or_misuse
    : std::type_identity<no_dataset<misuse::data_loader_of_samples_needs_its_header<later<D>>>> {};
template <has_samples D>
requires(!dataset<D>) struct dataset_or_misuse<D> : samples_or_misuse<D> {
};

}  // namespace detail

/// Yields the batches of a dataset, epoch by epoch: `for (auto [x, t] : loader)`, where x is a
/// tensor_view of features [batch, ...] and t one of targets. The views are valid until the loop
/// takes the next batch.
///
/// Each begin() starts the next epoch, counted from 0. Only one loop can be active: a second
/// begin() ends the first. The dataset is held by reference and must outlive the loader.
///
/// Shards are those of PyTorch's DistributedSampler: rank r of n takes the samples r, r + n, r +
/// 2n, ... of the epoch's order, and every rank takes equally many. If n does not divide the number
/// of samples, the order is continued from its start, so that some samples occur twice in the
/// epoch, or it is truncated with drop_last. The k-th batches of all ranks together are batch k of
/// a loader with n times the batch size.
///
/// Only construction allocates: the order if shuffled, and one batch if shuffled or sharded. A
/// loader that is neither yields views directly into the dataset, without copies and without
/// guaranteed alignment.
///
/// Datasets of one's own, which read each sample when it is needed: <ikebana/io/sample_loader.hpp>.
template <class Dataset>
class data_loader : public detail::loader_order {
  using features = detail::samples_of<typename Dataset::features_type>;
  using targets = detail::samples_of<typename Dataset::targets_type>;

 public:
  struct batch {
    typename features::view x;
    typename targets::view t;
  };

  /// Throws shape_error if the batch is below 1, the rank is not in [0, size), or there are not as
  /// many weights or strata as samples; error for weights that are no weights, or without a seed.
  data_loader(const Dataset& dataset, const data_loader_options& options)
      : detail::loader_order{dataset.size(), options}, dataset_{&dataset} {
    const dim_t most = samples() < options.batch ? samples() : options.batch;
    if (reorders()) {
      x_ = buffer<features>(most * features::sample_size(dataset.features()));
      t_ = buffer<targets>(most * targets::sample_size(dataset.targets()));
    }
  }
  data_loader(const Dataset&&, const data_loader_options&) = delete;

  using iterator = detail::batch_iterator<data_loader>;

  /// Starts the next epoch: O(samples) if shuffled, O(samples log samples) with strata. No
  /// allocation.
  iterator begin() {
    const dim_t first = start_epoch();
    if (first < size()) fetch(first);
    return iterator{this, first};
  }
  std::default_sentinel_t end() const { return {}; }

 private:
  friend iterator;
  template <class Samples>
  using buffer = aligned_buffer<typename Samples::element>;

  void fetch(dim_t index) {
    if (!reorders()) return;
    const auto sample = [&](dim_t i) { return sample_at(place_of(index, i)); };
    features::gather(dataset_->features(), batch_extent(index), sample, x_.data());
    targets::gather(dataset_->targets(), batch_extent(index), sample, t_.data());
  }

  batch current(dim_t index) const {
    const dim_t n = batch_extent(index);
    const auto& x = dataset_->features();
    const auto& t = dataset_->targets();
    if (!reorders())
      return {features::slice(x, index * options().batch, n),
              targets::slice(t, index * options().batch, n)};
    return {{x_.data(), x.extents().with(0, n)}, {t_.data(), t.extents().with(0, n)}};
  }

  const Dataset* dataset_;
  buffer<features> x_;
  buffer<targets> t_;
};

// Refusals at compile time, selected by the deduction guides.
template <class Misuse>
class data_loader<detail::no_dataset<Misuse>>;
template <class D>
data_loader(const D&, const data_loader_options&)
    -> data_loader<typename detail::dataset_or_misuse<D>::type>;
template <class D>
data_loader(const D&&, const data_loader_options&) -> data_loader<detail::no_dataset<
    detail::misuse::data_loader_needs_a_dataset_that_outlives_it<detail::later<D>>>>;
template <bool Lazy = false>
data_loader(...) -> data_loader<detail::no_dataset<
    detail::misuse::data_loader_takes_a_dataset_and_its_options_in_braces<Lazy>>>;

}  // namespace ikebana
