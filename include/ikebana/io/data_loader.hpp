#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/random.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/io/dataset.hpp"
#include "ikebana/module/refusal.hpp"

namespace ikebana {

/// The shard of every epoch that a loader yields: part `rank` of `size`. Constructible from
/// anything with rank() and size(), such as a process group; only the two numbers are kept.
struct loader_shard {
  dim_t rank = 0;
  dim_t size = 1;

  constexpr loader_shard() = default;
  constexpr loader_shard(dim_t rank_, dim_t size_) : rank{rank_}, size{size_} {}

  template <class Group>
  requires requires(const Group& g) {
    { g.rank() } -> std::integral;
    { g.size() } -> std::integral;
  }
  constexpr loader_shard(const Group& group)
      : rank{static_cast<dim_t>(group.rank())}, size{static_cast<dim_t>(group.size())} {}
};

/// A batch of a loader: its epoch, and its number in it.
struct loader_position {
  dim_t epoch = 0, batch = 0;
  constexpr bool operator==(const loader_position&) const = default;
};

/// Options of data_loader.
struct data_loader_options {
  /// Samples per batch on each rank.
  dim_t batch = 1;
  /// Draws a new permutation for every epoch from this seed and the epoch's number; it must be the
  /// same on all ranks. Without it, samples come in the order of the dataset.
  std::optional<seed> shuffle{};
  loader_shard shard{};
  /// Drop samples that do not fill a batch on every rank. Otherwise the last batch is smaller.
  bool drop_last = false;
};

namespace detail::misuse {

IKEBANA_MISUSE(data_loader_takes_a_dataset_and_its_options_in_braces,
               "data_loader takes a dataset and its options in braces, data_loader{data, {.batch = "
               "32, .shuffle = seed{1}}}, which are batch, shuffle, shard, drop_last");
IKEBANA_MISUSE(data_loader_needs_a_dataset_that_outlives_it,
               "data_loader needs a dataset that outlives it, not a temporary: it holds a "
               "reference");
IKEBANA_MISUSE(data_loader_takes_a_dataset,
               "data_loader takes a dataset, such as tensor_dataset(features, targets)");

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
/// Stands for the dataset of a refused loader.
template <class Misuse>
struct no_dataset;
template <class D>
struct dataset_or_misuse
    : std::type_identity<no_dataset<misuse::data_loader_takes_a_dataset<later<D>>>> {};
template <dataset D>
struct dataset_or_misuse<D> : std::type_identity<D> {};

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
template <class Dataset>
class data_loader {
  using features = detail::samples_of<typename Dataset::features_type>;
  using targets = detail::samples_of<typename Dataset::targets_type>;

 public:
  struct batch {
    typename features::view x;
    typename targets::view t;
  };

  /// Throws shape_error if the batch is below 1 or the rank is not in [0, size).
  data_loader(const Dataset& dataset, const data_loader_options& options)
      : dataset_{&dataset}, options_{options} {
    const auto& [rank, ranks] = options.shard;
    if (options.batch < 1)
      throw shape_error(diagnostic{"data_loader expects a batch of at least {expected}, got {got}",
                                   1, options.batch});
    if (rank < 0 || rank >= ranks)
      throw shape_error(
          diagnostic{"data_loader expects a rank below {expected}, got {got}", ranks, rank});
    const dim_t count = dataset.size();
    samples_ = options.drop_last ? count / ranks : count / ranks + (count % ranks != 0);
    if (options.drop_last) samples_ -= samples_ % options.batch;
    const dim_t most = samples_ < options.batch ? samples_ : options.batch;
    if (options.shuffle) order_ = aligned_buffer<dim_t>(count);
    if (copies()) {
      x_ = buffer<features>(most * features::sample_size(dataset.features()));
      t_ = buffer<targets>(most * targets::sample_size(dataset.targets()));
    }
  }
  data_loader(const Dataset&&, const data_loader_options&) = delete;

