#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>

#include "ikebana/core/error.hpp"

namespace ikebana {

/// The queue of a `dynamic_batcher` is as long as its `max_queue_size` allows: the request was not
/// taken.
class queue_full : public error {
 public:
  using error::error;
};

namespace detail {

/// A queue of requests, which belong to the callers, and from which worker threads take batches in
/// the order of arrival. Does not allocate. `Request` has the members `next` and `arrived`, and
/// `joins(first)`: whether it may be in one batch with another.
template <class Request>
class request_queue {
 public:
  using clock = std::chrono::steady_clock;

  /// `max_size` is 0 for a queue of any length.
  request_queue(std::size_t max_batch, clock::duration max_delay, std::size_t max_size)
      : max_batch_{max_batch}, max_delay_{max_delay}, max_size_{max_size} {}

  /// Throws queue_full, or error after close().
  void push(Request& r) {
    bool gathering = false;
    {
      const std::lock_guard lock(mutex_);
      if (closed_) throw error("the dynamic_batcher has been shut down");
      if (max_size_ > 0 && size_ >= max_size_)
        throw queue_full("the queue of the dynamic_batcher is full: it has " +
                         std::to_string(size_) + " requests");
      if (max_delay_ > clock::duration::zero()) r.arrived = clock::now();
      r.next = nullptr;
      const bool joins = first_ != nullptr && r.joins(*last_);
      (first_ == nullptr ? first_ : last_->next) = &r;
      last_ = &r;
      ++size_;
      gathering = gathering_;
      // The other workers sleep until the batch that one waits for is complete.
      if (gathering && joins && size_ < max_batch_) return;
    }
    (gathering ? filled_ : arrived_).notify_one();
  }

  /// Waits for requests and takes the next batch: of max_batch requests, of those before one that
  /// does not join them, or of what has arrived when the first has waited for max_delay. Returns
  /// how many; 0 once the queue is closed and empty.
  std::size_t take(std::span<Request*> batch) {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [&] { return !gathering_ && (first_ != nullptr || closed_); });
    if (first_ != nullptr && max_delay_ > clock::duration::zero()) {
      gathering_ = true;
      filled_.wait_until(lock, first_->arrived + max_delay_,
                         [&] { return closed_ || is_complete(); });
      gathering_ = false;
    }
    std::size_t n = 0;
    while (first_ != nullptr && n < max_batch_ && (n == 0 || first_->joins(*batch[0]))) {
      batch[n++] = first_;
      first_ = first_->next;
    }
    size_ -= n;
    requests_ += n;
    batches_ += n > 0;
    const bool more = first_ != nullptr, closed = closed_;
    lock.unlock();
    if (closed)
      arrived_.notify_all();
    else if (more)
      arrived_.notify_one();
    return n;
  }

  /// No more requests from now on; those that are here are still taken.
  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    arrived_.notify_all();
    filled_.notify_all();
  }

  struct counts {
    std::uint64_t requests, batches;
  };
  counts taken() const {
    const std::lock_guard lock(mutex_);
    return {requests_, batches_};
  }

 private:
  /// Whether no later request can be in the next batch.
  bool is_complete() const {
    std::size_t n = 0;
    for (const Request* r = first_; r != nullptr && n < max_batch_; r = r->next, ++n)
      if (!r->joins(*first_)) return true;
    return n == max_batch_;
  }

  const std::size_t max_batch_;
  const clock::duration max_delay_;
  const std::size_t max_size_;

  mutable std::mutex mutex_;
  std::condition_variable arrived_, filled_;
  Request* first_ = nullptr;
  Request* last_ = nullptr;
  std::size_t size_ = 0;
  std::uint64_t requests_ = 0, batches_ = 0;
  bool gathering_ = false, closed_ = false;
};

}  // namespace detail
}  // namespace ikebana
