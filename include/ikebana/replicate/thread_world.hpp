#pragma once

// Clocks and durations come with <condition_variable>; all of <chrono> takes a tenth of a second
// more.
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/replicate/process_group.hpp"

namespace ikebana {

namespace detail {

class thread_engine;

enum class collective : std::uint8_t { barrier, broadcast, all_gather, reduce_scatter, all_reduce };

constexpr const char* name(collective what) {
  switch (what) {
    case collective::barrier:
      return "barrier";
    case collective::broadcast:
      return "broadcast";
    case collective::all_gather:
      return "all_gather";
    case collective::reduce_scatter:
      return "reduce_scatter";
    case collective::all_reduce:
      return "all_reduce";
  }
  return "?";
}

/// The type of the elements, as far as ranks must agree on it.
struct element_type {
  char kind = 'x';  // f: floating, i: signed, u: unsigned, x: bytes
  std::uint32_t size = 0;
  constexpr bool operator==(const element_type&) const = default;
};

template <class T>
constexpr element_type element_type_of() {
  constexpr char kind = std::is_floating_point_v<T> ? 'f'
                        : !std::is_integral_v<T>    ? 'x'
                        : std::is_signed_v<T>       ? 'i'
                                                    : 'u';
  return {kind, static_cast<std::uint32_t>(sizeof(T))};
}

/// What a rank asks for: which collective, of what, and where its memory is.
struct request {
  collective what = collective::barrier;
  reduce_op op = reduce_op::sum;
  element_type element{};
  int root = 0;
  dim_t length = 0;
  const void* send = nullptr;
  void* receive = nullptr;

  bool agrees_with(const request& other) const {
    return what == other.what && op == other.op && element == other.element && root == other.root &&
           length == other.length;
  }

  /// "all_reduce of 10 float32 (avg)"
  std::string text() const {
    std::string s = detail::name(what);
    if (what == collective::barrier) return s;
    s += " of " + std::to_string(length) + " ";
    if (element.kind == 'x')
      s += "x " + std::to_string(element.size) + " bytes";
    else
      s += (element.kind == 'f'   ? "float"
            : element.kind == 'i' ? "int"
                                  : "uint") +
           std::to_string(8 * element.size);
    if (what == collective::broadcast) s += " (from rank " + std::to_string(root) + ")";
    if (what == collective::reduce_scatter || what == collective::all_reduce)
      s += std::string(" (") + ikebana::name(op) + ")";
    return s;
  }
};

/// A rank's request in the table, in one cache line with the number that publishes it.
struct alignas(64) announcement {
  std::atomic<std::uint64_t> number{0};  // of the collective, counted from 1
  request what{};
};
static_assert(sizeof(announcement) == 64);

/// How far a rank is: 2 k when its shares of the first k collectives are done, one more while it
/// works on the next, that is while it may touch the memory of others.
struct alignas(64) progress_line {
  std::atomic<std::uint64_t> step{0};
  std::atomic<bool> left{false};
};

inline std::string rank_text(int rank) { return "rank " + std::to_string(rank); }

inline std::string seconds_text(std::chrono::nanoseconds t) {
  char s[32];
  std::snprintf(s, sizeof(s), "%.3f s", std::chrono::duration<double>(t).count());
  return s;
}

}  // namespace detail

/// What the ranks of a `thread_group` share. Made before their threads start and outliving them.
/// All of it is allocated here; the collectives allocate nothing.
class thread_world {
 public:
  using clock = std::chrono::steady_clock;

  static constexpr int max_size = 256;

  /// How many collectives may be under way at once; one more waits for the oldest.
  static constexpr std::uint64_t max_in_flight = 64;

  /// Why a world stopped: a rank threw, one waited too long or found another gone, or the ranks
  /// called different collectives.
  enum class failure_kind { thrown, gave_up, mismatch };

  struct failure {
    int rank = -1;  // of the one that noticed, which for `thrown` is the one that threw
    failure_kind kind = failure_kind::thrown;
    std::string text;
  };

  /// Throws ikebana::error unless 1 <= size <= max_size. `timeout` is how long a rank waits for
  /// another in one collective.
  explicit thread_world(int size, std::chrono::nanoseconds timeout = std::chrono::seconds{300})
      : size_{checked(size)},
        timeout_{timeout},
        table_{std::make_unique<detail::announcement[]>(static_cast<std::size_t>(size) *
                                                        max_in_flight)},
        progress_{std::make_unique<detail::progress_line[]>(static_cast<std::size_t>(size))} {
    // Spinning in the place of the rank one waits for is the slowest way of waiting.
    const unsigned cores = std::thread::hardware_concurrency();
    if (cores != 0 && static_cast<unsigned>(size) > cores) spins_ = 16;
  }

  thread_world(const thread_world&) = delete;
  thread_world& operator=(const thread_world&) = delete;

  int size() const { return size_; }
  std::chrono::nanoseconds timeout() const { return timeout_; }

  bool failed() const { return (status_.load(std::memory_order_seq_cst) & failed_bit) != 0; }

  /// Stops the world, for good: every rank that waits or comes later throws communication_error.
  /// Only the first failure is kept; the rank that threw may tell more of it later.
  void fail(int rank, failure_kind kind, std::string text) noexcept {
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

  /// The first failure. Requires failed().
  failure first_failure() const {
    std::lock_guard lock{mutex_};
    return failure_;
  }

 private:
  friend class detail::thread_engine;

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

  bool troubled() const { return status_.load(std::memory_order_seq_cst) != 0; }

  void leave(int rank) noexcept {
    progress(rank).left.store(true, std::memory_order_release);
    status_.fetch_or(left_bit, std::memory_order_seq_cst);
    wake();
  }

  /// After anything that another rank may sleep for. The store before it and this load are both
  /// sequentially consistent, as are the sleeper's two: one of the two sees the other.
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

  /// Returns when no other rank is inside a share. After fail() none begins one, so this is short;
  /// after this, the memory that this rank published is its own again.
  void quarantine(int rank) noexcept {
    for (int r = 0; r < size_; ++r)
      while (r != rank && (progress(r).step.load(std::memory_order_seq_cst) & 1) != 0)
        std::this_thread::yield();
  }

  const int size_;
  int spins_ = 2000;
  const std::chrono::nanoseconds timeout_;
  const std::unique_ptr<detail::announcement[]> table_;
  const std::unique_ptr<detail::progress_line[]> progress_;

  // Read by everyone on every collective, written hardly ever.
  alignas(64) std::atomic<std::uint32_t> status_{0};
  std::atomic<int> sleepers_{0};

  alignas(64) mutable std::mutex mutex_;
  std::condition_variable condition_;
  failure failure_;
};

}  // namespace ikebana
