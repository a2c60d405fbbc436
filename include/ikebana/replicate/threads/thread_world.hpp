#pragma once

// <condition_variable> includes clocks and durations; all of <chrono> costs a tenth of a second
// more.
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ikebana/core/error.hpp"
#include "ikebana/replicate/request.hpp"

namespace ikebana {

namespace detail {

template <class>
class basic_thread_engine;

/// A rank's request in the table, in one cache line with the number that publishes it.
struct alignas(64) announcement {
  std::atomic<std::uint64_t> number{0};  // of the collective, counted from 1
  request what{};
};
static_assert(sizeof(announcement) == 64);

/// A rank's progress: 2 k when its shares of the first k collectives are done, plus one while it
/// works on the next, that is, while it may touch the memory of others.
struct alignas(64) progress_line {
  std::atomic<std::uint64_t> step{0};
  std::atomic<bool> left{false};
};

}  // namespace detail

/// The state that the ranks of a `thread_group` share. It is created before their threads start and
/// outlives them; `thread_group::split` creates the world of a part of the ranks. Everything is
/// allocated here; collectives allocate nothing.
///
/// A template, so that it is compiled only where it is used.
template <class>
class basic_thread_world {
 public:
  using clock = std::chrono::steady_clock;

  static constexpr int max_size = 256;

  /// The number of collectives that can be in flight; one more waits for the oldest.
  static constexpr std::uint64_t max_in_flight = 64;

  /// Why a world stopped: a rank threw, one waited too long or found another gone, or the ranks
  /// called different collectives.
  enum class failure_kind { thrown, gave_up, mismatch };

  struct failure {
    int rank = -1;  // The rank (of the whole world) that noticed or, for `thrown`, that threw.
    failure_kind kind = failure_kind::thrown;
    std::string text;
  };

  /// Throws ikebana::error unless 1 <= size <= max_size. `timeout` is how long a rank waits for
  /// another in one collective.
  explicit basic_thread_world(int size,
                              std::chrono::nanoseconds timeout = std::chrono::seconds{300})
      : basic_thread_world(size, timeout, {}) {}

  /// For a part of the ranks of a larger world: `numbers[r]` is the number of rank r in errors.
  basic_thread_world(int size, std::chrono::nanoseconds timeout, std::vector<int> numbers)
      : size_{checked(size)},
        names_{std::move(numbers)},
        timeout_{timeout},
        table_{std::make_unique<detail::announcement[]>(static_cast<std::size_t>(size) *
                                                        max_in_flight)},
        progress_{std::make_unique<detail::progress_line[]>(static_cast<std::size_t>(size))} {
    // Spinning on the processor that the awaited rank needs would be the slowest way to wait.
    const unsigned cores = std::thread::hardware_concurrency();
    if (cores != 0 && static_cast<unsigned>(size) > cores) spins_ = 16;
  }

  basic_thread_world(const basic_thread_world&) = delete;
  basic_thread_world& operator=(const basic_thread_world&) = delete;

  int size() const { return size_; }
  /// The number of a rank in errors.
  int name_of(int rank) const {
    return names_.empty() ? rank : names_[static_cast<std::size_t>(rank)];
  }
  std::chrono::nanoseconds timeout() const { return timeout_; }

  bool failed() const { return (status_.load(std::memory_order_seq_cst) & failed_bit) != 0; }

  /// Stops the world and its parts for good: every rank that waits or comes later throws
  /// communication_error. Only the first failure is kept; the rank that threw may add details
  /// later. `rank` is a name.
  void fail(int rank, failure_kind kind, std::string text) noexcept {
    // The parts first: a rank that learns of it there must not report it here as its own failure.
    std::lock_guard parts_lock{parts_mutex_};
    for (const std::weak_ptr<basic_thread_world>& part : parts_)
      if (const auto alive = part.lock()) alive->fail(rank, kind, text);
    {
      std::lock_guard lock{mutex_};
      if (!failed()) {
        failure_ = {rank, kind, std::move(text)};
        status_.fetch_or(failed_bit, std::memory_order_seq_cst);
      } else if (failure_.rank == rank && failure_.kind == kind) {
        failure_.text = std::move(text);
      }
    }
    condition_.notify_all();
  }

  /// The part at that address, if it exists.
  template <class = void>
  std::shared_ptr<basic_thread_world> part_at(const basic_thread_world* address) const {
    std::lock_guard lock{parts_mutex_};
    for (const std::weak_ptr<basic_thread_world>& part : parts_)
      if (auto alive = part.lock(); alive.get() == address) return alive;
    return nullptr;
  }

  /// Makes another world fail with this one.
  template <class = void>
  void adopt(const std::shared_ptr<basic_thread_world>& part) {
    {
      std::lock_guard lock{parts_mutex_};
      std::erase_if(parts_, [](const auto& p) { return p.expired(); });
      parts_.push_back(part);
    }
    if (!failed()) return;
    failure f = first_failure();
    part->fail(f.rank, f.kind, std::move(f.text));
  }

  /// The first failure. Requires failed().
  failure first_failure() const {
    std::lock_guard lock{mutex_};
    return failure_;
  }

 private:
  template <class>
  friend class detail::basic_thread_engine;

  static constexpr std::uint32_t failed_bit = 1, left_bit = 2;
  static constexpr int yields = 512;

  static int checked(int size) {
    if (size < 1 || size > max_size)
      throw error("a world of threads has 1 to " + std::to_string(max_size) + " ranks, not " +
                  std::to_string(size));
    return size;
  }

  detail::announcement& at(std::uint64_t number, int rank) {
    return table_[(number % max_in_flight) * static_cast<std::uint64_t>(size_) +
                  static_cast<std::uint64_t>(rank)];
  }
  detail::progress_line& progress(int rank) { return progress_[static_cast<std::size_t>(rank)]; }

  bool any_failed_or_left() const { return status_.load(std::memory_order_seq_cst) != 0; }

  void leave(int rank) noexcept {
    progress(rank).left.store(true, std::memory_order_release);
    status_.fetch_or(left_bit, std::memory_order_seq_cst);
    wake();
  }

  /// Called after anything that another rank may sleep for. The preceding store and this load are
  /// sequentially consistent, and so are the sleeper's two: one of the two sees the other.
  void wake() noexcept {
    if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
    { std::lock_guard lock{mutex_}; }
    condition_.notify_all();
  }

  template <class Ready>
  void sleep_until(clock::time_point deadline, Ready ready) {
    std::unique_lock lock{mutex_};
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    condition_.wait_until(lock, deadline, ready);
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
  }

  /// Returns when no other rank is inside a share. After fail() none starts one, so this is short;
  /// afterwards, the memory that this rank published is its own again.
  void quarantine(int rank) noexcept {
    for (int r = 0; r < size_; ++r)
      while (r != rank && (progress(r).step.load(std::memory_order_seq_cst) & 1) != 0)
        std::this_thread::yield();
  }

  const int size_;
  const std::vector<int> names_;
  int spins_ = 2000;
  const std::chrono::nanoseconds timeout_;
  const std::unique_ptr<detail::announcement[]> table_;
  const std::unique_ptr<detail::progress_line[]> progress_;

  // Read by all ranks in every collective, hardly ever written.
  alignas(64) std::atomic<std::uint32_t> status_{0};
  std::atomic<int> sleepers_{0};

  alignas(64) mutable std::mutex mutex_;
  std::condition_variable condition_;
  failure failure_;

  mutable std::mutex parts_mutex_;
  std::vector<std::weak_ptr<basic_thread_world>> parts_;
};
using thread_world = basic_thread_world<void>;

}  // namespace ikebana
