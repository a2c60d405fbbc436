#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/dtype.hpp"
#include "ikebana/core/error.hpp"
#include "ikebana/core/random.hpp"
#include "ikebana/cpu/elementwise.hpp"
#include "ikebana/cpu/gemm.hpp"
#include "ikebana/model/state_dict.hpp"
#include "ikebana/replicate/comm_hook.hpp"
#include "ikebana/replicate/orthogonalize.hpp"
#include "ikebana/replicate/powersgd_matrix.hpp"

namespace ikebana {

/// Options of powersgd, as in PyTorch's PowerSGDState.
struct powersgd_options {
  dim_t rank = 1;                    ///< Of the approximation; limited by the matrix's extents.
  std::int64_t start_iteration = 0;  ///< Earlier backwards average everything exactly.
  double min_compression_rate = 2;   ///< Gradients that compress less are sent uncompressed.
  bool error_feedback = true;        ///< Adds the approximation error to the next gradient.
  bool warm_start = true;            ///< Q starts from that of the previous step.
  double epsilon = 0;                ///< Added to the norms that divide columns.
  ikebana::seed seed{};              ///< Of the first Q.
};

/// PowerSGD (Vogels, Karimireddy, Jaggi: PowerSGD: Practical Low-Rank Gradient Compression for
/// Distributed Optimization, 2019; arXiv 1905.13727): each gradient, as a matrix M of its first
/// extent by all others, is approximated by P Q^T of low rank. P = M Q is summed over the ranks and
/// orthogonalised, Q = M^T P is averaged: two collectives of (rows + columns) rank elements instead
/// of rows columns. The error of a rank's own gradient is added to its next one (error feedback).
/// As in PyTorch's powerSGD_hook, vectors and matrices that shrink by less than
/// `min_compression_rate` are averaged exactly, and so is everything in the first `start_iteration`
/// backwards. A late start is not needed, since buckets do not change after the first step.
///
/// Unlike in PyTorch, vanishing columns (a layer without gradient, a gradient of lower rank) do not
/// become NaN, but 0 in P and newly drawn in Q. The first Q depends only on the seed and the path
/// of a parameter. What is averaged exactly keeps no error.
///
/// Allocates in `prepare`. Throws ikebana::error for options out of range. `start` throws
/// state_error if `prepare` has not been called.
///
/// A template, so that it is compiled only where it is used.
template <class>
class basic_powersgd {
 public:
  static constexpr hook_result result = hook_result::average;
  static constexpr std::size_t stages = 2;

  explicit basic_powersgd(powersgd_options options = {}) : options_{options} {
    if (options.rank < 1) throw error("powersgd expects a rank of at least 1");
    if (options.start_iteration < 0)
      throw error("powersgd expects a start_iteration that is not negative");
    if (!(options.min_compression_rate > 0))
      throw error("powersgd expects a min_compression_rate above 0");
    if (!(options.epsilon >= 0)) throw error("powersgd expects an epsilon that is not negative");
  }

  const powersgd_options& options() const { return options_; }
  std::uint64_t fingerprint() const {
    const powersgd_options& o = options_;
    const std::array<std::uint64_t, 7> all{
        static_cast<std::uint64_t>(o.rank),
        static_cast<std::uint64_t>(o.start_iteration),
        std::bit_cast<std::uint64_t>(o.min_compression_rate),
        std::uint64_t{o.error_feedback} << 1 | std::uint64_t{o.warm_start},
        std::bit_cast<std::uint64_t>(o.epsilon),
        o.seed.value,
        o.seed.path};
    return hash_path({reinterpret_cast<const char*>(all.data()), sizeof(all)});
  }
  /// The number of completed backwards.
  std::int64_t iteration() const { return iteration_; }
  /// Resets the state to that before the first backward; `prepare` must follow.
  void reset() { iteration_ = 0; }

  /// The number of gradient elements, and of elements sent instead once compression has started.
  struct statistics {
    dim_t before = 0, after = 0;
    double rate() const { return static_cast<double>(before) / static_cast<double>(after); }
  };
  statistics compression() const { return statistics_; }

