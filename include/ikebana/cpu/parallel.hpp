#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/cpu/detail/targets.hpp"

namespace ikebana {

namespace detail {
inline std::atomic<int> threads_of_process{1};
inline constinit thread_local int threads_of_this = 0;  // 0: as the process
}  // namespace detail

/// How many threads a kernel that the calling thread runs may use, itself included. 1 unless set.
inline int num_threads() {
  const int own = detail::threads_of_this;
  return own > 0 ? own : detail::threads_of_process.load(std::memory_order_relaxed);
}

/// Sets `num_threads` of all threads that have no `scoped_num_threads`. Results do not depend on
/// it. The threads are made when first needed; with 1 there are none. Throws `ikebana::error` if
/// n < 1.
inline void set_num_threads(int n) {
  if (n < 1) throw error("set_num_threads: at least 1 thread is needed");
  detail::threads_of_process.store(n, std::memory_order_relaxed);
}

/// The calling thread's own number of threads, as long as this lives: say, of one replica of many.
class scoped_num_threads {
 public:
  explicit scoped_num_threads(int n) : before_{detail::threads_of_this} {
    if (n < 1) throw error("scoped_num_threads: at least 1 thread is needed");
    detail::threads_of_this = n;
  }
  scoped_num_threads(const scoped_num_threads&) = delete;
  scoped_num_threads& operator=(const scoped_num_threads&) = delete;
  ~scoped_num_threads() { detail::threads_of_this = before_; }

 private:
  int before_;
};

namespace detail {

/// Waits until `value` is no longer `old`: awake for a while, for the next piece of work mostly
/// comes soon, then asleep.
inline std::uint32_t wait_while(const std::atomic<std::uint32_t>& value, std::uint32_t old) {
  for (int turn = 0; turn < 500; ++turn) {
    const std::uint32_t now = value.load(std::memory_order_acquire);
    if (now != old) return now;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  value.wait(old, std::memory_order_acquire);
  return value.load(std::memory_order_acquire);
}

/// The threads that help one thread. They live until it ends, or asks for another number of them.
class thread_team {
 public:
  using range_function = void (*)(const void* f, dim_t begin, dim_t end);

  thread_team() = default;
  thread_team(const thread_team&) = delete;
  thread_team& operator=(const thread_team&) = delete;
  ~thread_team() { dismiss(); }

  /// Calls run(f, ...) for ranges of `step` that cover [begin, end), on `threads` threads.
  void work(int threads, range_function run, const void* f, dim_t begin, dim_t end, dim_t step) {
    if (threads != threads_) hire(threads);
    failed_.store(false, std::memory_order_relaxed);
    run_ = run;
    f_ = f;
    end_ = end;
    step_ = step;
    next_.store(begin, std::memory_order_relaxed);
    busy_.store(static_cast<std::uint32_t>(helpers_.size()), std::memory_order_relaxed);
    task_.fetch_add(1, std::memory_order_release);
    task_.notify_all();
    {
      const scoped_num_threads alone(1);
      take_ranges();
    }
    for (std::uint32_t left = busy_.load(std::memory_order_acquire); left != 0;)
      left = wait_while(busy_, left);
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

 private:
  void take_ranges() noexcept {
    for (;;) {
      const dim_t from = next_.fetch_add(step_, std::memory_order_relaxed);
      if (from >= end_) return;
      try {
        run_(f_, from, end_ - from < step_ ? end_ : from + step_);
      } catch (...) {
        if (!failed_.exchange(true)) failure_ = std::current_exception();
      }
    }
  }

  void help(std::uint32_t task) {
    threads_of_this = 1;
    for (;;) {
      task = wait_while(task_, task);
      if (run_ == nullptr) return;
      take_ranges();
      if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) busy_.notify_one();
    }
  }

  void hire(int threads) {
    dismiss();
    helpers_.reserve(static_cast<std::size_t>(threads - 1));
    threads_ = threads;
    const std::uint32_t task = task_.load(std::memory_order_relaxed);
    try {
      for (int i = 1; i < threads; ++i) helpers_.emplace_back([this, task] { help(task); });
    } catch (const std::system_error&) {
      // Those that the system granted do the same work.
    }
  }

  void dismiss() {
    run_ = nullptr;
    task_.fetch_add(1, std::memory_order_release);
    task_.notify_all();
    for (std::thread& t : helpers_) t.join();
    helpers_.clear();
  }

  int threads_ = 1;
  std::vector<std::thread> helpers_;
  range_function run_ = nullptr;
  const void* f_ = nullptr;
  dim_t end_ = 0, step_ = 0;
  std::exception_ptr failure_;
  std::atomic<bool> failed_{false};
  alignas(64) std::atomic<std::uint32_t> task_{0};
  alignas(64) std::atomic<std::uint32_t> busy_{0};
  alignas(64) std::atomic<dim_t> next_{0};
};

inline void work_in_parallel(int threads, thread_team::range_function run, const void* f,
                             dim_t begin, dim_t end, dim_t step) {
  thread_local thread_team team;
  team.work(threads, run, f, begin, end, step);
}

}  // namespace detail

namespace cpu {

/// Calls f(b, e) for ranges [b, e) that together are [begin, end), on up to `num_threads()`
/// threads. Every b and e is a multiple of `grain` behind `begin`, but the last e; `grain` is how
/// many indices are worth a thread's while (some 20 microseconds), and a multiple of the blocks in
/// which f works. What f computes for an index must not depend on the range it comes in: so results
/// do not depend on the number of threads. Inside of f, num_threads() is 1. Nothing is allocated,
/// but by the first call with another number of threads; with 1, or no more than `grain` indices,
/// it is f(begin, end) and nothing else. The first exception of f is thrown again here, when all
/// are done.
template <class F>
void parallel_for(dim_t begin, dim_t end, dim_t grain, const F& f) {
  if (begin >= end) return;
  const int threads = num_threads();
  if (grain < 1) grain = 1;
  const dim_t grains = (end - begin + grain - 1) / grain;
  if (threads <= 1 || grains <= 1) return static_cast<void>(f(begin, end));
  // A few ranges for each thread, so that one that is held up does not hold up all.
  const dim_t ranges = grains < 4 * threads ? grains : dim_t{4} * threads;
  const dim_t step = (grains + ranges - 1) / ranges * grain;
  ikebana::detail::work_in_parallel(
      threads,
      [](const void* function, dim_t b, dim_t e) { (*static_cast<const F*>(function))(b, e); }, &f,
      begin, end, step);
}

}  // namespace cpu

}  // namespace ikebana
