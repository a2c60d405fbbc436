#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
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

/// Finds out, with all others that do the same, which ranks of a group are left: in rounds in which
/// each tells each whom it believes alive, until all have said the same. Nobody is waited for who
/// has died or ended.
class mpi_agreement {
 public:
  mpi_agreement(mpi_process& process, std::span<const int> names, std::uint64_t group,
                std::chrono::nanoseconds patience)
      : process_{process},
        names_{names.begin(), names.end()},
        tag_{1 + static_cast<int>(group % 16000)},
        patience_{patience},
        mine_(names.size(), 1),
        theirs_(names.size()) {}

  /// The ranks of the world that are left, in the order of the group. Throws communication_error
  /// where one that lives does not come in time, or where the others hold this one for dead.
  std::vector<int> survivors() {
    start_ = mpi_process::clock::now();
    while (!round()) {
    }
    std::vector<int> left;
    for (std::size_t i = 0; i < names_.size(); ++i)
      if (mine_[i] != 0) left.push_back(names_[i]);
    return left;
  }

 private:
  bool is_other(std::size_t i) const { return mine_[i] != 0 && names_[i] != process_.rank(); }

  /// True if all said the same.
  bool round() {
    process_.poll();
    for (std::size_t i = 0; i < names_.size(); ++i)
      if (is_other(i) && process_.is_out(names_[i])) mine_[i] = 0;
    const std::vector<std::uint8_t> said = mine_;
    std::vector<MPI_Request> sent, received(names_.size(), MPI_REQUEST_NULL);
    const int bytes = static_cast<int>(said.size());
    for (std::size_t i = 0; i < names_.size(); ++i) {
      if (!is_other(i)) continue;
      theirs_[i].resize(said.size());
      check_mpi("MPI_Irecv", MPI_Irecv(theirs_[i].data(), bytes, MPI_BYTE, names_[i], tag_,
                                       process_.control(), &received[i]));
      // Short enough to be on its way at once, whether or not the other lives.
      sent.emplace_back();
      check_mpi("MPI_Isend", MPI_Isend(said.data(), bytes, MPI_BYTE, names_[i], tag_,
                                       process_.control(), &sent.back()));
    }
    hear(received);
    for (MPI_Request& r : sent) {
      int done = 0;
      MPI_Test(&r, &done, MPI_STATUS_IGNORE);
      if (done == 0) process_.keep(std::vector<std::uint8_t>(said));
    }
    bool agreed = mine_ == said;
    for (std::size_t i = 0; i < names_.size(); ++i) {
      if (!is_other(i)) continue;
      agreed = agreed && theirs_[i] == said;
      for (std::size_t j = 0; j < names_.size(); ++j) {
        mine_[j] = mine_[j] != 0 && theirs_[i][j] != 0;
        if (mine_[j] == 0 && names_[j] == process_.rank())
          throw communication_error(rank_text(process_.rank()) +
                                    ": the others go on without this rank");
      }
    }
    return agreed;
  }

  /// Waits for what the others say, but those who are no more.
  void hear(std::vector<MPI_Request>& received) {
    for (;;) {
      process_.poll();
      std::size_t waiting = names_.size();
      for (std::size_t i = 0; i < names_.size(); ++i) {
        if (received[i] == MPI_REQUEST_NULL) continue;
        // Asked before the message is looked for: what it sent before its end is here then.
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
      if (waited > patience_)
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
  const std::chrono::nanoseconds patience_;
  mpi_process::clock::time_point start_{};
  std::vector<std::uint8_t> mine_;
  std::vector<std::vector<std::uint8_t>> theirs_;
};

}  // namespace ikebana::detail
