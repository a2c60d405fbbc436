#pragma once

#include <atomic>
#include <type_traits>

#include "ikebana/core/shape.hpp"

namespace ikebana {

namespace detail {

using range_function = void (*)(const void* f, dim_t begin, dim_t end);
using team_function = void (*)(int threads, range_function run, const void* f, dim_t begin,
                               dim_t end, dim_t step);

/// What shares out work. Null until more than one thread is asked for, which threads.hpp does: who
/// never asks has none of it in the program.
inline constinit std::atomic<team_function> team_of_threads{nullptr};
inline constinit std::atomic<int> threads_of_process{1};
inline constinit thread_local int threads_of_this = 0;  // 0: as the process

/// The calling thread's own number of threads, as long as this lives.
class own_threads {
 public:
  explicit own_threads(int n) : before_{threads_of_this} { threads_of_this = n; }
  own_threads(const own_threads&) = delete;
  own_threads& operator=(const own_threads&) = delete;
  ~own_threads() { threads_of_this = before_; }

 private:
  int before_;
};

}  // namespace detail

/// How many threads a kernel that the calling thread runs may use, itself included. 1 unless set
/// (cpu/threads.hpp).
inline int num_threads() {
  const int own = detail::threads_of_this;
  return own > 0 ? own : detail::threads_of_process.load(std::memory_order_relaxed);
}

namespace detail {

[[gnu::noinline]] inline void share_ranges(dim_t begin, dim_t end, dim_t grain, range_function run,
                                           const void* f) {
  const team_function team = team_of_threads.load(std::memory_order_acquire);
  if (team == nullptr || end - begin <= grain) return run(f, begin, end);
  if (grain < 1) grain = 1;
  const int threads = num_threads();
  const dim_t grains = (end - begin + grain - 1) / grain;
  // A few ranges for each thread, so that one that is held up does not hold up all.
  const dim_t ranges = grains < 4 * threads ? grains : dim_t{4} * threads;
  team(threads, run, f, begin, end, (grains + ranges - 1) / ranges * grain);
}
/// f is a copy, so that what it holds may stay in registers where all is done by one thread.
template <class F>
[[gnu::noinline]] void share_ranges(dim_t begin, dim_t end, dim_t grain, F f) {
  share_ranges(
      begin, end, grain,
      [](const void* function, dim_t b, dim_t e) { (*static_cast<const F*>(function))(b, e); }, &f);
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
[[gnu::always_inline]] inline void parallel_for(dim_t begin, dim_t end, dim_t grain, const F& f) {
  if (begin >= end) return;
  if (end - begin <= grain || num_threads() <= 1) return static_cast<void>(f(begin, end));
  ikebana::detail::share_ranges<F>(begin, end, grain, f);
}

/// How many elements are worth a thread's while where each takes a few instructions.
inline constexpr dim_t elements_for_thread = 65536;

namespace detail {

/// How many rows that cost as much as n such elements, a multiple of `whole`: where there are many,
/// a multiple of what begins and ends with a cache line, too.
constexpr dim_t rows_for_thread(dim_t n, dim_t whole = 1) {
  dim_t rows = elements_for_thread / (n > 1 ? n : 1);
  rows = rows >= 16 ? rows / 16 * 16 : rows > 1 ? rows : 1;
  return whole > 1 ? (rows + whole - 1) / whole * whole : rows;
}
/// f(kernel, begin, end) for ranges of rows that cost as much as n such elements each.
template <class Kernel, class F>
[[gnu::always_inline]] inline void share_rows(dim_t rows, dim_t n, Kernel* kernel, const F& f,
                                              dim_t whole = 1) {
  // Little work is not even worth the division.
  if (rows * n <= elements_for_thread || num_threads() <= 1)
    return static_cast<void>(f(kernel, dim_t{0}, rows));
  const auto range = [=](dim_t b, dim_t e) { f(kernel, b, e); };
  ikebana::detail::share_ranges<decltype(range)>(0, rows, rows_for_thread(n, whole), range);
}

/// kernel(begin, end, arguments...) for such ranges.
template <class Kernel, class... Argument>
[[gnu::always_inline]] inline void run_rows(dim_t rows, dim_t n, Kernel* kernel,
                                            Argument... arguments) {
  share_rows(rows, n, kernel, [=](Kernel* k, dim_t b, dim_t e) { k(b, e, arguments...); });
}

template <class... Element>
[[gnu::noinline]] void share_many(dim_t n, void (*kernel)(dim_t, Element*...),
                                  std::type_identity_t<Element>*... arrays) {
  parallel_for(0, n, elements_for_thread,
               [=](dim_t b, dim_t e) { kernel(e - b, (arrays + b)...); });
}
/// kernel(n, arrays...), where every element is on its own, on as many threads as are worth it.
template <class... Element>
[[gnu::always_inline]] inline void share_elements(dim_t n, void (*kernel)(dim_t, Element*...),
                                                  std::type_identity_t<Element>*... arrays) {
  if (n <= elements_for_thread) [[likely]]
    return kernel(n, arrays...);
  share_many(n, kernel, arrays...);
}

}  // namespace detail

}  // namespace cpu

}  // namespace ikebana
