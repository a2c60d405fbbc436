#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/model/parameter_shards.hpp"
#include "ikebana/replicate/gradient_bucket.hpp"
#include "ikebana/replicate/mixed/gradient_cast.hpp"
#include "ikebana/replicate/process_group.hpp"

namespace ikebana {

/// Elements of the flat buffers shared among ranks: rank r has `each` of them, starting at begin +
/// r * each, up to `end`.
struct shared_piece {
  dim_t begin = 0, end = 0, each = 0;

  constexpr parameter_range of(int rank) const {
    const auto at = [&](dim_t i) { return i < end ? i : end; };
    return {at(begin + each * rank), at(begin + each * (rank + 1))};
  }
  /// Whether the ranks' parts cover the piece exactly.
  constexpr bool is_even(int world) const { return begin + each * world == end; }
  constexpr bool operator==(const shared_piece&) const = default;
};

namespace detail {

/// Divides a bucket [begin, end) among `world` ranks: a piece that splits into equal parts of whole
/// steps, and the rest, of which the last ranks may have less or nothing. A small bucket consists
/// of the rest only, and is reduced at once. No rank has more than ceil(steps / world) steps.
constexpr std::array<shared_piece, 2> share_bucket(dim_t begin, dim_t end, int world, dim_t step) {
  constexpr dim_t small = 16;
  const dim_t steps = (end - begin) / step;
  const dim_t each = steps < small * world ? 0 : steps / world;
  const dim_t middle = begin + each * world * step;
  const dim_t left = (steps - each * world + world - 1) / world;
  return {shared_piece{begin, middle, each * step}, shared_piece{middle, end, left * step}};
}

/// The collectives of a bucket: of the evenly shared piece, and of the rest.
template <class Work>
struct shard_work {
  Work even{}, left_over{};
  bool poll() {
    const bool done = even.poll();
    return left_over.poll() && done;
  }
  void wait() {
    even.wait();
    left_over.wait();
  }
};

/// Which gradients a rank has, and what it may be asked to do with them.
template <floating T>
class gradient_shards : public parameter_shards<T> {
 public:
  /// Must be called before the first step.
  void set_parameters(std::span<T> parameters) { parameters_ = parameters.data(); }

  /// Called before a backward. Adding to averaged gradients needs all of them.
  void begin_backward(bool accumulates, bool reduces) {
    if (accumulates) gather_gradients();
    state_ = reduces ? gradient_state::averaged : gradient_state::local;
  }
  /// The gradients are zero.
  void clear() { state_ = gradient_state::whole; }
  /// Gives every rank all averaged gradients.
  void gather_gradients() {
    if (state_ != gradient_state::averaged) return;
    this->gather(gradients_);
    state_ = gradient_state::whole;
  }

  /// The optimizer that steps during backward.
  void set_stepper(void* optimizer, void (*step)(void*, dim_t, dim_t)) {
    optimizer_ = optimizer;
    step_ = step;
  }

  void begin_step() override {
    if (state_ == gradient_state::local)
      throw state_error(
          "shard_optimizer: a step needs gradients that are averaged over the ranks, and the last "
          "backward was one without synchronisation");
  }

 protected:
  gradient_shards() = default;
  ~gradient_shards() = default;

  T* parameters_ = nullptr;
  T* gradients_ = nullptr;
  void* optimizer_ = nullptr;
  void (*step_)(void*, dim_t, dim_t) = nullptr;

 private:
  enum class gradient_state : std::uint8_t {
    whole,     ///< Every rank has all of them, the same or zeros.
    averaged,  ///< Each rank has its own averages.
    local,     ///< Each rank has the gradients of its own backward.
  };
  gradient_state state_ = gradient_state::whole;
};

/// The shards of one rank. Gradients are reduced in the type Wire. Steps allocate nothing.
template <floating T, process_group Group, class Wire = T>
class optimizer_shards final : public gradient_shards<T> {
  using gradient_shards<T>::gradients_;
  using gradient_shards<T>::parameters_;
  static constexpr bool compresses = !std::is_same_v<T, Wire>;

 public:
  using work_type = work_of<Group>;

  /// Shards of these buckets of the flat gradients. The memory and the group must outlive it.
  optimizer_shards(std::span<const gradient_bucket<T>> buckets, Group& group) : group_{&group} {
    const int world = group.size();
    dim_t staged = 0, sent = 0;
    for (const gradient_bucket<T>& b : buckets) {
      gradients_ = b.data.data() - b.begin;
      const dim_t end = b.begin + static_cast<dim_t>(b.data.size());
      for (const shared_piece& p : share_bucket(b.begin, end, world, round_up_to_alignment<T>(1))) {
        pieces_.push_back(p);
        own_.push_back(p.of(group.rank()));
        staged_at_.push_back(p.is_even(world) ? -1 : staged);
        sent_at_.push_back(sent);
        if (!p.is_even(world)) staged += p.each * world;
        sent += p.each * world;
      }
    }
    this->ranges_ = own_;
    works_.resize(pieces_.size());
    staging_ = aligned_buffer<T>(staged);
    if constexpr (compresses) wire_ = aligned_buffer<Wire>(sent);
  }
  optimizer_shards(const optimizer_shards&) = delete;
  optimizer_shards& operator=(const optimizer_shards&) = delete;

