#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "ikebana/core/aligned_buffer.hpp"
#include "ikebana/core/shape.hpp"
#include "ikebana/replicate/buckets/reduction.hpp"
#include "ikebana/replicate/mpi/mpi_error.hpp"
#include "ikebana/replicate/mpi/mpi_operation.hpp"
#include "ikebana/replicate/process_group.hpp"
#include "ikebana/replicate/request.hpp"

namespace ikebana::detail {

/// Collectives as sequences of phases of non-blocking point-to-point messages. The first phase
/// exchanges headers, so that ranks that call different collectives find out before any data moves;
/// then
/// - broadcast: down a binomial tree;
/// - all_gather: each to each;
/// - reduce_scatter: each sends its slices to each, and the receiver sums them in rank order;
/// - all_reduce: the same with equal slices, then all_gather of them (short ones in one phase: each
///   sends everything to each).
///
/// MPI's own reductions could choose any order of summation.
class mpi_phases {
 public:
  using operation = mpi_operation;

  mpi_phases() = default;
  /// For some ranks of a communicator: `ranks[r]` is rank r. Their messages have tags from
  /// first_tag on, four for each collective in flight: a collective has at most three phases, and
  /// its tags are reused on each rank only when it is complete there.
  mpi_phases(MPI_Comm comm, int rank, std::vector<int> ranks, int first_tag)
      : comm_{comm},
        rank_{rank},
        size_{static_cast<int>(ranks.size())},
        first_tag_{first_tag},
        ranks_{std::move(ranks)},
        pieces_(ranks_.size()) {}

  static constexpr std::uint64_t max_in_flight = 64;

  int size() const { return size_; }

  /// Starts phase 0.
  void begin_headers(operation& o) {
    o.own = mpi_header(o.asked, o.number);
    for (int r = 0; r < size(); ++r) {
      if (r == rank_) continue;
      auto& header = o.headers[static_cast<std::size_t>(r)];
      receive(o, r, reinterpret_cast<std::byte*>(&header), sizeof(mpi_header));
      send(o, r, reinterpret_cast<const std::byte*>(&o.own), sizeof(mpi_header));
    }
  }

  /// Starts phase o.phase, from 1 on; false if there is none.
  bool begin(operation& o) {
    switch (o.asked.what) {
      case collective::barrier:
        return false;
      case collective::broadcast:
        return broadcast_phase(o);
      case collective::all_gather:
        return o.phase == 1 && all_gather_phase(o);
      case collective::reduce_scatter:
        return reduce_scatter_phase(o);
      case collective::all_reduce:
        return all_reduce_phase(o);
    }
    return false;
  }

  /// Takes back an operation's memory for reuse.
  void reclaim(operation& o) {
    if (o.scratch.empty()) return;
    spare_.push_back(std::exchange(o.scratch, {}));
  }

 private:
  /// Up to this many bytes, an all_reduce takes one phase less.
  static constexpr std::size_t short_bytes = 2048;
  /// The largest message; longer ones are split.
  static constexpr std::size_t longest_message = std::size_t{1} << 30;

