#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "ikebana/core/error.hpp"
#include "ikebana/cpu/parallel.hpp"
#include "ikebana/module/refusal.hpp"
#include "ikebana/replicate/request.hpp"
#include "ikebana/replicate/thread_group.hpp"
#include "ikebana/replicate/threads/thread_world.hpp"

namespace ikebana {

/// Ranks as threads of this process: `threads{2}`.
struct threads {
  int count = 1;
  /// How long a rank waits for another in one collective before it gives up.
  std::chrono::nanoseconds timeout = std::chrono::seconds{300};
};

namespace detail {

namespace misuse {
IKEBANA_MISUSE(launch_gives_a_group_by_reference,
               "launch calls f(group) with a thread_group&: take it by reference, "
               "[&](process_group auto& group) { .. }");
IKEBANA_MISUSE(launch_takes_threads, "launch takes the ranks as threads{2}, then the function");
}  // namespace misuse

/// A function that launch cannot call.
struct function_of_no_group {
  template <class F>
  requires(!std::is_invocable_v<F&, thread_group&>) function_of_no_group(const F&) {}
};

struct alignas(64) rank_failure {
  std::exception_ptr exception;
  int order = 0;  // Among the ranks that threw.
  bool of_group = false;
};

/// The rank whose exception is the cause of the failure; -1 if none threw.
inline int rank_to_blame(const std::vector<rank_failure>& failures, const thread_world& world) {
  int first = -1, first_of_user = -1;
  for (int r = 0; r < world.size(); ++r) {
    const rank_failure& o = failures[static_cast<std::size_t>(r)];
    if (!o.exception) continue;
    const auto earlier = [&](int than) {
      return than < 0 || o.order < failures[static_cast<std::size_t>(than)].order;
    };
    if (earlier(first)) first = r;
    if (!o.of_group && earlier(first_of_user)) first_of_user = r;
  }
  if (first < 0) return -1;
  const thread_world::failure f = world.first_failure();
  const rank_failure& told = failures[static_cast<std::size_t>(f.rank)];
  // In a split group, others may learn of an exception, and throw, before it has arrived here.
  if (f.kind == thread_world::failure_kind::thrown && told.exception &&
      (!told.of_group || first_of_user < 0))
    return f.rank;
  if (first_of_user >= 0) return first_of_user;
  // All say the same; always choosing the same rank keeps it deterministic.
  if (f.kind == thread_world::failure_kind::mismatch)
    for (int r = 0; r < world.size(); ++r)
      if (failures[static_cast<std::size_t>(r)].exception) return r;
  return told.exception ? f.rank : first;
}

/// The ranks of a launch that have ended. A thread cannot be ended from outside, so that `launch`
/// cannot return before all ranks have ended; this class reports a rank that does not.
class ended_ranks {
 public:
  ended_ranks(const thread_world& world, int count)
      : world_{world}, has_ended_(static_cast<std::size_t>(count)) {}

  /// Called by a rank at its end. If the world has failed, waits for the others for one timeout and
  /// then reports the first that has not ended.
  void add(int rank) noexcept {
    constexpr std::chrono::nanoseconds longest = std::chrono::hours{24 * 365};
    std::unique_lock lock{mutex_};
    has_ended_[static_cast<std::size_t>(rank)] = 1;
    condition_.notify_all();
    const auto all = [&] { return std::ranges::find(has_ended_, 0) == has_ended_.end(); };
    if (!world_.failed() || condition_.wait_for(lock, std::min(world_.timeout(), longest), all) ||
        std::exchange(told_, true))
      return;
    const auto absent = std::ranges::find(has_ended_, 0) - has_ended_.begin();
    const thread_world::failure why = world_.first_failure();
    std::fprintf(stderr,
                 "ikebana: launch waits for rank %d, which has not ended; rank %d failed: %s\n",
                 static_cast<int>(absent), why.rank, why.text.c_str());
  }