  template <floating T, process_group G>
  void prepare(std::span<const gradient_bucket<T>> buckets, G&) {
    type_ = dtype_of<T>;
    matrices_.clear();
    parameters_.clear();
    buckets_.assign(buckets.size(), {});
    statistics_ = {};
    dim_t size = 0;
    const auto take = [&](dim_t n) {
      const dim_t at = size;
      size += round_up_to_alignment<T>(n);
      return at;
    };
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      detail::powersgd_bucket& own = buckets_[b];
      own.first = matrices_.size();
      dim_t ps = 0;
      for (const bucket_parameter& p : buckets[b].parameters) {
        detail::powersgd_matrix m;
        if (!matrix_of(p.extents, m)) continue;
        m.parameter = parameters_.size();
        m.begin = p.begin - buckets[b].begin;
        m.p = ps;
        ps += m.rows * m.rank;
        m.q = own.q_size;
        own.q_size += m.columns * m.rank;
        matrices_.push_back(m);
        parameters_.push_back(p);
      }
      own.last = matrices_.size();
      own.exact = static_cast<dim_t>(buckets[b].data.size());
      for (std::size_t i = own.first; i < own.last; ++i) own.exact -= matrices_[i].elements();
      own.message_size = own.exact + ps;
      statistics_.before += static_cast<dim_t>(buckets[b].data.size());
      statistics_.after += own.exact + ps + own.q_size;
      if (own.first == own.last) continue;
      own.message = take(own.message_size);
      own.q = take(own.q_size);
      for (std::size_t i = own.first; i < own.last; ++i) {
        matrices_[i].p += own.message + own.exact;
        matrices_[i].q += own.q;
        matrices_[i].error = options_.error_feedback ? take(matrices_[i].elements()) : -1;
      }
    }
    memory_ = aligned_buffer<std::byte>(size * static_cast<dim_t>(sizeof(T)));
    for (const detail::powersgd_matrix& m : matrices_)
      for (dim_t r = 0; r < m.rank; ++r) draw(m, r, memory<T>() + m.q + r * m.columns);
  }

