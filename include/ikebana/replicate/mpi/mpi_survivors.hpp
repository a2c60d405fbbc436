#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ikebana/core/error.hpp"
#include "ikebana/replicate/mpi/mpi_error.hpp"
#include "ikebana/replicate/mpi/mpi_process.hpp"
#include "ikebana/replicate/request.hpp"

namespace ikebana::detail {

/// Finds the remaining ranks of a group, in agreement with all ranks that call it. In each round a
/// rank sends which ranks it believes alive and which slots it uses; the rounds end when all agree.
/// It does not wait for ranks that have died or ended.
class mpi_agreement {
 public:
  mpi_agreement(mpi_process& process, std::span<const int> names, int slot,
                std::chrono::nanoseconds timeout)
      : process_{process},
        names_{names.begin(), names.end()},
        tag_{mpi_process::first_tag(slot) + mpi_process::tags - 1},
        timeout_{timeout},
        mine_(names.size(), 1),
        theirs_(names.size()) {}

  /// The remaining ranks of the world, in the order of the group. Throws communication_error if a
  /// living one does not come in time, or if the others consider this one dead.
  std::vector<int> survivors() {
    start_ = mpi_process::clock::now();
    do {
      used_ = process_.used_slots();
    } while (!round());
    std::vector<int> left;
    for (std::size_t i = 0; i < names_.size(); ++i)
      if (mine_[i] != 0) left.push_back(names_[i]);
    return left;
  }
  /// The slots that any of the ranks uses.
  const std::vector<std::uint64_t>& used_slots() const { return used_; }

 private:
  bool is_other(std::size_t i) const { return mine_[i] != 0 && names_[i] != process_.rank(); }

  /// True if all ranks sent the same.
  bool round() {
    process_.poll();
    for (std::size_t i = 0; i < names_.size(); ++i)
      if (is_other(i) && process_.is_out(names_[i])) mine_[i] = 0;
    const std::vector<std::uint8_t> alive = mine_;
    std::vector<std::uint8_t> message = alive;
    message.resize(alive.size() + used_.size() * sizeof(used_[0]));
    std::memcpy(message.data() + alive.size(), used_.data(), message.size() - alive.size());
    std::vector<MPI_Request> sent, received(names_.size(), MPI_REQUEST_NULL);
    const int bytes = static_cast<int>(message.size());
    for (std::size_t i = 0; i < names_.size(); ++i) {
      if (!is_other(i)) continue;
      theirs_[i].resize(message.size());
      check_mpi("MPI_Irecv", MPI_Irecv(theirs_[i].data(), bytes, MPI_BYTE, names_[i], tag_,
                                       process_.control(), &received[i]));
      // Short enough to be sent eagerly, whether or not the other rank lives.
      sent.emplace_back();
      check_mpi("MPI_Isend", MPI_Isend(message.data(), bytes, MPI_BYTE, names_[i], tag_,
                                       process_.control(), &sent.back()));
    }
    receive(received);
    for (MPI_Request& r : sent) {
      int done = 0;
      MPI_Test(&r, &done, MPI_STATUS_IGNORE);
      if (done == 0) process_.keep(std::vector<std::uint8_t>(message));
    }
    bool agreed = mine_ == alive;
    for (std::size_t i = 0; i < names_.size(); ++i) {
      if (!is_other(i)) continue;
      agreed = agreed && std::equal(alive.begin(), alive.end(), theirs_[i].begin());
      for (std::size_t w = 0; w < used_.size(); ++w) {
        std::uint64_t word = 0;
        std::memcpy(&word, theirs_[i].data() + alive.size() + w * sizeof(word), sizeof(word));
        used_[w] |= word;
      }
      for (std::size_t j = 0; j < names_.size(); ++j) {
        mine_[j] = mine_[j] != 0 && theirs_[i][j] != 0;
        if (mine_[j] == 0 && names_[j] == process_.rank())
          throw communication_error(rank_text(process_.rank()) +
                                    ": the others go on without this rank");
      }
    }
    return agreed;
  }

  /// Waits for the others' messages, except for dead ranks.
  void receive(std::vector<MPI_Request>& received) {
    for (;;) {
      process_.poll();
      std::size_t waiting = names_.size();
      for (std::size_t i = 0; i < names_.size(); ++i) {
        if (received[i] == MPI_REQUEST_NULL) continue;
        // Checked before the message: whatever was sent before its end has then arrived.
        const bool out = process_.is_out(names_[i]);
        int done = 0;
        check_mpi("MPI_Test", MPI_Test(&received[i], &done, MPI_STATUS_IGNORE));
        if (done != 0) continue;
        if (!out) {
          waiting = i;
          continue;
        }
        MPI_Cancel(&received[i]);
        MPI_Wait(&received[i], MPI_STATUS_IGNORE);
        mine_[i] = 0;
      }
      if (waiting == names_.size()) return;
      const auto waited = mpi_process::clock::now() - start_;
      if (waited > timeout_)
        throw communication_error(
            rank_text(process_.rank()) + ": survivors: " + rank_text(names_[waiting]) +
            " did not come (waited " + seconds_text(std::chrono::duration<double>(waited).count()) +
            ")");
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

  mpi_process& process_;
  const std::vector<int> names_;
  const int tag_;
  const std::chrono::nanoseconds timeout_;
  mpi_process::clock::time_point start_{};
  std::vector<std::uint64_t> used_;
  std::vector<std::uint8_t> mine_;
  std::vector<std::vector<std::uint8_t>> theirs_;
};

}  // namespace ikebana::detail