 private:
  const thread_world& world_;
  std::vector<char> has_ended_;
  bool told_ = false;
  std::mutex mutex_;
  std::condition_variable condition_;
};

/// `launch` without results: compiled once for all functions.
inline void run_ranks(const threads& how, void (*run)(void* f, thread_group&), void* f) {
  thread_world world(how.count, how.timeout);
  std::vector<rank_failure> failures(static_cast<std::size_t>(how.count));
  std::atomic<int> order{0};
  ended_ranks ended(world, how.count);
  const int each = num_threads() / how.count;

  const auto run_rank = [&](int rank) noexcept {
    const own_threads its_share(each > 1 ? each : 1);
    thread_group group(world, rank);
    const auto failed = [&](const char* what, bool of_group) {
      failures[static_cast<std::size_t>(rank)] = {std::current_exception(), order.fetch_add(1),
                                                  of_group};
      world.fail(rank, thread_world::failure_kind::thrown, what);
    };
    try {
      run(f, group);
      group.leave();
    } catch (const communication_error& e) {
      failed(e.what(), true);
    } catch (const std::exception& e) {
      failed(e.what(), false);
    } catch (...) {
      failed("an exception that is not a std::exception", false);
    }
    ended.add(rank);
  };

  std::vector<std::thread> others;
  const auto join = [&] {
    for (std::thread& t : others) t.join();
  };
  try {
    others.reserve(failures.size());
    for (int rank = 1; rank < how.count; ++rank) others.emplace_back(run_rank, rank);
  } catch (...) {
    world.fail(static_cast<int>(others.size()) + 1, thread_world::failure_kind::thrown,
               "its thread could not be started");
    join();
    throw;
  }
  run_rank(0);
  join();

  if (const int rank = rank_to_blame(failures, world); rank >= 0)
    rethrow_with_rank(failures[static_cast<std::size_t>(rank)].exception, rank);
}
template <class F>
void run_ranks(const threads& how, F& f) {
  run_ranks(
      how, [](void* each, thread_group& group) { (*static_cast<F*>(each))(group); },
      const_cast<void*>(static_cast<const void*>(std::addressof(f))));
}

}  // namespace detail

/// Runs `f(group)` once per rank, rank 0 on the calling thread and each other rank on its own
/// thread, and returns when all have ended: nothing, or a std::vector of the results by rank. One
/// rank needs no thread. The threads available to kernels (`set_num_threads`) are divided among the
/// ranks, at least one for each.
///
/// If a rank never ends, `launch` never returns. The other ranks throw after the timeout. If the
/// rank has not ended after one more timeout, `launch` writes its number and the failure to stderr,
/// and continues to wait.
///
/// If ranks throw, rethrows the exception that started it, not those that followed from it on other
/// ranks: Ikebana's own types with "rank r: " before the text, others unchanged. Throws
/// ikebana::error for a count that is not 1 to thread_world::max_size.
template <class F>
requires(std::is_invocable_v<F&, thread_group&>) auto launch(const threads& how, F&& f) {
  using R = std::decay_t<std::invoke_result_t<F&, thread_group&>>;
  if constexpr (std::is_void_v<R>) {
    detail::run_ranks(how, f);
  } else {
    // Padded to cache lines, since neighbours are written at the same time.
    struct alignas(64) outcome {
      std::optional<R> result;
    };
    // run_ranks reports an invalid count.
    const bool known = how.count > 0 && how.count <= thread_world::max_size;
    std::vector<outcome> outcomes(known ? static_cast<std::size_t>(how.count) : 0);
    const auto keep = [&](thread_group& group) {
      outcomes[static_cast<std::size_t>(group.rank())].result.emplace(f(group));
    };
    detail::run_ranks(how, keep);
    std::vector<R> results;
    results.reserve(outcomes.size());
    for (outcome& o : outcomes) results.push_back(std::move(*o.result));
    return results;
  }
}

template <bool Lazy = false>
auto launch(const threads&, const detail::function_of_no_group&)
    -> decltype(detail::refuse_as<detail::misuse::launch_gives_a_group_by_reference<Lazy>>());
template <bool Lazy = false>
auto launch(int, const detail::anything&)
    -> decltype(detail::refuse_as<detail::misuse::launch_takes_threads<Lazy>>());

}  // namespace ikebana