  void receive(operation& o, int from, std::byte* to, std::size_t bytes) {
    for (std::size_t at = 0; at < bytes; at += longest_message) {
      MPI_Request request = MPI_REQUEST_NULL;
      const auto n = static_cast<int>(std::min(bytes - at, longest_message));
      check_mpi("MPI_Irecv", MPI_Irecv(to + at, n, MPI_BYTE, there(from), tag(o), comm_, &request));
      o.requests.push_back(request);
      o.peers.push_back(from);
    }
  }
  void send(operation& o, int to, const std::byte* from, std::size_t bytes) {
    for (std::size_t at = 0; at < bytes; at += longest_message) {
      MPI_Request request = MPI_REQUEST_NULL;
      const auto n = static_cast<int>(std::min(bytes - at, longest_message));
      check_mpi("MPI_Isend", MPI_Isend(from + at, n, MPI_BYTE, there(to), tag(o), comm_, &request));
      o.requests.push_back(request);
      o.peers.push_back(operation::sent_to(to));
    }
  }
  /// The communicator's number of a rank.
  int there(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  int tag(const operation& o) const {
    // A rank sends in its second phase of a broadcast what its children receive in their first.
    const int phase = o.asked.what == collective::broadcast ? o.phase != 0 : o.phase;
    return first_tag_ + static_cast<int>(o.number % max_in_flight) * 4 + phase;
  }

  /// Memory for an operation: the smallest free buffer that suffices, or else a larger one that
  /// replaces one that does not; over time every size has its own.
  std::byte* scratch(operation& o, std::size_t bytes) {
    const auto size_of = [](const auto& b) { return static_cast<std::size_t>(b.size()); };
    auto best = spare_.end();
    for (auto b = spare_.begin(); b != spare_.end(); ++b) {
      const bool fits = size_of(*b) >= bytes;
      const bool had = best != spare_.end() && size_of(*best) >= bytes;
      if (best == spare_.end() || (fits && (!had || size_of(*b) < size_of(*best)))) best = b;
    }
    if (best != spare_.end()) {
      o.scratch = std::move(*best);
      spare_.erase(best);
    }
    if (size_of(o.scratch) < bytes) {
      o.scratch = {};
      o.scratch = aligned_buffer<std::byte>(static_cast<dim_t>(bytes));
    }
    return o.scratch.data();
  }

  bool broadcast_phase(operation& o) {
    const std::size_t bytes = o.asked.bytes();
    auto* data = static_cast<std::byte*>(o.asked.receive);
    const int place = (rank_ - o.asked.root + size()) % size();
    // A rank's parent is its position without the lowest set bit; its children have one bit below
    // that.
    int low = 1;
    while (low < size() && (place & low) == 0) low <<= 1;
    const auto rank_at = [&](int p) { return (p + o.asked.root) % size(); };
    if (o.phase == 1) {
      if (place != 0) receive(o, rank_at(place & ~low), data, bytes);
      return true;
    }
    if (o.phase != 2) return false;
    for (int bit = low >> 1; bit != 0; bit >>= 1)
      if (place + bit < size()) send(o, rank_at(place + bit), data, bytes);
    return true;
  }

  bool all_gather_phase(operation& o) {
    const std::size_t bytes = o.asked.bytes();
    const auto* mine = static_cast<const std::byte*>(o.asked.send);
    const auto place = [&](int r) {
      return static_cast<std::byte*>(o.asked.receive) + bytes * static_cast<std::size_t>(r);
    };
    if (bytes == 0) return false;
    if (place(rank_) != mine) std::memcpy(place(rank_), mine, bytes);
    for (int i = 1; i < size(); ++i) {
      const int from = (rank_ + size() - i) % size(), to = (rank_ + i) % size();
      receive(o, from, place(from), bytes);
      send(o, to, mine, bytes);
    }
    return true;
  }

  /// Receives the others' data for this rank into `scratch`, piece by piece, and sends them theirs:
  /// `part(r)` is this rank's data for rank r.
  template <class Part>
  void exchange_parts(operation& o, std::size_t bytes_here, Part part) {
    std::byte* pieces = scratch(o, bytes_here * pieces_.size());
    for (int i = 1; i < size(); ++i) {
      const int from = (rank_ + size() - i) % size(), to = (rank_ + i) % size();
      receive(o, from, pieces + bytes_here * static_cast<std::size_t>(from), bytes_here);
      const std::pair<const std::byte*, std::size_t> p = part(to);
      send(o, to, p.first, p.second);
    }
  }

  void reduce_parts(operation& o, dim_t n, const std::byte* own, std::byte* out) {
    const std::size_t bytes = static_cast<std::size_t>(n) * o.asked.element.size;
    for (std::size_t r = 0; r < pieces_.size(); ++r) pieces_[r] = o.scratch.data() + bytes * r;
    pieces_[static_cast<std::size_t>(rank_)] = own;
    if (n > 0) o.reduce(o.asked.op, n, pieces_.data(), size(), out);
  }

  bool reduce_scatter_phase(operation& o) {
    const std::size_t bytes = o.asked.bytes();
    const auto* all = static_cast<const std::byte*>(o.asked.send);
    const auto part = [&](int r) {
      return std::pair{all + bytes * static_cast<std::size_t>(r), bytes};
    };
    if (o.phase == 1) {
      exchange_parts(o, bytes, part);
      return true;
    }
    reduce_parts(o, o.asked.length, part(rank_).first, static_cast<std::byte*>(o.asked.receive));
    return false;
  }

  bool all_reduce_phase(operation& o) {
    auto* data = static_cast<std::byte*>(o.asked.receive);
    const std::size_t element = o.asked.element.size;
    const bool is_short = o.asked.bytes() <= short_bytes;
    const auto step = static_cast<dim_t>(storage_alignment / element);
    const auto part = [&](int r) {
      const slice s =
          is_short ? slice{0, o.asked.length} : slice_of(o.asked.length, size(), r, step, 0);
      return std::pair{data + element * static_cast<std::size_t>(s.begin),
                       element * static_cast<std::size_t>(s.size())};
    };
    const auto [own, bytes] = part(rank_);
    if (o.phase == 1) {
      exchange_parts(o, bytes, part);
      return true;
    }
    if (o.phase != 2) return false;
    reduce_parts(o, static_cast<dim_t>(bytes / element), own, own);
    if (is_short) return false;
    for (int i = 1; i < size(); ++i) {
      const int from = (rank_ + size() - i) % size(), to = (rank_ + i) % size();
      const auto theirs = part(from);
      receive(o, from, theirs.first, theirs.second);
      send(o, to, own, bytes);
    }
    return true;
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1, first_tag_ = 0;
  std::vector<int> ranks_;
  std::vector<aligned_buffer<std::byte>> spare_;
  std::vector<const std::byte*> pieces_;
};

}  // namespace ikebana::detail
