#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/dependent.hpp"
#include "ikebana/core/diagnostic.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/random.hpp"
#include "ikebana/core/shape.hpp"

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
  /// Draws each sample of an epoch independently, with a probability proportional to its weight
  /// (torch.utils.data.WeightedRandomSampler with replacement, num_samples = size()). Copied; needs
  /// `shuffle`.
  std::span<const double> weights{};
  /// The class of each sample. Every epoch is a permutation in which the samples of each class are
  /// evenly spaced, so that every batch has the proportions of the dataset, rounded. Copied; needs
  /// `shuffle`.
  std::span<const std::int64_t> strata{};
  /// Threads that read samples ahead of the loop; with 0 the loop's own thread does. For datasets
  /// with sample(i); the batches of a tensor_dataset are copied in less time than a thread takes to
  /// wake up.
  int workers = 0;
  /// Batches read ahead by all workers together.
  dim_t prefetch = 2;
  /// What sequences are padded with, for each element of a sample.
  std::array<double, 8> padding{};
};

namespace detail {

/// The order of a loader's samples in each epoch, and its position.
///
/// A template, so that it is compiled only where it is used.
template <class X>
class basic_loader_order {
 public:
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
  /// loop's epoch, or the first of the next one. Batches read ahead do not count.
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

 protected:
  basic_loader_order(dim_t count, const data_loader_options& options)
      : options_{options}, count_{count} {
    const auto& [rank, ranks] = options.shard;
    if (options.batch < 1)
      throw shape_error(diagnostic{
          "data_loader expects a batch of at least {expected}, got {number}", 1, options.batch});
    if (rank < 0 || rank >= ranks)
      throw shape_error(
          diagnostic{"data_loader expects a rank below {expected}, got {number}", ranks, rank});
    samples_ = options.drop_last ? count / ranks : count / ranks + (count % ranks != 0);
    if (options.drop_last) samples_ -= samples_ % options.batch;
    if (!options.weights.empty()) take_weights(options.weights);
    if (!options.strata.empty()) take_strata(options.strata);
    options_.weights = {};
    options_.strata = {};
    if (options.shuffle) order_ = aligned_buffer<dim_t>(count);
  }

  /// Whether batches are not contiguous parts of the dataset.
  bool reorders() const { return options_.shuffle.has_value() || options_.shard.size > 1; }

  dim_t batch_extent(dim_t index) const {
    const dim_t left = samples_ - index * options_.batch;
    return left < options_.batch ? left : options_.batch;
  }

  /// Where sample i of this rank's batch stands in the order of the epoch.
  dim_t place_of(dim_t index, dim_t i) const {
    return (options_.shard.rank + (index * options_.batch + i) * options_.shard.size) % count_;
  }
  /// The sample of the dataset at this place.
  dim_t sample_at(dim_t place) const { return options_.shuffle ? order_[place] : place; }

  /// Starts the next epoch, and returns its first batch. O(samples), with strata O(samples log
  /// samples). No allocation.
  dim_t start_epoch() {
    running_ = epoch_++;
    if (options_.shuffle) draw(static_cast<std::uint32_t>(running_));
    const dim_t first = std::exchange(first_, 0);
    given_ = first + 1;
    return first;
  }
  void give(dim_t index) { given_ = index + 1; }
  dim_t running_epoch() const { return running_; }

 private:
  void check_drawn(std::size_t given, const char* sentence) const {
    if (static_cast<dim_t>(given) != count_)
      throw shape_error(diagnostic{sentence, count_, static_cast<dim_t>(given)});
    if (!options_.shuffle)
      throw error("data_loader draws by weights or strata from a seed: .shuffle = seed{1}");
    if (!options_.weights.empty() && !options_.strata.empty())
      throw error("data_loader takes weights or strata, not both");
  }

  void take_weights(std::span<const double> weights) {
    check_drawn(weights.size(), "data_loader expects {expected} weights, got {got}");
    cumulative_ = aligned_buffer<double>(count_);
    double sum = 0;
    for (dim_t i = 0; i < count_; ++i) {
      const double w = weights[static_cast<std::size_t>(i)];
      if (!(w >= 0))
        throw error("data_loader: the weight of sample " + std::to_string(i) +
                    " is negative or not a number");
      cumulative_[i] = sum += w;
    }
    if (!(sum > 0) || sum - sum != 0)
      throw error("data_loader: the weights must have a positive, finite sum");
  }