  template <floating T, process_group G>
  auto start(gradient_bucket<T> bucket, G& group) {
    if (bucket.index >= buckets_.size())
      throw state_error("powersgd: prepare must be called before the first bucket");
    detail::powersgd_bucket& own = buckets_[bucket.index];
    own.compressing = iteration_ >= options_.start_iteration && own.first != own.last;
    if (!own.compressing) return group.all_reduce_async(bucket.data, reduce_op::avg);
    T* const memory = this->memory<T>();
    for_exact(bucket, [to = memory + own.message](T* from, dim_t n) mutable {
      std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(T));
      to += n;
    });
    for (std::size_t i = own.first; i < own.last; ++i) {
      const detail::powersgd_matrix& m = matrices_[i];
      T* const gradient = bucket.data.data() + m.begin;
      // The error memory contains what is to be sent until the difference is known.
      if (m.error >= 0) cpu::axpy<T>(m.elements(), 1, gradient, memory + m.error);
      T* const q = memory + m.q;
      if (!options_.warm_start)
        for (dim_t r = 0; r < m.rank; ++r) draw(m, r, q + r * m.columns);
      detail::orthonormalize_rows(m.rank, m.columns, q, options_.epsilon, [&](dim_t r) {
        draw(m, r, q + r * m.columns);
        return true;
      });
      cpu::gemm<T>(cpu::transpose::no, cpu::transpose::yes, m.rank, m.rows, m.columns, 1, q,
                   m.columns, sent(bucket, m), m.columns, 0, memory + m.p, m.rows);
    }
    return group.all_reduce_async(
        std::span<T>{memory + own.message, static_cast<std::size_t>(own.message_size)},
        reduce_op::sum);
  }

  template <floating T, process_group G>
  auto proceed(gradient_bucket<T> bucket, G& group, std::size_t) {
    using work = decltype(group.all_reduce_async(bucket.data, reduce_op::sum));
    const detail::powersgd_bucket& own = buckets_[bucket.index];
    if (!own.compressing) return work{};
    T* const memory = this->memory<T>();
    for (std::size_t i = own.first; i < own.last; ++i) {
      const detail::powersgd_matrix& m = matrices_[i];
      T* const p = memory + m.p;
      detail::orthonormalize_rows(m.rank, m.rows, p, options_.epsilon, [](dim_t) { return false; });
      cpu::gemm<T>(cpu::transpose::no, cpu::transpose::no, m.rank, m.columns, m.rows, 1, p, m.rows,
                   sent(bucket, m), m.columns, 0, memory + m.q, m.columns);
    }
    return group.all_reduce_async(
        std::span<T>{memory + own.q, static_cast<std::size_t>(own.q_size)}, reduce_op::avg);
  }

  template <floating T, process_group G>
  void finish(gradient_bucket<T> bucket, G& group) {
    const detail::powersgd_bucket& own = buckets_[bucket.index];
    if (own.compressing) {
      T* const memory = this->memory<T>();
      const T scale = T{1} / static_cast<T>(group.size());
      for_exact(bucket, [from = memory + own.message, scale](T* to, dim_t n) mutable {
        for (dim_t i = 0; i < n; ++i) to[i] = scale * from[i];
        from += n;
      });
      for (std::size_t i = own.first; i < own.last; ++i) {
        const detail::powersgd_matrix& m = matrices_[i];
        T* const gradient = bucket.data.data() + m.begin;
        cpu::gemm<T>(cpu::transpose::yes, cpu::transpose::no, m.rows, m.columns, m.rank, 1,
                     memory + m.p, m.rows, memory + m.q, m.columns, 0, gradient, m.columns);
        if (m.error >= 0) cpu::axpy<T>(m.elements(), -1, gradient, memory + m.error);
      }
    }
    if (bucket.is_last()) ++iteration_;
  }

  /// Adds what is needed to resume with the same bits: views of Q and of the errors, which only
  /// this rank has, as "<prefix><path>.q" and ".error", and "<prefix>iteration". Requires an
  /// earlier `prepare` or `replicate`. Allocates.
  void save(state_dict& to, std::string_view prefix = {}) const {
    const std::string before{prefix};
    for_state([&](const std::string& name, const shape& extents, dim_t at) {
      to.add_view(before + name, type_, extents, memory_.data() + at);
    });
    std::memcpy(to.add_owned(before + "iteration", dtype::int64, shape{1}), &iteration_,
                sizeof iteration_);
  }

  /// Loads what `save` added. Throws state_error, without any change, if an entry is missing, has
  /// another type or shape, or is a negative number of steps.
  void load(const state_dict& from, std::string_view prefix = {}) {
    const std::string before{prefix};
    const auto iteration = from.at(before + "iteration").template view<std::int64_t, shape{1}>();
    if (iteration[0] < 0)
      throw state_error(before + "iteration: expected a number of steps, got " +
                        std::to_string(iteration[0]));
    for_state([&](const std::string& name, const shape& extents, dim_t) {
      const state_dict::entry& e = from.at(before + name);
      if (e.uninitialized || e.type != type_ || e.extents != extents)
        throw state_error(e.name + ": expected " + detail::describe(type_, extents) + ", got " +
                          detail::describe(e.type, e.extents));
    });
    for_state([&](const std::string& name, const shape&, dim_t at) {
      const std::span<const std::byte> bytes = from.at(before + name).bytes;
      std::memcpy(memory_.data() + at, bytes.data(), bytes.size());
    });
    iteration_ = iteration[0];
  }

 private:
  template <class T>
  T* memory() {
    return reinterpret_cast<T*>(memory_.data());
  }

  /// Returns false if sending the parameter uncompressed is as good.
  bool matrix_of(const shape& extents, detail::powersgd_matrix& m) const {
    if (extents.rank() < 2 || extents.numel() == 0) return false;
    m.rows = extents[0];
    m.columns = extents.numel() / m.rows;
    const dim_t most = m.rows < m.columns ? m.rows : m.columns;
    m.rank = options_.rank < most ? options_.rank : most;
    return static_cast<double>((m.rows + m.columns) * m.rank) * options_.min_compression_rate <
           static_cast<double>(m.rows * m.columns);
  }

  /// What this rank contributes for a parameter.
  template <class T>
  const T* sent(gradient_bucket<T> bucket, const detail::powersgd_matrix& m) {
    return m.error >= 0 ? memory<T>() + m.error : bucket.data.data() + m.begin;
  }

  /// Calls f(elements, n) for the uncompressed pieces of the bucket.
  template <class T, class F>
  void for_exact(gradient_bucket<T> bucket, F f) {
    const detail::powersgd_bucket& own = buckets_[bucket.index];
    dim_t at = 0;
    for (std::size_t i = own.first; i < own.last; ++i) {
      if (matrices_[i].begin > at) f(bucket.data.data() + at, matrices_[i].begin - at);
      at = matrices_[i].begin + matrices_[i].elements();
    }
    const auto size = static_cast<dim_t>(bucket.data.size());
    if (size > at) f(bucket.data.data() + at, size - at);
  }

  /// Draws a column of Q: the same on every rank, a new one in every iteration.
  template <class T>
  void draw(const detail::powersgd_matrix& m, dim_t column, T* to) const {
    const std::uint64_t path =
        hash_path(".q", hash_path(parameters_[m.parameter].path.view(), options_.seed.path));
    fill_normal(random_stream{options_.seed, path, static_cast<std::uint64_t>(iteration_),
                              static_cast<std::uint32_t>(column)},
                0, 1, to, m.columns);
  }

  /// Calls f(name, extents, offset in bytes) for everything that is saved.
  template <class F>
  void for_state(F f) const {
    const auto element = static_cast<dim_t>(size_of(type_));
    for (const detail::powersgd_matrix& m : matrices_) {
      const std::string path{parameters_[m.parameter].path.view()};
      f(path + ".q", shape{m.rank, m.columns}, m.q * element);
      if (m.error >= 0) f(path + ".error", parameters_[m.parameter].extents, m.error * element);
    }
  }

  powersgd_options options_;
  std::int64_t iteration_ = 0;
  statistics statistics_;
  dtype type_ = dtype::float32;
  std::vector<detail::powersgd_bucket> buckets_;
  std::vector<detail::powersgd_matrix> matrices_;
  std::vector<bucket_parameter> parameters_;  // Of the matrices.
  aligned_buffer<std::byte> memory_;
};
using powersgd = basic_powersgd<void>;

}  // namespace ikebana
