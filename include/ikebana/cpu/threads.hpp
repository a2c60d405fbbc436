#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "ikebana/core/dependent.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/core/throw_error.hpp"
#include "ikebana/cpu/detail/scratch.hpp"
#include "ikebana/cpu/parallel.hpp"

namespace ikebana {

namespace detail {

/// Waits until `value` is no longer `old`: awake for a while, for the next piece of work mostly
/// comes soon, then asleep.
template <class = void>
std::uint32_t wait_while(const std::atomic<std::uint32_t>& value, std::uint32_t old) {
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
///
/// A template, so that it is compiled only where it is used.
template <class X>
class basic_thread_team {
 public:
  basic_thread_team() = default;
  basic_thread_team(const basic_thread_team&) = delete;
  basic_thread_team& operator=(const basic_thread_team&) = delete;
  ~basic_thread_team() { dismiss(); }

  /// Calls run(f, ...) for ranges of `step` that cover [begin, end), on `threads` threads. A helper
  /// that wakes up too late is not waited for.
  void work(int threads, range_function run, const void* f, dim_t begin, dim_t end, dim_t step) {
    if (threads != threads_) hire(threads);
    run_ = run;
    f_ = f;
    end_ = end;
    step_ = step;
    failed_.store(false, std::memory_order_relaxed);
    next_.store(begin, std::memory_order_relaxed);
    inside_.store(open, std::memory_order_release);
    task_.fetch_add(1, std::memory_order_release);
    task_.notify_all();
    {
      const own_threads alone(1);
      take_ranges();
    }
    inside_.fetch_and(~open, std::memory_order_acq_rel);
    wait_for_all();
    if (failure_) std::rethrow_exception(std::exchange(failure_, dependent<std::nullptr_t, X>{}));
  }

 private:
  static constexpr std::uint32_t open = std::uint32_t{1} << 31;

  void take_ranges() noexcept {
    for (;;) {
      const dim_t from = next_.fetch_add(step_, std::memory_order_relaxed);
      if (from >= end_) return;
      std::exception_ptr failure = ikebana::detail::failure_of(
          [&] { run_(f_, from, end_ - from < step_ ? end_ : from + step_); });
      if (failure && !failed_.exchange(true)) failure_ = std::move(failure);
    }
  }

  /// Joins those at work, if there is some.
  bool enter() {
    std::uint32_t now = inside_.load(std::memory_order_relaxed);
    while ((now & open) != 0)
      if (inside_.compare_exchange_weak(now, now + 1, std::memory_order_acquire,
                                        std::memory_order_relaxed))
        return true;
    return false;
  }

  void leave() {
    if (inside_.fetch_sub(1, std::memory_order_acq_rel) == 1) inside_.notify_one();
  }
  void wait_for_all() const {
    std::uint32_t left = inside_.load(std::memory_order_acquire);
    while (left != 0) left = wait_while(inside_, left);
  }

  static void* help(void* team) {
    auto& t = *static_cast<basic_thread_team*>(team);
    threads_of_this = 1;
    std::uint32_t task = t.first_task_;
    // If it fails, the first kernel that needs it tries again.
    static_cast<void>(ikebana::detail::failure_of([] { cpu::detail::thread_memory(); }));
    t.leave();
    for (;;) {
      task = wait_while(t.task_, task);
      if (t.dismissed_) return nullptr;
      if (!t.enter()) continue;
      t.take_ranges();
      t.leave();
    }
  }

  void hire(int threads) {
    dismiss();
    helpers_ = std::make_unique<dependent<pthread_t, X>[]>(static_cast<std::size_t>(threads - 1));
    threads_ = threads;
    dismissed_ = false;
    first_task_ = task_.load(std::memory_order_relaxed);
    // If the system grants fewer, those do the same work. They have their memory before the first
    // task, so that later ones allocate nothing.
    while (hired_ < threads - 1) {
      inside_.fetch_add(1, std::memory_order_relaxed);
      if (pthread_create(&helpers_[static_cast<std::size_t>(hired_)], nullptr,
                         &basic_thread_team::help, this) != 0) {
        leave();
        break;
      }
      ++hired_;
    }
    wait_for_all();
  }

  void dismiss() {
    dismissed_ = true;
    task_.fetch_add(1, std::memory_order_release);
    task_.notify_all();
    while (hired_ > 0) pthread_join(helpers_[static_cast<std::size_t>(--hired_)], nullptr);
    threads_ = 1;
  }

  int threads_ = 1, hired_ = 0;
  std::unique_ptr<dependent<pthread_t, X>[]> helpers_;
  std::uint32_t first_task_ = 0;
  std::atomic<bool> dismissed_{false};
  // What follows is written while nobody is inside.
  range_function run_ = nullptr;
  const void* f_ = nullptr;
  dim_t end_ = 0, step_ = 0;
  std::exception_ptr failure_;
  std::atomic<bool> failed_{false};
  alignas(64) std::atomic<std::uint32_t> task_{0};
  alignas(64) std::atomic<std::uint32_t> inside_{0};  // Helpers at work; `open` while more may come
  alignas(64) std::atomic<dim_t> next_{0};
};
using thread_team = basic_thread_team<void>;

template <class X = void>
void work_in_parallel(int threads, range_function run, const void* f, dim_t begin, dim_t end,
                      dim_t step) {
  thread_local basic_thread_team<X> team;
  team.work(threads, run, f, begin, end, step);
}

/// n, if it can be a number of threads; more than one can be had from here on.
template <class X = void>
int wanted_threads(int n, const char* who) {
  if (n < 1) throw_error(error(std::string(who) + ": at least 1 thread is needed"));
  if (n > 1) team_of_threads.store(&work_in_parallel<X>, std::memory_order_release);
  return n;
}

}  // namespace detail

/// Sets how many threads kernels may use, the calling one included, in all threads that have no
/// number of their own: a `scoped_num_threads`, or a rank of `launch(threads{r}, ...)`, which has n
/// / r of the launching thread's n, at least 1. Results do not depend on it. Each thread that runs
/// kernels has helpers of its own, made when first needed and gone when it ends or wants another
/// number; with 1 there are none. Environment variables of other thread libraries are not read. A
/// process that forks has no helpers in the child: set 1 there, in a new thread. Throws
/// `ikebana::error` if n < 1.
template <class = void>
void set_num_threads(int n) {
  detail::threads_of_process.store(detail::wanted_threads(n, "set_num_threads"),
                                   std::memory_order_relaxed);
}

/// The calling thread's own number of threads, as long as this lives: say, of one model of many.
class scoped_num_threads : detail::own_threads {
 public:
  template <class = void>
  explicit scoped_num_threads(int n)
      : own_threads{detail::wanted_threads(n, "scoped_num_threads")} {}
};

namespace cpu {

/// Allocates the calling thread's scratch memory, if it has none, and touches each of its pages.
inline void prepare_scratch() {
  std::byte* const memory = detail::thread_memory();
  for (std::size_t i = 0; i < detail::thread_memory_bytes(); i += 4096) memory[i] = std::byte{0};
}

}  // namespace cpu

}  // namespace ikebana