  void take_strata(std::span<const std::int64_t> strata) {
    check_drawn(strata.size(), "data_loader expects {expected} strata, got {got}");
    stratum_ = aligned_buffer<dim_t>(count_);
    keys_ = aligned_buffer<double>(count_);
    aligned_buffer<dependent<std::int64_t, X>> labels(count_);
    std::copy_n(strata.data(), strata.size(), labels.data());
    std::sort(labels.data(), labels.data() + count_);
    auto* const end = std::unique(labels.data(), labels.data() + count_);
    seen_ = aligned_buffer<dim_t>(end - labels.data());
    members_ = aligned_buffer<dim_t>(end - labels.data());
    for (dim_t i = 0; i < count_; ++i) {
      stratum_[i] =
          std::lower_bound(labels.data(), end, strata[static_cast<std::size_t>(i)]) - labels.data();
      ++members_[stratum_[i]];
    }
  }

  /// A number in [0, 1).
  static double unit(const random_stream& stream, dim_t i) {
    const auto w = stream.words(static_cast<std::uint32_t>(i));
    return 0.5 + 0.5 * signed_unit(w[0], w[1]);
  }

  void draw(std::uint32_t epoch) {
    auto* const order = order_.data();
    if (!cumulative_.empty()) {
      const random_stream stream{*options_.shuffle, hash_path("data_loader.weights"), epoch};
      const auto* const sums = cumulative_.data();
      const double total = sums[count_ - 1];
      // Of equal sums the first, so that a sample of weight 0 is never drawn.
      const dim_t last = std::lower_bound(sums, sums + count_, total) - sums;
      for (dim_t i = 0; i < count_; ++i)
        order[i] = std::min(
            last, dim_t{std::upper_bound(sums, sums + count_, unit(stream, i) * total) - sums});
      return;
    }
    shuffle(random_stream{*options_.shuffle, hash_path("data_loader"), epoch}, order, count_);
    if (stratum_.empty()) return;
    const random_stream stream{*options_.shuffle, hash_path("data_loader.strata"), epoch};
    std::fill_n(seen_.data(), seen_.size(), dim_t{0});
    for (dim_t i = 0; i < count_; ++i) {
      const dim_t s = stratum_[order[i]];
      keys_[order[i]] =
          (static_cast<double>(seen_[s]++) + unit(stream, s)) / static_cast<double>(members_[s]);
    }
    std::sort(order, order + count_, [keys = keys_.data()](dim_t a, dim_t b) {
      return keys[a] != keys[b] ? keys[a] < keys[b] : a < b;
    });
  }

  data_loader_options options_;
  dim_t count_ = 0, samples_ = 0;
  dim_t epoch_ = 0, running_ = 0;
  dim_t first_ = 0;  ///< Where the next epoch starts.
  dim_t given_ = 0;  ///< The batches of this epoch that the loop has taken; 0 before any loop.
  aligned_buffer<dependent<dim_t, X>> order_;
  aligned_buffer<dependent<double, X>> cumulative_, keys_;
  aligned_buffer<dependent<dim_t, X>> stratum_, members_, seen_;
};
using loader_order = basic_loader_order<void>;

/// Iterates over the batches of an epoch. Loader has `batch`, `current(index)` and `fetch(index)`,
/// which makes a batch the current one.
template <class Loader>
class batch_iterator {
 public:
  using value_type = typename Loader::batch;
  using difference_type = std::ptrdiff_t;
  using iterator_concept = std::input_iterator_tag;

  batch_iterator() = default;
  batch_iterator(Loader* loader, dim_t index) : loader_{loader}, index_{index} {}

  value_type operator*() const { return loader_->current(index_); }
  batch_iterator& operator++() {
    if (++index_ < loader_->size()) loader_->fetch(index_);
    loader_->give(index_);
    return *this;
  }
  void operator++(int) { ++*this; }
  bool operator==(std::default_sentinel_t) const { return index_ >= loader_->size(); }

 private:
  Loader* loader_ = nullptr;
  dim_t index_ = 0;
};

}  // namespace detail

}  // namespace ikebana