  /// Two per bucket.
  const std::vector<shared_piece>& pieces() const { return pieces_; }

  /// Starts to average the gradients of a piece; each rank gets its own part.
  work_type reduce(std::size_t piece) {
    const shared_piece& p = pieces_[piece];
    if (p.each == 0) return {};
    if constexpr (compresses) {
      pack_gradients(p.end - p.begin, gradients_ + p.begin, wire_.data() + sent_at_[piece]);
      return scatter(p, wire_.data() + sent_at_[piece]);
    } else {
      if (group_->size() == 1) return {};
      if (staged_at_[piece] < 0) return scatter(p, gradients_ + p.begin);
      std::copy(gradients_ + p.begin, gradients_ + p.end, staged(piece));
      return scatter(p, staged(piece));
    }
  }
  /// Must be called once `reduce` of the piece is complete.
  void take(std::size_t piece) {
    const parameter_range own = own_[piece];
    const dim_t at = own.begin - pieces_[piece].begin;
    if (own.size() == 0) return;
    if constexpr (compresses)
      unpack_gradients(own.size(), wire_.data() + sent_at_[piece] + at, gradients_ + own.begin);
    else if (staged_at_[piece] >= 0)
      std::copy_n(staged(piece) + at, own.size(), gradients_ + own.begin);
  }

  /// Updates this rank's elements of a bucket, whose averages it has, and starts to gather the
  /// bucket's parameters.
  shard_work<work_type> step(const gradient_bucket<T>& bucket) {
    this->step_(this->optimizer_, bucket.begin,
                bucket.begin + static_cast<dim_t>(bucket.data.size()));
    return {begin_gather(2 * bucket.index, parameters_),
            begin_gather(2 * bucket.index + 1, parameters_)};
  }
  /// Must be called once the gather is complete.
  void finish_step(std::size_t bucket) {
    end_gather(2 * bucket, parameters_);
    end_gather(2 * bucket + 1, parameters_);
  }

  void updated(std::size_t piece) override { works_[piece] = begin_gather(piece, parameters_); }
  void end_step() override { wait_for_gather(parameters_); }

  void gather(T* flat) override {
    for (std::size_t i = 0; i < pieces_.size(); ++i) works_[i] = begin_gather(i, flat);
    wait_for_gather(flat);
  }
  double sum(double mine) override {
    group_->all_reduce(std::span{&mine, 1}, reduce_op::sum);
    return mine;
  }
  double max(double mine) override {
    group_->all_reduce(std::span{&mine, 1}, reduce_op::max);
    return mine;
  }

 private:
  T* staged(std::size_t piece) { return staging_.data() + staged_at_[piece]; }

  template <class U>
  std::span<U> all(const shared_piece& p, U* data) const {
    return {data, static_cast<std::size_t>(p.each * group_->size())};
  }
  template <class U>
  std::span<U> mine(const shared_piece& p, U* data) const {
    return {data + p.each * group_->rank(), static_cast<std::size_t>(p.each)};
  }

  template <class U>
  work_type scatter(const shared_piece& p, U* data) {
    return group_->reduce_scatter_async(std::span<const U>{all(p, data)}, mine(p, data),
                                        reduce_op::avg);
  }

  work_type begin_gather(std::size_t piece, T* flat) {
    const shared_piece& p = pieces_[piece];
    if (p.each == 0 || group_->size() == 1) return {};
    T* data = flat + p.begin;
    if (staged_at_[piece] >= 0) {
      const parameter_range own = own_[piece];
      data = staged(piece);
      std::copy(flat + own.begin, flat + own.end, data + (own.begin - p.begin));
    }
    return group_->all_gather_async(std::span<const T>{mine(p, data)}, all(p, data));
  }
  void end_gather(std::size_t piece, T* flat) {
    const shared_piece& p = pieces_[piece];
    if (staged_at_[piece] >= 0) std::copy_n(staged(piece), p.end - p.begin, flat + p.begin);
  }
  void wait_for_gather(T* flat) {
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      works_[i].wait();
      end_gather(i, flat);
    }
  }

  Group* group_;
  std::vector<shared_piece> pieces_;
  std::vector<parameter_range> own_;
  std::vector<dim_t> staged_at_;  ///< Where a piece whose parts are uneven has memory; -1 for none.
  std::vector<dim_t> sent_at_;
  aligned_buffer<T> staging_;
  aligned_buffer<Wire> wire_;
  std::vector<work_type> works_;
};

}  // namespace detail
}  // namespace ikebana
