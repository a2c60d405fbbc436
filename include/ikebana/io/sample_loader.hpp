#pragma once

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <iterator>
#include <memory>
#include <mutex>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/random.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/core/tensor.hpp"
#include "ikebana/io/data_loader.hpp"
#include "ikebana/io/loader_order.hpp"

// Datasets of one's own. A dataset is a class that reads a sample when it is asked for one:
//
//     struct sentences {
//       dim_t size() const;
//       auto sample(dim_t i) const {  // or sample(i, const random_stream&)
//         return std::tuple(words, words.extent(0), tags);
//       }
//     };
//
// Each element of a sample becomes a tensor of the batch: a number [N], a tensor of static shape
// [N, ...], a sequence [dynamic, ...] one [N, longest, ...] that is padded. Integers become
// std::int64_t.

namespace ikebana {

namespace detail {

/// A number, or a tensor of static shape but for the first dimension of a sequence.
template <class X>
inline constexpr bool is_sample_element = std::is_arithmetic_v<X>;
template <tensor_like X>
inline constexpr bool is_sample_element<X> = [] {
  constexpr shape own = X::static_shape;
  for (std::size_t i = 1; i < own.rank(); ++i)
    if (own[i] < 0) return false;
  return own.rank() < shape::max_rank;
}();

/// How an element of a sample is stored in a batch.
template <class X>
struct sample_element {
  using type = std::conditional_t<std::is_floating_point_v<X>, X, std::int64_t>;
  static constexpr shape batch_shape{dynamic};
  static constexpr bool is_sequence = false;
  static constexpr dim_t elements = 1;
};
template <tensor_like X>
struct sample_element<X> {
  using type = typename X::value_type;
  static constexpr shape own = X::static_shape;
  static constexpr bool is_sequence = own.rank() > 0 && own[0] == dynamic;
  static constexpr shape batch_shape = [] {
    shape s{dynamic};
    for (const dim_t d : own) s.push_back(d);
    return s;
  }();
  /// Of one sample, or of one step of a sequence.
  static constexpr dim_t elements = own.numel(is_sequence ? 1 : 0, own.rank());
};

/// A sample as a tuple.
template <class X>
auto as_tuple(X&& sample) {
  using S = std::remove_cvref_t<X>;
  if constexpr (!requires { std::tuple_size<S>::value; })
    return std::tuple<S>(std::forward<X>(sample));
  else
    return std::apply(
        []<class... E>(E&&... e) {
          return std::tuple<std::remove_cvref_t<E>...>(std::forward<E>(e)...);
        },
        std::forward<X>(sample));
}

/// Sample i of a dataset as a tuple. That of a tensor_dataset are views.
template <class Dataset>
auto sample_of(const Dataset& data, dim_t i, [[maybe_unused]] const random_stream& stream) {
  if constexpr (requires { data.sample(i, stream); }) {
    return as_tuple(data.sample(i, stream));
  } else if constexpr (requires { data.sample(i); }) {
    return as_tuple(data.sample(i));
  } else {
    const auto row = [i]<class X>(const X& x) {
      constexpr shape own = [] {
        shape s;
        for (std::size_t k = 1; k < X::static_shape.rank(); ++k) s.push_back(X::static_shape[k]);
        return s;
      }();
      if constexpr (own.rank() == 0) {
        return x.data()[i];
      } else {
        shape extents;
        for (std::size_t k = 1; k < X::static_shape.rank(); ++k) extents.push_back(x.extent(k));
        return tensor_view<const typename X::value_type, own>(x.data() + i * extents.numel(),
                                                              extents);
      }
    };
    return std::tuple(row(data.features()), row(data.targets()));
  }
}

template <class Sample>
struct batch_of;
/// One batch and its memory.
template <class... E>
struct batch_of<std::tuple<E...>> {
  static constexpr bool has_sequences = (sample_element<E>::is_sequence || ...);
  using views = std::tuple<
      tensor_view<const typename sample_element<E>::type, sample_element<E>::batch_shape>...>;
  static constexpr std::size_t size = sizeof...(E);

  std::tuple<aligned_buffer<typename sample_element<E>::type>...> memory;
  std::array<dim_t, size> lengths{};
  dim_t samples = 0;
  std::vector<std::tuple<E...>> held;  ///< Samples with sequences, until the longest is known.
  dim_t index = -1;                    ///< The batch that this is.
  std::exception_ptr failure;

  /// Prepares for n samples of these lengths. Allocates only to grow.
  void resize(dim_t n) {
    samples = n;
    each([&]<std::size_t K, class X>() {
      auto& m = std::get<K>(memory);
      const dim_t needed =
          n * sample_element<X>::elements * (sample_element<X>::is_sequence ? lengths[K] : 1);
      if (m.size() < needed) m = std::remove_cvref_t<decltype(m)>(needed);
    });
  }