  class iterator {
   public:
    using value_type = batch;
    using difference_type = std::ptrdiff_t;
    using iterator_concept = std::input_iterator_tag;

    iterator() = default;

    batch operator*() const { return loader_->current(index_); }
    iterator& operator++() {
      if (++index_ < loader_->size()) loader_->fetch(index_);
      loader_->given_ = index_ + 1;
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return index_ >= loader_->size(); }

   private:
    friend data_loader;
    iterator(data_loader* loader, dim_t index) : loader_{loader}, index_{index} {}

    data_loader* loader_ = nullptr;
    dim_t index_ = 0;
  };

  /// Starts the next epoch: O(samples) if shuffled. No allocation.
  iterator begin() {
    const auto epoch = static_cast<std::uint32_t>(epoch_++);
    if (options_.shuffle)
      shuffle(random_stream{*options_.shuffle, hash_path("data_loader"), epoch}, order_.data(),
              order_.size());
    const dim_t first = std::exchange(first_, 0);
    if (first < size()) fetch(first);
    given_ = first + 1;
    return iterator{this, first};
  }
  std::default_sentinel_t end() const { return {}; }

  /// Batches per epoch.
  dim_t size() const { return (samples_ + options_.batch - 1) / options_.batch; }
  /// Samples per epoch on this rank.
  dim_t samples() const { return samples_; }
  /// The epoch that the next begin() will start.
  dim_t epoch() const { return epoch_; }
  /// Makes the next begin() start epoch n, as after a restart.
  void set_epoch(dim_t n) {
    epoch_ = n;
    first_ = given_ = 0;
  }
  /// The batch after the one that the loop has taken last, which a checkpoint contains: within the
  /// loop's epoch, or the first of the next one.
  loader_position position() const {
    if (given_ == 0) return {epoch_, first_};
    return given_ < size() ? loader_position{epoch_ - 1, given_} : loader_position{epoch_, 0};
  }
  /// Makes the next begin() start from there. Throws error if there is no such batch.
  void set_position(const loader_position& p) {
    if (p.epoch < 0 || p.batch < 0 || (p.batch > 0 && p.batch >= size()))
      throw error("data_loader: there is no batch " + std::to_string(p.batch) + " of " +
                  std::to_string(size()) + " in epoch " + std::to_string(p.epoch));
    epoch_ = p.epoch;
    first_ = p.batch;
    given_ = 0;
  }
  const data_loader_options& options() const { return options_; }

 private:
  template <class Samples>
  using buffer = aligned_buffer<typename Samples::element>;

  bool copies() const { return options_.shuffle.has_value() || options_.shard.size > 1; }

  dim_t batch_extent(dim_t index) const {
    const dim_t left = samples_ - index * options_.batch;
    return left < options_.batch ? left : options_.batch;
  }

  void fetch(dim_t index) {
    if (!copies()) return;
    const dim_t first = index * options_.batch, count = dataset_->size();
    const auto sample = [&](dim_t i) {
      const dim_t at = (options_.shard.rank + (first + i) * options_.shard.size) % count;
      return options_.shuffle ? order_[at] : at;
    };
    features::gather(dataset_->features(), batch_extent(index), sample, x_.data());
    targets::gather(dataset_->targets(), batch_extent(index), sample, t_.data());
  }

  batch current(dim_t index) const {
    const dim_t n = batch_extent(index);
    const auto& x = dataset_->features();
    const auto& t = dataset_->targets();
    if (!copies())
      return {features::slice(x, index * options_.batch, n),
              targets::slice(t, index * options_.batch, n)};
    return {{x_.data(), x.extents().with(0, n)}, {t_.data(), t.extents().with(0, n)}};
  }

  const Dataset* dataset_;
  data_loader_options options_;
  dim_t samples_ = 0;
  dim_t epoch_ = 0;
  dim_t first_ = 0;  ///< Where the next epoch starts.
  dim_t given_ = 0;  ///< The batches of this epoch that the loop has taken; 0 before any loop.
  aligned_buffer<dim_t> order_;
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
