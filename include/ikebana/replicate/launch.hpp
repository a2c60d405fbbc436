#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "ikebana/core/error.hpp"
#include "ikebana/cpu/parallel.hpp"
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

struct alignas(64) rank_failure {
  std::exception_ptr exception;
  int order = 0;  // among the ranks that threw
  bool of_group = false;
};

/// The rank whose exception tells why the world failed; -1 if none threw.
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
  // In a part of the world others may hear of an exception, and throw, before it has arrived here.
  if (f.kind == thread_world::failure_kind::thrown && told.exception &&
      (!told.of_group || first_of_user < 0))
    return f.rank;
  if (first_of_user >= 0) return first_of_user;
  // They all say the same: let it always be the same one that does.
  if (f.kind == thread_world::failure_kind::mismatch)
    for (int r = 0; r < world.size(); ++r)
      if (failures[static_cast<std::size_t>(r)].exception) return r;
  return told.exception ? f.rank : first;
}

/// `launch` of what returns nothing: compiled once, whatever is run.
inline void run_ranks(const threads& how, void (*run)(void* f, thread_group&), void* f) {
  thread_world world(how.count, how.timeout);
  std::vector<rank_failure> failures(static_cast<std::size_t>(how.count));
  std::atomic<int> order{0};
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

/// Runs `f(group)` once for each rank, rank 0 on the calling thread and every other on a thread of
/// its own, and returns when all have ended: nothing, or a std::vector of what they returned, by
/// rank. One rank needs no thread. The threads that kernels may use (`set_num_threads`) are shared
/// out among the ranks, at least one for each.
///
/// If ranks throw, rethrows the exception that started it, not those that followed from it on other
/// ranks: Ikebana's own types with "rank r: " before the text, others unchanged. Throws
/// ikebana::error for a count that is not 1 to thread_world::max_size.
template <class F>
auto launch(const threads& how, F&& f) {
  using R = std::decay_t<std::invoke_result_t<F&, thread_group&>>;
  if constexpr (std::is_void_v<R>) {
    detail::run_ranks(how, f);
  } else {
    // Apart, for neighbours are written at once.
    struct alignas(64) outcome {
      std::optional<R> result;
    };
    // Of a count that cannot be, run_ranks says so.
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

}  // namespace ikebana