  void put(dim_t i, const std::tuple<E...>& sample, const std::array<double, 8>& padding) {
    each([&]<std::size_t K, class X>() {
      using element = sample_element<X>;
      using T = typename element::type;
      T* const to = std::get<K>(memory).data();
      const X& value = std::get<K>(sample);
      if constexpr (!tensor_like<X>) {
        to[i] = static_cast<T>(value);
      } else {
        const dim_t n = value.extents().numel(),
                    room = element::elements * (element::is_sequence ? lengths[K] : 1);
        if (n > 0)
          std::memcpy(to + i * room, value.data(), static_cast<std::size_t>(n) * sizeof(T));
        std::fill(to + i * room + n, to + (i + 1) * room, static_cast<T>(padding[K]));
      }
    });
  }

  views view() const {
    return [&]<std::size_t... K>(std::index_sequence<K...>) {
      return views(std::tuple_element_t<K, views>(
          std::get<K>(memory).data(),
          batch_extents<std::tuple_element_t<K, std::tuple<E...>>>(lengths[K]))...);
    }
    (std::make_index_sequence<size>());
  }

  /// Calls f.operator()<K, X>() for each element.
  template <class F>
  static void each(F&& f) {
    [&]<std::size_t... K>(std::index_sequence<K...>) { (f.template operator()<K, E>(), ...); }
    (std::make_index_sequence<size>());
  }

 private:
  template <class X>
  shape batch_extents(dim_t length) const {
    const shape s = sample_element<X>::batch_shape.with(0, samples);
    return sample_element<X>::is_sequence ? s.with(1, length) : s;
  }
};

template <class Sample>
inline constexpr bool is_sample = false;
template <class... E>
inline constexpr bool is_sample<std::tuple<E...>> = sizeof...(E) >= 1 && sizeof...(E) <= 8 &&
                                                    (is_sample_element<E> && ...);

template <class D>
using sample_of_dataset = decltype(sample_of(std::declval<const D&>(), dim_t{}, random_stream{}));

namespace misuse {
IKEBANA_MISUSE(a_sample_consists_of_numbers_and_tensors,
               "a sample consists of up to 8 numbers and tensors, whose dimensions are static, but "
               "for the first one of a sequence");
}
template <has_samples D>
struct samples_or_misuse<D>
    : std::type_identity<std::conditional_t<
          is_sample<sample_of_dataset<D>>, D,
          no_dataset<misuse::a_sample_consists_of_numbers_and_tensors<later<D>>>>> {};

/// What the threads of a loader share.
template <class Batch>
struct read_ahead {
  std::mutex mutex;
  std::condition_variable work, ready;
  bool stopped = false;
  dim_t next = 0, end = 0;  ///< The next batch to be read, and the end.
  dim_t taken = 0;          ///< The batch that the loop has.
  int busy = 0;
  std::vector<Batch> slots;      ///< Batch i is in slot i % slots.
  const void* loader = nullptr;  ///< Whose batches the threads read.
  std::vector<std::jthread> threads;

  ~read_ahead() {
    {
      const std::lock_guard lock(mutex);
      stopped = true;
    }
    work.notify_all();
  }

  Batch& slot(dim_t index) { return slots[static_cast<std::size_t>(index) % slots.size()]; }
};

}  // namespace detail

/// Yields the batches of a dataset of one's own, epoch by epoch, as a std::tuple of views: `for
/// (auto [words, lengths, tags] : loader)`. The views are valid until the loop takes the next
/// batch.
///
/// Order, shards and epochs are those of a loader of a tensor_dataset. The random_stream of
/// sample(i, stream) depends on the seed of `shuffle` (seed{} without one), the epoch and the place
/// in it: batches are the same bits for any number of workers and ranks.
///
/// With `workers`, sample() is called from several threads at a time. An exception of sample() is
/// thrown to the loop when it comes to that batch. A loader can be moved between epochs. Apart from
/// sample() itself, an epoch allocates only when a batch is longer than any before it.
template <detail::has_samples Dataset>
class data_loader<Dataset> : public detail::loader_order {
  using slot = detail::batch_of<detail::sample_of_dataset<Dataset>>;

 public:
  /// The views of a batch.
  using batch = typename slot::views;

  /// Throws as a loader of a tensor_dataset does, and error for less than 0 workers or 1 batch
  /// ahead. Starts the threads.
  data_loader(const Dataset& dataset, const data_loader_options& options)
      : detail::loader_order{dataset.size(), options},
        dataset_{&dataset},
        ahead_{std::make_unique<detail::read_ahead<slot>>()} {
    if (options.workers < 0 || options.prefetch < 1)
      throw error("data_loader: expected workers >= 0 and prefetch >= 1");
    ahead_->slots.resize(options.workers == 0 ? 1 : static_cast<std::size_t>(options.prefetch) + 1);
    const dim_t most = samples() < options.batch ? samples() : options.batch;
    for (slot& s : ahead_->slots) {
      s.resize(most);
      if constexpr (slot::has_sequences) s.held.reserve(static_cast<std::size_t>(most));
    }
    for (int i = 0; i < options.workers; ++i)
      ahead_->threads.emplace_back([state = ahead_.get()] { work(*state); });
    ahead_->loader = this;
  }
  data_loader(const Dataset&&, const data_loader_options&) = delete;
  data_loader(data_loader&& other)
      : detail::loader_order{(other.pause(), std::move(other))},
        dataset_{other.dataset_},
        ahead_{std::move(other.ahead_)} {}

  using iterator = detail::batch_iterator<data_loader>;

  /// Starts the next epoch. Throws what sample() throws.
  iterator begin() {
    pause();
    const dim_t first = start_epoch();
    for (slot& s : ahead_->slots) s.index = -1;
    {
      const std::lock_guard lock(ahead_->mutex);
      ahead_->loader = this;
      ahead_->next = ahead_->taken = first;
      ahead_->end = size();
    }
    ahead_->work.notify_all();
    if (first < size()) fetch(first);
    return iterator{this, first};
  }
  std::default_sentinel_t end() const { return {}; }

 private:
  friend iterator;

  batch current(dim_t index) const { return ahead_->slot(index).view(); }

  /// Waits until no thread reads.
  void pause() {
    std::unique_lock lock(ahead_->mutex);
    ahead_->end = 0;
    ahead_->ready.wait(lock, [&] { return ahead_->busy == 0; });
  }

  /// Makes a batch that of the loop.
  void fetch(dim_t index) {
    slot& s = ahead_->slot(index);
    if (ahead_->threads.empty()) {
      fill(s, index);
      return;
    }
    std::unique_lock lock(ahead_->mutex);
    ahead_->taken = index;
    ahead_->work.notify_all();
    ahead_->ready.wait(lock, [&] { return s.index == index; });
    if (s.failure) std::rethrow_exception(std::exchange(s.failure, nullptr));
  }

  static void work(detail::read_ahead<slot>& state) {
    std::unique_lock lock(state.mutex);
    for (;;) {
      state.work.wait(lock, [&] {
        return state.stopped || (state.next < state.end &&
                                 state.next < state.taken + static_cast<dim_t>(state.slots.size()));
      });
      if (state.stopped) return;
      const dim_t index = state.next++;
      const auto* const loader = static_cast<const data_loader*>(state.loader);
      slot& s = state.slot(index);
      ++state.busy;
      lock.unlock();
      std::exception_ptr failure;
      try {
        loader->fill(s, index);
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      s.failure = failure;
      s.index = index;
      --state.busy;
      state.ready.notify_all();
    }
  }

  /// Reads a batch. O(its elements).
  void fill(slot& s, dim_t index) const {
    const dim_t n = batch_extent(index);
    const auto sample = [&](dim_t i) {
      const dim_t place = place_of(index, i);
      const random_stream stream{
          options().shuffle.value_or(seed{}),
          hash_path("data_loader.sample") + static_cast<std::uint64_t>(place) * 0x9E3779B97F4A7C15u,
          static_cast<std::uint64_t>(running_epoch())};
      return detail::sample_of(*dataset_, sample_at(place), stream);
    };
    if constexpr (slot::has_sequences) {
      s.held.clear();
      s.lengths = {};
      for (dim_t i = 0; i < n; ++i) {
        s.held.push_back(sample(i));
        slot::each([&]<std::size_t K, class X>() {
          if constexpr (detail::sample_element<X>::is_sequence)
            s.lengths[K] = std::max(s.lengths[K], std::get<K>(s.held.back()).extent(0));
        });
      }
      s.resize(n);
      for (dim_t i = 0; i < n; ++i)
        s.put(i, s.held[static_cast<std::size_t>(i)], options().padding);
    } else {
      s.resize(n);
      for (dim_t i = 0; i < n; ++i) s.put(i, sample(i), options().padding);
    }
  }

  const Dataset* dataset_;
  std::unique_ptr<detail::read_ahead<slot>> ahead_;
};

}  // namespace ikebana
